package stack

import (
	"encoding/binary"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// A window scale above 14 is an error of the peer's, which the RFC wants to be known of: it is
// counted, and taken as 14.
//
// req: 7323-2.3-3
func TestScaleTooLargeIsCounted(t *testing.T) {
	l := newLab(t, nil)
	l.listen(l.b, 7, 16)
	for i, shift := range []int8{13, 14, 15} {
		newGhost(l, uint16(1000+i)).syn(tcp.Options{MSS: 1000, WindowScale: shift})
		n := l.b.counters()
		require.Equal(t, uint64(i+1), n.HalfOpened)
		require.Equal(t, uint64(shift/15), n.ScalesTooLarge, "shift %d", shift)
	}
}

// There is no urgent interface: what is urgent comes in line, like all other octets, and is
// counted.
func TestUrgentIsCounted(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	l.a.nic.onSend = func(f []byte) {
		if s, _, ok := segmentOf(f); ok && s.Len > 0 {
			h := f[tcpAt:]
			h[13] |= byte(tcp.URG)
			sum := ^binary.BigEndian.Uint16(h[checksumOffset:])
			binary.BigEndian.PutUint16(h[checksumOffset:], ^inet.Fold(uint64(sum)+uint64(tcp.URG)))
		}
	}
	u.send(100)
	l.until("octets", func() bool { return v.edge == 100 })
	l.a.nic.onSend = nil
	u.send(100)
	l.until("more octets", func() bool { return v.edge == 200 })
	require.Equal(t, uint64(1), l.b.counters().UrgentIn)
	require.Equal(t, uint64(1), v.conn.Stats().UrgentIn)
	require.Zero(t, l.a.counters().UrgentIn)
}
