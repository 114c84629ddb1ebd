package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// ten is a connection with a round trip of 10 ms and ten segments of 1000 octets in flight,
// 1:10001, sent 10 ms ago.
func ten(t *testing.T, cfg Config) *script {
	t.Helper()
	options := ""
	if !cfg.NoSACK {
		options = "sackOK"
	}
	s := opened(t, cfg, "mss 1000 "+options, 10*ms)
	require.Equal(t, 10, s.fill())
	s.sent()
	s.advance(10 * ms)
	return s
}

func (s *script) wantCong(cwnd, ssthresh int) {
	s.t.Helper()
	if st := s.c.Stats(); st.Cwnd != cwnd || st.Ssthresh != ssthresh {
		s.t.Fatalf("cwnd %d ssthresh %d, want %d %d", st.Cwnd, st.Ssthresh, cwnd, ssthresh)
	}
}
