package tcp

import "testing"

// alive is an open connection with keep-alives after 10 s, every 2 s, three of them.
func alive(t *testing.T) *script {
	s := accepted(t, plain(), "")
	s.c.SetKeepAlive(s.now, 10*sc, 2*sc, 3)
	return s
}
