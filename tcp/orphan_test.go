package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// req: 9293-SHLD-4
func TestRedialable(t *testing.T) {
	cfg := plain()
	for _, stamps := range []bool{true, false} {
		cfg.NoTimestamps = !stamps
		s := newScript(t, cfg)
		s.connect()
		s.sent()
		s.in("S. 0:1 ack 1 win 60000 mss 1000 ts 5,0")
		require.False(t, s.c.Redialable(s.now+1000*sc), "open")
		require.False(t, s.c.RedialableHeld(), "open")
		s.c.CloseSend(s.now)
		s.drain()
		s.in("F. 1:2 ack 2")
		s.wantState(TimeWait)
		require.Equal(t, stamps, s.c.RedialableHeld())
		require.False(t, s.c.Redialable(s.now), "at once")
		require.False(t, s.c.Redialable(s.now+sc), "at once")
		require.Equal(t, stamps, s.c.Redialable(s.now+sc+1))
		require.Equal(t, s.iss+2, s.c.SndNxt())
	}
}

// Timeouts of a segment that has not left tell nothing of the next hop, and hide nothing of it: R1
// counts those after them, and is told once.
func TestR1CountsWhatHasLeft(t *testing.T) {
	for held := range 5 {
		s := ten(t, plain())
		for range held {
			s.now = s.c.Deadline()
			_, due := s.c.Timed(s.now)
			require.True(t, due)
			s.c.PutOff(s.now, s.now)
		}
		var told []int
		for i := range 8 {
			s.now = s.c.Deadline()
			s.c.Expire(s.now)
			if s.c.TakeEvents()&EvSuspect != 0 {
				told = append(told, i+1)
			}
			s.drain()
		}
		require.Equal(t, []int{s.c.mem.cfg.SuspectRetries}, told,
			"after %d timeouts of what had not left", held)
	}
}
