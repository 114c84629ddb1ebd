package stream

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/stack"
)

// network is what Addr.Network and errors say.
const network = "tcp"

// Conn is a connection with the semantics of net.TCPConn. All methods may be called from any
// goroutine except the Poller's, where they would deadlock. Octets are copied: a buffer is the
// caller's again when the call returns.
type Conn struct {
	u             upper
	local, remote net.Addr

	closed    atomic.Bool
	finished  atomic.Bool // CloseWrite
	readEnded atomic.Bool // CloseRead
	linger    atomic.Int64

	reading       half
	readDeadline  deadline
	writing       half
	writeDeadline deadline
}

var _ net.Conn = (*Conn)(nil)
var _ io.ReaderFrom = (*Conn)(nil)

const lingerDefault = -1 // in the background

func newConn(ps *pollerState, opts *Options) *Conn {
	c := &Conn{readDeadline: newDeadline(), writeDeadline: newDeadline()}
	c.linger.Store(lingerDefault)
	c.u.init(ps, opts)
	return c
}

// attach is called on the Poller's goroutine, before Established.
func (c *Conn) attach(s *stack.Conn) {
	c.local = net.TCPAddrFromAddrPort(s.Local())
	c.u.attach(s)
}

func yield() { runtime.Gosched() }

// Read implements net.Conn. It blocks until there is at least one octet. io.EOF: the peer closed
// its half, or CloseRead was called. What arrived before a RST can be read before the error is
// seen.
func (c *Conn) Read(p []byte) (int, error) {
	c.reading.enter()
	defer c.leaveRead()
	for {
		cancel := c.readDeadline.wait()
		n, state, err := c.readNow(p, cancel)
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		c.u.reader.arm()
		if c.quiet(state) {
			c.u.reader.wait(cancel)
		}
	}
}

// readNow is one look at what there is to be read: no octets and no error mean that nothing is.
// state is what was seen of the connection before that. The reader's lock is held.
func (c *Conn) readNow(p []byte, cancel <-chan struct{}) (n int, state uint32, err error) {
	state = c.u.state.Load() // before the ring: nothing is pushed after these bits
	switch err := c.ended(state); {
	case err != nil:
		return 0, state, c.opError("read", err)
	case isDone(cancel):
		return 0, state, c.opError("read", os.ErrDeadlineExceeded)
	case len(p) == 0:
		return 0, state, nil
	case c.readEnded.Load():
		return 0, state, io.EOF
	}
	if n := c.take(p); n > 0 {
		return n, state, nil
	}
	switch {
	case state&stateEOF != 0:
		return 0, state, io.EOF
	case state&stateDead != 0:
		return 0, state, c.opError("read", c.deathCause())
	}
	return 0, state, nil
}

// ended is why no call makes sense any more.
func (c *Conn) ended(state uint32) error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	if state&stateDetached != 0 || c.u.detach.Load() != nil {
		return ErrDetached
	}
	return nil
}

// deathCause is why the connection is over; valid once stateDead is set.
func (c *Conn) deathCause() error {
	if c.u.err == nil {
		return io.EOF // both halves were closed in order
	}
	return c.u.err
}

// quiet is the last look before the reader waits. Bufs that were read go back first: while no
// goroutine reads none is held.
func (c *Conn) quiet(state uint32) bool {
	u := &c.u
	if u.rx.taken.Load() != u.told.Load() {
		u.wake()
	}
	return u.rx.head.Load() == u.rx.tail.Load() && u.gate.Load() != gateGone &&
		u.state.Load() == state &&
		c.ended(state) == nil && !c.readEnded.Load()
}

// take copies octets out of the Bufs, or out of what is left of them, and lets the Poller know when
// that is worth it.
func (c *Conn) take(p []byte) int {
	u := &c.u
	for !u.gate.CompareAndSwap(gateIdle, gateBusy) {
		if u.gate.Load() == gateGone {
			n := copy(p, u.rest)
			u.rest = u.rest[n:]
			return n
		}
		yield() // the Poller, for a moment
	}
	n := u.rx.read(u.shared.pool, p)
	u.gate.Store(gateIdle)
	if n > 0 && int64(u.rx.taken.Load()-u.told.Load()) >= u.windowSize.Load()/wakeShare {
		u.wake()
	}
	return n
}

// Write implements net.Conn. It returns when all octets are in the send buffer.
func (c *Conn) Write(p []byte) (int, error) { return c.write(p, false) }

// WriteMore is Write with the promise that another one follows at once, as MSG_MORE: a last segment
// that is not full waits for it, 200 ms at the most.
func (c *Conn) WriteMore(p []byte) (int, error) { return c.write(p, true) }

func (c *Conn) write(p []byte, more bool) (int, error) {
	c.writing.enter()
	defer c.leaveWrite()
	if more {
		c.u.holdOn(holdMore)
	}
	total := 0
	for {
		cancel := c.writeDeadline.wait()
		if err := c.writable(cancel); err != nil {
			return total, c.opError("write", err)
		}
		n := c.put(p[total:])
		total += n
		done := total == len(p)
		if done && !more {
			c.u.tx.end()
		}
		if released := done && !more && c.unhold(); n > 0 || released {
			c.u.wake()
		}
		if done {
			return total, nil
		}
		c.waitToWrite(cancel, len(p)-total)
	}
}

// put copies what finds room into the send buffer. The caller is within writing.
func (c *Conn) put(p []byte) int {
	n := c.u.tx.write(p)
	if n > 0 {
		c.u.written.Add(uint64(n))
	}
	return n
}

// unhold says that what WriteMore promised has come; false: it had promised nothing. The Poller is
// woken afterwards.
func (c *Conn) unhold() bool {
	if c.u.hold.Load()&holdMore == 0 {
		return false
	}
	c.u.hold.And(^holdMore)
	return true
}

// waitToWrite until the Poller has taken something, or something has happened. The caller is within
// writing.
func (c *Conn) waitToWrite(cancel <-chan struct{}, want int) {
	c.u.writer.arm()
	if c.u.hold.Load() != 0 { // what is held back to fill a segment makes room for what fills it
		c.u.wake()
	}
	if len(c.u.tx.space(want)) == 0 && c.writable(cancel) == nil {
		c.u.writer.wait(cancel)
	}
}

// writable is nil while octets may be written.
func (c *Conn) writable(cancel <-chan struct{}) error {
	state := c.u.state.Load()
	if err := c.ended(state); err != nil {
		return err
	}
	switch {
	case isDone(cancel):
		return os.ErrDeadlineExceeded
	case c.finished.Load():
		return os.NewSyscallError("write", syscall.EPIPE)
	case state&stateDead == 0:
		return nil
	case state&stateEOF != 0 && errors.Is(c.u.err, stack.ErrReset), c.u.err == nil:
		// as Linux: a RST in CLOSE-WAIT is a broken pipe
		return os.NewSyscallError("write", syscall.EPIPE)
	}
	return c.u.err
}

// ReadFrom implements io.ReaderFrom: it reads from r straight into the send buffer, until io.EOF.
// There is no WriteTo: its writer might block while it holds Bufs of the Poller.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	c.writing.enter()
	defer c.leaveWrite()
	total := int64(0)
	for {
		cancel := c.writeDeadline.wait()
		if err := c.writable(cancel); err != nil {
			return total, c.opError("write", err)
		}
		room := c.u.tx.space(sendBufferDefault)
		if len(room) == 0 {
			c.waitToWrite(cancel, sendBufferDefault)
			continue
		}
		n, err := r.Read(room)
		if n > 0 {
			c.u.tx.put(n)
			c.u.tx.end()
			c.u.written.Add(uint64(n))
			total += int64(n)
			c.u.wake()
		}
		if err == io.EOF {
			if c.unhold() {
				c.u.wake()
			}
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// Close implements net.Conn: blocked and later calls return net.ErrClosed. What was written is sent
// in the background, then a FIN; with octets unread, a RST instead. SetLinger changes that. After
// Detach it does nothing.
func (c *Conn) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return c.opError("close", net.ErrClosed)
	}
	linger := c.linger.Load()
	if c.u.state.Load()&stateDetached == 0 && c.u.detach.Load() == nil {
		c.orderClose()
	}
	c.release()
	c.readDeadline.stop()
	c.writeDeadline.stop()
	if linger > 0 {
		late, stop := awake.After(time.Duration(linger) * time.Second)
		defer stop()
		select {
		case <-c.u.flush:
		case <-late:
		}
	}
	return nil
}

func (c *Conn) orderClose() {
	if c.linger.Load() == 0 {
		c.u.request(requestReset)
	} else {
		c.u.request(requestClose)
	}
}

// release has blocked calls look again.
func (c *Conn) release() {
	c.u.reader.wake()
	c.u.writer.wake()
}

// CloseWrite sends a FIN after what was written; the peer reads io.EOF. Reading goes on.
func (c *Conn) CloseWrite() error {
	if err := c.alive(); err != nil {
		return c.opError("close", err)
	}
	c.finished.Store(true)
	c.u.request(requestFin)
	c.u.writer.wake()
	return nil
}

// CloseRead ends reading: Read returns io.EOF, and unread and later octets are dropped.
func (c *Conn) CloseRead() error {
	if err := c.alive(); err != nil {
		return c.opError("close", err)
	}
	c.readEnded.Store(true)
	c.u.request(requestReadShut)
	c.u.reader.wake()
	return nil
}

// alive is for calls on a connection that must not be over.
func (c *Conn) alive() error {
	state := c.u.state.Load()
	if err := c.ended(state); err != nil {
		return err
	}
	if state&stateDead != 0 {
		return os.NewSyscallError("shutdown", syscall.ENOTCONN)
	}
	return nil
}

// Poller is the one that carries the connection.
func (c *Conn) Poller() *stack.Poller { return c.u.shared.poller }

// LocalAddr implements net.Conn: a *net.TCPAddr.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn: a *net.TCPAddr.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.readDeadline, t) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.writeDeadline, t) }

func (c *Conn) setDeadline(d *deadline, t time.Time) error {
	if err := c.ended(c.u.state.Load()); err != nil {
		return c.opError("set", err)
	}
	d.set(t)
	return nil
}
