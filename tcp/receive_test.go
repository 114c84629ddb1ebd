package tcp

import "testing"

// req: 9293-SHLD-18, 9293-MUST-40
func TestSingleSegmentIsAckedAfterDelay(t *testing.T) {
	s := accepted(t, plain(), "").started()
	s.in("P. 1:1001 ack 1")
	s.wantArrival(0, 1000)
	s.expect()
	s.advance(39 * ms)
	s.expect()
	s.advance(ms)
	s.expect(". 1 ack 1001")
}

// req: 9293-MUST-40
func TestDelayedAckIsCapped(t *testing.T) {
	cfg := plain()
	cfg.DelayedAckNs = 10 * sc
	s := accepted(t, cfg, "").started()
	s.in(". 1:1001 ack 1")
	s.advance(498 * ms)
	s.expect()
	s.advance(ms)
	s.expect(". 1 ack 1001")
}

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

// When the path comes to carry less, every second of the smaller segments is acknowledged at once,
// from the second on. What ends with PSH is short because there was no more to send.
//
// req: 9293-SHLD-19
func TestEverySecondSegmentOfASmallerPathIsAckedAtOnce(t *testing.T) {
	cfg := plain()
	cfg.MSS = 8960
	s := accepted(t, cfg, "mss 8960").started()
	s.in(". 1:8961 ack 1")
	s.in(". 8961:17921 ack 1")
	s.expect(". 1 ack 17921")
	s.in("P. 17921:18921 ack 1")
	s.in("P. 18921:19921 ack 1")
	s.expect()
	s.advance(40 * ms)
	s.expect(". 1 ack 19921")
	s.in(". 19921:20921 ack 1")
	s.in(". 20921:21921 ack 1")
	s.expect(". 1 ack 21921")
	s.in(". 21921:22921 ack 1")
	s.in(". 22921:23921 ack 1")
	s.expect(". 1 ack 23921")
}

// Segments of an MPA sender are a little short of EMSS, and not all the same.
//
// req: 9293-SHLD-19
func TestEverySecondNearlyFullSegmentIsAckedAtOnce(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in(". 1:1001 ack 1")
	s.in(". 1001:2001 ack 1")
	s.expect(". 1 ack 2001")
	s.in(". 2001:2961 ack 1")
	s.in(". 2961:3941 ack 1")
	s.expect(". 1 ack 3941")
}

// req: 9293-MUST-58, 9293-MUST-59
func TestBurstIsAckedOnce(t *testing.T) {
	s := accepted(t, plain(), "")
	for _, x := range []string{". 1:1001 ack 1", ". 1001:2001 ack 1", ". 2001:3001 ack 1",
		". 3001:4001 ack 1", ". 4001:5001 ack 1"} {
		s.in(x)
	}
	s.expect(". 1 ack 5001")
}

func TestAckRidesOnData(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in(". 1:1001 ack 1")
	s.push(10)
	s.expect(". 1:11 ack 1001")
	s.advance(100 * ms)
	s.expect()
}

// A duplicate that cannot be reported, since the peer knows no SACK, is over with its ACK.
func TestAckRidesOnDataAfterADuplicate(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in(". 1:1001 ack 1")
	s.in(". 1:1001 ack 1")
	s.expect(". 1 ack 1001")
	s.in(". 1001:2001 ack 1")
	s.in(". 2001:3001 ack 1")
	pushOne(s.c, s.now, 0, 10, false)
	s.expect(". 1:11 ack 3001")
}

// req: 9293-SHLD-31, 5681-3.2-1, 9293-MAY-13, 2018-4-2, 2018-4-3
func TestOutOfOrderIsHandedUpAndAckedAtOnce(t *testing.T) {
	s := accepted(t, sackOnly(), "sackOK")
	s.in(". 1001:2001 ack 1")
	s.wantArrival(1000, 2000)
	if s.last.InOrder {
		t.Error("in order")
	}
	s.expect(". 1 ack 1 sack 1001:2001")
	s.in(". 3001:4001 ack 1")
	s.expect(". 1 ack 1 sack 3001:4001,1001:2001")
	s.in(". 2001:3001 ack 1")
	s.expect(". 1 ack 1 sack 1001:4001")
	s.in(". 1:1001 ack 1")
	s.wantArrival(0, 1000)
	s.expect(". 1 ack 4001 no sack")
	if s.c.Edge() != 4000 {
		t.Errorf("edge %d", s.c.Edge())
	}
}

// req: 5681-3.2-2
func TestFillingPartOfAGapIsAckedAtOnce(t *testing.T) {
	s := accepted(t, sackOnly(), "sackOK")
	s.in(". 2001:3001 ack 1")
	s.expect(". 1 ack 1")
	s.in(". 1:501 ack 1")
	s.expect(". 1 ack 501 sack 2001:3001")
}

// req: 2018-4-4, 2018-4-5
func TestSACKReportsLatestFirstUpToWhatFits(t *testing.T) {
	s := accepted(t, sackOnly(), "sackOK")
	for _, x := range []string{". 101:201 ack 1", ". 301:401 ack 1", ". 501:601 ack 1",
		". 701:801 ack 1"} {
		s.in(x)
	}
	s.in(". 901:1001 ack 1")
	s.expect(". 1 ack 1 sack 901:1001,701:801,501:601,301:401")

	cfg := sackOnly()
	cfg.NoTimestamps = false
	s = accepted(t, cfg, "sackOK ts 1000000,0")
	for _, x := range []string{". 101:201 ack 1", ". 301:401 ack 1", ". 501:601 ack 1",
		". 701:801 ack 1"} {
		s.in(x)
	}
	s.expect(". 1 ack 1 sack 701:801,501:601,301:401 ts 1000000,1000000")
}

// req: 5681-3.2-1
func TestWithoutSACKEachOutOfOrderSegmentDrawsADuplicateAck(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in(". 1001:2001 ack 1")
	s.in(". 2001:3001 ack 1")
	s.in(". 3001:4001 ack 1")
	s.expect(". 1 ack 1 no sack", ". 1 ack 1", ". 1 ack 1")
	s.in(". 4001:5001 ack 1")
	s.in(". 5001:6001 ack 1")
	s.in(". 1:1001 ack 1")
	s.expect(". 1 ack 6001")
}

// SACK blocks travel on data only where EMSS leaves room; else on an ACK of their own.
func TestSACKOnDataWhereItFits(t *testing.T) {
	s := accepted(t, sackOnly(), "sackOK")
	s.in(". 1001:2001 ack 1")
	s.push(100)
	s.expect(". 1:101 ack 1 sack 1001:2001")
	s.in(". 2001:3001 ack 1")
	s.push(1000)
	s.expect(". 101:1101 ack 1 no sack", ". 1101 ack 1 sack 1001:3001")
}

// req: 9293-3.10.7.4-3
func TestOverlapIsHandedUpOnce(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in(". 1:101 ack 1")
	s.in(". 51:201 ack 1")
	s.wantArrival(100, 200)
	if s.last.Skip != 50 {
		t.Errorf("skip %d", s.last.Skip)
	}
	s.in(". 301:401 ack 1")
	s.in(". 201:501 ack 1")
	s.wantArrival(200, 300)
	if s.c.Edge() != 400 {
		t.Errorf("edge %d, want 400: the rest of that segment is left to retransmission", s.c.Edge())
	}
	s.in(". 201:501 ack 1")
	s.wantArrival(400, 500)
	s.in(". 201:501 ack 1")
	s.wantNothing()
	s.wantDrop(DropDuplicate)
}

func TestRefusedOctetsAreNotAcknowledged(t *testing.T) {
	s := accepted(t, sackOnly(), "sackOK")
	s.inRefused(". 1:1001 ack 1")
	s.wantArrival(0, 1000)
	s.expect()
	s.inRefused(". 2001:3001 ack 1")
	s.expect(". 1 ack 1 no sack") // out of order, so answered at once
	s.in(". 1001:2001 ack 1")
	s.expect(". 1 ack 1 sack 1001:2001")
	s.in(". 1:1001 ack 1")
	s.wantArrival(0, 1000)
	s.expect(". 1 ack 2001 no sack")
	s.advance(sc)
	s.expect()
	if s.c.Stats().Refused != 2 {
		t.Error("refusals not counted")
	}
}

// A sender without SACK counts the answers to what came out of order and was refused: it learns of
// the gap.
func TestRefusedOutOfOrderIsAnswered(t *testing.T) {
	s := accepted(t, plain(), "")
	for _, seg := range []string{"1001:2001", "2001:3001", "3001:4001"} {
		s.inRefused(". " + seg + " ack 1")
		s.expect(". 1 ack 1")
	}
}

func TestRefusedFinIsNotTaken(t *testing.T) {
	s := accepted(t, plain(), "")
	s.inRefused("F. 1:102 ack 1")
	if !s.last.Fin {
		t.Error("Fin not told")
	}
	s.wantState(Established)
	s.expect(". 1 ack 1")
	s.in("F. 1:102 ack 1")
	s.wantState(CloseWait)
	s.expect(". 1 ack 102")
}

// req: 2883-4-1
func TestDuplicateIsReportedOnce(t *testing.T) {
	s := accepted(t, sackOnly(), "sackOK")
	s.in(". 1:1001 ack 1")
	s.in(". 1:1001 ack 1")
	s.wantDrop(DropDuplicate)
	s.expect(". 1 ack 1001 sack 1:1001")
	s.in(". 2001:3001 ack 1")
	s.expect(". 1 ack 1001 sack 2001:3001")
}

// req: 2883-4-2
func TestDuplicateWithinARunNamesTheRun(t *testing.T) {
	s := accepted(t, sackOnly(), "sackOK")
	s.in(". 1001:2001 ack 1")
	s.in(". 2001:3001 ack 1")
	s.in(". 4001:5001 ack 1")
	s.expect(". 1 ack 1 sack 4001:5001,1001:3001")
	s.in(". 2001:3001 ack 1")
	s.wantDrop(DropDuplicate)
	s.expect(". 1 ack 1 sack 2001:3001,1001:3001,4001:5001")
}

func TestRangesFull(t *testing.T) {
	cfg := sackOnly()
	cfg.RangesMax = 2
	s := accepted(t, cfg, "sackOK")
	s.in(". 1001:2001 ack 1")
	s.in(". 3001:4001 ack 1")
	s.in(". 5001:6001 ack 1")
	s.wantDrop(DropRangesFull)
	s.wantNothing()
	s.in(". 4001:5001 ack 1")
	s.wantArrival(4000, 5000)
	s.in(". 1:1001 ack 1")
	s.wantArrival(0, 1000)
	if s.c.Edge() != 2000 {
		t.Errorf("edge %d", s.c.Edge())
	}
}

// req: 9293-SHLD-14, 9293-MUST-39, DDP-13.1-1
func TestWindowIsConstantAndMovesInSteps(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in(". 1:1001 ack 1")
	s.in(". 1001:2001 ack 1")
	s.expect(". 1 ack 2001 win 20000")
	s.in(". 2001:2101 ack 1")
	s.advance(40 * ms)
	s.expect(". 1 ack 2101 win 19900") // the right edge would move by 100 only
	s.in(". 2101:3001 ack 1")
	s.advance(40 * ms)
	s.expect(". 1 ack 3001 win 20000")
}

// req: 9293-SHLD-14, DDP-13.1-4
func TestShrunkWindowTakesEffectAsTheLeftEdgeMoves(t *testing.T) {
	s := accepted(t, plain(), "")
	s.c.SetReceiveWindow(500)
	s.expect()
	s.in(". 1:1001 ack 1")
	s.in(". 1001:2001 ack 1")
	s.expect(". 1 ack 2001 win 18000")
	s.in(". 19001:20001 ack 1")
	s.wantArrival(19000, 20000)
	s.expect(". 1 ack 2001 win 18000")
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

// req: 7323-2.3-2, 7323-2.4-1, 9293-SHLD-14
func TestScaledWindowRoundsWithoutTakingBack(t *testing.T) {
	cfg := plain()
	cfg.NoWindowScale = false
	cfg.ReceiveWindow = 1 << 20 // shift 5
	s := accepted(t, cfg, "wscale 0")
	s.in(". 1:1001 ack 1")
	s.in(". 1001:2002 ack 1")
	s.expect(". 1 ack 2002 win 32768")
	s.c.SetReceiveWindow(1000)
	s.in(". 2002:2005 ack 1") // edge moved by 3: the right edge must not move back by a rounding of 29
	s.advance(40 * ms)
	s.expect(". 1 ack 2005 win 32768")
	s.in(". 3000:4000 ack 1")
	s.wantArrival(2999, 3999)
}

// An ACK that was sent before, or beside, octets that we have taken and not yet acknowledged
// counts. One that is older than our latest ACK does not, and is answered.
func TestAckBesideAProbeCounts(t *testing.T) {
	s := accepted(t, plain(), "")
	s.push(1000)
	s.expect(". 1:1001 ack 1")
	s.in(". 1:2 ack 1")
	s.in(". 1 ack 1001")
	s.wantDrop(DropNone)
	s.wantReleased(0)
	s.advance(40 * ms)
	s.expect(". 1001 ack 2")
	s.in(". 1 ack 1001")
	s.wantDrop(DropDuplicate)
	s.expect(". 1001 ack 2")
}

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

// req: 9293-3.10.7.4-1
func TestSegmentWithoutAckIsDropped(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in("P 1:101")
	s.wantDrop(DropNoACK)
	s.wantNothing()
	s.expect()
}

// req: 9293-MUST-30
func TestUrgentDataStaysInLine(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in("U. 1:101 ack 1")
	s.wantArrival(0, 100)
}

// req: 9293-3.4-1
func TestReceiveAcrossSequenceWrap(t *testing.T) {
	s := accepted(t, sackOnly(), "sackOK") // irs is 0xffffff00
	s.in(". 501:601 ack 1")
	s.expect(". 1 ack 1 sack 501:601")
	s.in(". 1:501 ack 1")
	s.wantArrival(0, 500)
	s.expect(". 1 ack 601")
}

// Without scaling the window cannot be what was configured; it still moves in steps.
//
// req: 9293-MUST-39
func TestUnscaledWindowMovesInSteps(t *testing.T) {
	cfg := plain()
	cfg.ReceiveWindow = 1 << 20
	s := accepted(t, cfg, "")
	s.in(". 1:101 ack 1")
	s.advance(40 * ms)
	s.expect(". 1 ack 101 win 65435")
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

// In a window of less than two segments the right edge moves by half of the window.
//
// req: 9293-MUST-39
func TestStepOfASmallWindow(t *testing.T) {
	cfg := plain()
	cfg.ReceiveWindow = 1000
	s := accepted(t, cfg, "")
	s.in(". 1:400 ack 1")
	s.advance(500 * ms)
	s.expect(". 1 ack 400 win 601")
	s.in(". 400:500 ack 1")
	s.advance(500 * ms)
	s.expect(". 1 ack 500 win 501")
	s.in(". 500:501 ack 1")
	s.advance(500 * ms)
	s.expect(". 1 ack 501 win 1000")
}
