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

// In a long recovery FlightSize grows beyond cwnd by what is SACKed; the next reduction is one of
// cwnd.
//
// req: 5681-3.2-5
func TestReductionOfCwndNotOfWhatIsSACKed(t *testing.T) {
	s := ten(t, sackOnly())
	s.in(". 1 ack 1 sack 1001:10001")
	s.expect(". 1:1001 ack 1 rtx")
	for s.fill() > 0 {
		s.sent()
		s.advance(us)
		nxt := int(s.c.sndNxt)
		s.in(". 1 ack 1 sack 1001:" + itoa(nxt+1))
		if nxt > 30000 {
			break
		}
	}
	s.c.recovery.phase = phaseOpen
	before := s.c.cong.Cwnd
	s.c.enterRecovery(s.now)
	if st := s.c.Stats(); st.Flight < 2*before || st.Ssthresh > max(before/2, 2000) {
		t.Errorf("cwnd was %d, ssthresh is %d, flight %d", before, st.Ssthresh, st.Flight)
	}
}
