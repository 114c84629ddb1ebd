package stack

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
)

// longLab is a slowLab in which what b sends to a connection of a may take some Turns more.
type longLab struct {
	*slowLab
	delay map[uint16]int // of a's port, in Turns
	turns int            // so far
	under map[int][][]byte
}

func newLongLab(s *slowLab) *longLab {
	l := &longLab{slowLab: s, delay: map[uint16]int{}, under: map[int][][]byte{}}
	s.b.nic.lose = func(frame []byte) bool {
		seg, _, ok := segmentOf(frame)
		turns := l.delay[seg.DstPort]
		if !ok || turns == 0 {
			return false
		}
		l.under[l.turns+turns] = append(l.under[l.turns+turns], slices.Clone(frame))
		return true
	}
	return l
}

func (l *longLab) turn() {
	lose := l.b.nic.lose
	l.b.nic.lose = nil
	for _, frame := range l.under[l.turns] {
		l.b.nic.inject(frame)
	}
	l.b.nic.lose = lose
	delete(l.under, l.turns)
	l.slowLab.turn()
	l.turns++
}

// hose is a peer that does not look at octets, so that many connections are cheap.
type hose struct{ *peer }

func (h hose) Pull(dst [][]byte) (got Pulled) {
	for most := h.most(len(dst)); got.N < most && h.sent < h.toSend; got.N++ {
		n := int(min(uint64(len(dst[got.N])), h.toSend-h.sent))
		dst[got.N] = dst[got.N][:n]
		h.sent += uint64(n)
	}
	got.More = h.sent < h.toSend
	return got
}

func (h hose) Arrive(_ uint64, _ []mem.Buf, data [][]byte) (int, Verdict) {
	return h.most(len(data)), Taken
}

func (h hose) Edge(edge uint64) { h.edge = edge }

// rivals are connections over a far path and over a near one that always have something to send,
// while Bufs are short.
type rivals struct {
	bufs, rate          int // of host a, frames a Turn
	far, near           int // connections
	farTurns, nearTurns int // that an ACK takes beyond one
	apart               int // Turns between the first octets of one and of the next
	delayedAck          int64
	vectors             bool
}

func (r rivals) String() string {
	return fmt.Sprintf("%d Bufs, %d frames, far %d*%d, near %d*%d, apart %d, delayed ACK %d, "+
		"vectors %v",
		r.bufs, r.rate, r.far, r.farTurns, r.near, r.nearTurns, r.apart, r.delayedAck, r.vectors)
}

// capacity is how many frames a Turn are sent where each connection has the same number of Bufs:
// octets and the ACK of them take three Turns more.
func (r rivals) capacity() float64 {
	each := min(float64(r.bufs-4*burstMaxDefault)/float64(r.far+r.near), 256<<10/1448)
	return each * (float64(r.far)/float64(r.farTurns+3) + float64(r.near)/float64(r.nearTurns+3))
}

// drawRivals draws some whose device could be kept busy with half of the Bufs.
func drawRivals(r *rand.Rand) rivals {
	for {
		x := rivals{
			bufs: 512 << r.IntN(3), rate: 8 + r.IntN(53), far: 4 + r.IntN(29), near: 4 + r.IntN(29),
			farTurns: 50 + r.IntN(101), nearTurns: r.IntN(11), apart: r.IntN(20), vectors: r.IntN(2) == 0,
		}
		if float64(x.rate) <= x.capacity()/2 {
			return x
		}
	}
}

// contend has them send for so many Turns, and as many that count: what arrived of each, in
// segments, and how many frames the device would have taken in addition.
func (r rivals) contend(t *testing.T, turns int) (far, near []float64, idle int) {
	s := newSlowLabOf(t, r.bufs, r.rate, func(_ int, cfg *Config) {
		cfg.TCP.DelayedAckNs = r.delayedAck
	})
	from, to := s.open(r.far + r.near)
	l := newLongLab(s)
	for i, u := range from {
		if l.delay[u.conn.Local().Port()] = r.nearTurns; i < r.far {
			l.delay[u.conn.Local().Port()] = r.farTurns
		}
		if u.toSend = 1 << 40; r.vectors {
			u.vectors = func(n int) int { return n }
		}
		u.conn.SetUpper(hose{u})
		to[i].conn.SetUpper(hose{to[i]})
		repeat(r.apart, l.turn)
	}
	repeat(turns, l.turn)
	least := s.a.pool.Size()
	got, idle := s.segments(to, turns, func() {
		l.turn()
		least = min(least, s.a.pool.Available())
	})
	require.GreaterOrEqual(t, least, s.a.pressure.loans.lentMax-s.a.tx.burst, "Bufs for reception")
	require.Zero(t, s.a.counters().Queue.RxNoBuf)
	promised := 0
	for _, u := range from {
		require.Zero(t, u.conn.Stats().Retransmits)
		promised += int(u.conn.gaveBack)
	}
	require.Equal(t, promised, s.a.pressure.promised)
	return got[:r.far], got[r.far:], idle
}

// Connections that always have something to send get equal parts of Bufs that are short, whatever
// their paths and whichever came first; a near one does not wait for delayed ACKs; and the device
// never stands still while Bufs suffice to keep it busy.
func TestShortBufsAreShared(t *testing.T) {
	r := dice(t)
	all := []rivals{
		{bufs: 2048, rate: 40, far: 32, near: 32, farTurns: 100},
		{bufs: 2048, rate: 40, far: 32, near: 32, farTurns: 100, delayedAck: turnNs},
		{bufs: 2048, rate: 40, far: 32, near: 32, farTurns: 100, nearTurns: 10, vectors: true},
	}
	for range 4 {
		all = append(all, drawRivals(r))
	}
	for _, x := range sample.Of(t, 2, all) {
		t.Run(x.String(), func(t *testing.T) {
			far, near, idle := x.contend(t, max(2000, 20*x.farTurns))
			require.GreaterOrEqual(t, jain(far), 0.95, "%.0f", far)
			require.GreaterOrEqual(t, jain(near), 0.95, "%.0f", near)
			require.Zero(t, idle, "frames that the device would have taken")
		})
	}
}

// A connection that is opened while others hold all Bufs sends its first octets within a few of its
// round trips, as does one that has been idle.
func TestShortBufsServeNewcomers(t *testing.T) {
	s := newSlowLab(t, 40, nil)
	from, to := s.open(25)
	l := newLongLab(s)
	idle := from[24]
	idle.send(40_000)
	for to[24].edge < 40_000 {
		l.turn()
	}
	for i, u := range from[:24] {
		l.delay[u.conn.Local().Port()] = 100
		u.toSend = 1 << 40
		u.conn.SetUpper(hose{u})
		to[i].conn.SetUpper(hose{to[i]})
	}
	repeat(2000, l.turn)
	require.Negative(t, s.a.pressure.spare())
	for i := range 20 {
		v := s.dial(s.a, s.b, 7, 20_000)
		idle.send(20_000)
		there := func() bool {
			return len(s.accepted) > 25+i && s.accepted[25+i].edge == 20_000 && to[24].edge == idle.toSend
		}
		turns := 0
		for ; !there(); turns++ {
			l.turn()
			require.Less(t, turns, 200)
		}
		v.closeSend()
		s.accepted[25+i].closeSend()
	}
}

// A device that gives no Buf back until it is asked, as some do until their ring is full, does
// not get those for reception, whatever is acknowledged meanwhile.
func TestDeviceThatKeepsBufs(t *testing.T) {
	for _, many := range []bool{false, true} {
		l, u, v := newLab(t, nil).opened()
		if many {
			u.vectors = func(n int) int { return n }
		}
		l.a.nic.hold = true
		u.send(1 << 40)
		for range 3 {
			for range 1000 {
				l.a.Turn()
				l.b.Turn()
				l.now += turnNs
			}
			require.GreaterOrEqual(t, l.a.pool.Available(), l.a.pressure.loans.lentMax-1,
				"one more is the spare")
			before := v.edge
			l.a.nic.reap()
			l.pass(2 * ms)
			require.Greater(t, v.edge, before+1_000_000)
		}
		l.stop()
	}
}
