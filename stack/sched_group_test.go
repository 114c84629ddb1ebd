package stack

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// slowGroup is a Group of two Pollers on a port each of whose queues takes so many frames a Turn;
// host a has connections to both.
type slowGroup struct {
	*lab
	rates, rings [2]int
	ends         [2][]groupEnd // by member
}

// groupEnd is a connection: ours, and the one of a, whose port is its name.
type groupEnd struct {
	from, to *peer
	port     uint16
}

// newSlowGroup opens so many connections from a. What comes in finds its member at once, or, by
// chance, comes to the other one first.
func newSlowGroup(t *testing.T, rates [2]int, conns int, chance bool) *slowGroup {
	g := &slowGroup{rates: rates}
	g.lab = groupLabTuned(t, 2, func(cfg *Config) {
		cfg.ConnsMax = 128
		cfg.TCP.ReceiveWindow = 256 << 10
	})
	members := g.hosts[1:]
	for _, h := range members {
		g.listen(h, 7, 128)
	}
	byPort := map[uint16]*peer{}
	for range conns {
		u := g.dial(g.a, g.b, 7)
		byPort[u.conn.Local().Port()] = u
		g.until("open", func() bool { return len(g.accepted) == len(byPort) && u.opened })
	}
	home := map[uint16]int{}
	for _, u := range g.accepted {
		port := u.conn.Remote().Port()
		for i, h := range members {
			if u.conn.Poller() == h.Poller {
				home[port] = i
				g.ends[i] = append(g.ends[i], groupEnd{u, byPort[port], port})
			}
		}
	}
	if !chance {
		members[0].nic.Queue.(*steered).steer = func(f []byte) int {
			seg, _, _ := segmentOf(f)
			return home[seg.SrcPort]
		}
	}
	for i, h := range members {
		h.nic.ring = &g.rings[i]
	}
	return g
}

func (g *slowGroup) turn() {
	g.rings = g.rates
	for _, h := range g.hosts[1:] {
		h.Turn()
	}
	g.a.Turn()
	g.a.Turn() // it takes what two queues send
	g.now += turnNs
}

// Connections of a Group share the queue that theirs is, whatever the other queue does: by octets,
// without a frame that the device would have taken; and an ACK waits for two bursts at most.
func TestGroupSharesSlowQueues(t *testing.T) {
	r := dice(t)
	for range 4 {
		rates := [2]int{1 + r.IntN(30), 1 + r.IntN(30)}
		chance := r.IntN(2) == 0
		t.Run(fmt.Sprintf("%d frames, by chance %v", rates, chance), func(t *testing.T) {
			g := newSlowGroup(t, rates, 66, chance)
			for _, ends := range g.ends {
				require.Greater(t, len(ends), 10, "the hash gives every member its share")
				for _, e := range ends[1:] {
					e.from.conn.SetUpper(hose{e.from})
					e.to.conn.SetUpper(hose{e.to})
					e.from.send(1 << 40)
				}
			}
			repeat(400, g.turn)
			g.share(100 + 16*12*66/2/min(rates[0], rates[1]))
			g.acknowledge(300)
			for _, ends := range g.ends {
				for _, e := range ends {
					if !chance { // else what crosses comes out of order
						require.Zero(t, e.from.conn.Stats().Retransmits)
						require.Zero(t, e.to.conn.Stats().Retransmits)
					}
				}
			}
		})
	}
}

// share looks at so many Turns of what was sent.
func (g *slowGroup) share(turns int) {
	began, idle := map[*peer]uint64{}, [2]int{}
	for _, ends := range g.ends {
		for _, e := range ends {
			began[e.to] = e.to.edge
		}
	}
	for range turns {
		g.turn()
		for i, ring := range g.rings {
			idle[i] += ring
		}
	}
	require.Zero(g.t, idle, "frames that the device would have taken")
	for _, ends := range g.ends {
		var got []float64
		for _, e := range ends[1:] {
			got = append(got, float64(e.to.edge-began[e.to]))
		}
		require.GreaterOrEqual(g.t, jain(got), 0.95, "%.0f", got)
	}
}

// acknowledge has the first connection of each member, which only receives, get octets again and
// again. Two full segments are acknowledged at once; one by itself may wait for the next.
func (g *slowGroup) acknowledge(turns int) {
	for i, h := range g.hosts[1:] {
		e := g.ends[i][0]
		sent, most, count := 0, 0, 0
		unacked := 0
		due := -1 // sent when an ACK became due; -1: none is
		e.from.onArrive = func() {
			if unacked++; due < 0 && unacked >= 2 {
				due = sent
			}
		}
		h.nic.onSend = func(f []byte) {
			sent++
			if seg, payload, ok := segmentOf(f); !ok || seg.DstPort != e.port || len(payload) > 0 {
				return
			}
			if unacked = 0; due >= 0 {
				most, count, due = max(most, sent-1-due), count+1, -1
			}
		}
		for range turns {
			if e.to.sent == e.from.edge {
				e.to.send(2 * 1448)
			}
			g.turn()
		}
		h.nic.onSend = nil
		require.Greater(g.t, count, 10)
		require.LessOrEqual(g.t, most, 2*h.cfg.BurstMax)
	}
}
