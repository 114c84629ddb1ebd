package tcp

import "testing"

// pause is time in which the caller looks at nothing; then Expire, as of a Poller that comes back.
func (s *script) pause(d int64) {
	s.t.Helper()
	s.now += d
	s.c.Excuse(s.now, d)
	s.c.Expire(s.now)
	s.drain()
}

// limited is a connection with a user timeout of 2 s and 100 octets on their way.
func limited(t *testing.T) *script {
	s := accepted(t, plain(), "")
	s.c.SetUserTimeout(2 * sc)
	s.push(100)
	s.expect(". 1:101 ack 1")
	return s
}

// Octets that were not acknowledged when the caller went away for longer than the user timeout go
// again before the connection is given up: the peer may have been away, too. It has a second for
// its answer, or as long as the pause was if that was less.
func TestUserTimeoutOutlastsAPause(t *testing.T) {
	for _, pause := range []int64{2 * sc, 100 * sc} {
		s := limited(t)
		s.pause(pause)
		s.expect(". 1:101 ack 1 rtx")
		s.advance(sc - 1)
		s.wantState(Established)
		s.in(". 1 ack 101")
		s.advance(100 * sc)
		s.wantState(Established)
		s.push(100) // and again, since the peer has answered
		s.pause(pause)
		s.wantState(Established)
		s.advance(sc - 1)
		s.wantState(Established)
		s.advance(1)
		s.wantState(Closed)
	}
	s := limited(t)
	s.advance(1900 * ms)
	s.pause(200 * ms)
	s.advance(200*ms - 1)
	s.wantState(Established)
	s.advance(1)
	s.wantState(Closed)
}

// It is put off once while the peer does not answer, and neither by a moment nor by a pause that
// began after the time.
func TestUserTimeoutIsPutOffOnce(t *testing.T) {
	s := limited(t)
	s.pause(3 * sc)
	s.wantState(Established)
	s.pause(3 * sc)
	s.wantState(Closed)

	s = limited(t)
	s.advance(2*sc - 1)
	s.pause(pauseMinNs - 1)
	s.wantState(Closed)

	s = limited(t)
	s.now += 2*sc + 1
	s.pause(sc)
	s.wantState(Closed)
}

// The answer to the last keep-alive may come after a pause, too, and then counts as any other.
func TestKeepAliveOutlastsAPause(t *testing.T) {
	s := alive(t)
	for range 2 {
		s.advance(14 * sc)
		s.expect(". 0 ack 1", ". 0 ack 1", ". 0 ack 1")
		s.pause(50 * sc)
		s.wantState(Established)
		s.advance(sc - 1)
		s.wantState(Established)
		s.in(". 1 ack 1")
	}
	s.advance(14 * sc)
	s.pause(50 * sc)
	s.wantState(Established)
	s.pause(50 * sc)
	s.wantState(Closed)
}

// A pause before the last keep-alive ends nothing: a late one has its whole time.
func TestLateKeepAlive(t *testing.T) {
	s := alive(t)
	for range 3 {
		s.pause(50 * sc)
		s.expect(". 0 ack 1")
	}
	s.advance(2*sc - 1)
	s.wantState(Established)
	s.advance(1)
	s.wantState(Closed)
}
