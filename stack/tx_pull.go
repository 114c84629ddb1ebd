package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// pullOctets bounds what one Pull is asked for, to two segments at least: what it writes is still
// in the second-level cache when the headers come, and Revoke need not wait for long.
const pullOctets = 64 << 10

// pulling is what pull works with.
type pulling struct {
	bufs   [PullMax]mem.Buf
	rooms  [PullMax][]byte
	pieces [PullMax]tcp.Piece
}

// pull lets the Upper fill the next segments, most at the most, if some may be sent, and queues
// them. waits: it found no Buf. dry: the Upper says that this was its last segment.
func (s *sender) pull(now int64, c *Conn, most int) (pieces []tcp.Piece, waits, dry bool) {
	if c.phase != phaseOpen || c.upper == nil || c.marks&(markFin|markAbort) != 0 {
		return nil, false, false
	}
	n, octets := c.tcp.Room(now, most)
	if n == 0 {
		c.marks &^= markFlows
		return nil, false, false
	}
	granted, lent, waits := s.pressure.grant(c, s.gotBack)
	if !granted {
		return nil, waits, false
	}
	if n > 1 {
		n = min(n, s.pressure.affords(c, lent, s.gotBack))
	}
	got := s.fill(c, n, octets)
	if got.N == 0 {
		c.marks &^= markFlows
		return nil, false, false
	}
	if s.ask = got.N; got.N == n {
		s.ask = askGrowth * n
	}
	s.gotBack -= got.N
	if lent {
		s.pressure.loans.lent++
	}
	pieces = s.pulling.pieces[:got.N]
	if dry = !got.More; dry {
		got.Ends |= 1 << (got.N - 1)
	}
	for i := range pieces {
		b, data := s.pulling.bufs[i], s.pulling.rooms[i]
		m := &s.tx.meta[b]
		*m = bufMeta{conn: c.index, life: c.life, length: uint16(len(data))}
		if !s.cfg.Caps.TxChecksum {
			m.sum = inet.Fold(inet.Sum(data, 0))
		}
		pieces[i] = tcp.Piece{Handle: tcp.Handle(b), Len: int32(len(data)), Push: got.Ends>>i&1 != 0}
	}
	c.tcp.Push(now, pieces)
	return pieces, false, dry
}

// fill has the Upper fill up to n segments of octets each. The Bufs that it does not fill are the
// Pool's again, the first one the spare.
func (s *sender) fill(c *Conn, n, octets int) Pulled {
	w := &s.pulling
	w.bufs[0] = s.tx.spare
	if n > 1 {
		s.pool.AllocN(w.bufs[1:n])
	}
	h := s.pool.Headroom()
	for i, b := range w.bufs[:n] {
		slot := s.pool.Slot(b)
		end := min(h+octets, len(slot))
		w.rooms[i] = slot[h:end:end]
	}
	got := c.upper.Pull(w.rooms[:n])
	if got.N < 0 || got.N > n {
		panic("stack: Pull filled more segments than it was given room for")
	}
	if c.marks&markAbort != 0 {
		got.N = 0
	}
	for i := n; i > max(got.N, 1); i-- { // the first is taken first again
		s.pool.Free(w.bufs[i-1])
	}
	if got.N > 0 {
		s.tx.takeSpare()
	}
	return got
}

// askGrowth: a connection that has filled all segments that it was asked for is asked for so many
// times as many next, and another for as many as it has filled. So Bufs are seldom taken in vain.
const askGrowth = 4

// atOnce is how many of left segments c is asked for at once: one at first, for nothing is known.
func (s *sender) atOnce(c *Conn, left int) int {
	if s.ask == 1 || s.tx.express {
		return 1
	}
	size := c.tcp.EMSS()
	return max(1, min(s.ask, left, PullMax, max(2, pullOctets/size), s.tx.dataRoom(),
		s.allow/(size+frameCost)+1))
}
