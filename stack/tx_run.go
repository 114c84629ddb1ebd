package stack

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// A run is of at most so many segments, and of so many octets or two segments: what it writes is
// still in the second-level cache when the headers come, and Revoke need not wait for long.
const (
	runMax    = 32
	runOctets = 64 << 10
)

// runRoom is what pullRun works with.
type runRoom struct {
	bufs    [runMax]mem.Buf
	handles [runMax]tcp.Handle
	octets  [runMax][]byte
}

// pullRun lets a Bulk Upper fill up to most segments like the one that was sent last, and sends
// them: each stage, from the Upper to the batch, runs once for all of them. It returns how many
// there were, 0 where transmit has to go segment by segment.
func (p *Poller) pullRun(c *Conn, most int) int {
	if !p.runs(c) {
		return 0
	}
	bulk, ok := c.ahead.(Bulk)
	if !ok {
		return 0
	}
	size := p.tx.last.octets
	most = min(most, runMax, max(2, runOctets/size), p.tx.dataRoom(), p.tx.allow/(size+frameCost)+1,
		p.pool.Available()-p.loans.lentMax)
	if most >= 2 {
		most = min(most, bulk.RunLen(c, size))
	}
	if most >= 2 {
		most = c.tcp.RunRoom(p.now, size, most)
	}
	if most < 2 || most > p.tx.gotBack && !p.affords(c, most) {
		return 0
	}
	n := p.fillRun(c, bulk, most, size)
	if n > 0 {
		p.tx.gotBack -= n
		p.emitRun(c, p.tx.run.bufs[:n], size)
	}
	return n
}

// fillRun has the Upper fill up to n Bufs of run, and returns how many it has filled. The others are
// the Pool's again.
func (p *Poller) fillRun(c *Conn, bulk Bulk, n, size int) int {
	run := &p.tx.run
	p.pool.AllocN(run.bufs[:n])
	h, room := p.pool.Headroom(), c.tcp.EMSS()
	for i, b := range run.bufs[:n] {
		slot := p.pool.Slot(b)
		run.octets[i] = slot[h : h+room : h+room]
	}
	filled := bulk.PullRun(c, run.octets[:n], size)
	if filled < 0 || filled > n {
		panic("stack: PullRun filled more segments than it was given")
	}
	if c.marks&markAbort != 0 {
		filled = 0
	}
	for i := n; i > filled; i-- { // the first is taken first again
		p.pool.Free(run.bufs[i-1])
	}
	return filled
}

// runs says whether c may go on with segments like the one before: its headers are the template,
// and the next hop is known.
func (p *Poller) runs(c *Conn) bool {
	t := &p.tx
	return t.repeats && !t.express && c.phase == phaseOpen && c.marks&(markFin|markAbort) == 0 &&
		t.last.of(c, t.last.octets) && t.hopKnown && t.hop == c.nextHop && p.pool.Headroom()+c.tcp.EMSS() <= p.pool.Stride()
}

// affords is what pull asks of the Pool, for n Bufs at once.
func (p *Poller) affords(c *Conn, n int) bool {
	free := p.spareBufs()
	return !p.claimed(free) && free-n >= p.floor(c) && (c.tcp.Held()+n)*100 <= (free-n)*p.cfg.BufShare
}

// emitRun is emitAgain of all of bufs.
func (p *Poller) emitRun(c *Conn, bufs []mem.Buf, size int) {
	handles := p.tx.run.handles[:len(bufs)]
	for i, b := range bufs {
		handles[i] = tcp.Handle(b)
	}
	t := &p.tx.segment
	c.tcp.RepeatRun(p.now, handles, size, t)
	p.n.Segments += uint64(len(bufs))
	p.tx.allow -= len(bufs) * (size + frameCost)
	p.asked++
	l := &p.tx.last
	head := l.headers[:l.length]
	copy(head, p.tx.hopMAC[:])
	head[l.desc.CsumStart+tcpFlagsAt] = byte(t.Flags)
	seq := uint32(t.Seq)
	meta := bufMeta{conn: c.index, life: c.life, length: uint16(size), queued: true}
	for _, b := range bufs {
		p.tx.meta[b] = meta
		*p.pool.Desc(b) = l.desc
		h := p.pool.Slot(b)[l.desc.Off:][:len(head)]
		copy(h, head)
		binary.BigEndian.PutUint32(h[l.desc.CsumStart+tcpSeqAt:], seq)
		seq += uint32(size)
	}
	p.tx.n += copy(p.tx.frames[p.tx.n:], bufs)
}
