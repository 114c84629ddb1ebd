package rnic

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// After warm-up a Poller's turns allocate nothing, whatever they carry, and neither do posting
// and polling: Writes, Sends, lists, inline and immediate data, Reads and atomics; nor
// acknowledgements, and messages that find the receiver not ready and are sent again.
func TestNoAllocations(t *testing.T) {
	type traffic struct {
		opts
		size int
		late bool // the receiver is
	}
	all := map[string]traffic{"acknowledged": {connOpts(ConnParam{Acknowledged: true}), 3000, false},
		"acknowledged, late receiver": {connOpts(ConnParam{Acknowledged: true}), 3000, true}}
	for name, opt := range framings {
		for _, size := range []int{64, 16 << 10} {
			all[fmt.Sprintf("%s, %d octets", name, size)] = traffic{opt, size, false}
		}
	}
	each(t, rigConfig{}, all, func(t *testing.T, r *rig, x traffic) {
		opt, size := x.opts, x.size
		opt.SendDepth, opt.RecvDepth, opt.SGEMax, opt.InlineMax = 32, 32, 8, 100
		opt.IRD, opt.ORD = 8, 8
		s, c := r.connect(opt, opt)
		r.exchange(s, c)
		m := map[*end]*MemoryRegion{}
		for _, e := range []*end{s, c} {
			m[e] = r.readable(e, regionBytes, remoteBoth)
			e.qp.SetRetry(Retry{Wait: 10 * time.Microsecond, Tries: -1, Unanswered: time.Second})
		}
		var cs [32]Completion
		round := func() {
			ok := true
			buffers := func(to *end) {
				buffer, list := to.recvAt(1, 0, size), [1]SGE{nowhere}
				buffer.List = list[:]
				for range 4 * 4 {
					ok = ok && errOf(to.qp.PostRecv(buffer)) == nil
				}
			}
			for _, way := range [2][2]*end{{c, s}, {s, c}} {
				from, to := way[0], way[1]
				if !x.late {
					buffers(to)
				}
				for i := range 4 {
					octets := [100]byte{1, 2, 3}
					list := []SGE{from.source.Slice(20, 10), from.source.Slice(90, 10), nowhere}
					gathered := WorkRequest{Op: OpSend, List: list, Signaled: true}
					inline := WorkRequest{Op: OpSend, Inline: octets[:60], Signaled: true}
					ok = ok && errOf(from.qp.PostSend(from.write(to, 2, i*size, size))) == nil
					ok = ok && errOf(from.qp.PostSend(from.send(3, 0, size))) == nil
					ok = ok && errOf(from.qp.PostSend(gathered, inline)) == nil
					ok = ok && errOf(from.qp.PostSend(from.readFrom(m[to], 4, 0, 3000*i))) == nil
					ok = ok && errOf(from.qp.PostSend(fetchAdd(from.wordOf(m[to], 5, 8), 1))) == nil
					ok = ok && errOf(from.qp.PostSend(WorkRequest{Op: OpImmediate, Signaled: true,
						Fence: i == 2})) == nil
				}
			}
			if x.late {
				for range 20 {
					r.step()
				}
				buffers(s)
				buffers(c)
			}
			if !ok {
				t.Fatal("post")
			}
			r.reap(2*4*(4+7), cs[:], s, c)
		}
		requireNoAllocations(t, round)
		require.Equal(t, x.late, notReady(r, c) > 0)
		require.Equal(t, x.late, notReady(r, s) > 0)
		r.exchange(s, c)
	})
}

// A frame that is damaged so that only CRC32C sees it is dropped and comes again, when that was
// chosen.
//
// req: D01-1.2-7, D01-7-9, DDP-5-7, D01-5.2-18
func TestDropBadCRC(t *testing.T) {
	r := newRig(t, turned, rigConfig{faults: true})
	opt := connOpts(ConnParam{DropBadCRC: true})
	s, c := r.connectEnds(r.newEndOf(r.server, opt, 1<<20), r.newEndOf(r.client, opt, 1<<20))
	r.exchange(s, c)
	r.hosts[0].faults(fault.Faults{Swap: 0.02}, fault.Faults{})
	c.post(c.write(s, 1, 0, 1<<20))
	arrived(c, s)
	require.True(t, bytes.Equal(c.source.Bytes(), s.region.Bytes()))
	st := r.stats(s.qp)
	require.Positive(t, st.Receive.RefusedCRC)
	all := r.server.CountersOf(r.hosts[0].poller) // of one connection: the same
	require.Equal(t, st.Receive.RefusedCRC, all.RefusedCRC)
	require.Equal(t, st.Receive.FPDUs, all.FPDUsIn)
	require.Equal(t, st.Placed, all.Placed)
	require.Equal(t, st.Receive.OutOfOrder, all.OutOfOrder)
	require.Equal(t, st.Receive.Reassembled, all.Reassembled)
	sent := r.client.CountersOf(r.hosts[1].poller)
	require.Equal(t, r.stats(c.qp).FPDUsSent, sent.FPDUsOut)
	require.Equal(t, r.stats(c.qp).PayloadSent, sent.PayloadOut)
	var k stack.Counters
	r.hosts[1].poller.Snapshot(&k)
	require.Equal(t, r.stats(c.qp).TCP.Retransmits, k.Memory.Totals.Retransmits)
	r.hosts[0].poller.Snapshot(&k)
	require.Equal(t, r.stats(s.qp).TCP.OutOfOrder, k.Memory.Totals.OutOfOrder)
	rx, _ := r.hosts[0].faulty.Faults()
	require.Positive(t, rx.Swapped)
}

// A segment smaller than the smallest MULPDU's FPDU: frames go over two segments and still arrive.
//
// req: D01-5.3.2-8, 5044-4.5-2, 5044-5.1-5
func TestTinySegments(t *testing.T) {
	for _, mss := range []int{100, 127, 139, 140} {
		for name, opt := range framings {
			t.Run(fmt.Sprintf("MSS %d, %s", mss, name), func(t *testing.T) {
				r := newRig(t, turned, rigConfig{tcp: tcp.Config{MSS: mss}})
				s, c := r.connect(opt, opt)
				r.exchange(s, c)
				require.LessOrEqual(t, r.stats(c.qp).TCP.EMSS, mss)
				n := must(c.qp.PayloadMax(r.ctx))
				require.GreaterOrEqual(t, n, mpa.MULPDUMin-ddp.TaggedLen)
				for _, n := range []int{1, 50, 110, 114, 115, 4000} {
					r.sendAndWrite(s, c, n)
				}
				r.close(s, c)
			})
		}
	}
}

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
	for n, all := range map[int][][]int{4: {{64 << 10}}, 64: {{16 << 10, 64 << 10},
		{5000, 64 << 10, 1400}}} {
		for _, sizes := range all {
			t.Run(fmt.Sprintf("%d queue pairs, %v", n, sizes), func(t *testing.T) {
				const rate, share, delay = 10_000_000_000, 40_000_000, 10_000
				r := newRig(t, turned, rigConfig{
					faults: true, connsMax: 80, pool: 16384, tcp: tcp.Config{ReceiveWindow: 256 << 10}})
				all, s, c := r.bulkWriters(n, sizes...)
				r.hosts[1].faults(fault.Faults{Delay: delay}, fault.Faults{Rate: rate})
				r.hosts[0].faults(fault.Faults{Delay: delay}, fault.Faults{})
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
					jain(all, before), float64(octets)*8/share, beside, idle)
			})
		}
	}
}
