package rsocket

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/rnic"
)

// ErrVanished is what Read returns when the connection was closed in order, but without the
// protocol's goodbye, as when the peer's program was ended: nobody knows whether that was all.
var ErrVanished = errors.New("rsocket: the peer closed the connection without a goodbye")

// Conn is a connection with the semantics of net.TCPConn. All methods may be called from any
// goroutine but a Poller's. Octets are copied: a buffer is the caller's again when the call
// returns. A Write is not interleaved with others.
//
// Memory of SendBuffer + ReceiveBuffer octets and a little is registered for as long as the Conn
// lives, and one goroutine waits for what comes.
type Conn struct {
	opt           Options
	qp            *rnic.QueuePair
	cq            *rnic.CompletionQueue
	pd            *rnic.ProtectionDomain
	m             memory
	order         binary.ByteOrder // of messages and entries
	local, remote net.Addr

	writing sync.Mutex // one Write at a time; before mu

	mu      sync.Mutex
	changed *sync.Cond // whenever a Read or Write might go on, or has to give up
	polled  [32]rnic.Completion
	in      receiver
	out     sender
	maps    maps
	inline  [mapLen + messageLen]byte // what is being posted

	readDeadline, writeDeadline deadline

	closed      bool
	writeClosed bool  // CloseWrite, or Close
	weGone      bool  // this end has said that it will neither send nor receive
	peerGone    bool  // the peer has
	readEnd     error // nil while more may come: io.EOF, or why not
	writeEnd    error // nil while it may be written
	finished    chan struct{}
}

var _ net.Conn = (*Conn)(nil)

// Read implements net.Conn. It blocks until there is at least one octet. io.EOF: the peer has said
// that nothing follows.
func (c *Conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.opError("read", net.ErrClosed)
		case c.readDeadline.passed:
			return 0, c.opError("read", os.ErrDeadlineExceeded)
		case len(p) == 0:
			return 0, nil
		}
		c.progress()
		if n := c.take(p); n > 0 {
			c.grant()
			return n, nil
		}
		if c.readEnd != nil {
			return 0, c.opError("read", c.readEnd)
		}
		c.changed.Wait()
	}
}

// Write implements net.Conn. It returns when all octets are in the send buffer, and have been
// posted.
func (c *Conn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for total := 0; ; {
		if c.closed || c.writeDeadline.passed {
			return total, c.opError("write", c.mayWrite())
		}
		c.progress()
		if err := c.mayWrite(); err != nil {
			return total, c.opError("write", err)
		}
		n := c.transfer(p[total:])
		if total += n; total == len(p) {
			return total, nil // whatever has happened meanwhile
		}
		if n == 0 && c.writeEnd == nil {
			c.changed.Wait()
		}
	}
}

// mayWrite is why nothing more may be written, or now. Guarded by mu.
func (c *Conn) mayWrite() error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.writeDeadline.passed:
		return os.ErrDeadlineExceeded
	case c.writeClosed:
		return syscall.EPIPE
	}
	return c.writeEnd
}

// CloseWrite tells the peer that nothing follows what was written. It may still be read.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("close", net.ErrClosed)
	}
	if !c.writeClosed {
		c.writeClosed = true
		if c.readEnd == io.EOF {
			c.goodbye(disconnect)
		} else {
			c.goodbye(shutdown)
		}
		c.changed.Broadcast()
	}
	return nil
}

// Close says goodbye after what was written and closes the connection. It returns when the peer has
// closed it, too, or when the connection was reset: by the peer, which is no error of Close, or
// because it did not close in time (Options.Linger). What had come and was not read is lost. An
// error means that what was written may be.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.opError("close", net.ErrClosed)
	}
	c.closed, c.writeClosed = true, true
	c.goodbye(disconnect)
	c.readDeadline.stop()
	c.writeDeadline.stop()
	c.changed.Broadcast()
	c.mu.Unlock()

	c.qp.Disconnect()
	linger, stop := awake.After(c.opt.Linger)
	defer stop()
	select {
	case <-c.finished:
	case <-linger:
		c.qp.Abort()
		<-c.finished
		return c.opError("close", errLinger)
	}
	if errors.Is(c.qp.Err(), rnic.ErrLinger) {
		return c.opError("close", errLinger)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out.lost && !c.peerGone {
		return c.opError("close", c.writeEnd)
	}
	return nil
}

var errLinger = errors.New("the peer did not close its half in time, and the connection was reset")

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// QueuePair is what the Conn runs on, for its Startup, Framing and Stats. Its end is the Conn's.
func (c *Conn) QueuePair() *rnic.QueuePair { return c.qp }

// network is what errors say.
const network = "rsocket"

// opError is the *net.OpError of an operation on c; io.EOF stays bare, as net.Conn promises.
func (c *Conn) opError(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = os.NewSyscallError(op, err)
	}
	return &net.OpError{Op: op, Net: network, Source: c.local, Addr: c.remote, Err: err}
}
