package stream

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
)

// Handover is the state of a connection that is handed over.
type Handover struct {
	Conn *stack.Conn
	// stream offset of the first octet the new Upper will send: all before it are in segments
	Sent uint64
	// stream offset of the first octet it will receive: the application has read all before it
	Read uint64
	// the left edge: octets from Read to it are handed over in order, those beyond it may have gaps
	Edge uint64

	// Early is how many Bufs of octets beyond a gap are handed over, after those in order.
	Early int
}

// ErrNotTaken is what Detach returns when take returned no Upper: the connection is the stream it
// was.
var ErrNotTaken = errors.New("stream: the connection was not taken over")

// Detachment is a Detach in progress. The first of three decides it: the Poller, the end of the
// connection, or the end of a context.
type Detachment struct {
	conn    *Conn
	claimed atomic.Bool
	take    func(Handover) stack.Upper
	done    chan struct{}
	err     error // before done is closed
}

// Done is closed when it is decided; Wait then says how.
func (d *Detachment) Done() <-chan struct{} { return d.done }

func (d *Detachment) claim() bool { return d.claimed.CompareAndSwap(false, true) }

// fail ends a Detach that cannot be carried out; nil: the connection was closed in order.
func (d *Detachment) fail(err error) {
	if !d.claim() {
		return
	}
	if d.err = err; err == nil {
		d.err = os.NewSyscallError("detach", syscall.ENOTCONN)
	}
	close(d.done)
}

// Detach hands the connection over to another stack.Upper, for the change from streaming mode to
// MPA (RFC 5044 section 7.1.2).
//
// The stream is cut at an exact position in both directions. Everything written before the call is
// sent first, in segments of its own; the new Upper's octets begin at Handover.Sent. Received
// octets from Handover.Read on belong to the new Upper. The application must have read up to that
// position and not beyond: a bufio.Reader reads ahead.
//
// take is called on the Poller's goroutine when everything written is in segments. It returns the
// Upper, or nil to leave the connection as it is (ErrNotTaken), and must not block; it may set the
// connection's timer. At once, and still within the same turn, the new Upper gets, in this order,
//
//   - Arrive for each Buf of octets that are here already, once: those in order first, then those
//     after a gap, with offsets of the whole stream (the first is Handover.Read). Taken and Kept
//     mean what they always mean. Refused ends the connection: the octets are acknowledged.
//   - Edge(Handover.Edge), if octets in order were among them
//   - PeerClosed, if the peer's FIN is in order
//
// and then the calls of all later events, with perhaps a spurious Woken, and without Established.
// It has the stream's window until it sets its own. A connection that has ended, or whose half
// was closed, cannot be handed over.
//
// Detach waits for a Write in progress; blocked Reads fail at once. It blocks until the connection
// is handed over, ctx ends (then the connection stays a stream), or the connection ends. When it
// returns nil all other methods fail with ErrDetached, and Close does nothing.
func (c *Conn) Detach(ctx context.Context, take func(Handover) stack.Upper) error {
	d, err := c.StartDetach(take)
	if err != nil {
		return err
	}
	return d.Wait(ctx)
}

// StartDetach is Detach without the wait, for a caller that turns the Poller itself: Reads and
// Writes fail from now on. Wait must follow.
func (c *Conn) StartDetach(take func(Handover) stack.Upper) (*Detachment, error) {
	if take == nil {
		panic("stream: Detach without a function that takes over")
	}
	c.writing.enter() // nothing is being written
	if err := c.writable(nil); err != nil {
		c.leaveWrite()
		return nil, c.opError("detach", err)
	}
	d := &Detachment{conn: c, take: take, done: make(chan struct{})}
	c.u.detach.Store(d)
	c.leaveWrite()
	if c.u.state.Load()&stateDead != 0 { // Closed may have come before it could see d
		d.fail(c.u.err)
	}
	c.u.wake()
	c.release()
	return d, nil
}

// Wait returns what Detach does.
func (d *Detachment) Wait(ctx context.Context) error {
	select {
	case <-d.done:
	case <-ctx.Done():
		d.fail(giveUp(ctx))
		<-d.done // by us, or it is happening
	}
	if d.err == nil {
		return nil
	}
	c := d.conn
	c.u.detach.CompareAndSwap(d, nil)
	if c.closed.Load() { // Close left it to us
		c.orderClose()
	}
	return c.opError("detach", d.err)
}

// handOver carries out a Detach once all octets are in segments and no Read is under way. Poller's
// goroutine.
func (u *upper) handOver(c *stack.Conn) {
	d := u.detach.Load()
	if d == nil {
		return
	}
	if u.finAsked || u.closed || u.readShut {
		d.fail(net.ErrClosed) // by a call that was under way when Detach came
		return
	}
	if u.tx.pending() {
		return // Pull wakes
	}
	if !u.gate.CompareAndSwap(gateIdle, gateBusy) {
		c.Wake() // in the next Turn
		return
	}
	if !d.claim() {
		u.gate.Store(gateIdle)
		return
	}
	u.shared.kept -= u.rx.free(u.shared.pool)
	read := u.rx.taken.Load()
	to := d.take(Handover{Conn: c, Sent: c.SentOffset(), Read: read, Edge: u.edge, Early: u.early.n})
	if to == nil {
		u.gate.Store(gateIdle)
		d.err = ErrNotTaken
		close(d.done)
		return
	}
	c.SetUpper(to)
	u.waker.Store(nil)
	going := u.pass(c, to, read)
	u.conn = nil
	u.gate.Store(gateGone)
	u.sayFlushed()
	peerClosed := u.state.Load()&stateEOF != 0
	u.tell(stateDetached)
	if peerClosed && going {
		to.PeerClosed()
	}
	close(d.done)
}

// pass offers all octets that are here to the new Upper; false: it refused some, and gets no
// further call but Closed.
func (u *upper) pass(c *stack.Conn, to stack.Upper, at uint64) bool {
	from, going := at, true
	u.rx.unread(u.shared.pool, make([]byte, u.shared.room), func(b mem.Buf, data []byte) {
		if b == mem.NoBuf {
			b, data = u.unspill(data)
		}
		going = u.offer(to, at, b, data, going)
		at += uint64(len(data))
	})
	for u.early.n > 0 {
		b, p := u.shared.pop(&u.early)
		going = u.offer(to, p.at, b, u.shared.pool.Slot(b)[p.off:p.off+p.n], going)
	}
	if !going {
		c.Abort()
		return false
	}
	if u.edge > from {
		to.Edge(u.edge)
	}
	return true
}

// unspill puts octets back into a Buf.
func (u *upper) unspill(data []byte) (mem.Buf, []byte) {
	ps := u.shared
	b := ps.pool.Alloc()
	if b == mem.NoBuf {
		return b, nil
	}
	ps.kept++
	slot := ps.pool.Slot(b)[ps.pool.Headroom():]
	return b, slot[:copy(slot, data)]
}

// offer gives the new Upper a Buf, unless it has refused one, or there was none for what was
// spilled.
func (u *upper) offer(to stack.Upper, at uint64, b mem.Buf, data []byte, going bool) bool {
	if b == mem.NoBuf {
		return false
	}
	v := stack.Taken
	if going && len(data) > 0 {
		_, v = to.Arrive(at, []mem.Buf{b}, [][]byte{data})
	}
	if v == stack.Kept {
		u.shared.kept--
	} else {
		u.shared.free(b)
	}
	return going && v != stack.Refused
}
