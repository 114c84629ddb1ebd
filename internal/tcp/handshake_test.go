package tcp

import "testing"

// req: 9293-SHLD-5, 9293-MAY-3, 7323-2.2-2, 7323-2.2-4, 2018-2-1, 9293-MUST-14, 9293-MUST-65
// req: 5044-A.3-2
func TestActiveOpenOffersAll(t *testing.T) {
	s := newScript(t, Config{MSS: 1460, ReceiveWindow: 1 << 20})
	s.connect()
	s.wantState(SynSent)
	s.expect("S 0:1 win 65535 mss 1460 sackOK wscale 5 ts 1000000,0 fresh")
	s.in("S. 0:1 ack 1 win 1000 mss 1400 sackOK wscale 7 ts 77,1000000")
	s.wantState(Established)
	s.wantEvents(EvEstablished)
	s.expect(". 1 ack 1 win 32768 no mss no sackOK no wscale ts 1000000,77")
	if got := s.c.EMSS(); got != 1388 {
		t.Errorf("EMSS %d, want 1400 less timestamps", got)
	}
}

// req: 9293-3.10.7.3-2, 7323-2.2-4
func TestSynAckIsAckedAtOnceWithUnscaledWindow(t *testing.T) {
	s := newScript(t, Config{MSS: 1000, NoDelay: true, NoTimestamps: true})
	s.connect()
	s.expect("S 0:1")
	s.in("S. 0:1 ack 1 win 2500 mss 1000 wscale 7")
	s.expect(". 1 ack 1")
	if got := s.c.Stats().SndWnd; got != 2500 {
		t.Errorf("window %d, want 2500", got)
	}
	if n := s.fill(); n != 2 {
		t.Errorf("%d segments into a window of 2500", n)
	}
}

// req: 7323-2.2-1, 7323-2.2-2, 2018-4-1, 7323-3.2-1
func TestPassiveOpenAnswersOnlyWhatWasOffered(t *testing.T) {
	for _, tt := range []struct{ offer, answer string }{
		{"", "no sackOK no ts no wscale"},
		{"sackOK", "sackOK no ts no wscale"},
		{"wscale 0", "no sackOK no ts wscale 5"},
		{"ts 5,0", "no sackOK ts 1000000,5 no wscale"},
		{"sackOK wscale 3 ts 5,0", "sackOK ts 1000000,5 wscale 5"},
	} {
		s := newScript(t, Config{MSS: 1460, ReceiveWindow: 1 << 20})
		s.accept("S 0:1 win 60000 mss 1460 " + tt.offer)
		s.wantState(SynReceived)
		s.expect("S. 0:1 ack 1 win 65535 mss 1460 " + tt.answer)
		s.in(". 1 ack 1")
		s.wantState(Established)
		s.wantEvents(EvEstablished)
	}
}

// Windows are scaled where both SYNs said so, in both directions, and otherwise in neither,
// whichever end opened.
//
// req: 7323-2.2-1
func TestScalingNeedsBothSyns(t *testing.T) {
	for _, tt := range []struct {
		without     bool   // of ours
		peer        string // what its SYN says
		send, field int    // octets that its window of 1000 means, and what our megabyte is on the wire
	}{
		{false, "wscale 7", 128_000, 32768},
		{false, "wscale 0", 1000, 32768},
		{false, "", 1000, 65535},
		{true, "wscale 7", 1000, 65535},
		{true, "", 1000, 65535},
	} {
		for _, active := range []bool{false, true} {
			s := newScript(t, Config{MSS: 1460, ReceiveWindow: 1 << 20, NoWindowScale: tt.without,
				NoDelay: true})
			if active {
				s.connect()
				s.sent()
				s.in("S. 0:1 ack 1 win 60000 mss 1460 " + tt.peer)
			} else {
				s.accept("S 0:1 win 60000 mss 1460 " + tt.peer)
			}
			s.sent()
			s.in(". 1 ack 1 win 1000")
			s.wantState(Established)
			if got := s.c.Stats().SndWnd; got != tt.send {
				t.Errorf("%+v, active %v: may send %d", tt, active, got)
			}
			s.push(10)
			if got := s.sent()[0].Window; int(got) != tt.field {
				t.Errorf("%+v, active %v: window field %d", tt, active, got)
			}
		}
	}
}

// req: 9293-MUST-16, C02-4-1, D01-2-1
func TestEMSSSubtractsTimestamps(t *testing.T) {
	s := newScript(t, Config{MSS: 1460})
	s.accept("S 0:1 mss 8960 sackOK ts 1,0")
	if got := s.c.EMSS(); got != 1448 {
		t.Errorf("EMSS %d, want 1448", got)
	}
}

// No segment is larger than the peer's MSS or the path allow, whichever is less, options counted;
// what the path is said to carry later cannot raise it beyond the peer's.
//
// req: 9293-MUST-16
func TestSegmentsKeepToTheSmallestMSS(t *testing.T) {
	for _, tt := range []struct {
		peer, options string
		limit         int // of the path; 0: none is known
		want          int
	}{
		{"mss 1460", "", 0, 1400},
		{"mss 536", "", 0, 536},
		{"mss 536", "ts 1,0", 0, 524},
		{"mss 536", "ts 1,0", 1400, 524},
		{"mss 1300", "ts 1,0", 600, 588},
		{"mss 80", "ts 1,0", 0, 68},
		{"mss 10", "", 0, 64}, // the floor: mssFloor
	} {
		for _, active := range []bool{false, true} {
			s := newScript(t, Config{MSS: 1400, NoSACK: true, NoDelay: true})
			if active {
				s.connect()
				s.sent()
				s.in("S. 0:1 ack 1 win 60000 " + tt.peer + " " + tt.options)
			} else {
				s.accept("S 0:1 win 60000 " + tt.peer + " " + tt.options)
			}
			s.sent()
			s.in(". 1 ack 1")
			s.wantState(Established)
			s.sent()
			if tt.limit != 0 {
				s.c.SetEMSSLimit(tt.limit)
			}
			if got := roomOf(s.c, s.now); got != tt.want {
				t.Errorf("%+v, active %v: room for %d", tt, active, got)
			}
			s.fill()
			for _, out := range s.sent() {
				if n := out.Len + out.Options.wireLen(); out.Len != tt.want || tt.limit != 0 && n > tt.limit {
					t.Errorf("%+v, active %v: %d octets and %d of options", tt, active, out.Len, n-out.Len)
				}
			}
		}
	}
}

// The shift is 14 then, and the SYN's receiver can count it.
//
// req: 7323-2.3-3
func TestShiftAbove14IsTaken14(t *testing.T) {
	for shift, high := range map[byte]bool{13: false, 14: false, 15: true, 255: true} {
		b := []byte{0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 6 << 4, byte(SYN), 0, 1, 0, 0, 0, 0, optNOP,
			optWindowScale, 3, shift}
		var syn Segment
		if d := Parse(b, &syn); d != DropNone {
			t.Fatal(d)
		}
		if syn.Options.ScaleTooLarge != high {
			t.Errorf("shift %d: too large: %v", shift, !high)
		}
		c := NewConn(Config{})
		c.Accept(0, simID(true), 1, 0, &syn)
		if c.sndShift != min(shift, 14) {
			t.Errorf("shift %d taken as %d", shift, c.sndShift)
		}
	}
}

// What a SYN has promised is taken, also where SetReceiveWindow came before it or soon after.
//
// req: 9293-SHLD-14
func TestWindowOfASynIsKept(t *testing.T) {
	s := newScript(t, plain())
	s.accept("S 0:1 win 60000 mss 1000")
	s.c.SetReceiveWindow(60_000)
	s.expect("S. 0:1 ack 1 win 60000")
	s.in(". 1 ack 1")
	s.in(". 50001:51001 ack 1")
	s.wantArrival(50_000, 51_000)

	s = newScript(t, plain())
	s.connect()
	s.expect("S 0:1 win 20000")
	s.c.SetReceiveWindow(1000)
	s.in("S. 0:1 ack 1 win 60000 mss 1000")
	s.expect(". 1 ack 1 win 20000")
	s.in(". 10001:11001 ack 1")
	s.wantArrival(10_000, 11_000)
}

// The window of a SYN,ACK that crosses our SYN is as little scaled as that of any other.
//
// req: 7323-2.2-4
func TestSimultaneousOpenDoesNotScaleTheWindow(t *testing.T) {
	cfg := plain()
	cfg.NoWindowScale = false
	s := newScript(t, cfg)
	s.connect()
	s.expect("S 0:1")
	s.in("S 0:1 win 2000 mss 1000 wscale 7")
	s.expect("S. 0:1 ack 1")
	s.in("S. 0:1 ack 1 win 2000 mss 1000 wscale 7")
	s.wantState(Established)
	if got := s.c.Stats().SndWnd; got > 2000 || got < 1500 {
		t.Errorf("window %d", got)
	}
	s.in(". 1 ack 1 win 2000")
	if got := s.c.Stats().SndWnd; got != 2000<<7 {
		t.Errorf("window %d", got)
	}
}

// req: 9293-MUST-11, 9293-3.10.7.4-6
func TestResetInSynReceived(t *testing.T) {
	passive := newScript(t, plain())
	passive.accept("S 0:1 mss 1000")
	passive.expect("S. 0:1 ack 1")
	passive.in("R 1")
	passive.wantState(Closed)
	passive.wantEvents(EvClosed)

	active := newScript(t, plain())
	active.connect()
	active.expect("S 0:1")
	active.in("S 0:1 mss 1000")
	active.expect("S. 0:1 ack 1")
	active.in("R 1")
	active.wantState(Closed)
	active.wantEvents(EvRefused | EvClosed)
}

// req: 9293-MUST-22, 6298-2-1, 6298-5-5
func TestSynBacksOffAndGivesUp(t *testing.T) {
	cfg := plain()
	cfg.SynRetries = 3
	s := newScript(t, cfg)
	s.connect()
	start := s.now
	s.advance(14 * sc)
	s.expectAt("S 0:1", start, sc, 0, 1, 3, 7)
	s.wantState(SynSent)
	s.wantEvents(EvSuspect)
	s.advance(2 * sc)
	s.wantState(Closed)
	s.wantEvents(EvTimeout | EvClosed)
}

// req: 5681-3.1-4, 6298-5-6
func TestLostSynStartsWithOneSegmentAndThreeSeconds(t *testing.T) {
	s := newScript(t, plain())
	s.connect()
	s.advance(sc)
	s.expect("S 0:1", "S 0:1 rtx")
	s.in("S. 0:1 ack 1 win 60000 mss 1000")
	s.expect(". 1 ack 1")
	if n := s.fill(); n != 1 {
		t.Errorf("%d segments, want 1", n)
	}
	if got := s.c.Stats().RTONs; got != 3*sc {
		t.Errorf("RTO %d", got)
	}
}

// The same where the SYN,ACK echoes a timestamp that we cannot have sent: the RTO would be its
// maximum for dozens of round trips.
func TestSynAckEchoesWhatWasNeverSent(t *testing.T) {
	for _, echo := range []string{"0", "3000000000", "1001500"} {
		cfg := plain()
		cfg.NoTimestamps = false
		s := newScript(t, cfg)
		s.c.Connect(s.now, simID(false), s.iss, 0)
		s.advance(1100 * ms)
		s.expect("S 0:1", "S 0:1 rtx")
		s.in("S. 0:1 ack 1 win 60000 mss 1000 ts 5," + echo)
		if st := s.c.Stats(); st.RTONs != 3*sc || st.SRTTNs != 0 {
			t.Errorf("echo %s: RTO %d, SRTT %d", echo, st.RTONs, st.SRTTNs)
		}
	}
}

// req: 5681-3.1-3, 5681-3.1-6
func TestInitialWindow(t *testing.T) {
	s := accepted(t, plain(), "")
	if n := s.fill(); n != 10 {
		t.Errorf("%d segments, want 10", n)
	}
	if st := s.c.Stats(); st.Cwnd != 10000 || st.Ssthresh < 1<<30 {
		t.Errorf("cwnd %d, ssthresh %d", st.Cwnd, st.Ssthresh)
	}
}

// req: 9293-3.5.2-1, 9293-3.10.7.2-1
func TestResetFor(t *testing.T) {
	var x Transmit
	id := simID(true)
	if ResetFor(id, &Segment{Flags: RST | ACK}, &x) {
		t.Error("reset answered")
	}
	if !ResetFor(id, &Segment{Flags: ACK | PSH, Seq: 5, Ack: 99, Len: 10}, &x) || x.Flags != RST ||
		x.Seq != 99 || x.Ack != 0 {
		t.Errorf("to an ACK: %+v", x)
	}
	if !ResetFor(id, &Segment{Flags: SYN | FIN, Seq: 5, Len: 10}, &x) || x.Flags != RST|ACK ||
		x.Seq != 0 || x.Ack != 17 {
		t.Errorf("to a SYN: %+v", x)
	}
	if x.HeaderLen() != HeaderLenMin || x.ID != id || x.Handle != NoHandle {
		t.Errorf("%+v", x)
	}
}

func TestStartWhileInUsePanics(t *testing.T) {
	s := accepted(t, plain(), "")
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	s.connect()
}

func TestNewSynInSynReceived(t *testing.T) {
	passive := newScript(t, plain())
	passive.accept("S 0:1 mss 1000")
	passive.expect("S. 0:1 ack 1")
	passive.in("S 50:51 mss 1000")
	passive.wantState(Closed) // back to LISTEN: the peer's next SYN finds the listener
	passive.wantEvents(EvClosed)

	active := newScript(t, plain())
	active.connect()
	active.expect("S 0:1")
	active.in("S 0:1 mss 1000")
	active.expect("S. 0:1 ack 1")
	active.in("S 50:51 mss 1000")
	active.wantDrop(DropSYNChallenge)
	active.wantState(SynReceived)
	active.expect(". 1 ack 1")
}

// What a SYN waited in this host for the address of its next hop says nothing of the path: the
// round trip begins when it leaves, and that it was due again meanwhile is no loss. It is not sent
// again sooner than an RTO after it left. When it is, its timestamp tells nothing: it may be of one
// that waited.
//
// req: 6298-2-2, 6298-3-1, 6298-5-1, 6298-5-6, 5681-3.1-4
func TestSynThatWaited(t *testing.T) {
	for _, stamps := range []bool{false, true} {
		for _, waited := range []int64{300 * ms, 1500 * ms} {
			for _, lost := range []bool{false, true} {
				s := newScript(t, Config{MSS: 1000, NoTimestamps: !stamps})
				s.connect()
				s.advance(waited)
				s.sent()
				s.c.SynLeft(s.now)
				if got := s.c.Deadline() - s.now; got != sc {
					t.Errorf("after %d ms: due again in %d us, want an RTO", waited/ms, got/us)
				}
				want := Stats{SRTTNs: 10 * ms, RTONs: 210 * ms, Cwnd: 10}
				if lost {
					s.advance(sc)
					want = Stats{RTONs: 3 * sc, Cwnd: 1}
				}
				s.advance(10 * ms)
				answer := "S. 0:1 ack 1 mss 1000 win 60000"
				if stamps {
					answer += " ts 77,1000000" // of the first SYN
				}
				s.in(answer)
				s.wantState(Established)
				s.push(100)
				s.advance(5 * ms)
				due := s.c.Deadline()
				s.c.SynLeft(s.now)
				if s.c.Deadline() != due {
					t.Errorf("later, a timer of data moves by %d us", (s.c.Deadline()-due)/us)
				}
				got := s.c.Stats()
				if got.SRTTNs != want.SRTTNs || got.RTONs != want.RTONs ||
					got.Cwnd != want.Cwnd*s.c.EMSS() {
					t.Errorf("after %d ms, lost %v, timestamps %v: SRTT %d us, RTO %d us, cwnd %d",
						waited/ms, lost, stamps, got.SRTTNs/us, got.RTONs/us, got.Cwnd)
				}
			}
		}
	}
}
