package stack

import (
	"bytes"
	"testing"

	"github.com/rnicd/rnicd/internal/iphost"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// With as many connections as it takes for bursts to be looked at beforehand: nothing is different,
// whatever the frames.
func TestPreviewDecidesNothing(t *testing.T) {
	const conns = prefetchMin + 20
	l := newLab(t, func(i int, cfg *Config) { cfg.ConnsMax = conns })
	l.listen(l.b, 7, conns)
	var us []*peer
	for range conns {
		us = append(us, l.dial(l.a, l.b, 7, 2000))
		l.turns()
	}
	l.until("all", func() bool { return len(l.accepted) == conns && l.allThere(2000) })
	var frame []byte
	l.a.nic.onSend = func(f []byte) { frame = bytes.Clone(f) }
	us[0].send(10)
	l.turns()
	l.a.nic.onSend = nil
	before := l.b.counters()
	for n := 14; n <= len(frame); n++ { // every truncation, and other things than TCP over IPv4
		l.a.nic.inject(frame[:n])
		l.b.Turn()
	}
	for _, at := range []int{12, 14, 23} {
		odd := bytes.Clone(frame)
		odd[at] ^= 0x11
		l.a.nic.inject(odd)
		l.b.Turn()
	}
	after := l.b.counters()
	require.Equal(t, after.RxFrames-before.RxFrames, uint64(len(frame)-14+1+3))
	require.Equal(t, uint64(1), after.TCP[tcp.DropDuplicate]-before.TCP[tcp.DropDuplicate],
		"the whole frame is a duplicate, the others are nothing")

	l.accepted[0].closeSend()
	l.turns()
	us[0].closeSend()
	l.turns()
	require.Equal(t, 1, l.b.counters().TimeWait) // of a connection without an Upper
	l.a.nic.inject(frame)
	l.turns()
}

// What is looked at beforehand is the connection that the segment belongs to, of either family,
// in a VLAN or not; frames of anything else, and headers with options, have none.
func TestTupleOfASegment(t *testing.T) {
	for _, vlan := range []uint16{0, 5} {
		for _, open := range []func(*lab) (u, v *peer){(*lab).open, (*lab).open6} {
			l := newLab(t, func(i int, cfg *Config) {
				sixes(i, cfg)
				cfg.VLAN = vlan
			})
			u, v := open(l)
			var frame []byte
			l.a.nic.onSend = func(f []byte) { frame = bytes.Clone(f) }
			u.send(1)
			l.a.Turn()
			id, ok := l.b.rx.tupleOf(frame)
			require.True(t, ok)
			require.Equal(t, *v.conn.tcp.ID(), id)

			at := l.b.rx.l2
			other := []int{at - 2, at - 1, at + 6} // octets that say what it is
			if id.Remote.Is4() {
				other = []int{at - 2, at - 1, at + 9, at}
			}
			for _, i := range other {
				frame[i] ^= 1
				_, ok = l.b.rx.tupleOf(frame)
				require.False(t, ok, "octet %d", i)
				frame[i] ^= 1
			}
			whole := at + iphost.IPLen(&id.Remote) + tcpHeaderLen
			_, ok = l.b.rx.tupleOf(frame[:whole])
			require.True(t, ok)
			_, ok = l.b.rx.tupleOf(frame[:whole-1])
			require.False(t, ok, "a header cut short")
			l.a.nic.onSend = nil
			l.stop()
		}
	}
}
