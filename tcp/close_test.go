package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// req: 9293-MAY-2, 9293-SHLD-4
func TestReusable(t *testing.T) {
	for _, tt := range []struct {
		syn  string
		want bool
	}{
		{"S 3:4", true}, {"S 2:3", false}, {"S -50:-49", false}, {"S. 3:4 ack 1", false}, {"R 3", false},
	} {
		s := accepted(t, plain(), "")
		s.c.CloseSend(s.now)
		s.drain()
		s.in("F. 1:2 ack 2")
		seg := s.parse(tt.syn)
		require.Equal(t, tt.want, s.c.Reusable(&seg), tt.syn)
	}
	cfg := plain()
	cfg.NoTimestamps = false
	s := accepted(t, cfg, "ts 1000000,0")
	s.c.CloseSend(s.now)
	s.drain()
	s.in("F. 1:2 ack 2 ts 1000005,1000000")
	for text, want := range map[string]bool{"S -50:-49 ts 1000006,0": true,
		"S 50:51 ts 1000004,0": false} {
		seg := s.parse(text)
		require.Equal(t, want, s.c.Reusable(&seg), text)
	}
	s.c.EndTimeWait()
	s.wantState(Closed)
}
