package stack

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// ghost is a peer of host b at 10.0.0.77 that sends what the test says.
type ghost struct {
	l    *lab
	port uint16
	isn  tcp.Seq
	got  []tcp.Segment // the answers to the last segment
}

func newGhost(l *lab, port uint16) *ghost {
	return &ghost{l: l, port: port, isn: tcp.Seq(port) << 16}
}

// send sends flags at offset at after our SYN; options as given, WindowScale -1 is none.
func (g *ghost) send(flags tcp.Flags, at int, ack tcp.Seq, o tcp.Options,
	payload ...byte) []tcp.Segment {
	t := tcp.Transmit{
		ID:  tcp.ID{LocalPort: g.port, RemotePort: 7},
		Seq: g.isn + tcp.Seq(at), Ack: ack, Flags: flags, Window: 1000, Options: o, Handle: tcp.NoHandle,
	}
	g.got = nil
	for _, f := range g.l.answers(g.l.a, g.l.b, optionsFrame(g.l.a.mac, g.l.b.mac,
		netip.MustParseAddr("10.0.0.77"), g.l.b.addr, t, payload)) {
		if s, _, ok := segmentOf(f); ok {
			g.got = append(g.got, s)
		}
	}
	return g.got
}

var (
	noOptions  = tcp.Options{WindowScale: -1}
	allOptions = tcp.Options{MSS: 1400, WindowScale: 7, SACKPermitted: true, HasTimestamps: true,
		TSval: 5000}
)

// syn sends a SYN and returns the SYN,ACK.
func (g *ghost) syn(o tcp.Options) tcp.Segment {
	g.l.t.Helper()
	got := g.send(tcp.SYN, 0, 0, o)
	require.Len(g.l.t, got, 1)
	require.Equal(g.l.t, tcp.SYN|tcp.ACK, got[0].Flags)
	require.Equal(g.l.t, g.isn+1, got[0].Ack)
	return got[0]
}

// handshaking is a lab with a handshake of port 1000's that waits for its last ACK.
func handshaking(t *testing.T, tune func(int, *Config), o tcp.Options) (*lab, *ghost, tcp.Segment) {
	l := newLab(t, tune)
	l.listen(l.b, 7, 4)
	g := newGhost(l, 1000)
	return l, g, g.syn(o)
}

// A SYN,ACK that is due again when there is no Buf for it is sent when there is.
func TestSynAckThatFindsNoBuf(t *testing.T) {
	l, _, _ := handshaking(t, nil, noOptions)
	free := l.b.hoard(0)
	l.until("no Buf", func() bool { return l.b.counters().Own[DropNoBuf] > 0 })
	free()
	sent := l.b.counters().TxFrames
	l.until("again", func() bool { return l.b.counters().TxFrames > sent })
	l.until("given up", func() bool { return l.b.counters().HalfOpenLost == 1 })
	require.Zero(t, l.b.counters().HalfOpen)
}

// A handshake whose end TCP does not take has left the cache, and ends with its listener all the
// same.
func TestUnlistenEndsAnOpeningConnection(t *testing.T) {
	strict := func(i int, cfg *Config) { cfg.TCP.StrictTimestamps = true }
	l, g, sa := handshaking(t, strict, allOptions)
	g.send(tcp.ACK, 1, sa.Seq+1, noOptions) // where each segment has to have a timestamp
	require.Equal(t, 1, l.b.counters().Conns)
	require.Empty(t, l.accepted)
	l.b.Unlisten(7)
	l.turns()
	require.Zero(t, l.b.counters().Conns)
}

// req: 4987-3.5-1
func TestHalfOpenTakesNoSlot(t *testing.T) {
	l, g, sa := handshaking(t, nil, allOptions)
	require.Equal(t, 0, l.b.counters().Conns)
	require.Equal(t, 1, l.b.counters().HalfOpen)
	require.Equal(t, 1, l.b.ports.listeners[7].halfOpen)
	require.Zero(t, l.b.counters().Opened)
	o := tcp.Options{WindowScale: -1, HasTimestamps: true, TSval: 5001, TSecr: sa.Options.TSval}
	require.Empty(t, g.send(tcp.ACK, 1, sa.Seq+1, o))
	require.Equal(t, 1, l.b.counters().Conns)
	require.Zero(t, l.b.counters().HalfOpen)
	require.Len(t, l.accepted, 1)
	require.Equal(t, 1400-12, l.accepted[0].conn.EMSS())
	require.Equal(t, 1000<<7, l.accepted[0].conn.Stats().SndWnd)
}

// req: 4987-4-1
func TestSynAckIsSentAgainFromTheCache(t *testing.T) {
	l, _, first := handshaking(t, nil, noOptions)
	start := l.now
	var at []int64
	l.b.nic.onSend = func(f []byte) {
		s, _, ok := segmentOf(f)
		require.True(t, ok)
		require.Equal(t, tcp.SYN|tcp.ACK, s.Flags)
		require.Equal(t, first.Seq, s.Seq)
		at = append(at, (l.now-start)/second)
	}
	l.pass(62 * second)
	require.Equal(t, []int64{1, 3, 7, 15, 31}, at)
	require.Equal(t, 1, l.b.counters().HalfOpen)
	l.pass(2 * second)
	require.Len(t, at, 5)
	require.Zero(t, l.b.counters().HalfOpen)
	require.Equal(t, uint64(1), l.b.counters().HalfOpenLost)
}

// What a half-open connection does with a segment, for each verdict that tcp's TestHalfJudge has.
//
// req: 9293-3.5.2-3, 9293-MUST-11, 5961-3.2-1, 9293-3.10.7.4-6
func TestHalfOpenInput(t *testing.T) {
	ts := tcp.Options{WindowScale: -1, HasTimestamps: true, TSval: 5001}
	const again, reset, silent = 1, 2, 3
	for _, tt := range []struct {
		name  string
		flags tcp.Flags
		at    int
		ack   int // after our ISS
		o     tcp.Options
		want  int
		left  int // half-open afterwards
		open  int
	}{
		{"its SYN again", tcp.SYN, 0, 0, allOptions, again, 1, 0},
		{"RST", tcp.RST, 1, 0, noOptions, silent, 0, 0},
		{"RST in the window", tcp.RST, 100, 0, noOptions, again, 1, 0},
		{"RST left of the window", tcp.RST, 0, 0, noOptions, silent, 1, 0},
		{"an ACK of nothing of ours", tcp.ACK, 1, 2, ts, reset, 1, 0},
		{"out of the window", tcp.ACK, 65536 + 1, 1, ts, again, 1, 0},
		{"no ACK", tcp.PSH, 1, 0, ts, silent, 1, 0},
		{"the ACK, octets lost before it", tcp.ACK, 501, 1, ts, silent, 0, 1},
		{"a FIN with the ACK", tcp.ACK | tcp.FIN, 1, 1, ts, 0, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, g, sa := handshaking(t, nil, allOptions)
			got := g.send(tt.flags, tt.at, sa.Seq+tcp.Seq(tt.ack), tt.o)
			switch tt.want {
			case again:
				require.Len(t, got, 1)
				require.Equal(t, tcp.SYN|tcp.ACK, got[0].Flags)
				require.Equal(t, sa.Seq, got[0].Seq)
				require.Equal(t, sa.Ack, got[0].Ack)
			case reset:
				require.Len(t, got, 1)
				require.Equal(t, tcp.RST, got[0].Flags)
				require.Equal(t, sa.Seq+tcp.Seq(tt.ack), got[0].Seq)
			case silent:
				require.Empty(t, got)
			}
			require.Equal(t, tt.left, l.b.counters().HalfOpen)
			require.Equal(t, tt.open, len(l.accepted))
			require.Equal(t, tt.open, l.b.counters().Conns)
			l.stop()
		})
	}
}

func TestNewSynRenewsHalfOpen(t *testing.T) {
	l, g, _ := handshaking(t, nil, noOptions)
	g.isn += 100
	sa := g.syn(noOptions)
	require.Equal(t, 1, l.b.counters().HalfOpen)
	g.send(tcp.ACK, 1, sa.Seq+1, noOptions)
	require.Len(t, l.accepted, 1)
}

// noise fills a listener's backlog.
func noise(l *lab, n int) {
	for i := range n {
		newGhost(l, uint16(30000+i)).send(tcp.SYN, 0, 0, noOptions)
	}
}

// A cookie says what the SYN said, in the ISN and the timestamp.
//
// req: 4987-4-2
func TestCookieKeepsOptions(t *testing.T) {
	for _, tt := range []struct {
		name   string
		o      tcp.Options
		emss   int
		scale  uint8
		sack   bool
		scaled bool
	}{
		{"all", allOptions, 1360 - 12, 7, true, true},
		{"no SACK", tcp.Options{MSS: 1460, WindowScale: 14, HasTimestamps: true, TSval: 9}, 1460 - 12, 14,
			false, true},
		{"no scale", tcp.Options{MSS: 1460, WindowScale: -1, SACKPermitted: true, HasTimestamps: true,
			TSval: 9}, 1460 - 12, 0, true, false},
		{"scale 0", tcp.Options{MSS: 536, WindowScale: 0, HasTimestamps: true, TSval: 9}, 536 - 12, 0,
			false, true},
		{"no timestamps", tcp.Options{MSS: 9000, WindowScale: 7, SACKPermitted: true}, 1460, 0,
			false, false},
		{"nothing", noOptions, 536, 0, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, nil)
			l.listen(l.b, 7, 2)
			noise(l, 2)
			g := newGhost(l, 1000)
			sa := g.syn(tt.o)
			require.Equal(t, uint64(1), l.b.counters().CookiesSent)
			require.Equal(t, 2, l.b.counters().HalfOpen)
			require.Equal(t, tt.sack, sa.Options.SACKPermitted)
			require.Equal(t, tt.scaled, sa.Options.WindowScale >= 0)
			require.Equal(t, tt.o.HasTimestamps, sa.Options.HasTimestamps)
			o := noOptions
			o.HasTimestamps, o.TSval, o.TSecr = tt.o.HasTimestamps, tt.o.TSval+1, sa.Options.TSval
			require.Empty(t, g.send(tcp.ACK, 1, sa.Seq+1, o))
			require.Equal(t, uint64(1), l.b.counters().CookiesGood)
			require.Len(t, l.accepted, 1)
			c := l.accepted[0].conn
			require.Equal(t, tt.emss, c.EMSS())
			require.Equal(t, 1000<<tt.scale, c.Stats().SndWnd)
			// Out of order: SACK is told where it was agreed.
			l.b.neighbours.Learn(l.now, inet.AddrFrom4([4]byte{10, 0, 0, 77}), l.a.mac, true)
			got := g.send(tcp.ACK, 101, sa.Seq+1, o, pattern(1, 100))
			require.Len(t, got, 1)
			require.Equal(t, tt.sack, got[0].Options.SACKCount > 0)
			if tt.o.HasTimestamps {
				require.LessOrEqual(t, int32(sa.Options.TSval-got[0].Options.TSval), int32(0),
					"timestamps go on from the cookie's")
			}
			l.stop()
		})
	}
}

// Nobody gets in with an ACK that was not asked for, that was asked of another, or too late.
//
// req: 4987-4-2
func TestCookieForgery(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) { cfg.RSTPerSec = 1 << 20 })
	l.listen(l.b, 7, 2)
	ack := func(g *ghost, seq tcp.Seq, want bool) {
		t.Helper()
		before := len(l.accepted)
		got := g.send(tcp.ACK, 1, seq, noOptions)
		require.Equal(t, want, len(l.accepted) > before)
		if !want {
			require.Len(t, got, 1)
			require.Equal(t, tcp.RST, got[0].Flags)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	g := newGhost(l, 1000)
	for range 100 { // no cookies are out
		ack(g, tcp.Seq(r.Uint32()), false)
	}
	require.Zero(t, l.b.counters().CookiesBad)
	noise(l, 2)
	sa := g.syn(noOptions)
	for range 20_000 {
		ack(g, tcp.Seq(r.Uint32()), false)
	}
	for bit := range 32 {
		ack(g, (sa.Seq^1<<bit)+1, false)
	}
	require.Equal(t, uint64(20_032), l.b.counters().CookiesBad)
	other := newGhost(l, 1001)
	other.isn = g.isn
	ack(other, sa.Seq+1, false) // another tuple
	g.isn++
	ack(g, sa.Seq+1, false) // another initial sequence number
	g.isn--

	// Half a slot later it is good; again after the connection has ended it is a replay, which time
	// ends.
	l.now += 32 * second
	ack(g, sa.Seq+1, true)
	g.send(tcp.RST, 1, 0, noOptions)
	l.pass(0)
	require.Zero(t, l.b.counters().Conns)
	l.now += tcp.CookieLifeNs
	noise(l, 3) // cookies are out again
	ack(g, sa.Seq+1, false)
}

// Nothing is allocated for a SYN, kept or not.
func TestSYNsDoNotAllocate(t *testing.T) {
	l := newLab(t, nil)
	l.listen(l.b, 7, 4)
	tr := stranger(tcp.SYN, 7)
	var frames [][]byte
	for i := range 16 {
		tr.ID.LocalPort = uint16(1000 + i)
		frames = append(frames, between(l.a, l.b, tr, nil))
	}
	i, one := 0, []mem.Buf{l.a.pool.Alloc()}
	defer l.a.pool.Free(one[0])
	require.Zero(t, testing.AllocsPerRun(500, func() {
		l.a.pool.Desc(one[0]).Len = uint32(len(frames[i%16]))
		copy(l.a.pool.Data(one[0]), frames[i%16])
		i++
		l.a.nic.Queue.Tx(one)
		l.b.Turn()
		l.now += 100 * ms
	}))
	require.NotZero(t, l.b.counters().CookiesSent)
	require.NotZero(t, l.b.counters().HalfOpened)
}
