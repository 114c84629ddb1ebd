package cc

import "testing"

// What one ACK of two segments costs in congestion avoidance, at a window of 1000 segments with a
// loss every 64,000 ACKs.
func BenchmarkAcked(b *testing.B) {
	for _, alg := range algorithms {
		for _, rtt := range []struct {
			name string
			ns   int64
		}{{"100us", ms / 10}, {"100ms", 100 * ms}} {
			b.Run(alg.Name()+"/"+rtt.name, func(b *testing.B) {
				w := State{Cwnd: 1000 * testSMSS, Ssthresh: 1000 * testSMSS}
				a := Sample{Acked: 2 * testSMSS, SMSS: testSMSS, RTT: rtt.ns, SRTT: rtt.ns, Nxt: 1 << 40,
					Limited: true}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					a.Now += rtt.ns / 500
					a.Una += 2 * testSMSS
					alg.Acked(&w, a)
					if i%64_000 == 0 {
						alg.Reduce(&w, Loss, a.Now, w.Cwnd, testSMSS)
						w.Cwnd = 1000 * testSMSS
					}
				}
			})
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	for _, alg := range algorithms {
		w := State{Cwnd: 100 * testSMSS, Ssthresh: 50 * testSMSS}
		var now int64
		if n := testing.AllocsPerRun(100, func() {
			now += ms
			alg.Acked(&w, Sample{Now: now, Acked: testSMSS, SMSS: testSMSS, RTT: ms, SRTT: ms,
				Limited: true})
			alg.Reduce(&w, Loss, now, w.Cwnd, testSMSS)
			alg.Undo(&w)
		}); n != 0 {
			t.Errorf("%s: %v allocations", alg.Name(), n)
		}
	}
}
