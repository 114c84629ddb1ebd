package stack

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// slowLab is a lab whose host a has a device that takes so many frames a Turn. Each Turn of both
// hosts takes turnNs.
type slowLab struct {
	*lab
	rate int // frames a Turn
	ring int // what the device still takes in this one
}

const turnNs = 5_000

func newSlowLab(t testing.TB, rate int, tune func(i int, cfg *Config)) *slowLab {
	return newSlowLabOf(t, labBufs, rate, tune)
}

// newSlowLabOf is newSlowLab with so many Bufs a host.
func newSlowLabOf(t testing.TB, bufs, rate int, tune func(i int, cfg *Config)) *slowLab {
	s := &slowLab{rate: rate}
	s.lab = newLabOf(t, bufs, func(i int, cfg *Config) {
		cfg.ConnsMax = 128
		cfg.TCP.ReceiveWindow = 256 << 10
		if tune != nil {
			tune(i, cfg)
		}
	})
	return s
}

// open opens n connections from a to b.
func (s *slowLab) open(n int) (from, to []*peer) {
	s.listen(s.b, 7, 128)
	for range n {
		from = append(from, s.dial(s.a, s.b, 7))
		s.until("open", func() bool { return from[len(from)-1].opened && len(s.accepted) == len(from) })
	}
	s.a.nic.ring = &s.ring
	return from, s.accepted
}

// turn is a Turn of each host; what a's device has not been given goes by.
func (s *slowLab) turn() {
	s.ring = s.rate
	s.a.Turn()
	s.b.Turn()
	s.now += turnNs
}

// repeat calls f n times.
func repeat(n int, f func()) {
	for range n {
		f()
	}
}

// segments is what arrives of each of to in so many calls of turn, and how many more frames the
// device would have taken.
func (s *slowLab) segments(to []*peer, turns int, turn func()) (got []float64, idle int) {
	for _, v := range to {
		got = append(got, -float64(v.edge))
	}
	for range turns {
		turn()
		idle += s.ring
	}
	for i, v := range to {
		got[i] = (got[i] + float64(v.edge)) / 1448
	}
	return got, idle
}

// jain is R. Jain's index of fairness (1984): 1 is the same for all, 1/n all for one.
func jain(x []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range x {
		sum, squares = sum+v, squares+v*v
	}
	return sum * sum / (float64(len(x)) * squares)
}

// Connections that always have something to send share a device that takes a bounded number of
// frames a Turn: by octets, whatever their segments are; nothing is sent twice over a path that
// loses nothing; and the device never stands still.
func TestSlowDeviceIsShared(t *testing.T) {
	for _, rate := range sample.Of(t, 3, []int{1, 3, 8, 32, 47, 60}) {
		for _, conns := range sample.Of(t, 1, []int{2, 4, 64}) {
			for _, small := range []bool{false, true} {
				s := newSlowLab(t, rate, nil)
				from, to := s.open(conns)
				for i, u := range from {
					if u.toSend = 1 << 40; small && i%2 == 1 {
						u.chunk = 500
					}
					u.conn.Send()
				}
				repeat(400, s.turn)
				got, idle := s.segments(to, max(100, 16*conns*12/rate), s.turn)
				what := fmt.Sprintf("%d frames, %d connections, small %v", rate, conns, small)
				for i, u := range from {
					if u.chunk > 0 { // by octets on the wire
						got[i] *= float64(500+frameCost) / 500 * 1448 / (1448 + frameCost)
					}
					require.Zero(t, u.conn.Stats().Retransmits, what)
				}
				require.GreaterOrEqual(t, jain(got), 0.95, "%s: %v", what, got)
				require.Zero(t, idle, "%s: frames that the device would have taken", what)
			}
		}
	}
}

// A connection that only receives acknowledges at once beside those that always send, and so do
// replies to strangers: no more than two bursts go first, whatever the device takes. Its peer sends
// nothing again.
func TestSlowDeviceDelaysNoACK(t *testing.T) {
	for _, rate := range []int{1, 5, 32} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			s := newSlowLab(t, rate, nil)
			from, to := s.open(65)
			for _, u := range from[1:] {
				u.send(1 << 40)
			}
			repeat(400, s.turn)
			port, most := from[0].conn.Local().Port(), 0
			sent, waits := 0, -1 // frames since the octets came; -1: there are none
			s.a.nic.onSend = func(f []byte) {
				sent++
				seg, payload, ok := segmentOf(f)
				if ok && seg.SrcPort == port && len(payload) == 0 && waits >= 0 {
					most, waits = max(most, sent-1-waits), -1
				}
			}
			for range 300 {
				if waits < 0 {
					to[0].send(2 * 1448)
					s.b.Turn()
					waits = sent
				}
				s.turn()
			}
			s.a.nic.onSend = nil
			require.Positive(t, from[0].edge)
			require.LessOrEqual(t, most, 2*s.a.cfg.BurstMax)
			require.Zero(t, to[0].conn.Stats().Retransmits)
		})
	}
}

// What is asked of us by others is answered as soon: handshakes, pings, ARP, resets.
func TestSlowDeviceDelaysNoReply(t *testing.T) {
	s := newSlowLab(t, 2, nil)
	from, _ := s.open(8)
	for _, u := range from {
		u.send(1 << 40)
	}
	repeat(200, s.turn)
	s.listen(s.a, 9, 4)
	opened := len(s.accepted)
	v := s.dial(s.b, s.a, 9)
	within := func(turns int, what string, so func() bool) {
		for n := 0; !so(); n++ {
			require.Less(t, n, turns, what)
			s.turn()
		}
	}
	within(4, "a handshake", func() bool { return len(s.accepted) > opened })
	require.True(t, v.opened)

	refused := s.dial(s.b, s.a, 1000)
	within(3, "a reset", func() bool { return refused.closed > 0 })

	from[0].conn.Abort()
	gone := func() bool { return from[0].closed == 1 && s.accepted[0].closed == 1 }
	within(20, "a reset after the octets of its connection that wait already", gone)

	last := from[1].conn
	from[1].toSend = from[1].sent
	last.CloseSend()
	within(40, "a FIN, after octets", func() bool { return s.accepted[1].peerFin })
}

// A few octets wait for nothing but what the device holds already, beside however many connections
// that send all the time: again and again, as a ping-pong does.
func TestFewOctetsGoFirst(t *testing.T) {
	for _, rate := range []int{1, 4, 16, 64} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			s := newSlowLab(t, rate, nil)
			from, to := s.open(64)
			ping := func() (turns int) {
				u, v := from[0], to[0]
				u.send(8)
				for ; v.edge < u.toSend; turns++ {
					s.turn()
				}
				v.send(8)
				for ; u.edge < v.toSend; turns++ {
					s.turn()
				}
				return turns
			}
			idle := ping()
			for _, u := range from[1:] {
				u.send(1 << 40)
			}
			repeat(400, s.turn)
			for range 200 {
				require.LessOrEqual(t, ping(), 3*idle)
			}
		})
	}
}

// A few octets leave in the Turn in which they come, also after others have sent all that a Turn
// allows. A device that has refused nothing is given them in their turn, after those.
func TestFewOctetsAfterAWholeTurn(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) {
		cfg.BurstMax, cfg.PendingMax = 8, 200
		cfg.TCP.InitialWindow, cfg.TCP.ReceiveWindow = 200, 1<<20
	})
	us, turn, last := l.openMany(13), map[uint16]int{}, 12 // by port
	for i, u := range us {
		turn[u.conn.Local().Port()] = i
	}
	for _, u := range us[:last] {
		u.send(100 * 1448)
	}
	us[last].send(8)
	var left []int
	l.a.nic.onSend = func(f []byte) {
		if s, payload, ok := segmentOf(f); ok && len(payload) > 0 {
			left = append(left, turn[s.SrcPort])
		}
	}
	l.a.Turn()
	require.LessOrEqual(t, l.a.sched.octets, 0)
	require.Equal(t, last, left[len(left)-1])
	require.True(t, slices.IsSorted(left), "%d", left)
	l.a.nic.onSend = nil
	l.until("there", func() bool { return us[0].acked == us[0].toSend })
}

// A device that stands still for a while, at random, and takes some frames at random; neighbours of
// which one does not answer. It holds everybody up, and what was sent arrives once and in order,
// nothing is taken for lost before a retransmission timer could think so, and every Buf comes back.
func TestDeviceThatStalls(t *testing.T) {
	r := dice(t)
	for range 20 {
		s := newSlowLab(t, 0, nil)
		from, to := s.open(2 + r.IntN(20))
		lost := s.dial(s.a, &host{addr: inet.AddrFrom4([4]byte{10, 0, 0, 77}).Netip()}, 7)
		for _, u := range from {
			u.send(r.IntN(300_000))
			u.chunk = r.IntN(2) * (200 + r.IntN(1248))
		}
		for i := range to {
			to[i].send(r.IntN(100_000))
		}
		stall := 0
		done := func() bool {
			for i, u := range from {
				if u.acked != u.toSend || to[i].acked != to[i].toSend {
					return false
				}
			}
			return true
		}
		turns := 0
		for ; !done(); turns++ {
			if s.rate = r.IntN(12); stall > 0 {
				stall--
				s.rate = 0
			} else if r.IntN(200) == 0 {
				stall = r.IntN(2000) // 10 ms
			}
			s.turn()
			require.Less(t, turns, 1_000_000)
		}
		for _, u := range from {
			require.Zero(t, u.conn.Stats().Retransmits)
		}
		require.False(t, lost.opened)
		n := s.a.counters()
		require.NotZero(t, n.TxWaits)
		require.Zero(t, n.Own[DropTxFull])
	}
}

// No frame goes before another one with octets of its connection, whatever goes before those of
// others: a device that takes few shows every order in which they stood.
func TestControlKeepsTheOrderOfItsConnection(t *testing.T) {
	r := dice(t)
	s := newSlowLab(t, 0, nil)
	from, to := s.open(12)
	next := map[uint16]tcp.Seq{}
	s.a.nic.onSend = func(f []byte) {
		seg, payload, ok := segmentOf(f)
		if !ok {
			return
		}
		if want, known := next[seg.SrcPort]; known {
			require.Equal(t, want, seg.Seq, "port %d, %d octets", seg.SrcPort, len(payload))
		}
		next[seg.SrcPort] = seg.Seq + tcp.Seq(len(payload))
	}
	for range 5000 {
		i := r.IntN(len(from))
		switch r.IntN(4) {
		case 0:
			from[i].send(r.IntN(40_000))
		case 1:
			from[i].send(8)
		case 2:
			to[i].send(r.IntN(3000))
		}
		s.rate = r.IntN(6)
		s.turn()
	}
	s.a.nic.onSend = nil
}

// What a connection sent beyond its credit counts in the next round; what it left does not.
func TestDebtIsCarried(t *testing.T) {
	s := newSchedule(4)
	s.begin(&Config{MTU: 1500, BurstMax: 32}, 4, false)
	for left, want := range map[int32]int{-500: s.quantum - 500, 0: s.quantum, 700: s.quantum} {
		c := &Conn{credit: left, round: s.round - 1}
		require.Equal(t, want, s.credit(c))
		require.Equal(t, want, s.credit(c), "once a round")
	}
}

// remove leaves the lists as they would be without the connection: the next one begins a round with
// its whole credit.
func TestScheduleRemove(t *testing.T) {
	for _, debt := range []int32{0, -5} {
		s, conns := newSchedule(2), make([]Conn, 2)
		cfg := Config{BurstMax: 32, MTU: 1500, SegmentsMax: 1}
		conns[1].index = 1
		s.begin(&cfg, 1, true)
		conns[0].round, conns[0].credit = s.round, debt
		if debt == 0 {
			conns[0].round--
		}
		s.add(&conns[0])
		s.begin(&cfg, 1, true)
		require.Equal(t, 1, s.due)
		require.Same(t, &conns[0], s.next(conns))
		s.remove(&conns[0])
		require.Zero(t, s.waiting())
		require.Zero(t, s.due)
		require.Zero(t, conns[0].marks&markQueued)

		conns[1].round, conns[1].credit = s.round, -7
		s.add(&conns[1])
		require.Equal(t, 1, s.waiting())
		c := s.next(conns)
		require.Same(t, &conns[1], c)
		require.Equal(t, int32(s.quantum)-7, c.credit)
		s.served(c, false)
		require.Zero(t, s.waiting())
	}
}

// A device that has refused a frame is offered a burst at a time by several connections, and two by
// one alone.
func TestSlowDeviceIsOfferedLess(t *testing.T) {
	for n, bursts := range map[int]int{1: 2, 3: 1} {
		s := newSlowLab(t, 1, nil)
		from, _ := s.open(n)
		for _, u := range from {
			u.send(1 << 20)
		}
		repeat(20, s.turn)
		tx := &s.a.tx
		require.True(t, tx.blocked)
		require.Equal(t, min(bursts*tx.burst, tx.connMax), tx.chunk, "%d connections", n)
	}
}

// Where nobody waits for a turn each Turn is a round: who has used its credit has another.
func TestTurnIsARoundWhereNobodyWaits(t *testing.T) {
	cfg := Config{MTU: 1500, BurstMax: 32}
	s, conns := newSchedule(2), make([]Conn, 2)
	conns[1].index = 1
	s.begin(&cfg, 1, false)
	s.credit(&conns[0])
	conns[0].credit = -10
	s.begin(&cfg, 1, false)
	require.Equal(t, s.quantum-10, s.credit(&conns[0]))

	conns[0].credit = -10
	s.add(&conns[0])
	s.begin(&cfg, 1, false)
	require.Equal(t, -10, s.credit(&conns[0]), "it waits: the round goes on")
}

// What goes before octets leaves a quarter of a burst for replies and ARP.
func TestExpressLeavesRoomForReplies(t *testing.T) {
	tx := transmitter{frames: make([]mem.Buf, 64), burst: 8, connMax: 56, chunk: 56, express: true}
	for tx.n = 0; tx.hasRoom(); tx.n++ {
	}
	require.Equal(t, 64-8/4, tx.n)
	for tx.n = 10; tx.hasRoom(); tx.ahead++ {
	}
	require.Equal(t, 8, tx.ahead, "and no more than a burst")

	tx.express, tx.ahead, tx.chunk = false, 2, 16
	for tx.n = 2; tx.hasRoom(); tx.n++ {
	}
	require.Equal(t, 18, tx.n, "octets, after what goes before them")
}
