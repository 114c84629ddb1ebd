package tcp

import "testing"

// req: 9293-SHLD-19, 5681-4.2-4
func TestEverySecondFullSegmentIsAckedAtOnce(t *testing.T) {
	s := accepted(t, plain(), "").started()
	for i, want := range []string{"", ". 1 ack 2001", "", ". 1 ack 4001"} {
		s.in([]string{". 1:1001 ack 1", ". 1001:2001 ack 1", ". 2001:3001 ack 1", ". 3001:4001 ack 1"}[i])
		if want == "" {
			s.expect()
		} else {
			s.expect(want)
		}
	}
}

// Within the first sixteen full segments each is acknowledged at once, until octets of ours answer.
// Octets of ours that came first, as a client's, are no answer.
func TestAcksAtTheStartAreNotDelayed(t *testing.T) {
	s := accepted(t, plain(), "")
	s.push(100)
	s.expect(". 1:101 ack 1")
	for at := range 16 {
		s.in(". " + itoa(1+1000*at) + ":" + itoa(1001+1000*at) + " ack 101")
		s.expect(". 101 ack " + itoa(1001+1000*at))
	}
	s.in(". 16001:17001 ack 101")
	s.expect()
	s.advance(40 * ms)
	s.expect(". 101 ack 17001")

	s = accepted(t, plain(), "") // short ones: by their octets
	for at := range 20 {
		s.in("P. " + itoa(1+at) + ":" + itoa(2+at) + " ack 1")
		s.expect(". 1 ack " + itoa(2+at))
	}
	s.push(100)
	s.expect(". 1:101 ack 21")
	s.in("P. 21:31 ack 101")
	s.expect()
	s.advance(40 * ms)
	s.expect(". 101 ack 31")
}

// req: 9293-3.8.6.1-1, 9293-MUST-66
func TestClosedWindow(t *testing.T) {
	s := accepted(t, plain(), "")
	s.c.SetReceiveWindow(0)
	s.push(100)
	s.expect(". 1:101 ack 1 win 20000")
	for seq := 1; seq < 20001; seq += 1000 {
		s.in(". " + span1000(seq) + " ack 1")
	}
	s.expect(". 101 ack 20001 win 0")
	s.in(". 20001:20002 ack 101")
	s.wantNothing()
	s.wantDrop(DropWindow)
	s.expect(". 101 ack 20001 win 0")
	if s.c.AckedOffset() != 100 {
		t.Error("ACK on a probe not processed")
	}
	s.c.SetReceiveWindow(-1) // as configured
	s.expect(". 101 ack 20001 win 20000")
	s.in("R 20001")
	s.wantState(Closed)
}

func span1000(seq int) string { return itoa(seq) + ":" + itoa(seq+1000) }

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
		if edge := int(s.c.Edge()); edge < end && s.out[len(s.out)-1].Window == 0 {
			t.Fatalf("window 0 with the edge at %d, %d were promised", edge, end)
		}
		s.sent()
		if s.c.promised() == 0 && !probed { // a probe is answered, also one that is not kept
			probed = true
			s.inRefused(". " + itoa(at) + ":" + itoa(at+1) + " ack 1")
			s.expect(". 1 ack " + itoa(at) + " win 0")
		}
	}
	if !probed {
		t.Fatal("never closed")
	}
	if edge := int(s.c.Edge()); edge < end || edge >= end+32+20 {
		t.Fatalf("took octets up to %d, the window ended at %d", edge, end)
	}
	s.sent()
	next := itoa(1 + int(s.c.Edge()))
	s.in(". " + next + ":" + itoa(at+100) + " ack 1")
	s.expect(". 1 ack " + next + " win 0")
}

// req: 9293-3.4-2, 9293-3.5.2-2
func TestSegmentAcceptance(t *testing.T) {
	for _, tt := range []struct {
		text     string
		from, to int
		drop     Drop
		answer   bool
	}{
		{". 1:101 ack 1", 0, 100, DropNone, false},
		{". 19901:20101 ack 1", 19900, 20000, DropNone, true}, // cut at the right edge
		{". 20000:20100 ack 1", 19999, 20000, DropNone, true},
		{". 20001:20101 ack 1", 0, 0, DropWindow, true},
		{". 30001:30101 ack 1", 0, 0, DropWindow, true},
		{". -99:1 ack 1", 0, 0, DropDuplicate, true},
		{". -99:2 ack 1", 0, 1, DropNone, false},
		{". 0 ack 1", 0, 0, DropDuplicate, true},
		{". 20001 ack 1", 0, 0, DropNone, false}, // empty at the right edge: its ACK counts
		{". 20002 ack 1", 0, 0, DropWindow, true},
	} {
		s := accepted(t, plain(), "").started()
		s.in(tt.text)
		if s.last.Len != tt.to-tt.from || s.last.Len > 0 && int(s.last.Offset) != tt.from ||
			s.last.Drop != tt.drop {
			t.Errorf("%s: %+v", tt.text, s.last)
		}
		if got := len(s.sent()) > 0; got != tt.answer {
			t.Errorf("%s: answered %v", tt.text, got)
		}
	}
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
