package tcp

import "testing"

// NextControl sends all that is due and is no new octet, whatever it is that is due alone; a lost
// segment only where a timeout asks for it.
func TestNextControlSendsWhatIsDue(t *testing.T) {
	open := func(t *testing.T) *script {
		s := accepted(t, plain(), "")
		s.push(100)
		s.expect(". 1:101 ack 1")
		return s
	}
	for name, tc := range map[string]struct {
		make func(t *testing.T) *script
		want string
	}{
		"SYN": {func(t *testing.T) *script {
			s := newScript(t, plain())
			s.connect()
			return s
		}, "S 0:1"},
		"SYN,ACK": {func(t *testing.T) *script {
			s := newScript(t, plain())
			s.accept("S 0:1 win 60000 mss 1000")
			return s
		}, "S. 0:1 ack 1"},
		"abort": {func(t *testing.T) *script {
			s := open(t)
			s.c.Abort(s.now)
			return s
		}, "R. 101 ack 1"},
		"a bad ACK's reset": {func(t *testing.T) *script {
			s := newScript(t, plain())
			s.connect()
			s.drain()
			s.out = nil
			s.in(". 1 ack 77")
			return s
		}, "R 77"},
		"keep-alive": {func(t *testing.T) *script {
			s := alive(t)
			s.now += 10 * sc
			s.c.Expire(s.now)
			return s
		}, ". 0 ack 1"},
		"a timeout": {func(t *testing.T) *script {
			s := open(t)
			s.now = s.c.Deadline()
			s.c.Expire(s.now)
			return s
		}, ". 1:101 ack 1 rtx"},
		"FIN": {func(t *testing.T) *script {
			s := accepted(t, plain(), "")
			s.c.CloseSend(s.now)
			return s
		}, "F. 1:2 ack 1"},
		"an ACK": {func(t *testing.T) *script {
			s := accepted(t, plain(), "")
			s.in(". 1:1001 ack 1")
			s.in(". 1001:2001 ack 1")
			return s
		}, ". 1 ack 2001"},
		"new octets": {func(t *testing.T) *script {
			s := accepted(t, plain(), "")
			s.push(100)
			return s
		}, ""},
		"a loss that no timeout has found": {func(t *testing.T) *script {
			s := open(t)
			s.c.sent.markLost(s.c.sent.una)
			return s
		}, ""},
		"a timeout, and then a SACK of all that it takes for lost": {func(t *testing.T) *script {
			s := accepted(t, sackOnly(), "sackOK")
			s.push(100)
			for s.c.Stats().Timeouts == 0 {
				s.drain()
				s.now = s.c.Deadline()
				s.c.Expire(s.now)
			}
			s.in(". 1 ack 1 sack 1:101")
			return s
		}, ""},
		"nothing": {func(t *testing.T) *script { return accepted(t, plain(), "") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := tc.make(t)
			var x Transmit
			if got := s.c.NextControl(s.now, &x); got != (tc.want != "") {
				t.Fatalf("%v: %s", got, s.show(&x))
			} else if got {
				if err := s.match(&x, tc.want); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A connection that is over has nothing more to send, whatever it owed.
func TestNothingIsDueAtTheEnd(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in(". 1:1001 ack 1")
	s.in(". 1001:2001 ack 1") // an ACK is due at once
	s.in("R 2001")
	s.wantState(Closed)
	var x Transmit
	if s.c.Next(s.now, 1, &x) || s.c.NextControl(s.now, &x) {
		t.Fatalf("sent %s", s.show(&x))
	}
	if at := s.c.Deadline(); at != never {
		t.Fatalf("a timer at %d", at)
	}
}

// A Conn begins again only when it is closed, its own reset has been taken, and its handles were
// given back.
func TestConnectInUse(t *testing.T) {
	panics := func(f func()) (did bool) {
		defer func() { did = recover() != nil }()
		f()
		return false
	}
	s := accepted(t, plain(), "")
	if !panics(s.connect) {
		t.Error("open")
	}
	s.push(100)
	s.drain()
	s.in("R 1")
	s.wantState(Closed)
	if !panics(s.connect) {
		t.Error("a handle is not released")
	}
	s.out = nil // the Conn was asked for it meanwhile
	s.connect()
	s.expect("S 0:1")
	s.c.Abort(s.now)
}
