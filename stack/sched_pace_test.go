package stack

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rnicd/rnicd/internal/sample"
	"github.com/stretchr/testify/require"
)

// quantumFrames are of a quantum, and pacedBurst is more: pacing takes no near connection's turn,
// as long as that does not come twice in a Turn.
const quantumFrames, pacedBurst = 12, 20

// paced is a draw of connections that pacing holds back, over a far path and with a small window,
// beside near ones that send as fast as the device takes: of those, pacing asks nothing.
type paced struct {
	rate       int // frames a Turn
	held, free int // connections
	turns      int // that an ACK of a held one takes beyond one
	window     int // of its window, in segments
}

func (x paced) String() string {
	return fmt.Sprintf("%d frames, %d held*%d, window %d, %d free",
		x.rate, x.held, x.turns, x.window, x.free)
}

// drawPaced draws held connections that want half of an equal share of the device at most. A round
// of the free ones takes so many Turns at least.
func drawPaced(r *rand.Rand, round int) paced {
	x := paced{rate: 4 + r.IntN(57), held: 1 + r.IntN(8), turns: 50 + r.IntN(101)}
	least := max(4, round*x.rate/quantumFrames)
	x.free = least + r.IntN(33-least)
	most := min(x.rate*x.turns/(x.held+x.free)/2, 170)
	x.window = 4 + r.IntN(max(most-4, 1))
	return x
}

// open opens them; beside: the free ones send, too.
func (x paced) open(t *testing.T, beside bool) (l *longLab, from, to []*peer) {
	s := newSlowLab(t, x.rate, func(i int, cfg *Config) {
		cfg.TCP.Pacing, cfg.TCP.PacingBurst = i == 0, pacedBurst
		cfg.TCP.DelayedAckNs = turnNs // else a segment sent by itself costs a small window its place
	})
	from, to = s.open(x.held + x.free)
	l = newLongLab(s)
	for i, u := range from {
		u.conn.SetUpper(hose{u})
		to[i].conn.SetUpper(hose{to[i]})
		if i < x.held {
			l.delay[u.conn.Local().Port()] = x.turns
			to[i].conn.SetReceiveWindow(x.window * 1448)
		} else if !beside {
			continue
		}
		u.send(1 << 40)
	}
	repeat(2000, l.turn)
	return l, from, to
}

// A connection that pacing holds back has its turn when its time has come, however many others the
// device refuses frames of: it sends as much as without them. Those share the rest, and the device
// never stands still.
func TestPacedBesideUnpaced(t *testing.T) {
	r := dice(t)
	for range sample.Count(2, 5) {
		x := drawPaced(r, 0)
		t.Run(x.String(), func(t *testing.T) {
			turns := 20 * x.turns
			l, _, to := x.open(t, false)
			alone, _ := l.segments(to[:x.held], turns, l.turn)

			l, from, to := x.open(t, true)
			got, idle := l.segments(to, turns, l.turn)
			for i := range alone {
				require.GreaterOrEqual(t, got[i], 0.9*alone[i])
			}
			require.GreaterOrEqual(t, jain(got[x.held:]), 0.95, "%.0f", got[x.held:])
			require.Zero(t, idle, "frames that the device would have taken")
			for _, u := range from {
				require.Zero(t, u.conn.Stats().Retransmits)
			}
		})
	}
}

// Those that always send go on in the order of the Turn before, where the device stopped: between
// two turns of one each other one has a turn, whatever paced ones do in between.
func TestPacedLeaveTheOrder(t *testing.T) {
	r := dice(t)
	for range 3 {
		x := drawPaced(r, 3)
		t.Run(x.String(), func(t *testing.T) {
			l, from, _ := x.open(t, true)
			free, had := map[uint16]bool{}, map[uint16]int{}
			for _, u := range from[x.held:] {
				free[u.conn.Local().Port()] = true
			}
			last, turns := uint16(0), 0
			l.a.nic.onSend = func(f []byte) {
				seg, payload, ok := segmentOf(f)
				if !ok || len(payload) == 0 || !free[seg.SrcPort] || seg.SrcPort == last {
					return
				}
				last = seg.SrcPort
				if had[last] > 0 {
					require.Equal(t, len(free), turns-had[last]+1, "turns since this one had its last")
				}
				turns++
				had[last] = turns
			}
			repeat(20*x.free*quantumFrames/x.rate, l.turn)
			l.a.nic.onSend = nil
			require.Greater(t, turns, 10*len(free))
		})
	}
}
