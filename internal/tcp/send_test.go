package tcp

import "testing"

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
