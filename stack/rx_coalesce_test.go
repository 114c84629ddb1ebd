package stack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// offloaded is a lab whose link leaves checksums out, as coalescing and copied headers need.
func offloaded(t *testing.T, tune func(i int, cfg *Config)) *lab {
	labOffload = true
	defer func() { labOffload = false }()
	return newLab(t, tune)
}

// vectors are ways to take several segments in one call: not at all, all of them, two, any number.
var vectors = []func(n int) int{nil, func(n int) int {
	return n
}, func(n int) int { return min(n, 2) }, func(n int) int { return rand.IntN(n + 1) }}

// Segments that continue each other are taken as one, and the Upper still gets each by itself, at
// its boundaries; the last may be shorter. Nobody else can tell: as many segments are counted, and
// acknowledged at once.
func TestSegmentsAreJoined(t *testing.T) {
	for i, burst := range []int{1, 32, 32, 32} {
		l := offloaded(t, func(i int, cfg *Config) { cfg.BurstMax = burst })
		l.vectors = vectors[i]
		u, v := l.open()
		var sizes []int
		v.verdict = func(_ uint64, n int) Verdict {
			sizes = append(sizes, n)
			return []Verdict{Taken, Kept}[len(sizes)%2]
		}
		l.now += ms
		before := l.b.counters()
		u.send(7*1448 + 100)
		for range 8 {
			l.a.Turn()
		}
		l.b.Turn()
		require.Equal(t, []int{1448, 1448, 1448, 1448, 1448, 1448, 1448, 100}, sizes, "burst %d", burst)
		n := l.b.counters()
		coalesced := uint64(7)
		if burst == 1 {
			coalesced = 0
		}
		require.Equal(t, coalesced, n.Coalesced)
		require.EqualValues(t, 8, n.RxFrames-before.RxFrames)
		require.EqualValues(t, 7*1448+100+8*(tcpAt+32), n.RxOctets-before.RxOctets)
		require.EqualValues(t, 8+2, v.conn.Stats().SegsIn, "with the handshake's")
		require.EqualValues(t, 1, n.Segments-before.Segments, "ACKs")
		l.a.Turn()
		require.EqualValues(t, 7*1448+100, u.acked)
		for _, b := range v.kept { // still as they came
			_, payload, _ := segmentOf(l.b.pool.Data(b))
			require.NotEmpty(t, payload)
		}
		l.b.pool.FreeN(v.kept)
		l.stop()
	}
}

// What an Upper refuses in the middle leaves a gap like any other: what is after it arrives out of
// order, is selectively acknowledged, and what was refused comes again.
func TestRefusedAmongJoined(t *testing.T) {
	for _, most := range vectors {
		l := offloaded(t, nil)
		l.vectors = most
		u, v := l.open()
		var offered []uint64
		v.verdict = func(off uint64, _ int) Verdict {
			offered = append(offered, off)
			if len(offered) == 4 {
				return Refused
			}
			return Taken
		}
		u.send(8 * 1448)
		l.a.Turn()
		l.b.Turn()
		require.Len(t, offered, 8)
		require.EqualValues(t, 3*1448, v.edge)
		require.EqualValues(t, 3, l.b.counters().Coalesced)
		require.EqualValues(t, 1, l.b.counters().TCP[tcp.DropRefused])
		require.EqualValues(t, 1, v.conn.Stats().Refused)
		require.EqualValues(t, 4, v.conn.Stats().OOOSegs)
		l.until("all there", func() bool { return v.edge == 8*1448 })
		require.Len(t, offered, 9)
	}
}

// An Upper that aborts in the middle is offered nothing more, and every Buf comes back.
func TestAbortAmongJoined(t *testing.T) {
	l, u, v := offloaded(t, nil).opened()
	n := 0
	v.onArrive = func() {
		if n++; n == 3 {
			v.conn.Abort()
		}
	}
	u.send(8 * 1448)
	l.a.Turn()
	l.b.Turn()
	require.Equal(t, 3, n)
	l.until("reset", func() bool { return u.closed == 1 && v.closed == 1 })
	require.ErrorIs(t, v.err, ErrAborted)
}

// Segments that are taken as one may acknowledge our FIN: the Upper is told.
func TestJoinedAcknowledgeAFIN(t *testing.T) {
	l, u, v := offloaded(t, nil).opened()
	u.conn.CloseSend()
	l.a.Turn()
	v.send(4 * 1448)
	l.b.Turn()
	l.a.Turn()
	require.EqualValues(t, 3, l.a.counters().Coalesced)
	require.EqualValues(t, 4*1448, u.edge)
	require.Equal(t, 1, u.finAcked)
	v.conn.CloseSend()
}

// Nothing that TCP acts upon may differ: whichever bit of the headers is another one, the segment
// stands for itself, except for the lengths' and sequence number's right values, IPv4's
// identification, the checksums and PSH.
func TestFollowsLooksAtEveryBit(t *testing.T) {
	v6 := func(i int, cfg *Config) { cfg.VLAN = 5 }
	for _, x := range []struct {
		name string
		at   int // of the IP header
		ipv6 bool
		tune func(int, *Config)
	}{
		{"IPv4", 14, false, nil}, {"IPv4 in a VLAN", 18, false, v6}, {"IPv6", 14, true, nil},
		{"IPv6 in a VLAN", 18, true, v6},
	} {
		p := newLab(t, x.tune).a.Poller
		const payload, options = 64, 12
		l4 := x.at + inet.IPv4Len
		if x.ipv6 {
			l4 = x.at + inet.IPv6Len
		}
		end := l4 + tcpHeaderLen + options
		frame := func(seq uint32, n int) []byte {
			f := bytes.Repeat([]byte{0xa5}, end+n)
			if x.ipv6 {
				f[x.at] = 0x60
				binary.BigEndian.PutUint16(f[x.at+4:], uint16(len(f)-l4))
			} else {
				f[x.at] = 0x45
				binary.BigEndian.PutUint16(f[x.at+2:], uint16(len(f)-x.at))
			}
			binary.BigEndian.PutUint32(f[l4+4:], seq)
			f[l4+12], f[l4+13] = (tcpHeaderLen+options)/4<<4, byte(tcp.ACK)
			return f
		}
		free := map[int]byte{l4 + 13: byte(tcp.PSH), l4 + 16: 0xff, l4 + 17: 0xff}
		if !x.ipv6 {
			for _, at := range []int{4, 5, 10, 11} {
				free[x.at+at] = 0xff
			}
		}
		seq := uint32(0xffffffe0) // it wraps
		head := frame(seq, payload)
		for _, n := range []int{payload, payload - 1, 1} {
			good := frame(seq+payload, n)
			require.True(t, p.rx.follows(head, good, l4, end, seq+payload), x.name)
			for bit := range 8 * end {
				at, mask := bit/8, byte(1)<<(bit%8)
				good[at] ^= mask
				want := free[at]&mask != 0
				require.Equal(t, want, p.rx.follows(head, good, l4, end, seq+payload), "%s: octet %d bit %d",
					x.name, at, bit%8)
				good[at] ^= mask
			}
		}
	}
}

// Frames whose checksums the device says nothing of are looked at one by one.
func TestUnverifiedIsNotJoined(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	u.send(8 * 1448)
	l.a.Turn()
	l.b.Turn()
	require.EqualValues(t, 8*1448, v.edge)
	require.Zero(t, l.b.counters().Coalesced)
}

// A segment that differs from the one before in its sequence number and flags alone gets a copy of
// its headers, which are those that would have been made; any other difference is seen.
func TestTemplateMakesTheSameHeaders(t *testing.T) {
	for _, vlan := range []uint16{0, 5} {
		l, u, _ := offloaded(t, func(i int, cfg *Config) { cfg.VLAN = vlan }).opened()
		p, c := l.a.Poller, u.conn
		base := tcp.Transmit{ID: *c.tcp.ID(), Seq: 1000, Ack: 77, Flags: tcp.ACK, TOS: 2,
			Window: 500, Len: 1448}
		base.Options.WindowScale = -1
		base.Options.HasTimestamps, base.Options.TSval, base.Options.TSecr = true, 1, 2
		made := func(put func(b mem.Buf)) ([]byte, mem.Desc) {
			b := p.pool.Alloc()
			defer p.pool.Free(b)
			clear(p.pool.Slot(b))
			put(b)
			return bytes.Clone(p.pool.Data(b)), *p.pool.Desc(b)
		}
		for name, x := range map[string]struct {
			change func(*tcp.Transmit)
			copied bool
		}{
			"nothing":         {func(*tcp.Transmit) {}, true},
			"sequence number": {func(t *tcp.Transmit) { t.Seq += 1448 }, true},
			"PSH":             {func(t *tcp.Transmit) { t.Flags |= tcp.PSH }, true},
			"FIN and CWR":     {func(t *tcp.Transmit) { t.Flags |= tcp.FIN | tcp.CWR }, true},
			"ACK number":      {func(t *tcp.Transmit) { t.Ack++ }, false},
			"window":          {func(t *tcp.Transmit) { t.Window++ }, false},
			"ECN":             {func(t *tcp.Transmit) { t.TOS = 0 }, false},
			"length":          {func(t *tcp.Transmit) { t.Len-- }, false},
			"no octets":       {func(t *tcp.Transmit) { t.Len = 0 }, false},
			"TSval":           {func(t *tcp.Transmit) { t.Options.TSval++ }, false},
			"TSecr":           {func(t *tcp.Transmit) { t.Options.TSecr++ }, false},
			"no timestamps":   {func(t *tcp.Transmit) { t.Options.HasTimestamps = false }, false},
			"SACK":            {func(t *tcp.Transmit) { t.Options.SACKCount = 1 }, false},
		} {
			first, next := base, base
			x.change(&next)
			made(func(b mem.Buf) { p.tx.putHeaders(b, &first, first.Len, 0); p.tx.remember(c, b, &first) })
			want, wantDesc := made(func(b mem.Buf) { p.tx.putHeaders(b, &next, next.Len, 0) })
			copied := false
			got, gotDesc := made(func(b mem.Buf) { copied = p.tx.putAgain(c, b, &next) })
			require.Equal(t, x.copied, copied, name)
			if copied {
				require.Equal(t, want, got, name)
				require.Equal(t, wantDesc, gotDesc, name)
			}
		}
		other := &p.slab.conns[(c.index+1)%4]
		require.False(t, p.tx.putAgain(other, p.tx.spare, &base), "another connection")
		c.life++
		require.False(t, p.tx.putAgain(c, p.tx.spare, &base), "another in the same slot")
		c.life--
		l.stop()
	}
}

// Few connections share eight bursts of a Turn in octets, many have one each: whether segments are
// made one by one, like the one before, or in vectors.
func TestShareOfATurnWithoutALimit(t *testing.T) {
	tune := func(i int, cfg *Config) { cfg.BurstMax, cfg.TCP.InitialWindow = 2, 40 }
	t.Run("one by one", func(t *testing.T) { shareOfATurn(t, func() *lab { return newLab(t, tune) }) })
	for i, run := range vectors[:2] {
		t.Run([]string{"alike", "in vectors"}[i], func(t *testing.T) {
			shareOfATurn(t, func() *lab {
				l := offloaded(t, tune)
				l.vectors = run
				return l
			})
		})
	}
}

func shareOfATurn(t *testing.T, lab func() *lab) {
	for _, x := range []struct{ conns, want int }{{1, 16}, {2, 8}, {4, 4}, {8, 2}} {
		t.Run(fmt.Sprint(x.conns), func(t *testing.T) {
			l := lab()
			all := l.openMany(x.conns)
			for _, u := range all {
				u.send(30 * 1448)
			}
			l.a.Turn()
			for _, u := range all {
				require.EqualValues(t, x.want*1448, u.sent)
			}
			l.stop()
		})
	}
}

// Of large frames few senders share fewer, so that a Turn stays within a cache; of small ones no
// more than eight bursts.
func TestShareOfATurnInOctets(t *testing.T) {
	for _, x := range []struct{ mtu, conns, quantum int }{
		{576, 1, 256 * 576}, {1500, 1, 256 * 1500}, {9000, 1, 384 << 10}, {65000, 1, 384 << 10},
		{1500, 3, 128_000}, {9000, 3, 128 << 10}, {65000, 100, 130_000}, {1500, 100, 16 << 10},
		{9000, 100, 18_000},
	} {
		var s schedule
		s.begin(&Config{MTU: x.mtu, BurstMax: 32}, x.conns, false)
		require.Equal(t, x.quantum, s.quantum, "MTU %d, %d connections", x.mtu, x.conns)
		require.Equal(t, 256, s.segments)
	}
}

// A peer that sends beyond our window is taken up to the window, as if its segments had come one by
// one.
func TestJoinedEndAtTheWindow(t *testing.T) {
	for _, burst := range []int{1, 32} {
		const window = 4*1448 + 100
		l, u, v := offloaded(t, func(i int, cfg *Config) {
			cfg.BurstMax, cfg.TCP.ReceiveWindow = burst, window
		}).opened()
		var last []byte
		l.a.nic.onSend = func(f []byte) { last = bytes.Clone(f) }
		u.send(4 * 1448)
		l.a.Turn()
		s, _, ok := segmentOf(last)
		require.True(t, ok)
		for i := range 2 {
			b := l.a.pool.Alloc()
			f := bytes.Clone(last)
			binary.BigEndian.PutUint32(f[tcpAt+4:], uint32(s.Seq)+uint32(i+1)*1448)
			for k := range 1448 {
				f[len(f)-1448+k] = pattern(1, uint64((4+i)*1448+k))
			}
			d := l.a.pool.Desc(b)
			*d = mem.Desc{Off: d.Off, Len: uint32(len(f)), Flags: mem.TxChecksum, CsumStart: tcpAt,
				CsumOffset: checksumOffset}
			copy(l.a.pool.Data(b), f)
			require.Equal(t, 1, l.a.nic.Queue.Tx([]mem.Buf{b}))
			l.a.pool.Free(b)
		}
		l.b.Turn()
		require.EqualValues(t, window, v.edge, "burst %d", burst)
		require.EqualValues(t, 1, l.b.counters().TCP[tcp.DropWindow])
		if burst > 1 {
			require.EqualValues(t, 3, l.b.counters().Coalesced)
		}
		l.b.Stop()
		l.b.Turn()
		l.a.Stop()
		l.a.Turn()
	}
}
