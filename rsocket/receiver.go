package rsocket

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/rnicd/rnicd/rnic"
)

// receiver is what comes. Guarded by Conn.mu.
type receiver struct {
	half int // octets of half the ring, which is granted at a time

	read    int    // offset in the ring of the next octet to be read
	waiting int    // octets that were written and not read
	granted int    // octets that may still be written
	freed   int    // octets that were read and not granted again
	next    int    // offset of the half to be granted next
	lengths fifo   // of the messages that were not read to their end
	come    uint16 // messages that came, since the beginning
	done    uint16 // messages that were read to their end, since the beginning
	told    uint16 // done, when messages were granted last
	maps    uint16 // messages about mappings that came since
	peer    entry  // its list
	entries uint32 // how many there are
	at      uint32 // the one to be written next
}

// fifo is a bounded queue of message lengths.
type fifo struct {
	at   []uint32
	head int
	n    int
}

func (f *fifo) push(v uint32)  { f.at[(f.head+f.n)%len(f.at)] = v; f.n++ }
func (f *fifo) first() *uint32 { return &f.at[f.head] }
func (f *fifo) pop()           { f.head = (f.head + 1) % len(f.at); f.n-- }
func (f *fifo) full() bool     { return f.n == len(f.at) }

func (r *receiver) init(opt *Options) {
	r.half = opt.ReceiveBuffer / 2
	r.granted, r.freed, r.next = r.half, r.half, r.half // start-up has granted the first half
	r.lengths.at = make([]uint32, opt.Credits)
}

// take copies what has come.
func (c *Conn) take(p []byte) (total int) {
	r := &c.in
	ring := c.m.ring.Bytes()
	for len(p) > 0 && r.waiting > 0 {
		n := min(len(p), int(*r.lengths.first()), len(ring)-r.read)
		copy(p[:n], ring[r.read:])
		p = p[n:]
		total += n
		r.read = (r.read + n) % len(ring)
		r.waiting -= n
		r.freed += n
		if *r.lengths.first() -= uint32(n); *r.lengths.first() == 0 {
			r.lengths.pop()
			r.done++
		}
	}
	return total
}

// arrived takes a completion of a receive buffer.
func (c *Conn) arrived(wc *rnic.Completion) {
	if wc.Status != rnic.Success {
		return // the QueuePair's end tells
	}
	if wc.Len != messageLen {
		c.fail(fmt.Errorf("rsocket: the peer sent a message of %d octets, where one of %d was due",
			wc.Len, messageLen))
		return
	}
	at := int(wc.ID) * messageLen
	k, value := parseMessage(c.order.Uint32(c.m.inbox.Bytes()[at:]))
	// closed: what came before still counts
	if err := c.postRecv(int(wc.ID)); err != nil && !errors.Is(err, rnic.ErrClosed) {
		c.fail(err)
		return
	}
	switch k {
	case kindData:
		c.data(value)
	case kindGrant:
		c.out.take(uint16(value), c.m.list.Bytes(), c.order)
		c.maps.landed(c.out.credit - c.out.total)
	case kindIomap:
		c.mapped(value)
	case kindControl:
		c.control(value)
	default:
		c.fail(fmt.Errorf("rsocket: the peer sent a message of kind %d, which means nothing", k))
	}
}

// data takes a message that octets were written.
func (c *Conn) data(n uint32) {
	r := &c.in
	switch {
	case int64(n) > int64(r.granted) || n == 0:
		c.fail(fmt.Errorf("rsocket: the peer says that it wrote %d octets, where it may write 1 to %d",
			n, r.granted))
	case r.lengths.full():
		c.fail(fmt.Errorf("rsocket: the peer sent more than the %d messages that were granted",
			len(r.lengths.at)))
	case c.readEnd != nil:
		c.fail(fmt.Errorf("rsocket: the peer wrote %d octets after its goodbye", n))
	default:
		r.granted -= int(n)
		r.waiting += int(n)
		r.come++
		r.lengths.push(n)
	}
}

// control takes a goodbye. What came before can still be read.
func (c *Conn) control(value uint32) {
	switch value {
	case keepAlive:
	case shutdown:
		c.endRead(io.EOF)
	case disconnect:
		c.peerGone = true
		c.endRead(io.EOF)
		c.endWrite(syscall.EPIPE)
	default:
		c.fail(fmt.Errorf("rsocket: the peer sent a control message %d, which means nothing", value))
	}
}

// grant tells the peer of memory and of messages that it may use again, when that is due.
func (c *Conn) grant() {
	for more := c.in.due(c.opt.LateGrants); more; more = c.in.freed >= c.in.half {
		if c.writeEnd != nil || c.readEnd != nil || c.closed || c.out.slots < slotsForGrant {
			return
		}
		c.grantOnce()
	}
}

// grantOnce is one message, with an entry if there is half a ring for it: the peer concludes from
// what it says was read whether there is one.
func (c *Conn) grantOnce() {
	r := &c.in
	var wrs [2]rnic.WorkRequest
	b := c.inline[:entryLen+messageLen]
	n := 0
	if r.freed >= r.half {
		where := entry{c.m.ring.Base() + uint64(r.next), c.m.ring.STag(), uint32(r.half)}
		where.put(b[:entryLen], c.order)
		wrs[0] = rnic.WorkRequest{Op: rnic.OpWrite, Inline: b[:entryLen], RemoteSTag: r.peer.stag,
			RemoteOffset: r.peer.to + uint64(r.at)*entryLen}
		n = 1
		r.freed -= r.half
		r.granted += r.half
		r.next = (r.next + r.half) % (2 * r.half)
		r.at = (r.at + 1) % r.entries
	}
	r.told, r.maps = r.done, 0
	c.order.PutUint32(b[entryLen:], message(kindGrant, uint32(r.done+uint16(len(r.lengths.at)))))
	wrs[n] = rnic.WorkRequest{ID: uint64(n + 1), Op: rnic.OpSend, Inline: b[entryLen:], Signaled: true}
	c.post(wrs[:n+1])
}

// due says whether a grant is worth its message: half of the memory, or of the messages, is free.
// Late ones wait until the peer can have nothing left to send before it has them.
func (r *receiver) due(late bool) bool {
	credits := len(r.lengths.at)
	memory, messages := r.freed >= r.half, r.done != r.told &&
		int(r.done-r.told+r.maps) >= (credits+1)/2
	if late {
		left := credits - int(r.come-r.told)
		memory, messages = memory && r.granted == 0, messages && left <= reserved(uint16(credits))
	}
	return memory || messages
}
