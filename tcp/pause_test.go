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
