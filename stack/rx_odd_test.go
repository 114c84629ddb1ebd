package stack

import (
	"encoding/binary"
	"net/netip"
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
		tr := tcp.Transmit{
			ID:    tcp.ID{LocalPort: uint16(1000 + i), RemotePort: 7},
			Flags: tcp.SYN, Window: 1000, Options: tcp.Options{MSS: 1000, WindowScale: shift},
		}
		syn, from := make([]byte, tr.HeaderLen()), netip.MustParseAddr("10.0.0.77")
		tr.Put(syn)
		sum := inet.Checksum(syn, inet.PseudoSum(inet.AddrFrom(from), inet.AddrFrom(l.b.addr),
			inet.ProtoTCP, len(syn)))
		binary.BigEndian.PutUint16(syn[checksumOffset:], sum)
		l.answers(l.a, l.b, packet(l.a.mac, l.b.mac, from, l.b.addr, inet.ProtoTCP, syn))
		n := l.b.counters()
		require.Equal(t, uint64(i+1), n.HalfOpened)
		require.Equal(t, uint64(shift/15), n.ScalesTooLarge, "shift %d", shift)
	}
	l.stop()
}

// There is no urgent interface: what is urgent comes in line, like all other octets, and is
// counted.
func TestUrgentIsCounted(t *testing.T) {
	l := newLab(t, nil)
	u, v := l.open()
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
	l.stop()
}
