package tcp

import "testing"

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

func TestCloseInSynSent(t *testing.T) {
	s := newScript(t, plain())
	s.connect()
	s.c.CloseSend(s.now)
	s.wantState(Closed)
	s.wantEvents(EvClosed)
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
