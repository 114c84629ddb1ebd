package tcp

import "testing"

// alive is an open connection with keep-alives after 10 s, every 2 s, three of them.
func alive(t *testing.T) *script {
	s := accepted(t, plain(), "")
	s.c.SetKeepAlive(s.now, 10*sc, 2*sc, 3)
	return s
}

// No probe while something of ours is outstanding, and none when something came.
//
// req: 9293-MUST-26
func TestKeepAliveOnlyWhenIdle(t *testing.T) {
	s := alive(t)
	s.c.SetUserTimeout(Forever)
	s.push(100)
	s.advance(60 * sc)
	for _, x := range s.sent() {
		if x.Len != 100 {
			t.Fatalf("%q among retransmissions", s.show(&x.Transmit))
		}
	}
	s.in(". 1 ack 101")
	s.release()
	for range 5 {
		s.advance(9 * sc)
		s.expect()
		s.in(". 1 ack 101") // anything counts
	}
	s.advance(10 * sc)
	s.expect(". 100 ack 1")
	s.c.CloseSend(s.now) // what is sent asks as well
	s.expect("F. 101:102 ack 1")
	s.advance(20 * ms)
	s.in(". 1 ack 102")
	s.wantState(FinWait2)
	s.advance(10 * sc)
	s.expect(". 101 ack 1") // FIN-WAIT-2 would else wait for ever
}

// The least values are values, not defaults: one probe, and intervals of a millisecond.
func TestKeepAliveOfTheLeast(t *testing.T) {
	s := accepted(t, plain(), "")
	s.c.SetKeepAlive(s.now, 10*sc, 1, 1)
	s.advance(10 * sc)
	s.expect(". 0 ack 1")
	s.wantState(Established)
	s.advance(ms)
	s.wantState(Closed)
	s.wantEvents(EvTimeout | EvClosed)

	s = accepted(t, plain(), "")
	s.c.SetKeepAlive(s.now, 1, 5*sc, 2)
	s.advance(ms)
	s.expect(". 0 ack 1")
	s.c.SetKeepAlive(s.now, 0, 0, 0)
	if s.c.Deadline() != never || s.c.keep != (keepAlive{}) || s.c.keepIdle != 0 {
		t.Errorf("off: %+v", s.c.keep)
	}
}
