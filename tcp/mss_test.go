package tcp

import (
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/stretchr/testify/require"
)

// startTo gives a Conn that has sent its SYN, with SetMSS mss before (0: not called), and the SYN.
func startTo(t *testing.T, c *Conn, remote inet.Addr, mss int) Transmit {
	t.Helper()
	if mss != 0 {
		c.SetMSS(mss)
	}
	var syn Transmit
	c.Connect(0, ID{Remote: remote}, 1, 0)
	require.True(t, c.Next(0, 1, &syn))
	return syn
}

func stopNow(t *testing.T, c *Conn) {
	t.Helper()
	var rst Transmit
	c.Abort(0)
	c.Next(0, 1, &rst)
	c.TakeEvents()
	require.Equal(t, Closed, c.State())
}

// A peer that says nothing of its MSS gets 536 octets over IPv4 and 1220 over IPv6.
// req: 9293-MUST-15
func TestAbsentMSSByFamily(t *testing.T) {
	c := NewConn(Config{NoTimestamps: true})
	for remote, want := range map[inet.Addr]int{
		inet.AddrFrom4([4]byte{10, 0, 0, 1}): 536,
		{0x20, 0x01, 15: 1}:                  1220,
	} {
		startTo(t, c, remote, 0)
		require.Equal(t, want, c.EMSS())
		stopNow(t, c)
	}
}

// SetMSS holds for one connection, bounds what it announces and sends, and never exceeds
// Config.MSS.
// req: 9293-MUST-67, 8200-8.3-1
func TestSetMSS(t *testing.T) {
	c := NewConn(Config{MSS: 1460, NoTimestamps: true})
	remote := inet.Addr{0x20, 0x01, 15: 1}
	require.Equal(t, uint16(1440), startTo(t, c, remote, 1440).Options.MSS)
	syn := Segment{Seq: 1, Ack: 2, Flags: SYN | ACK, Window: 60000,
		Options: Options{MSS: 9000, WindowScale: -1}}
	c.Input(0, &syn)
	require.Equal(t, Established, c.State())
	require.Equal(t, 1440, c.EMSS())
	c.SetEMSSLimit(1300)
	require.Equal(t, 1300, c.EMSS())
	c.SetEMSSLimit(9000)
	require.Equal(t, 1440, c.EMSS())
	require.Panics(t, func() { c.SetMSS(1000) }, "in use")
	stopNow(t, c)
	require.Equal(t, uint16(1460), startTo(t, c, remote, 0).Options.MSS, "used up")
	stopNow(t, c)
	require.Equal(t, uint16(1460), startTo(t, c, remote, 9000).Options.MSS)
}
