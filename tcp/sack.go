package tcp

// The sender's scoreboard (RFC 6675 section 3) is the flags of the sent ring; here SACK options
// move them. The other half, making SACK options, stands at the end.

// octets is [left, right) in stream offsets.
type octets struct{ left, right uint64 }

// applySACK marks what the peer says it holds. A block that is malformed, empty, or beyond what was
// sent is ignored, and so is a D-SACK, which is told by comparing with the ACK field of the same
// segment (RFC 2883 section 5).
func (c *Conn) applySACK(now int64, s *Segment, a *acked) {
	o := &s.Options
	base := c.seqOf(c.sndUna)
	for i := range o.SACKCount {
		b := o.SACK[i]
		if i == 0 && isDSACK(s) {
			c.stats.dsacks.one()
			a.dsack = true
			a.dsackEnd = c.sndUna + uint64(int64(b.Right.Sub(base)))
			continue
		}
		l, r := b.Left.Sub(base), b.Right.Sub(base)
		if l >= r || r <= 0 || r > c.flight() {
			continue
		}
		c.markBlock(now, octets{c.sndUna + uint64(max(l, 0)), c.sndUna + uint64(r)}, a)
	}
}

// isDSACK says whether the first block reports a duplicate: it lies below the ACK, or within the
// second block.
func isDSACK(s *Segment) bool {
	b := s.Options.SACK[0]
	if b.Right.LessEq(s.Ack) {
		return true
	}
	if s.Options.SACKCount < 2 {
		return false
	}
	w := s.Options.SACK[1]
	return w.Left.LessEq(b.Left) && b.Right.LessEq(w.Right)
}

// markBlock marks the records that lie wholly within block. What an earlier ACK has said is passed
// over in one step: a peer that says the same again and again, in whatever blocks, costs next to
// nothing.
func (c *Conn) markBlock(now int64, block octets, a *acked) {
	// first: of the run of SACKed records that the walk is in, when inRun
	first, steps := uint32(0), uint64(0)
	inRun := false
	i := c.sent.find(block.left)
	for ; i != c.sent.nxt; steps++ {
		r := c.sent.rec(i)
		if r.flags&recSacked != 0 {
			if !inRun {
				first, inRun = i, true
			}
			i = c.sent.passRun(first, i)
			continue
		}
		if r.endAt() > block.right {
			break
		}
		if r.at < block.left {
			i++
			continue
		}
		c.delivered(now, i, r.flags&recEver == 0, a)
		a.sacked += r.seqLen()
		if r.flags&recEver == 0 {
			a.sackedAt = max(a.sackedAt, r.sentAt)
		}
		c.sent.markSacked(i)
		c.recovery.sackedTo = max(c.recovery.sackedTo, r.endAt())
		if !inRun {
			first, inRun = i, true
		}
		i = c.sent.passRun(first, i)
	}
	c.mem.sackSteps += steps
}

// forgetSACK clears the scoreboard: the peer has reneged (RFC 2018 section 8).
func (c *Conn) forgetSACK() {
	for i := c.sent.una; i != c.sent.nxt; i++ {
		r := c.sent.rec(i)
		switch {
		case r.flags&recSacked == 0:
		case r.flags&recEver == 0:
			c.sent.unmark(i)
		default:
			c.lose(i) // when it was sent no longer says where it stands among the others
		}
	}
	c.sent.unjudged = c.sent.una
	c.recovery.sackedTo = c.sndUna
}

// putSACK writes up to blocks into o: a duplicate first (RFC 2883 section 4), then what was
// received out of order, the latest first (RFC 2018 section 4). It takes note that the duplicate
// has been told.
func (c *Conn) putSACK(o *Options, blocks int) {
	n := 0
	first := span{}
	if c.ack.hasDup {
		c.ack.hasDup = false
		o.SACK[n] = c.ack.dup
		n++
		// The run around the duplicate is the second block, if it lies in one.
		left := uint64(int64(c.edge) + int64(c.ack.dup.Left.Sub(c.irs+1+Seq(c.edge))))
		if n < blocks && left >= c.edge {
			if h, ok := c.held.holder(left, left+uint64(c.ack.dup.Right-c.ack.dup.Left)); ok {
				o.SACK[n] = c.sackBlock(h)
				n++
				first = h
			}
		}
	}
	for stamp := ^uint32(0); n < blocks; {
		s, ok := c.held.before(stamp)
		if !ok {
			break
		}
		stamp = s.stamp
		if s != first {
			o.SACK[n] = c.sackBlock(s)
			n++
		}
	}
	o.SACKCount = n
}

func (c *Conn) sackBlock(s span) SACKBlock {
	return SACKBlock{c.irs + 1 + Seq(s.left), c.irs + 1 + Seq(s.right)}
}
