package stack

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// runMax is how many segments pullRun makes at once. Each stage's state then stays in registers and
// its code in the cache; more of them would leave the second-level cache before the device reads
// them.
const runMax = 32

// runRoom is what pullRun works with.
type runRoom struct {
	bufs    [runMax]mem.Buf
	handles [runMax]tcp.Handle
	octets  [runMax][]byte
}

// pullRun lets a Bulk Upper fill up to most segments like the one that was sent last, and sends
// them: each stage, from the Upper to the batch, runs once for all of them. It returns how many
// there were, 0 where transmit has to go segment by segment. returned is as for transmit.
func (p *Poller) pullRun(c *Conn, most, returned int) int {
	if most = min(most, runMax, p.tx.connMax-p.tx.n); most < 2 || !p.runs(c) {
		return 0
	}
	size := p.tx.last.octets
	most = c.tcp.RunRoom(p.now, size, most)
	if most < 2 || most > returned && !p.affords(c, most) {
		return 0
	}
	run := &p.tx.run
	n := p.pool.AllocN(run.bufs[:most])
	h, room := p.pool.Headroom(), c.tcp.EMSS()
	for i, b := range run.bufs[:n] {
		slot := p.pool.Slot(b)
		run.octets[i] = slot[h : h+room : h+room]
	}
	filled := 0
	if n > 0 {
		filled = c.ahead.(Bulk).PullRun(c, run.octets[:n], size)
	}
	if c.marks&markAbort != 0 {
		filled = 0
	}
	p.pool.FreeN(run.bufs[filled:n])
	if filled > 0 {
		p.emitRun(c, run.bufs[:filled], size)
	}
	return filled
}

// runs says whether c may go on with segments like the one before: its headers are the template,
// the next hop is known, and the Upper knows of runs.
func (p *Poller) runs(c *Conn) bool {
	t := &p.tx
	if !t.repeats || c.ahead == nil || c.phase != phaseOpen || c.marks&(markFin|markAbort) != 0 ||
		!t.last.of(c, t.last.octets) || !t.hopKnown || t.hop != c.nextHop ||
		p.pool.Headroom()+c.tcp.EMSS() > p.pool.Stride() {
		return false
	}
	_, bulk := c.ahead.(Bulk)
	return bulk
}

// affords is what pull asks of the Pool, for n Bufs at once.
func (p *Poller) affords(c *Conn, n int) bool {
	free := p.pool.Available() - p.budget.Reserve
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
