package stack

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What a SYN waits for the next hop's address is no round trip: the answer to the first ARP request
// is lost, two SYNs wait for a second. The RTO had been 3 s, and fell slowly.
func TestSynWaitsForItsNextHop(t *testing.T) {
	l := newLab(t, nil)
	l.listen(l.b, 7, 16)
	lost := 0
	l.b.nic.lose = func(f []byte) bool {
		if isARP(f) && lost == 0 {
			lost++
			return true
		}
		return false
	}
	u := l.dial(l.a, l.b, 7)
	l.until("open", func() bool { return u.opened && len(l.accepted) == 1 })
	require.Equal(t, 1, lost)
	require.Less(t, u.conn.Stats().SRTTNs, 100*ms)
	require.Greater(t, u.conn.Stats().Cwnd, 2*u.conn.EMSS(), "nothing was lost")
	u.send(100)
	l.until("there", func() bool { return u.acked == 100 })
	require.Less(t, u.conn.Stats().SRTTNs, 100*ms)
	require.LessOrEqual(t, u.conn.Stats().RTONs, 300*ms)
}
