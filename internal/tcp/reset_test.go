package tcp

import "testing"

// req: 5961-7-1
func TestChallengesAreLimited(t *testing.T) {
	s := accepted(t, plain(), "")
	for range 50 {
		s.in("R 2")
		s.drain()
	}
	if n := len(s.sent()); n != 10 {
		t.Errorf("%d challenge ACKs", n)
	}
	s.advance(5 * sc)
	s.in("R 2")
	s.expect(". 1 ack 1")
	if got := s.c.Stats().ChallengeAcks; got != 11 {
		t.Errorf("counted %d", got)
	}
}

// Two ends that find each other's empty segments unacceptable do not go on for ever.
//
// req: 9293-3.5.2-2
func TestAnswersToEmptySegmentsAreLimited(t *testing.T) {
	s := accepted(t, plain(), "")
	for range 50 {
		s.in(". -10 ack 1")
		s.drain()
	}
	if n := len(s.sent()); n != 10 {
		t.Errorf("%d ACKs", n)
	}
	for range 20 {
		s.in(". -99:1 ack 1") // what carries octets is always answered
		s.expect(". 1 ack 1")
	}
}

// A RST of a connection whose SYNs agreed on timestamps carries them, whatever ends it.
//
// req: 7323-3.2-6, 7323-5.2-4
func TestAbortIsStamped(t *testing.T) {
	half := func(t *testing.T) *script {
		cfg := plain()
		cfg.NoTimestamps = false
		s := newScript(t, cfg)
		s.accept("S 0:1 win 60000 mss 1000 ts 1000000,0")
		return s
	}
	without := func(t *testing.T) *script { return accepted(t, plain(), "") }
	abort := func(s *script) { s.c.Abort(s.now) }
	for _, x := range []struct {
		name   string
		start  func(*testing.T) *script
		before func(*script)
		end    func(*script)
		want   string
	}{
		{"octets are in flight", stamped, func(s *script) {
			s.push(100)
		}, abort, "R. 101 ack 1 ts 1000005,1000000"},
		{"octets were received", stamped, func(s *script) {
			s.in(". 1:101 ack 1")
		}, abort, "R. 1 ack 101 ts 1000005,1000000"},
		{"CLOSE-WAIT", stamped, func(s *script) {
			s.in("F. 1:2 ack 1")
		}, abort, "R. 1 ack 2 ts 1000005,1000000"},
		{"FIN-WAIT-1", stamped, func(s *script) {
			s.c.CloseSend(s.now)
		}, abort, "R. 2 ack 1 ts 1000005,1000000"},
		{"nobody reads", stamped, func(s *script) {
			s.c.SetOrphaned(s.now)
		}, func(s *script) { s.in(". 1:101 ack 1") },
			"R. 1 ack 1 ts 1000005,1000005"},
		{"SYN-RECEIVED", half, func(*script) {}, abort, "R. 1 ack 1 ts 1000005,1000000"},
		{"not agreed on", without, func(*script) {}, abort, "R. 1 ack 1 no ts"},
	} {
		s := x.start(t)
		s.where = x.name + ": "
		x.before(s)
		s.advance(5 * ms)
		s.sent()
		x.end(s)
		s.expect(x.want)
	}
}

// A RST that answers a segment has timestamps if that has: TSval is 0, TSecr its TSval.
//
// req: 7323-5.2-3
func TestAnswerWithResetIsStamped(t *testing.T) {
	s := newScript(t, plain())
	var x Transmit
	for _, seg := range []string{". 5 ack 9 ts 77,3", "S 5:6 ts 77,0"} {
		in := s.parse(seg)
		if !ResetFor(simID(true), &in, &x) || !x.Options.HasTimestamps || x.Options.TSval != 0 ||
			x.Options.TSecr != 77 {
			t.Errorf("%s: %+v", seg, x)
		}
	}
	s.ts = false
	if in := s.parse(". 5 ack 9"); !ResetFor(simID(true), &in, &x) || x.Options.HasTimestamps {
		t.Errorf("%+v", x)
	}

	cfg := plain()
	cfg.NoTimestamps = false
	s = newScript(t, cfg)
	s.connect()
	s.sent()
	s.in(". 5 ack 9 ts 77,3")
	s.expect("R 9 ts 0,77")

	s = newScript(t, cfg)
	s.accept("S 0:1 win 60000 mss 1000 ts 70,0")
	s.sent()
	s.in(". 1 ack 9 ts 77,3")
	s.expect("R 9 ts 0,77")
}

// So has the RST with which a listener that closes ends a half-open connection.
//
// req: 7323-5.2-4
func TestHalfOpenResetIsStamped(t *testing.T) {
	for _, with := range []bool{true, false} {
		cfg := plain()
		cfg.NoTimestamps = !with
		s := newScript(t, cfg)
		syn := s.parse("S 0:1 win 60000 mss 1000 ts 70,0")
		h := NewHalf(s.iss, 5, &syn)
		var x Transmit
		h.Reset(s.now, simID(true), &cfg, &x)
		want := "R. 1 ack 1 ts 1000005,70"
		if !with {
			want = "R. 1 ack 1 no ts"
		}
		if err := s.match(&x, want); err != nil {
			t.Errorf("%s: %v", s.show(&x), err)
		}
	}
}

// When both ends have closed, a RST is no failure: a peer sends it whose TIME-WAIT is over when
// our FIN comes again. It is one where octets of ours were not acknowledged.
//
// req: 9293-3.10.7.4-7
func TestResetAfterBothHaveClosed(t *testing.T) {
	for _, x := range []struct {
		state State
		data  bool
	}{{LastAck, false}, {LastAck, true}, {Closing, false}, {Closing, true}} {
		s := accepted(t, plain(), "")
		if x.state == LastAck {
			s.in("F. 1:2 ack 1")
		}
		s.push(100)
		if !x.data {
			s.in(". " + itoa(int(s.c.rcvNxt()-s.irs)) + " ack 101")
		}
		s.c.CloseSend(s.now)
		s.drain()
		if x.state == Closing {
			ack := " ack 101"
			if x.data {
				ack = " ack 1"
			}
			s.in("F. 1:2" + ack)
		}
		s.wantState(x.state)
		s.c.TakeEvents()
		s.in("R 2")
		s.wantState(Closed)
		if x.data {
			s.wantEvents(EvClosed | EvReset)
		} else {
			s.wantEvents(EvClosed)
		}
	}
}
