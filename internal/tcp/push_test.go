package tcp

import "testing"

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
