package stack

import (
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// A frame whose answer, or whose copy, finds no Buf is counted as that, once, and nothing is sent;
// with a Buf more it is answered. Where a segment in fragments is too long for a Buf, it is that.
func TestAnswersWithoutABuf(t *testing.T) {
	segment := func(l *lab, n int) []byte {
		tr := tcp.Transmit{Flags: tcp.ACK, Seq: 5, Ack: 6, Window: 1000, Handle: tcp.NoHandle}
		tr.ID = tcp.ID{LocalPort: 1000, RemotePort: 7}
		return between(l.a, l.b, tr, make([]byte, n))
	}
	udp := []byte{0, 9, 0, 9, 0, 8, 0, 0}
	for name, tt := range map[string]struct {
		tune     func(i int, cfg *Config)
		frames   func(l *lab) [][]byte
		answered func(n *Counters) uint64
	}{
		"a solicitation": {sixes,
			func(l *lab) [][]byte { return [][]byte{nsFrame(t, l, addr6(0), addr6(1), 255)} },
			func(n *Counters) uint64 { return n.NDReplies }},
		"a segment in fragments": {nil,
			func(l *lab) [][]byte { return fragments4(segment(l, 600), 320) },
			func(n *Counters) uint64 { return n.RSTSent }},
		"a datagram that nobody wants": {nil,
			func(l *lab) [][]byte {
				return [][]byte{packet(l.a.mac, l.b.mac, l.a.addr, l.b.addr, inet.ProtoUDP, udp)}
			},
			func(n *Counters) uint64 { return n.ICMPSent }},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, tt.tune)
			l.turns()
			before := l.b.counters()
			free := l.b.hoard(1)
			frames := tt.frames(l)
			for _, f := range frames {
				l.b.take(f)
				l.b.tx.flush(l.b.now)
			}
			n := l.b.counters()
			require.Equal(t, before.Own[DropNoBuf]+1, n.Own[DropNoBuf])
			require.Equal(t, tt.answered(&before), tt.answered(&n))
			require.Equal(t, 1, l.b.pool.Available(), "nothing is kept")
			free()
			for _, f := range frames {
				l.b.take(f)
				l.b.tx.flush(l.b.now)
			}
			n = l.b.counters()
			require.Equal(t, before.Own[DropNoBuf]+1, n.Own[DropNoBuf])
			require.Equal(t, tt.answered(&before)+1, tt.answered(&n))
			l.turns()
			l.stop()
		})
	}
}

// A segment that is whole but longer than a Buf is dropped as such, and its Buf is free again.
func TestSegmentInFragmentsIsTooLong(t *testing.T) {
	l := newLab(t, nil)
	room := len(l.b.pool.Slot(0)) - l.b.pool.Headroom()
	for _, tt := range []struct {
		octets int // of TCP, its header of 20 included
		drops  uint64
	}{{room + 1, 1}, {room, 0}} {
		tr := tcp.Transmit{Flags: tcp.ACK, Seq: 5, Ack: 6, Window: 1000, Handle: tcp.NoHandle}
		tr.ID = tcp.ID{LocalPort: 1000, RemotePort: 7}
		frame := between(l.a, l.b, tr, nil)
		frame = append(frame[:len(frame):len(frame)], make([]byte, tt.octets-(len(frame)-tcpAt))...)
		l.turns()
		before, free := l.b.counters(), l.b.pool.Available()
		for _, f := range fragments4(frame, 1200) {
			l.b.take(f)
			l.b.tx.flush(l.b.now)
		}
		n := l.b.counters()
		require.Equal(t, before.Reassembled+1, n.Reassembled)
		require.Equal(t, before.Inet[inet.DropTotalLen]+tt.drops, n.Inet[inet.DropTotalLen])
		require.Equal(t, free, l.b.pool.Available())
	}
}
