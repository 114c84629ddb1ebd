package tcp

import "testing"

// A receiver that delivers on PSH gets one for every half of its window, so that it never fills it
// in vain.
//
// req: 9293-MUST-60
func TestPushBeforeTheWindowIsFull(t *testing.T) {
	s := newScript(t, plain())
	s.accept("S 0:1 win 4000 mss 1000")
	s.expect("S. 0:1 ack 1")
	s.in(". 1 ack 1 win 4000")
	s.push(1000, 1000, 1000, 1000)
	s.expect(". 1:1001 ack 1", ". 1001:2001 ack 1", "P. 2001:3001 ack 1", ". 3001:4001 ack 1")
	s.in(". 1 ack 4001 win 4000")
	s.drainHandles()
	pushOne(s.c, s.now, 9, 1000, true)
	s.expect("P. 4001:5001 ack 1")
	s.push(1000, 1000, 1000)
	s.expect(". 5001:6001 ack 1", ". 6001:7001 ack 1", "P. 7001:8001 ack 1")
}

// Both parts of a segment that is cut have its PSH: its unit may end in either. So has what is sent
// again, whole or in part.
//
// req: 9293-MUST-61
func TestPushOnBothPartsOfACutSegment(t *testing.T) {
	for _, psh := range []bool{true, false} {
		flags := "."
		if psh {
			flags = "P."
		}
		s := accepted(t, sackOnly(), "sackOK")
		pushOne(s.c, s.now, 0, 1000, psh)
		s.expect(flags + " 1:1001 ack 1 fresh")
		s.c.SetEMSSLimit(600)
		s.expect(flags + " 1:601 ack 1 rtx")
		s.in(". 1 ack 601")
		s.expect(flags + " 601:1001 ack 1 rtx")

		s = accepted(t, sackOnly(), "sackOK") // without a slot to cut it with its front goes alone
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
