package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A RST that answers a segment has timestamps if that has: TSval is 0, TSecr its TSval.
//
// req: 7323-5.2-3
func TestAnswerWithResetIsStamped(t *testing.T) {
	s := newScript(t, plain())
	var x Transmit
	for _, seg := range []string{". 5 ack 9 ts 77,3", "S 5:6 ts 77,0"} {
		in := s.parse(seg)
		if !ResetFor(simID(true), &in, &x) || !x.Options.HasTimestamps || x.Options.TSval != 0 ||
			x.Options.TSecr != 77 {
			t.Errorf("%s: %+v", seg, x)
		}
	}
	s.ts = false
	in := s.parse(". 5 ack 9")
	require.True(t, ResetFor(simID(true), &in, &x))
	require.False(t, x.Options.HasTimestamps)

	cfg := plain()
	cfg.NoTimestamps = false
	s = newScript(t, cfg)
	s.connect()
	s.sent()
	s.in(". 5 ack 9 ts 77,3")
	s.expect("R 9 ts 0,77")

	s = newScript(t, cfg)
	s.accept("S 0:1 win 60000 mss 1000 ts 70,0")
	s.sent()
	s.in(". 1 ack 9 ts 77,3")
	s.expect("R 9 ts 0,77")
}

// So has the RST with which a listener that closes ends a half-open connection.
//
// req: 7323-5.2-4
func TestHalfOpenResetIsStamped(t *testing.T) {
	for _, with := range []bool{true, false} {
		cfg := plain()
		cfg.NoTimestamps = !with
		s := newScript(t, cfg)
		syn := s.parse("S 0:1 win 60000 mss 1000 ts 70,0")
		h := NewHalf(s.iss, 5, &syn)
		var x Transmit
		h.Reset(s.now, simID(true), &cfg, &x)
		want := "R. 1 ack 1 ts 1000005,70"
		if !with {
			want = "R. 1 ack 1 no ts"
		}
		if err := s.match(&x, want); err != nil {
			t.Errorf("%s: %v", s.show(&x), err)
		}
	}
}
