package tcp

import "testing"

// req: 9293-3.6-1, 9293-3.4-3, 9293-MUST-13
func TestActiveClose(t *testing.T) {
	s := accepted(t, plain(), "")
	s.push(100)
	s.c.CloseSend(s.now)
	s.c.CloseSend(s.now)
	s.wantState(FinWait1)
	s.expect(". 1:101 ack 1", "F. 101:102 ack 1")
	s.in(". 1 ack 101")
	s.wantState(FinWait1)
	s.in(". 1 ack 102")
	s.wantState(FinWait2)
	s.wantReleased(0)
	if s.c.AckedOffset() != 100 {
		t.Errorf("acked %d: a FIN is no octet", s.c.AckedOffset())
	}
	s.in(". 1:101 ack 102") // half-close: the peer still sends
	s.wantArrival(0, 100)
	s.in("F. 101:102 ack 102")
	s.wantState(TimeWait)
	s.wantEvents(EvAcked | EvFinAcked | EvPeerClosed)
	s.expect(". 102 ack 102")
	s.advance(60*sc - 1)
	s.wantState(TimeWait)
	s.advance(1)
	s.wantState(Closed)
	s.wantEvents(EvClosed)
}

// req: 9293-MUST-12
func TestPassiveClose(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in("F. 1:102 ack 1")
	if !s.last.Fin {
		t.Error("Fin not told")
	}
	s.wantArrival(0, 100)
	s.wantState(CloseWait)
	s.wantEvents(EvPeerClosed)
	s.expect(". 1 ack 102")
	s.push(10)
	s.c.CloseSend(s.now)
	s.wantState(LastAck)
	s.expect(". 1:11 ack 102", "F. 11:12 ack 102")
	s.in(". 102 ack 12")
	s.wantState(Closed)
	s.wantEvents(EvAcked | EvClosed)
	s.wantReleased(0)
	if s.c.Deadline() != never {
		t.Error("timer left")
	}
}

// req: 9293-3.6-2
func TestSimultaneousClose(t *testing.T) {
	s := accepted(t, plain(), "")
	s.c.CloseSend(s.now)
	s.expect("F. 1:2 ack 1")
	s.in("F. 1:2 ack 1")
	s.wantState(Closing)
	s.expect(". 2 ack 2")
	s.in(". 2 ack 2")
	s.wantState(TimeWait)
}

func TestFinAndItsAckTogether(t *testing.T) {
	s := accepted(t, plain(), "")
	s.c.CloseSend(s.now)
	s.expect("F. 1:2 ack 1")
	s.in("F. 1:2 ack 2")
	s.wantState(TimeWait)
	s.expect(". 2 ack 2")
}

// req: 9293-3.10.7.4-4
func TestFinOutOfOrder(t *testing.T) {
	s := accepted(t, sackOnly(), "sackOK")
	s.in("F. 1001:2002 ack 1")
	s.wantArrival(1000, 2000)
	s.wantState(Established)
	s.expect(". 1 ack 1 sack 1001:2001")
	s.in(". 1:1001 ack 1")
	s.wantState(CloseWait)
	s.wantEvents(EvPeerClosed)
	s.expect(". 1 ack 2002")
}

func TestBareFinOutOfOrder(t *testing.T) {
	s := accepted(t, sackOnly(), "sackOK")
	s.in("F. 1001:1002 ack 1")
	s.wantState(Established)
	s.expect(". 1 ack 1")
	s.in(". 1:1001 ack 1")
	s.wantState(CloseWait)
	s.expect(". 1 ack 1002")
}

func TestNothingIsTakenAfterTheFin(t *testing.T) {
	s := accepted(t, sackOnly(), "sackOK")
	s.in("F. 501:502 ack 1")
	s.in(". 401:601 ack 1")
	s.wantArrival(400, 500)
	s.in(". 501:601 ack 1")
	s.wantNothing()
}

// The FIN was lost, or came with text that was refused; now it comes after text that is held
// already.
//
// req: 9293-3.10.7.4-4
func TestFinAfterDuplicateText(t *testing.T) {
	for name, held := range map[string][]string{
		"in order":     {". 1:101 ack 1"},
		"beyond a gap": {". 51:101 ack 1", ". 1:51 ack 1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := accepted(t, sackOnly(), "sackOK")
			for _, text := range held {
				s.in(text)
			}
			s.sent()
			s.in("F. 51:102 ack 1")
			s.wantNothing()
			s.wantDrop(DropDuplicate)
			s.wantState(CloseWait)
			s.wantEvents(EvPeerClosed)
			s.expect(". 1 ack 102")
		})
	}
}

// The same with a gap still in front of the text.
func TestFinAfterDuplicateTextOutOfOrder(t *testing.T) {
	s := accepted(t, sackOnly(), "sackOK")
	s.in(". 51:101 ack 1")
	s.in("F. 51:102 ack 1")
	s.wantNothing()
	s.wantState(Established)
	s.in(". 1:51 ack 1")
	s.wantState(CloseWait)
}

// A FIN in front of octets that were taken cannot be where the stream ends. The connection goes on
// without it, and ends with the true one.
func TestFinInFrontOfTakenOctets(t *testing.T) {
	for name, lie := range map[string]string{
		"new text":       "F. 21:51 ack 1",
		"no text":        "F. 50:51 ack 1",
		"duplicate text": "F. 31:41 ack 1",
		"before it":      "F. -9:2 ack 1",
	} {
		t.Run(name, func(t *testing.T) {
			s := accepted(t, sackOnly(), "sackOK")
			s.in(". 1:11 ack 1")
			s.in(". 31:201 ack 1")
			s.in(lie)
			s.in(". 11:31 ack 1")
			s.wantState(Established)
			s.wantEvents(0)
			s.in(". 201:301 ack 1")
			s.wantArrival(200, 300)
			s.sent()
			s.in("F. 301:302 ack 1")
			s.wantState(CloseWait)
			s.expect(". 1 ack 302")
		})
	}
}

// req: 9293-3.10.7.4-5
func TestRetransmittedFinRestartsTimeWait(t *testing.T) {
	s := accepted(t, plain(), "")
	s.c.CloseSend(s.now)
	s.drain()
	s.in("F. 1:2 ack 2")
	s.wantState(TimeWait)
	s.sent()
	s.advance(50 * sc)
	s.in("F. 1:2 ack 2")
	s.expect(". 2 ack 2")
	s.advance(50 * sc)
	s.wantState(TimeWait)
	s.advance(10 * sc)
	s.wantState(Closed)
}

func TestFinIsRetransmitted(t *testing.T) {
	s := accepted(t, plain(), "")
	s.c.CloseSend(s.now)
	s.expect("F. 1:2 ack 1 fresh")
	s.advance(200 * ms)
	s.expect("F. 1:2 ack 1 rtx")
}

func TestCloseInSynReceivedWaitsForTheHandshake(t *testing.T) {
	s := newScript(t, plain())
	s.accept("S 0:1 mss 1000")
	s.c.CloseSend(s.now)
	s.expect("S. 0:1 ack 1")
	s.in(". 1 ack 1")
	s.wantState(FinWait1)
	s.expect("F. 1:2 ack 1")
}

func TestCloseInSynSent(t *testing.T) {
	s := newScript(t, plain())
	s.connect()
	s.c.CloseSend(s.now)
	s.wantState(Closed)
	s.wantEvents(EvClosed)
	s.expect()
}

// req: 9293-3.9.1.6-1
func TestAbort(t *testing.T) {
	s := accepted(t, plain(), "")
	s.push(100, 100)
	s.expect(". 1:101 ack 1", ". 101:201 ack 1")
	s.c.Abort(s.now)
	s.wantState(Closed)
	s.wantEvents(0)
	s.expect("R. 201 ack 1")
	s.wantEvents(EvClosed)
	s.wantReleased(0, 1)
	s.in(". 1:101 ack 1")
	s.wantDrop(DropState)
	s.expect()
}

func TestAbortWhereNoResetIsDue(t *testing.T) {
	s := newScript(t, plain())
	s.connect()
	s.c.Abort(s.now)
	s.wantEvents(EvClosed)
	s.expect()

	s = accepted(t, plain(), "")
	s.c.CloseSend(s.now)
	s.drain()
	s.in("F. 1:2 ack 2")
	s.wantState(TimeWait)
	s.sent()
	s.c.Abort(s.now)
	s.wantState(Closed)
	s.expect()
}

// req: 9293-MUST-20, 9293-MUST-21, 9293-SHLD-11
func TestUserTimeout(t *testing.T) {
	s := accepted(t, plain(), "")
	s.push(100)
	s.advance(99 * sc)
	s.wantState(Established)
	s.wantEvents(EvSuspect)
	s.advance(2 * sc)
	s.wantState(Closed)
	s.wantEvents(EvTimeout | EvClosed)
	s.wantReleased(0)
}

// req: 9293-MAY-2, 9293-SHLD-4
func TestReusable(t *testing.T) {
	for _, tt := range []struct {
		syn  string
		want bool
	}{
		{"S 3:4", true}, {"S 2:3", false}, {"S -50:-49", false}, {"S. 3:4 ack 1", false}, {"R 3", false},
	} {
		s := accepted(t, plain(), "")
		s.c.CloseSend(s.now)
		s.drain()
		s.in("F. 1:2 ack 2")
		seg := s.parse(tt.syn)
		if got := s.c.Reusable(&seg); got != tt.want {
			t.Errorf("%s: %v", tt.syn, got)
		}
	}
	cfg := plain()
	cfg.NoTimestamps = false
	s := accepted(t, cfg, "ts 1000000,0")
	s.c.CloseSend(s.now)
	s.drain()
	s.in("F. 1:2 ack 2 ts 1000005,1000000")
	for text, want := range map[string]bool{"S -50:-49 ts 1000006,0": true,
		"S 50:51 ts 1000004,0": false} {
		seg := s.parse(text)
		if got := s.c.Reusable(&seg); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	s.c.EndTimeWait()
	s.wantState(Closed)
}
