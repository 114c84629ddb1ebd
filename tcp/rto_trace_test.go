package tcp

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// The RTO of a connection against RFC 6298 written down in floating point, over round trips of any
// length, one in five of them ambiguous: the ACK of what was sent twice says nothing (Karn), but
// the backed-off RTO stays until one that does.
//
// req: 9293-MUST-18
func TestRTOTrace(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 9))
		cfg := plain()
		cfg.NoIdleRestart, cfg.RTOMinNs = true, 1*ms
		s := newScript(t, cfg)
		s.connect()
		s.sent()
		srtt, rttvar, rto := 0.0, 0.0, 0.0
		sample := func(r float64) {
			if srtt == 0 {
				srtt, rttvar = r, r/2
			} else {
				rttvar = 0.75*rttvar + 0.25*math.Abs(srtt-r)
				srtt = 0.875*srtt + 0.125*r
			}
			rto = math.Min(srtt+math.Max(float64(ms), 4*rttvar), 60*float64(sc))
		}
		s.now += 50 * ms
		s.in("S. 0:1 ack 1 win 60000 mss 1000")
		sample(50 * float64(ms))
		for at := 1; at < 20_000; at += 100 {
			require.False(t, math.Abs(float64(s.c.Stats().RTONs)-rto) > 100+rto*1e-6,
				"seed %d at %d: want %.0f", seed, at, rto)
			start := s.now
			s.push(100)
			if rng.IntN(5) == 0 {
				s.advance(s.c.Stats().RTONs + rng.Int64N(ms)) // sent again
				require.NotZero(t, s.c.Stats().Timeouts, "no timeout")
				rto = math.Min(2*rto, 60*float64(sc))
			} else {
				s.now += int64(min(float64(ms)+rng.Float64()*2*srtt, 0.9*rto))
				sample(float64(s.now - start))
			}
			s.in(". 1 ack " + itoa(at+100))
			s.release()
		}
	}
}
