package stack

import "math"

// loans even out what connections hold while Bufs are short. A connection keeps what it works with
// by taking as many Bufs as it has given back. So the ones that came first, or whose path is long,
// would keep all of them, and the others nothing, or a single segment in flight, which its peer
// acknowledges only after its time for delayed ACKs.
//
// A connection that flows, which is one that has given Bufs back and has more to send, is lent Bufs
// of the first half of Budget.Reserve while it holds fewer than a level. Those that hold more than
// the level make up for it: they take back less than they have given. The level falls as more is
// lent, with the square of what is left, so it comes to rest where those that want more hold the
// same. Other connections that hold nothing are lent their first segments, a few of them at a time:
// so a peer that does not acknowledge gets no more, and takes from others only that.
type loans struct {
	lent      int // Bufs that nobody has made up for yet
	lentMax   int // nor do connections take Bufs back while no more than these are free
	guests    int // connections that do not flow and were lent Bufs (markGuest)
	guestsMax int
	all       int // Bufs that connections may hold together
}

// heldMin is the level when nothing is left to lend, and what a guest is lent. A receiver
// acknowledges every second segment at once (RFC 9293 section 3.8.6.3).
const heldMin = 2

// trustOctets are what a peer has acknowledged in all when its connection is no longer a guest.
const trustOctets = 32 << 10

// guestShare: one Buf to lend in so many is for a guest.
const guestShare = 4

func newLoans(size int, b *Budget) loans {
	most := max(b.Reserve/2, 1)
	return loans{lentMax: most, guestsMax: max(most/guestShare, 1), all: size - b.Reserve}
}

// level is how many Bufs a connection may hold while others are lent some.
func (l *loans) level() int {
	left := l.lentMax - l.lent
	return max(l.all*left*left/(l.lentMax*l.lentMax), heldMin)
}

// gave notes that n Bufs of c came back: it may take as many.
func (s *pressure) gave(c *Conn, n int) {
	if n <= 0 {
		return
	}
	if c.marks |= markFlows; c.acked >= trustOctets {
		s.leaveGuests(c)
	}
	n = min(n, math.MaxUint16-int(c.gaveBack))
	c.gaveBack += uint16(n)
	s.promised += n
}

// takeBack is how many Bufs c may take in place of those it has given back, which are promised to
// nobody then. Above the level they are fewer while something is lent, and one that holds nothing
// queues up again while all is lent and others wait.
func (s *pressure) takeBack(c *Conn) int {
	n := int(c.gaveBack)
	c.gaveBack = 0
	s.promised -= n
	l := &s.loans
	if n == 0 || l.lent == 0 {
		return n
	}
	held := c.tcp.Held()
	back := min(held+n-l.level(), (n+1)/2)
	if held == 0 && l.lent == l.lentMax && s.waiting.n > 0 {
		back = n
	}
	back = max(min(back, l.lent), 0)
	l.lent -= back
	return n - back
}

// lends says whether c, for which there is no Buf otherwise, is lent one.
func (s *pressure) lends(c *Conn) bool {
	held := c.tcp.Held()
	if s.lendable() <= 0 || held >= s.loans.level() {
		return false
	}
	return c.marks&markFlows != 0 && c.acked >= trustOctets || s.guest(c, held)
}

// lendable is how many Bufs may be lent now.
func (s *pressure) lendable() int {
	return min(s.loans.lentMax-s.loans.lent, s.pool.Available()-s.loans.lentMax)
}

// guest says whether c, which does not flow, may be lent a Buf.
func (s *pressure) guest(c *Conn, held int) bool {
	l := &s.loans
	switch {
	case held >= heldMin:
		return false
	case c.marks&markGuest != 0:
		return true
	case l.guests >= l.guestsMax:
		return false
	}
	c.marks |= markGuest
	l.guests++
	return true
}

// leaveGuests is for a connection that has sent enough, has nothing more to send, or ends.
func (s *pressure) leaveGuests(c *Conn) {
	if c.marks&markGuest != 0 {
		c.marks &^= markGuest
		s.loans.guests--
	}
}

// spare is how many Bufs there are for connections that want more than they have given back.
func (s *pressure) spare() int { return s.pool.Available() - s.budget.Reserve - s.promised }
