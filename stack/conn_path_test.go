package stack

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// narrow is a router between a and b with a link of mtu, which drops what is larger and, with
// report, says so.
type narrow struct {
	l       *lab
	mtu     int
	report  bool
	says    uint16 // instead of mtu, when not 0xffff
	dropped [][]byte
}

func newNarrow(l *lab, mtu int, report bool) *narrow {
	n := &narrow{l: l, mtu: mtu, report: report, says: 0xffff}
	l.a.nic.lose = func(f []byte) bool {
		if len(f)-inet.EthernetLen <= n.mtu {
			return false
		}
		n.dropped = append(n.dropped, bytes.Clone(f))
		if n.report {
			n.send(f)
		}
		return true
	}
	return n
}

// send reports on frame.
func (n *narrow) send(frame []byte) {
	mtu := uint16(n.mtu)
	if n.says != 0xffff {
		mtu = n.says
	}
	if frame[12] == 8 {
		n.l.b.nic.inject(icmpErrorFrame(netip.MustParseAddr("10.0.0.99"), n.l.a, inet.ICMPUnreachable,
			inet.ICMPFragNeeded, mtu, frame))
		return
	}
	m := append(make([]byte, inet.ICMPLen), frame[inet.EthernetLen:min(len(frame), 1200)]...)
	m[0] = inet.ICMP6TooBig
	binary.BigEndian.PutUint16(m[6:], mtu)
	n.l.b.nic.inject(icmp6(n.l.b.mac, n.l.a.mac, addr6(8), addr6(0), 64, m))
}

// reports has a router say to a that a packet with n octets of u's, from off on, is more than mtu.
func (l *lab) reports(u *peer, off, n, mtu int) {
	tr := tcp.Transmit{ID: *u.conn.tcp.ID(), Seq: u.conn.tcp.ISS() + 1 + tcp.Seq(off),
		Flags: tcp.ACK, Handle: tcp.NoHandle}
	l.b.nic.inject(icmpErrorFrame(netip.MustParseAddr("10.0.0.99"), l.a, inet.ICMPUnreachable,
		inet.ICMPFragNeeded, uint16(mtu), between(l.a, l.b, tr, make([]byte, n))))
	l.a.Turn()
}

// A report lowers what is sent at once, of all connections to that destination and those to come;
// an older router says 0 and the next plateau is taken; ten minutes later the link's size is tried
// again.
// req: 1191-3-1, 1191-3-3, 1191-3-4, 8899-3-1, 1191-2-1
func TestPathMTUOfADestination(t *testing.T) {
	for _, c := range []struct {
		mtu, want int
		says      uint16
	}{{1400, 1400, 0xffff}, {1400, 1006, 0}, {300, 552, 0xffff}} {
		l, u, v := newLab(t, nil).opened()
		other := l.another()
		n := newNarrow(l, max(c.mtu, 552), true)
		n.says = c.says
		if c.says == 0xffff {
			n.says = uint16(c.mtu)
		}
		u.send(50_000)
		l.until("there", func() bool { return v.edge == 50_000 })
		require.NotZero(t, l.a.counters().TxCopied, "parts of segments")
		require.Equal(t, c.want-52, other.conn.EMSS(), "the other one, which sent nothing")
		reports := l.a.counters().PathMTU
		if c.says == 0 {
			require.Equal(t, uint64(2), reports, "1492 was still too much")
		} else {
			require.Equal(t, uint64(1), reports)
		}
		third := l.another()
		require.Equal(t, c.want-52, third.conn.EMSS())
		l.pass(9 * 60 * second)
		require.Equal(t, c.want-52, u.conn.EMSS())
		l.pass(2 * 60 * second)
		for _, x := range []*peer{u, other, third} {
			require.Equal(t, 1448, x.conn.EMSS(), "it is tried again")
		}
		n.mtu = 1500
		u.send(50_000)
		l.until("there", func() bool { return v.edge == 100_000 })
		require.Equal(t, reports, l.a.counters().PathMTU)
		l.stop()
	}
}

// Over IPv6 as well; below 1280 nobody is believed.
// req: 4443-2.4-2, 8200-5-1
func TestPathMTU6(t *testing.T) {
	l, u, v := newLab(t, sixes).opened6()
	n := newNarrow(l, 1300, true)
	n.says = 1279
	u.send(50_000)
	l.turns()
	require.Equal(t, 1428, u.conn.EMSS())
	require.Zero(t, l.a.counters().PathMTU)
	n.says = 1300
	l.until("there", func() bool { return v.edge == 50_000 })
	require.Equal(t, 1300-72, u.conn.EMSS())
	require.Equal(t, uint64(1), l.a.counters().PathMTU)
}

// What does not come from a router that saw a segment in flight, or cannot be about it, is ignored:
// forged sequence numbers, an MTU above what was sent, and, while octets of that size are
// acknowledged, one below it.
// req: 8899-3-1, 5927-7.2-1, 1191-3-2, C02-10.1-1, D01-8.1-1
func TestForgedPathMTU(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	u.send(20_000)
	l.until("there", func() bool { return v.edge == 20_000 })
	u.send(20_000)
	l.a.Turn() // octets are in flight while b does not turn
	for name, c := range map[string]struct{ off, mtu int }{
		"acknowledged":        {20_000 - 1, 1000},
		"not sent yet":        {50_000, 1000},
		"above what was sent": {20_000, 1500},
		"far above":           {20_000, 9000},
		"below what was acknowledged, on a connection that flows": {20_000, 1000},
	} {
		ignored := l.a.counters().ICMPIgnored
		l.reports(u, c.off, 1448, c.mtu)
		require.Equal(t, ignored+1, l.a.counters().ICMPIgnored, name)
		require.Equal(t, 1448, u.conn.EMSS(), name)
	}
	// Acknowledged meanwhile: what was pending is forgotten, and a later timeout does not bring it
	// back.
	l.until("there", func() bool { return v.edge == 40_000 })
	l.turns()
	l.a.nic.lose = every
	u.send(1000)
	l.until("a timeout", func() bool { return u.conn.Stats().Timeouts > 0 })
	l.a.nic.lose = nil
	l.until("there", func() bool { return u.acked == 41_000 })
	require.Zero(t, l.a.counters().PathMTU)
	require.Equal(t, 1448, u.conn.EMSS())

	// It flows again: that timeout makes no report count at once any more.
	u.send(20_000)
	l.a.Turn()
	ignored := l.a.counters().ICMPIgnored
	l.reports(u, 41_000, 1448, 1000)
	require.Equal(t, ignored+1, l.a.counters().ICMPIgnored)
	require.Equal(t, 1448, u.conn.EMSS())
}

// The path shrinks under a connection that had larger packets acknowledged: the report counts when
// a timeout bears it out, and at once when there has been one.
// req: 5927-7.2-1
func TestPathShrinksUnderAConnection(t *testing.T) {
	for _, early := range []bool{true, false} {
		l, u, v := newLab(t, nil).opened()
		u.send(20_000)
		l.until("there", func() bool { return v.edge == 20_000 })
		n := newNarrow(l, 1000, early)
		u.send(20_000)
		l.turns()
		require.NotEmpty(t, n.dropped)
		require.Equal(t, 1448, u.conn.EMSS(), "no timeout yet")
		if !early {
			l.until("a timeout", func() bool { return u.conn.Stats().Timeouts > 0 })
			require.Equal(t, 1448, u.conn.EMSS(), "nobody has reported")
			n.send(n.dropped[len(n.dropped)-1])
			l.turns()
			require.Equal(t, 1000-52, u.conn.EMSS(), "it is stalled: at once")
		}
		l.until("there", func() bool { return v.edge == 40_000 })
		require.Equal(t, 1000-52, u.conn.EMSS())
		require.Equal(t, uint64(1), l.a.counters().PathMTU)
		l.stop()
	}
}

// A burst of reports on one decrease leads to one retransmission of what was dropped, in parts of
// the new size, and nothing is sent again because of the rest.
// req: 1191-6.4-1
func TestBurstOfReports(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	n := newNarrow(l, 1000, false)
	u.send(3 * 1448)
	l.turns()
	require.Len(t, n.dropped, 3)
	before := u.conn.Stats()
	octets := 0
	l.a.nic.onSend = func(f []byte) {
		s, _, _ := segmentOf(f)
		octets += s.Len
	}
	for range 10 {
		for _, f := range n.dropped {
			n.send(f)
		}
	}
	l.turns()
	require.Equal(t, uint64(1), l.a.counters().PathMTU)
	require.Equal(t, uint64(29), l.a.counters().ICMPIgnored)
	require.GreaterOrEqual(t, u.conn.Stats().Cwnd, before.Cwnd, "cwnd stays")
	l.until("there", func() bool { return v.edge == 3*1448 })
	require.Equal(t, 3*1448, octets, "each octet once more")
}

// A report counts when it is about an octet in flight, the last one even, and less than what was
// sent, if only by one.
// req: 5927-7.2-1
func TestReportsAtTheBounds(t *testing.T) {
	const size = 1000 + 52 // of the only packet
	for name, c := range map[string]struct {
		at, mtu int
		counts  bool
	}{
		"the last octet":                    {1000 - 1, size - 1, true},
		"the next octet, that was not sent": {1000, size - 1, false},
		"what was sent":                     {0, size, false},
	} {
		l, u, _ := newLab(t, nil).opened()
		u.send(1000)
		l.a.Turn()
		l.reports(u, c.at, 1000, c.mtu)
		want := map[bool]uint64{true: 1}[c.counts]
		require.Equal(t, want, l.a.counters().PathMTU, name)
		require.Equal(t, 1-want, l.a.counters().ICMPIgnored, name)
	}
}
