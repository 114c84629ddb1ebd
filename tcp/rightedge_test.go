package tcp

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whatever the sizes of segments and of the window's unit: while the window is what was asked for,
// the right edge never moves back; while it closes, by less than a unit; and what was inside it
// once is taken.
//
// req: 9293-SHLD-14, 7323-2.4-1
func TestRightEdge(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 40 {
		cfg := plain()
		cfg.NoWindowScale = false
		cfg.ReceiveWindow = 1 << (16 + r.IntN(14))
		cfg.ReceiveWindow += r.IntN(cfg.ReceiveWindow) - 1
		s := accepted(t, cfg, "wscale 0")
		unit := 1 << s.c.rcvShift
		at, most, closing := 1, 0, 0
		for i := range 2000 {
			if i == 1000 {
				closing = int(s.c.rightEdge()) + 1
			}
			if closing > 0 {
				s.c.SetReceiveWindow(max(0, closing-at))
			}
			n := 1 + r.IntN(1000)
			if r.IntN(2) == 0 {
				n = 1 + r.IntN(30)
			}
			s.in(". " + itoa(at) + ":" + itoa(at+n) + " ack 1")
			at += s.last.Len
			if r.IntN(3) == 0 {
				s.advance(40 * ms)
			}
			for _, x := range s.sent() {
				right := int(int32(x.Ack-s.irs)) + int(x.Window)<<s.c.rcvShift
				if back := most - right; back > 0 && (closing == 0 || back >= unit) {
					t.Fatalf("window %d, unit %d: the right edge moved from %d to %d", cfg.ReceiveWindow, unit,
						most, right)
				}
				most = max(most, right)
			}
		}
		require.LessOrEqual(t, most, at+cfg.ReceiveWindow+unit, "window %d", cfg.ReceiveWindow)
		if most > at {
			s.in(". " + itoa(most-1) + ":" + itoa(most) + " ack 1")
			s.wantArrival(most-2, most-1)
		}
	}
}
