package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Nobody reads, and the peer sends segments shorter than a unit of the scale: the window closes
// where it was to close, and what rounding has added to it is taken all the same.
//
// req: 7323-2.4-1
func TestScaledWindowClosesToSmallSegments(t *testing.T) {
	cfg := plain()
	cfg.NoWindowScale = false
	cfg.ReceiveWindow = 1 << 20 // shift 5
	s := accepted(t, cfg, "wscale 0")
	s.c.SetReceiveWindow(2000)
	at := 1
	for ; at < 70_000; at += 1000 {
		s.in(". " + itoa(at) + ":" + itoa(at+1000) + " ack 1")
		s.advance(40 * ms)
		s.sent()
	}
	end, probed := at-1+2000, false
	for range 1000 {
		s.c.SetReceiveWindow(max(0, end-int(s.c.Edge())))
		s.in(". " + itoa(at) + ":" + itoa(at+20) + " ack 1")
		if s.last.Len == 0 {
			break
		}
		at += 20
		s.advance(40 * ms)
		require.False(t, int(s.c.Edge()) < end && s.out[len(s.out)-1].Window == 0,
			"window 0 before what was promised")
		s.sent()
		if s.c.promised() == 0 && !probed { // a probe is answered, also one that is not kept
			probed = true
			s.inRefused(". " + itoa(at) + ":" + itoa(at+1) + " ack 1")
			s.expect(". 1 ack " + itoa(at) + " win 0")
		}
	}
	require.True(t, probed, "never closed")
	if edge := int(s.c.Edge()); edge < end || edge >= end+32+20 {
		t.Fatalf("took octets up to %d, the window ended at %d", edge, end)
	}
	s.sent()
	next := itoa(1 + int(s.c.Edge()))
	s.in(". " + next + ":" + itoa(at+100) + " ack 1")
	s.expect(". 1 ack " + next + " win 0")
}

// A window is bounded by what the field can say at the agreed scale, and below 0 is the configured
// one.
func TestReceiveWindowIsBounded(t *testing.T) {
	for _, scaled := range []bool{false, true} {
		cfg, options, most := plain(), "", 65535
		cfg.ReceiveWindow = 1 << 18
		if scaled {
			cfg.NoWindowScale, options = false, "wscale 3"
		}
		s := accepted(t, cfg, options)
		if scaled {
			if most = 65535 << s.c.rcvShift; s.c.rcvShift == 0 {
				t.Fatal("no scale")
			}
		}
		for n, want := range map[int]int{0: 0, 1: 1, 65535: 65535, most: most, most + 1: most,
			1 << 40: most, -1: min(1<<18, most)} {
			if s.c.SetReceiveWindow(n); int(s.c.rcvWnd) != want {
				t.Errorf("scaled %v, window %d: %d, want %d", scaled, n, s.c.rcvWnd, want)
			}
		}
	}
}
