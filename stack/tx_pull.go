package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/tcp"
	"github.com/rnicd/rnicd/mem"
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
func (p *Poller) pull(c *Conn, most int) (pieces []tcp.Piece, waits, dry bool) {
	if c.phase != phaseOpen || c.upper == nil || c.marks&(markFin|markAbort) != 0 {
		return nil, false, false
	}
	n, octets := c.tcp.Room(p.now, most)
	if n == 0 {
		c.marks &^= markFlows
		return nil, false, false
	}
	granted, lent, waits := p.grant(c)
	if !granted {
		return nil, waits, false
	}
	if n > 1 {
		n = min(n, p.affords(c, lent))
	}
	got := p.fill(c, n, octets)
	if got.N == 0 {
		c.marks &^= markFlows
		return nil, false, false
	}
	if p.tx.ask = got.N; got.N == n {
		p.tx.ask = askGrowth * n
	}
	p.tx.gotBack -= got.N
	if lent {
		p.loans.lent++
	}
	pieces = p.tx.pulling.pieces[:got.N]
	if dry = !got.More; dry {
		got.Ends |= 1 << (got.N - 1)
	}
	for i := range pieces {
		b, data := p.tx.pulling.bufs[i], p.tx.pulling.rooms[i]
		m := &p.tx.meta[b]
		*m = bufMeta{conn: c.index, life: c.life, length: uint16(len(data))}
		if !p.cfg.Caps.TxChecksum {
			m.sum = inet.Fold(inet.Sum(data, 0))
		}
		pieces[i] = tcp.Piece{Handle: tcp.Handle(b), Len: int32(len(data)), Push: got.Ends>>i&1 != 0}
	}
	c.tcp.Push(p.now, pieces)
	return pieces, false, dry
}

// fill has the Upper fill up to n segments of octets each. The Bufs that it does not fill are the
// Pool's again, the first one the spare.
func (p *Poller) fill(c *Conn, n, octets int) Pulled {
	w := &p.tx.pulling
	w.bufs[0] = p.tx.spare
	if n > 1 {
		p.pool.AllocN(w.bufs[1:n])
	}
	h := p.pool.Headroom()
	for i, b := range w.bufs[:n] {
		slot := p.pool.Slot(b)
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
		p.pool.Free(w.bufs[i-1])
	}
	if got.N > 0 {
		p.takeSpare()
	}
	return got
}

// askGrowth: a connection that has filled all segments that it was asked for is asked for so many
// times as many next, and another for as many as it has filled. So Bufs are seldom taken in vain.
const askGrowth = 4

// atOnce is how many of left segments c is asked for at once: one at first, for nothing is known.
func (p *Poller) atOnce(c *Conn, left int) int {
	if p.tx.ask == 1 || p.tx.express {
		return 1
	}
	size := c.tcp.EMSS()
	return max(1, min(p.tx.ask, left, PullMax, max(2, pullOctets/size), p.tx.dataRoom(),
		p.tx.allow/(size+frameCost)+1))
}

// affords is how many Bufs c may take, which was granted one.
func (p *Poller) affords(c *Conn, lent bool) int {
	if lent {
		return 1
	}
	n := p.tx.gotBack
	if free := p.spareBufs(); !p.claimed(free) {
		share := (free*p.cfg.BufShare - c.tcp.Held()*100) / (100 + p.cfg.BufShare)
		n = max(n, min(free-p.floor(c), share))
	}
	return max(1, min(n, p.pool.Available()+1-p.loans.lentMax)) // with the spare
}

// grant says whether c may have a Buf: in place of one that it has given back, so that others
// cannot drive it out of the memory it works with; of those to spare; or lent. waits: there is
// none, and nothing of c is in flight whose acknowledgment would bring it back.
func (p *Poller) grant(c *Conn) (granted, lent, waits bool) {
	if p.tx.gotBack > 0 && p.pool.Available() > p.loans.lentMax {
		return true, false, false
	}
	free, held := p.spareBufs(), c.tcp.Held()
	switch {
	case free < p.floor(c):
		p.demand(c)
		if p.lends(c) {
			return true, true, false
		}
		p.n.NoBufWaits++
		return false, false, held == 0
	case held*100 > free*p.cfg.BufShare || held > 0 && p.claimed(free):
		if free < p.budget.Proven {
			p.demand(c)
		}
		if p.lends(c) {
			return true, true, false
		}
		p.n.ShareWaits++
		return false, false, false
	}
	return true, false, false
}

// haveSpare makes sure that a Buf is at hand. It comes before every tcp.Conn.Next, which must not
// be asked for a segment that could not be built.
func (p *Poller) haveSpare() bool {
	if p.tx.spare != mem.NoBuf {
		return true
	}
	if p.tx.spare = p.pool.Alloc(); p.tx.spare == mem.NoBuf {
		p.n.NoBufWaits++
		return false
	}
	return true
}

func (p *Poller) takeSpare() mem.Buf {
	b := p.tx.spare
	p.tx.spare = mem.NoBuf
	return b
}
