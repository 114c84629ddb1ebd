package stream

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/stack"
)

// Listener accepts connections to one port of its Pollers. Established ones wait in one bounded
// queue; beyond it they are reset and counted (Linux would drop the last ACK of the handshake and
// let the peer believe it is connected).
type Listener struct {
	pollers  []*stack.Poller
	port     uint16
	opts     Options
	queue    chan *Conn
	deadline deadline
	closed   atomic.Bool
	done     chan struct{} // by Close
	stopped  chan struct{} // no Poller turns any more
}

var _ net.Listener = (*Listener)(nil)

// Listen opens port on all pollers; 0 picks a free one of 49152 to 65535. Errors are *net.OpError,
// as of net.Listen.
func Listen(pollers []*stack.Poller, port uint16, opts Options) (*Listener, error) {
	if len(pollers) == 0 {
		return nil, errNoPoller
	}
	opts, err := opts.filled()
	if err != nil {
		return nil, err
	}
	l := &Listener{
		pollers: pollers, port: port, opts: opts, queue: make(chan *Conn, opts.Backlog),
		deadline: newDeadline(),
		done:     make(chan struct{}), stopped: make(chan struct{}),
	}
	if port == 0 {
		err = stack.ErrPortUsed
		for range portsTriedMax {
			l.port = uint16(portFirst + rand.IntN(portCount))
			if err = l.open(); !errors.Is(err, stack.ErrPortUsed) {
				break
			}
		}
	} else {
		err = l.open()
	}
	if err != nil {
		return nil, l.opError("listen", err)
	}
	go l.watch()
	return l, nil
}

// open listens on every Poller or on none.
func (l *Listener) open() error {
	for i, p := range l.pollers {
		ps := pollerStateOf(p)
		err := call(p, func() error {
			return p.Listen(l.port, l.opts.HalfOpen, func(s *stack.Conn) stack.Upper {
				return l.accepted(ps, s)
			})
		})
		if err != nil {
			l.unlisten(l.pollers[:i])
			return err
		}
	}
	return nil
}

// accepted is called on a Poller's goroutine when a handshake is done.
func (l *Listener) accepted(ps *pollerState, s *stack.Conn) stack.Upper {
	if l.closed.Load() {
		return nil
	}
	if len(l.queue) == cap(l.queue) {
		ps.n.acceptOverflow.Add(1)
		return nil
	}
	c := newConn(ps, &l.opts)
	c.remote = net.TCPAddrFromAddrPort(s.Remote())
	c.attach(s)
	select {
	case l.queue <- c:
		return &c.u
	default: // another Poller was faster
		ps.n.acceptOverflow.Add(1)
		return nil
	}
}

// watch sees the end of all Pollers.
func (l *Listener) watch() {
	for _, p := range l.pollers {
		select {
		case <-p.Done():
		case <-l.done:
			return
		}
	}
	close(l.stopped)
}

// Accept implements net.Listener; the net.Conn is a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptStream()
	if err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptStream blocks until there is a connection, Close, the deadline, or the end of all Pollers.
func (l *Listener) AcceptStream() (*Conn, error) {
	cancel := l.deadline.wait()
	switch {
	case l.closed.Load():
		return nil, l.opError("accept", net.ErrClosed)
	case isDone(cancel):
		return nil, l.opError("accept", os.ErrDeadlineExceeded)
	}
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, l.opError("accept", net.ErrClosed)
	case <-cancel:
		return nil, l.opError("accept", os.ErrDeadlineExceeded)
	case <-l.stopped:
		return nil, l.opError("accept", stack.ErrStopped)
	}
}

// Close ends listening and resets the connections that were not accepted. Those that were stay. It
// returns when no Poller listens any more.
func (l *Listener) Close() error {
	if !l.closed.CompareAndSwap(false, true) {
		return l.opError("close", net.ErrClosed)
	}
	close(l.done)
	l.deadline.stop()
	l.unlisten(l.pollers)
	for {
		select {
		case c := <-l.queue:
			_ = c.SetLinger(0)
			_ = c.Close()
		default:
			return nil
		}
	}
}

func (l *Listener) unlisten(pollers []*stack.Poller) {
	for _, p := range pollers {
		_ = call(p, func() error { // fails only when the Poller has stopped, and then nobody listens
			p.Unlisten(l.port)
			return nil
		})
	}
}

// call runs fn on p's goroutine and waits for it.
func call(p *stack.Poller, fn func() error) error {
	done := make(chan error, 1)
	if err := submit(context.Background(), p, func() { done <- fn() }); err != nil {
		return err
	}
	return <-done // what was taken is run, always
}

// Addr implements net.Listener: the first Poller's address.
func (l *Listener) Addr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(l.pollers[0].Addr(), l.port))
}

// SetDeadline bounds Accept; the zero time does not.
func (l *Listener) SetDeadline(t time.Time) error {
	if l.closed.Load() {
		return l.opError("set", net.ErrClosed)
	}
	l.deadline.set(t)
	return nil
}

func (l *Listener) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: network, Addr: l.Addr(), Err: sysError(op, err)}
}
