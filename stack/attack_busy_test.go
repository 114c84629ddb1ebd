package stack

import (
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// busy is an attack by peers that are let in and then keep b at work: hostileRate segments per tick
// among them.
type busy struct {
	name  string
	size  int
	loss  int // percent of the healthy connection's frames that are lost
	least int // ticks it takes to have an effect, if more than siegeTicks
	up    func() *spring
	say   func(m *member) // the next segment of m's
	keep  int             // percent of its goodput that the healthy connection keeps
	check func(s *siege, n Counters)
}

var busies = []busy{{
	name: "octets one by one", size: 64, keep: 95,
	say: func(m *member) { m.say(tcp.ACK|tcp.PSH, m.got, 65535, noOptions, 1) },
	check: func(s *siege, n Counters) {
		require.Less(s.t, n.Segments, uint64(3*siegeTicks*hostileRate/2), "ACKs one by one")
	},
}, {
	name: "every second octet only", size: 16, keep: 95, say: outOfOrder,
	check: func(s *siege, n Counters) { require.NotZero(s.t, n.TCP[tcp.DropRangesFull]) },
}, {
	name: "every second octet only, of so many that spans are short", size: 1100, least: 400, keep: 95,
	say: outOfOrder,
	check: func(s *siege, n Counters) {
		require.NotZero(s.t, n.TCP[tcp.DropNoMemory])
		require.LessOrEqual(s.t, n.Memory.Spans-n.Memory.SpansFree, n.Memory.Spans)
	},
}, {
	name: "the same, and the healthy connection loses frames", size: 1100, loss: 2, keep: 90,
	say:   outOfOrder,
	check: func(s *siege, n Counters) { require.NotZero(s.t, n.TCP[tcp.DropNoMemory]) },
}, {
	name: "ACKs of an octet at a time", size: 64, up: endless, keep: 90,
	say: func(m *member) {
		if m.first+tcp.Seq(m.n) != m.got {
			m.n++
		}
		m.ack(m.first+tcp.Seq(m.n), 3000)
	},
	check: func(s *siege, n Counters) { require.Zero(s.t, n.TCP[tcp.DropAckUnsent]) },
}, {
	name: "all but the first segment SACKed, in ever other blocks", size: 64, up: endless, keep: 90,
	say: func(m *member) {
		o := noOptions
		if span := m.got - m.first; span > 3000 {
			m.n++
			o.SACKCount = 2
			o.SACK[0] = tcp.SACKBlock{Left: m.first + 1448, Right: m.got}
			o.SACK[1] = tcp.SACKBlock{Left: m.first + 1448*tcp.Seq(1+m.n%7),
				Right: m.got - 1448*tcp.Seq(m.n%3)}
		}
		m.say(tcp.ACK, m.first, 65535, o)
	},
	check: func(s *siege, n Counters) {
		require.Less(s.t, n.Memory.SACKSteps, uint64(6*siegeTicks*hostileRate))
		require.NotZero(s.t, n.Memory.SACKSteps)
	},
}, {
	name: "ACKs of what was never sent", size: 64, up: endless, keep: 95,
	say: func(m *member) { m.ack(m.got+100_000, 65535) },
	check: func(s *siege, n Counters) {
		require.Equal(s.t, uint64(siegeTicks*hostileRate), n.TCP[tcp.DropAckUnsent])
		require.Less(s.t, n.Segments, uint64(siegeTicks*hostileRate), "challenge ACKs are limited")
	},
}, {
	name: "windows that open and shrink", size: 64, up: endless, keep: 90,
	say: func(m *member) {
		m.n++
		m.ack(m.got, []uint16{65535, 0, 3000, 1}[m.n%4])
	},
	check: func(s *siege, n Counters) {},
}}

// outOfOrder is an octet after a gap of one.
func outOfOrder(m *member) {
	m.nxt++
	m.say(tcp.ACK|tcp.PSH, m.got, 65535, noOptions, 1)
	if m.n++; m.n == 1000 { // what is new stays in the window
		m.n = 0
		m.nxt -= 2000
	}
}

// losing loses some of what a sends, and then b sends nothing: the direction that has losses is
// what is looked at.
func (s *siege) losing(percent int) {
	if percent == 0 {
		return
	}
	s.v.toSend = s.v.sent
	s.a.nic.lose = func(f []byte) bool {
		return inet.MAC(f[6:12]) != mallory && s.r.IntN(100) < percent
	}
}

// Peers that keep us at work do not keep us from working: a segment of theirs costs a bounded
// number of steps and draws at most an answer.
func TestBusyPeers(t *testing.T) {
	for _, b := range sample.Of(t, 2, busies) {
		t.Run(b.name, func(t *testing.T) {
			ticks := max(siegeTicks, b.least)
			if b.loss > 0 {
				ticks *= 5
			}
			q := newSiege(t, manyConns)
			q.losing(b.loss)
			quiet := q.run(ticks, nil)
			s := newSiege(t, manyConns)
			up := b.up
			if up == nil {
				up = silent
			}
			c, _ := s.gather(b.size, up)
			c.behave = func(m *member, seg *tcp.Segment) {
				if seg.Flags&tcp.SYN != 0 {
					m.ack(m.first, 65535)
				}
			}
			c.opened()
			s.losing(b.loss)
			c.behave = func(*member, *tcp.Segment) {}
			next := 0
			got := s.run(ticks, func() {
				for range hostileRate {
					b.say(c.all[next%len(c.all)])
					next++
				}
				c.act()
			})
			require.Greater(t, got, quiet*b.keep/100)
			b.check(s, s.b.counters())
			s.a.nic.lose = nil
			s.end()
		})
	}
}
