package tcp

import "testing"

// Without a slot to cut a segment with, its front goes alone, and has its PSH.
//
// req: 9293-MUST-61
func TestPushOnTheFrontOfASegment(t *testing.T) {
	for flags, psh := range map[string]bool{"P.": true, ".": false} {
		s := accepted(t, sackOnly(), "sackOK")
		pushOne(s.c, s.now, 0, 1000, psh)
		s.drain()
		s.push(1000)
		s.sent()
		for s.c.sent.splittable() {
			s.c.sent.split(s.c.sent.nxt-1, 10)
		}
		s.c.SetEMSSLimit(600)
		s.expect(flags + " 1:601 ack 1 rtx")
	}
}
