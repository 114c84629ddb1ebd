package tcp

import "testing"

// alive is an open connection with keep-alives after 10 s, every 2 s, three of them.
func alive(t *testing.T) *script {
	s := accepted(t, plain(), "")
	s.c.SetKeepAlive(s.now, 10*sc, 2*sc, 3)
	return s
}

// req: 9293-MUST-25, 9293-MUST-24
func TestKeepAliveIsOffUnlessAskedFor(t *testing.T) {
	s := accepted(t, plain(), "")
	if s.c.Deadline() != never {
		t.Error("an idle connection has a timer")
	}
	s.advance(100 * 86400 * sc)
	s.expect()
	s.c.SetKeepAlive(s.now, KeepAliveDefault, KeepAliveDefault, KeepAliveDefault)
	if s.c.Deadline() == never {
		t.Error("on, and no timer")
	}
	s.c.SetKeepAlive(s.now, 0, 0, 0)
	s.advance(100 * 86400 * sc)
	s.expect()
	s.wantState(Established)
}

// req: 9293-MAY-5, 9293-SHLD-12, 9293-MUST-27, 9293-MUST-29
func TestKeepAliveProbes(t *testing.T) {
	s := alive(t)
	s.advance(10*sc - 1)
	s.expect()
	s.advance(1)
	s.expect(". 0 ack 1") // SND.NXT-1, no octet
	s.advance(2*sc - 1)
	s.expect()
	s.advance(1) // the first stayed unanswered: that alone says nothing
	s.expect(". 0 ack 1")
	s.wantState(Established)
	s.in(". 1 ack 1")
	s.advance(10*sc - 1)
	s.expect()
	s.advance(4*sc + 1)
	s.expect(". 0 ack 1", ". 0 ack 1", ". 0 ack 1")
	s.wantState(Established)
	s.advance(2 * sc) // all three
	s.wantState(Closed)
	s.wantEvents(EvTimeout | EvClosed)
	s.expect()
	if s.c.Stats().KeepAlives != 5 {
		t.Errorf("%d probes counted", s.c.Stats().KeepAlives)
	}
}

// Other times, or the same once more, do not make a silent peer one that was heard.
func TestKeepAliveSetAgain(t *testing.T) {
	s := alive(t)
	for range 3 { // the same
		s.advance(3 * sc)
		s.c.SetKeepAlive(s.now, 10*sc, 2*sc, 3)
		s.expect()
	}
	s.advance(sc)
	s.expect(". 0 ack 1")
	s.advance(sc)
	s.c.SetKeepAlive(s.now, 10*sc, 4*sc, 2)
	s.advance(3*sc - 1)
	s.expect()
	s.advance(1)
	s.expect(". 0 ack 1")
	s.advance(4*sc - 1)
	s.c.SetKeepAlive(s.now, 10*sc, 4*sc, 2)
	s.wantState(Established)
	s.advance(1)
	s.expect()
	s.wantState(Closed)
	s.wantEvents(EvTimeout | EvClosed)
}

// A time that has passed already brings one probe, and then the peer has its time to answer.
func TestKeepAliveSetShorter(t *testing.T) {
	s := accepted(t, plain(), "")
	s.c.SetKeepAlive(s.now, 1000*sc, 100*sc, 3)
	s.advance(900 * sc)
	s.expect()
	s.c.SetKeepAlive(s.now, 10*sc, 2*sc, 3)
	s.advance(0)
	s.expect(". 0 ack 1")
	s.advance(2*sc - 1)
	s.expect()
	s.advance(1)
	s.expect(". 0 ack 1")
	s.in(". 1 ack 1")
	s.c.SetKeepAlive(s.now, 0, 0, 0)
	s.advance(1000 * sc)
	s.c.SetKeepAlive(s.now, 10*sc, 2*sc, 3) // on again: the peer was not listened to
	s.advance(10*sc - 1)
	s.expect()
	s.advance(1)
	s.expect(". 0 ack 1")
}

// req: 9293-MUST-28
func TestKeepAliveDefaults(t *testing.T) {
	s := accepted(t, plain(), "")
	s.c.SetKeepAlive(s.now, KeepAliveDefault, KeepAliveDefault, KeepAliveDefault)
	s.advance(7200*sc - 1)
	s.expect()
	s.advance(1 + 8*75*sc)
	if n := len(s.sent()); n != 9 {
		t.Errorf("%d probes", n)
	}
	s.wantState(Established)
	s.advance(75 * sc)
	s.wantState(Closed)
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

// A probe that is due goes before nothing else: octets pushed at the same moment replace it.
func TestKeepAliveGivesWayToData(t *testing.T) {
	s := alive(t)
	s.now += 10 * sc
	s.c.Expire(s.now)
	s.push(100)
	s.expect(". 1:101 ack 1")
}

// The other end of it: our answer to a peer's keep-alive, with and without an octet in it.
func TestKeepAliveIsAnswered(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in(". 0 ack 1")
	s.expect(". 1 ack 1")
	s.in(". 0:1 ack 1")
	s.expect(". 1 ack 1")
	s.wantNothing()
}

// Keep-alives belong to one connection, not to the Conn.
func TestKeepAliveEndsWithTheConnection(t *testing.T) {
	s := alive(t)
	s.c.Abort(s.now)
	s.sent()
	s.connect()
	s.expect("S 0:1")
	s.in("S. 0:1 ack 1 win 60000 mss 1000")
	s.expect(". 1 ack 1")
	s.advance(100 * sc)
	s.expect()
}

// An interval of 0, and a count of 0, are the defaults, as those below 0 are: there would be no
// time to answer, and no probe.
//
// req: 9293-MUST-28
func TestKeepAliveDefaultsInPlaceOfNothing(t *testing.T) {
	s := accepted(t, plain(), "")
	s.c.SetKeepAlive(s.now, 10*sc, 0, 0)
	s.advance(10 * sc)
	s.expect(". 0 ack 1")
	s.advance(75*sc - 1)
	s.expect()
	s.advance(1 + 7*75*sc)
	if n := len(s.sent()); n != 8 {
		t.Errorf("%d probes after the first", n)
	}
	s.wantState(Established)
	s.advance(75 * sc)
	s.wantState(Closed)
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
