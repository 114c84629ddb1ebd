package rnic

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/tcp"
)

// bulkWriter always has Writes of size octets to send; done is how many octets have completed.
type bulkWriter struct {
	from, to *end
	size     int
	done     int
}

func (w *bulkWriter) post() { w.from.post(w.from.write(w.to, 1, 0, w.size)) }

// refill posts one Write for each that has completed.
func (w *bulkWriter) refill(cs []Completion) {
	for range w.from.cq.Poll(cs) {
		w.done += w.size
		w.post()
	}
}

// bulkWriters are n of them, each with four Writes posted, of sizes in turn; and a pair of ends
// beside them that has nothing posted.
func (r *rig) bulkWriters(n int, sizes ...int) (all []*bulkWriter, s, c *end) {
	s, c = r.connect(opts{}, opts{})
	for i := range n {
		to, from := r.connect(opts{}, opts{})
		all = append(all, &bulkWriter{from: from, to: to, size: sizes[i%len(sizes)]})
	}
	return all, s, c
}

// jain is R. Jain's index of fairness (1984) of what the writers have completed since before: 1
// is the same for all, 1/n all for one.
func jain(all []*bulkWriter, before []int) float64 {
	sum, squares := 0.0, 0.0
	for i, w := range all {
		n := float64(w.done - before[i])
		sum, squares = sum+n, squares+n*n
	}
	return sum * sum / (float64(len(all)) * squares)
}

// QueuePairs that always have Writes to send share a device that is slower than their Poller,
// whatever the size of their Writes; nothing is sent twice; and a Write of eight octets beside
// them is placed after at most three times what it takes with an idle device.
func TestSlowDeviceIsSharedByWrites(t *testing.T) {
	for _, n := range []int{4, 64} {
		for _, sizes := range [][]int{{64 << 10}, {16 << 10, 64 << 10}, {5000, 64 << 10, 1400}} {
			t.Run(fmt.Sprintf("%d queue pairs, %v", n, sizes), func(t *testing.T) {
				const rate, share, delay = 10_000_000_000, 40_000_000, 10_000
				r := newRig(t, turned, rigConfig{
					faults: true, connsMax: 80, pool: 16384, tcp: tcp.Config{ReceiveWindow: 256 << 10},
				})
				all, s, c := r.bulkWriters(n, sizes...)
				require.NoError(t, r.hosts[1].faulty.Set(fault.Faults{Delay: delay}, fault.Faults{Rate: rate}))
				require.NoError(t, r.hosts[0].faulty.Set(fault.Faults{Delay: delay}, fault.Faults{}))
				var cs [256]Completion
				run := func(ns int64) {
					for end := r.time + ns; r.time < end; {
						r.step()
						for _, w := range all {
							w.refill(cs[:])
						}
					}
				}
				ping := func() (worst time.Duration) { // until the octets have been placed
					to := s.region.Bytes()[:8]
					for range 50 {
						clear(to)
						began := r.time
						c.post(c.write(s, 2, 0, 8))
						for !bytes.Equal(to, c.source.Bytes()[:8]) {
							run(1)
							require.Less(t, r.time-began, int64(10*time.Millisecond))
						}
						c.cq.Poll(cs[:])
						worst = max(worst, time.Duration(r.time-began))
					}
					return worst
				}
				idle := ping()
				for _, w := range all {
					for range max(4, 4*(64<<10)/w.size) {
						w.post()
					}
				}
				run(share / 4)
				r.renew()
				before := make([]int, n)
				for i, w := range all {
					before[i] = w.done
				}
				run(share)
				r.renew()
				octets := 0
				for i, w := range all {
					octets += w.done - before[i]
					require.Zero(t, r.stats(w.from.qp).TCP.Retransmits)
				}
				require.GreaterOrEqual(t, jain(all, before), 0.95)
				require.Greater(t, float64(octets), 0.85*share/8*rate/1e9, "the device stood still")

				beside := ping()
				require.LessOrEqual(t, beside, 3*idle)
				t.Logf("index %.4f, %.2f Gbit/s, a Write of 8 octets in %v, %v with an idle device",
					jain(all, before),
					float64(octets)*8/share, beside, idle)
			})
		}
	}
}
