package tcp

import "testing"

// req: 9293-SHLD-28
func TestPushIsOneSegment(t *testing.T) {
	s := accepted(t, plain(), "")
	s.push(1000, 300, 1)
	s.expect(". 1:1001 ack 1 fresh", ". 1001:1301 ack 1", ". 1301:1302 ack 1")
	pushOne(s.c, s.now, 9, 5, true)
	s.expect("P. 1302:1307 ack 1")
	s.in(". 1 ack 1302")
	s.wantEvents(EvAcked)
	s.wantReleased(0, 1, 2)
	if s.c.AckedOffset() != 1301 || s.c.PushedOffset() != 1306 {
		t.Errorf("acked %d, pushed %d", s.c.AckedOffset(), s.c.PushedOffset())
	}
}

// req: 2018-8-1
func TestNothingIsReleasedBeforeTheCumulativeAck(t *testing.T) {
	s := accepted(t, sackOnly(), "sackOK")
	s.push(100, 100, 100)
	s.in(". 1 ack 1 sack 101:301")
	s.wantReleased()
	s.in(". 1 ack 151")
	s.wantReleased(0)
	s.in(". 1 ack 301")
	s.wantReleased(1, 2)
}

// req: 5681-3-1, 9293-MUST-1
func TestPeersWindowBoundsFlight(t *testing.T) {
	s := newScript(t, plain())
	s.accept("S 0:1 win 2999 mss 1000")
	s.expect("S. 0:1 ack 1")
	s.in(". 1 ack 1 win 2999")
	if n := s.fill(); n != 2 {
		t.Errorf("%d segments into 2999 octets", n)
	}
	s.in(". 1 ack 1 win 65535")
	if n := s.fill(); n != 8 {
		t.Errorf("%d more, want what cwnd allows", n)
	}
}

// req: 7323-2.3-1, 7323-2.2-3
func TestPeersWindowIsScaled(t *testing.T) {
	cfg := plain()
	cfg.NoWindowScale = false
	s := newScript(t, cfg)
	s.accept("S 0:1 win 500 mss 1000 wscale 3")
	s.expect("S. 0:1 ack 1")
	s.in(". 1 ack 1 win 500 wscale 9") // on anything but a SYN the option means nothing: 7323-2.2-3
	if n := s.fill(); n != 4 {
		t.Errorf("%d segments into 4000 octets", n)
	}
}

// req: 9293-MUST-34, 9293-SHLD-15
func TestShrunkPeerWindow(t *testing.T) {
	s := accepted(t, plain(), "")
	s.push(1000, 1000, 1000)
	s.sent()
	s.in(". 1 ack 1 win 500")
	if roomOf(s.c, s.now) != 0 {
		t.Error("room beyond a shrunken window")
	}
	s.in(". 1 ack 1001 win 500")
	if roomOf(s.c, s.now) != 0 {
		t.Error("room beyond a shrunken window")
	}
	s.advance(300 * ms)
	s.expect(". 1001:2001 ack 1 rtx")
}

// req: 9293-3.8.6-1
func TestOldAckDoesNotMoveTheWindow(t *testing.T) {
	s := accepted(t, plain(), "")
	s.push(1000, 1000)
	s.in(". 1 ack 2001 win 40000")
	s.in(". 1 ack 1001 win 10")
	if got := s.c.Stats().SndWnd; got != 40000 {
		t.Errorf("window %d", got)
	}
}

// req: 9293-SHLD-7, 9293-MUST-60
func TestNagle(t *testing.T) {
	cfg := plain()
	cfg.NoDelay = false
	s := accepted(t, cfg, "")
	s.push(10)
	s.expect(". 1:11 ack 1")
	s.push(20)
	s.expect()
	if roomOf(s.c, s.now) != 0 {
		t.Error("room while a segment waits")
	}
	s.in(". 1 ack 11")
	s.expect(". 11:31 ack 1")
	s.push(1000)
	s.expect(". 31:1031 ack 1")
}

// req: 9293-MUST-17
func TestNoDelay(t *testing.T) {
	s := accepted(t, plain(), "")
	s.push(10, 20)
	s.expect(". 1:11 ack 1", ". 11:31 ack 1")
}

// req: 9293-MUST-36, 9293-SHLD-29, 9293-SHLD-30, 9293-MUST-35
func TestZeroWindowIsProbed(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in(". 1 ack 1 win 0")
	s.push(1000)
	s.expect()
	start := s.now
	s.advance(4 * sc)
	s.expectAt(". 1:2 ack 1", start, ms, 200, 600, 1400, 3000)
	// the octet was not taken: the segment goes out whole, with its boundaries
	s.in(". 1 ack 1 win 60000")
	s.expect(". 1:1001 ack 1 fresh")
	s.in(". 1 ack 1001")
	s.wantReleased(0)
}

func TestProbeOctetTaken(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in(". 1 ack 1 win 0")
	s.push(1000)
	s.advance(200 * ms)
	s.expect(". 1:2 ack 1")
	s.in(". 1 ack 2 win 0")
	s.wantReleased()
	s.advance(200 * ms)
	s.expect(". 2:3 ack 1")
	s.in(". 1 ack 3 win 60000")
	s.expect(". 3:1001 ack 1")
	s.in(". 1 ack 1001")
	s.wantReleased(0)
}

func TestProbeOfASingleOctet(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in(". 1 ack 1 win 0")
	s.push(1)
	s.advance(200 * ms)
	s.expect(". 1:2 ack 1")
	s.in(". 1 ack 2 win 0")
	s.wantReleased(0)
	s.advance(10 * sc)
	s.expect()
}

// req: 9293-MUST-37
func TestAnsweredProbesKeepTheConnection(t *testing.T) {
	cfg := plain()
	cfg.UserTimeoutNs = 10 * sc
	s := accepted(t, cfg, "")
	s.in(". 1 ack 1 win 0")
	s.push(100)
	for range 100 {
		s.advance(5 * sc)
		s.in(". 1 ack 1 win 0")
	}
	s.wantState(Established)
	s.advance(10 * sc)
	s.wantState(Closed)
	s.wantEvents(EvTimeout | EvClosed)
	s.wantReleased(0)
}

// req: 9293-MUST-38
func TestSenderAvoidsSillyWindow(t *testing.T) {
	s := accepted(t, plain(), "")
	s.push(1000)
	s.expect(". 1:1001 ack 1")
	s.in(". 1 ack 1001 win 100")
	s.push(1000)
	s.expect()
	s.advance(199 * ms)
	s.expect()
	s.advance(ms)
	s.expect(". 1001:1101 ack 1") // the override timer cuts it
	s.in(". 1 ack 1101 win 60000")
	s.wantReleased(0)
	s.expect(". 1101:2001 ack 1")
	s.in(". 1 ack 2001")
	s.wantReleased(1)
}

// req: 9293-MUST-38
func TestHalfOfASmallWindowIsEnough(t *testing.T) {
	s := newScript(t, plain())
	s.accept("S 0:1 win 600 mss 1000")
	s.expect("S. 0:1 ack 1")
	s.in(". 1 ack 1 win 600")
	s.push(1000)
	s.expect("P. 1:601 ack 1")
	s.in(". 1 ack 601 win 600")
	s.expect("P. 601:1001 ack 1")
}

func TestClosedWindowOverFinIsProbedWithTheFin(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in(". 1 ack 1 win 0")
	s.c.CloseSend(s.now)
	s.expect()
	s.advance(200 * ms)
	s.expect("F. 1:2 ack 1")
	s.in(". 1 ack 2 win 0")
	s.wantState(FinWait2)
}

// Our ACKs must lie in the peer's window to be taken: not after a FIN that it has no room for,
// nor after octets from which it has taken its window back.
//
// req: 9293-3.4-2
func TestAcksStayWithinAShrunkenWindow(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in(". 1 ack 1 win 0")
	s.c.CloseSend(s.now)
	s.advance(200 * ms)
	s.expect("F. 1:2 ack 1")
	s.in(". 1:1001 ack 1 win 0")
	s.in(". 1001:2001 ack 1 win 0")
	s.expect(". 1 ack 2001")
	s.in(". 2001:3001 ack 2 win 0")
	s.in(". 3001:4001 ack 2 win 0")
	s.expect(". 2 ack 4001")

	s = accepted(t, plain(), "")
	s.push(1000, 1000)
	s.sent()
	s.in(". 1:1001 ack 1 win 500")
	s.in(". 1001:2001 ack 1 win 500")
	s.expect(". 501 ack 2001")
	s.in(". 2001:3001 ack 1 win 60000")
	s.in(". 3001:4001 ack 1 win 60000")
	s.expect(". 2001 ack 4001")

	cfg := plain()
	cfg.NoWindowScale = false
	s = newScript(t, cfg)
	s.accept("S 0:1 win 60000 mss 1000 wscale 7")
	s.expect("S. 0:1 ack 1")
	s.in(". 1 ack 1")
	s.push(1000)
	s.expect(". 1:1001 ack 1")
	s.in(". 1:1001 ack 1 win 7") // 896
	s.in(". 1001:2001 ack 1 win 7")
	s.expect(". 1001 ack 2001")
}

// req: 9293-SHLD-17
func TestPersistentlyShrunkWindowDoesNotTimeOut(t *testing.T) {
	cfg := plain()
	cfg.UserTimeoutNs = 10 * sc
	s := accepted(t, cfg, "")
	s.push(1000, 1000)
	for range 20 {
		s.advance(5 * sc)
		s.in(". 1 ack 1 win 1500")
	}
	s.wantState(Established)
}

func TestEMSSShrink(t *testing.T) {
	s := accepted(t, plain(), "")
	s.push(1000, 1000)
	s.c.SetEMSSLimit(400)
	if s.c.EMSS() != 400 || roomOf(s.c, s.now) != 0 {
		t.Errorf("EMSS %d, room %d while the first piece is under way", s.c.EMSS(), roomOf(s.c, s.now))
	}
	s.out = s.out[:0]
	s.expect(". 1:401 ack 1 rtx")
	s.in(". 1 ack 401")
	s.wantReleased()
	s.expect(". 401:801 ack 1 rtx", ". 801:1001 ack 1 rtx", ". 1001:1401 ack 1 rtx",
		". 1401:1801 ack 1 rtx", ". 1801:2001 ack 1 rtx")
	if roomOf(s.c, s.now) != 400 {
		t.Errorf("room %d", roomOf(s.c, s.now))
	}
	s.in(". 1 ack 1001")
	s.wantReleased(0)
	s.in(". 1 ack 2001")
	s.wantReleased(1)
}

func TestEMSSShrinkBeforeFirstTransmission(t *testing.T) {
	s := accepted(t, plain(), "")
	pushOne(s.c, s.now, 0, 1000, true)
	s.c.SetEMSSLimit(600)
	s.expect("P. 1:601 ack 1", "P. 601:1001 ack 1")
}

// With the ring full there is no slot to cut with: the oldest goes out piece by piece as its front
// is acknowledged.
func TestEMSSShrinkWithFullRing(t *testing.T) {
	cfg := plain()
	cfg.SentMax = 16
	cfg.InitialWindow = 50
	s := accepted(t, cfg, "")
	for roomOf(s.c, s.now) > 0 {
		pushOne(s.c, s.now, s.next, s.c.EMSS(), true)
		s.next++
		s.drain()
	}
	s.sent()
	s.c.SetEMSSLimit(100)
	for i := 0; s.c.AckedOffset() < s.c.PushedOffset(); i++ {
		if i > 1000 {
			t.Fatal("no end")
		}
		s.advance(70 * sc / 1000)
		for _, x := range s.sent() {
			if x.Len > 100 || x.Flags&PSH == 0 {
				t.Fatalf("segment of %d, flags %#x", x.Len, x.Flags)
			}
			if from := int(int32(x.Seq-s.iss)) - 1; from <= int(s.c.AckedOffset()) &&
				from+x.Len > int(s.c.AckedOffset()) {
				s.in(". 1 ack " + itoa(from+x.Len+1))
			}
		}
		s.drainHandles()
	}
	s.wantState(Established)
}

func (s *script) drainHandles() {
	for {
		if _, ok := s.c.Release(); !ok {
			return
		}
	}
}

// req: 5681-4.1-1
func TestIdleRestart(t *testing.T) {
	for _, keep := range []bool{false, true} {
		cfg := plain()
		cfg.NoIdleRestart = keep
		s := accepted(t, cfg, "")
		acked := 1
		for range 4 {
			acked += 1000 * s.fill()
			s.in(". 1 ack " + itoa(acked))
			s.drainHandles()
		}
		grown := s.c.Stats().Cwnd
		if grown <= 10000 {
			t.Fatalf("cwnd %d did not grow", grown)
		}
		s.advance(10 * sc)
		s.push(1000)
		if got := s.c.Stats().Cwnd; !keep && got != 10000 || keep && got != grown {
			t.Errorf("keep %v: cwnd %d after idling, was %d", keep, got, grown)
		}
	}
}

// req: 8312-5.8-1
func TestCwndDoesNotGrowWhileApplicationLimited(t *testing.T) {
	s := accepted(t, plain(), "")
	for i := range 50 {
		s.push(1000)
		s.in(". 1 ack " + itoa(1001+1000*i))
	}
	if got := s.c.Stats().Cwnd; got != 10000 {
		t.Errorf("cwnd %d", got)
	}
}

func TestRoom(t *testing.T) {
	s := newScript(t, plain())
	if roomOf(s.c, s.now) != 0 {
		t.Error("room in CLOSED")
	}
	s.accept("S 0:1 win 60000 mss 1000")
	if roomOf(s.c, s.now) != 0 {
		t.Error("room in SYN-RECEIVED")
	}
	s.in(". 1 ack 1")
	if roomOf(s.c, s.now) != 1000 {
		t.Error("no room when established")
	}
	pushOne(s.c, s.now, 0, 10, false)
	if roomOf(s.c, s.now) != 0 {
		t.Error("room with a segment queued")
	}
	s.drain()
	s.c.CloseSend(s.now)
	if roomOf(s.c, s.now) != 0 {
		t.Error("room after CloseSend")
	}
}

func TestWindowOpeningIsAnEvent(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in(". 1 ack 1 win 10")
	s.c.TakeEvents()
	s.in(". 1 ack 1 win 5000")
	s.wantEvents(EvRoom)
}

func TestPushPanics(t *testing.T) {
	for name, f := range map[string]func(s *script){
		"empty":     func(s *script) { pushOne(s.c, s.now, 0, 0, false) },
		"too large": func(s *script) { pushOne(s.c, s.now, 0, 1001, false) },
		"second": func(s *script) {
			pushOne(s.c, s.now, 0, 1, false)
			pushOne(s.c, s.now, 1, 1, false)
		},
		"closed": func(s *script) { s.c.CloseSend(s.now); pushOne(s.c, s.now, 0, 1, false) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f(accepted(t, plain(), ""))
		}()
	}
}

func TestSetNoDelay(t *testing.T) {
	cfg := plain()
	cfg.NoDelay = false
	s := accepted(t, cfg, "")
	s.push(10, 20)
	s.expect(". 1:11 ack 1")
	s.c.SetNoDelay(true)
	s.expect(". 11:31 ack 1")
}

// The window closes over what is in flight: the oldest segment probes, and cwnd does not suffer.
//
// req: 9293-MUST-35
func TestWindowClosedOverFlightIsProbed(t *testing.T) {
	s := accepted(t, plain(), "")
	s.push(1000, 1000)
	s.sent()
	s.in(". 1 ack 1 win 0")
	s.advance(200 * ms)
	s.expect(". 1:1001 ack 1 rtx")
	s.in(". 1 ack 1 win 0")
	if st := s.c.Stats(); st.Timeouts != 0 || st.Cwnd != 10000 || st.Probes != 1 {
		t.Errorf("%+v", st)
	}
	s.in(". 1 ack 1001 win 60000")
	s.expect(". 1001:2001 ack 1 rtx")
	s.in(". 1 ack 2001 win 60000")
	s.wantReleased(0, 1)
}

// A peer that acknowledges part of a segment gets the rest with the same handle.
func TestPartOfASegmentAcknowledged(t *testing.T) {
	s := accepted(t, plain(), "")
	s.push(1000)
	s.sent()
	s.in(". 1 ack 401")
	s.wantReleased()
	s.advance(200 * ms)
	out := s.sent()
	if len(out) != 1 || s.match(&out[0].Transmit, ". 401:1001 ack 1 rtx") != nil ||
		out[0].Off != 400 || out[0].Len != 600 {
		t.Fatalf("%+v", out)
	}
	s.in(". 1 ack 1001")
	s.wantReleased(0)
}

func TestOpenedWindowEndsTheBackoff(t *testing.T) {
	s := accepted(t, plain(), "")
	s.push(1000)
	s.in(". 1 ack 1 win 0")
	s.advance(10 * sc)
	s.sent()
	s.in(". 1 ack 1 win 60000")
	s.expect(". 1:1001 ack 1 rtx")
	s.advance(200 * ms)
	s.expect(". 1:1001 ack 1 rtx")
}

func TestProbeThatIsDueGivesWayToAWindow(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in(". 1 ack 1 win 0")
	s.push(1000)
	s.now += 200 * ms
	s.c.Expire(s.now)
	s.in(". 1 ack 1 win 100")
	s.expect() // neither a probe nor a silly segment
	s.advance(200 * ms)
	s.expect(". 1:101 ack 1")
}
