package rsocket

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/rnicd/rnicd/rnic"
)

// ErrBusy: as many connections as ListenOptions.Backlog says wait already. The Request was rejected
// for that alone.
var ErrBusy = errors.New("connections wait to be accepted")

// BacklogDefault is how many connections may wait for Accept.
const BacklogDefault = 16

// ListenOptions of Listen.
type ListenOptions struct {
	Options // of each Conn
	// Backlog is how many connections may be starting or wait for Accept; more are rejected.
	// Default BacklogDefault.
	Backlog int
	// Admit, if set, decides on each Request, before anything is made for it; an error rejects it.
	// Several goroutines.
	Admit func(remote netip.AddrPort) error
	// Rejected, if set, is told of each Request that was rejected, and of start-ups that failed. It
	// is called from several goroutines, and must not call Close.
	Rejected func(remote netip.AddrPort, err error)
}

// Listener is a net.Listener whose connections are *Conn.
type Listener struct {
	dev    *rnic.Adapter
	opt    ListenOptions
	l      *rnic.Listener
	cancel context.CancelFunc
	ended  chan struct{} // what has come and was not accepted is closed, too
	err    error         // after ended: why, when it was not Close
	conns  chan *Conn
	places chan struct{}
	close  sync.Once
}

var _ net.Listener = (*Listener)(nil)

func (o *ListenOptions) check() error {
	o.Backlog = cmp.Or(o.Backlog, BacklogDefault)
	if o.Backlog < 1 || o.Backlog > rnic.BacklogMax {
		return fmt.Errorf("rsocket: a backlog of %d, 1 to %d possible", o.Backlog, rnic.BacklogMax)
	}
	if o.Rejected == nil {
		o.Rejected = func(netip.AddrPort, error) {}
	}
	return o.Options.check()
}

// Listen waits for connections to host:port, as rnic.Adapter.Listen does; ctx is for that alone.
func Listen(ctx context.Context, dev *rnic.Adapter, addr string,
	opt ListenOptions) (*Listener, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	inner, err := dev.Listen(ctx, addr,
		rnic.ListenOptions{Backlog: opt.Backlog, OnFailure: func(f rnic.ConnFailure) {
			if !f.Offered {
				opt.Rejected(f.Remote, f.Err)
			}
		}})
	if err != nil {
		return nil, err
	}
	return NewListener(dev, inner, opt)
}

// NewListener takes the connections of an rnic.Listener of dev, which is closed with it.
func NewListener(dev *rnic.Adapter, inner *rnic.Listener, opt ListenOptions) (*Listener, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	l := &Listener{dev: dev, opt: opt, l: inner, ended: make(chan struct{}),
		conns: make(chan *Conn, opt.Backlog), places: make(chan struct{}, opt.Backlog)}
	serving, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	go l.serve(serving)
	return l, nil
}

func (l *Listener) serve(ctx context.Context) {
	l.err = l.l.Serve(ctx, l.offer)
	l.l.Close()
	var closing sync.WaitGroup
	for len(l.conns) > 0 { // together: each may take its Linger
		select {
		case c := <-l.conns:
			closing.Go(func() { c.Close() })
		default: // an Accept was quicker
		}
	}
	closing.Wait()
	close(l.ended)
}

// offer starts a connection and lets it wait for Accept.
func (l *Listener) offer(ctx context.Context, req *rnic.ConnRequest) {
	c, err := l.start(ctx, req)
	if err != nil {
		select {
		case <-req.Done(): // a process that is ended when this is told takes nothing from the peer
		case <-ctx.Done():
		}
		l.opt.Rejected(req.Remote(), err)
		return
	}
	l.conns <- c // has room for as many as there are places
}

func (l *Listener) start(ctx context.Context, req *rnic.ConnRequest) (c *Conn, err error) {
	if l.opt.Admit != nil {
		if err := l.opt.Admit(req.Remote()); err != nil {
			return nil, l.reject(ctx, req, err)
		}
	}
	select {
	case l.places <- struct{}{}:
	default:
		return nil, l.reject(ctx, req, fmt.Errorf("rsocket: %d %w", cap(l.places), ErrBusy))
	}
	defer func() {
		if err != nil {
			<-l.places
		}
	}()
	d, err := parseConnData(req.PrivateData())
	if err != nil {
		return nil, l.reject(ctx, req, fmt.Errorf("rsocket: %w", err))
	}
	if c, err = newConn(l.dev, l.opt.Options); err != nil {
		return nil, l.reject(ctx, req, err)
	}
	c.order = binary.LittleEndian
	if d.bigEndian { // the Initiator cannot do with another order; we can
		c.order = binary.BigEndian
	}
	c.learn(&d)
	if err := req.Accept(ctx, c.qp, c.connParam()); err != nil {
		undecided := c.qp.State() == rnic.Idle // there is no room for a connection
		c.drop()
		if undecided {
			return nil, l.reject(ctx, req, err)
		}
		return nil, err
	}
	c.begin()
	return c, nil
}

// reject answers no. rsockets has no word for the reason.
func (l *Listener) reject(ctx context.Context, req *rnic.ConnRequest, why error) error {
	return errors.Join(why, req.Reject(ctx, nil))
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		<-l.places
		return c, nil
	case <-l.ended:
		return nil, &net.OpError{Op: "accept", Net: network, Addr: l.Addr(),
			Err: cmp.Or(l.err, net.ErrClosed)}
	}
}

// Close implements net.Listener. Connections that were not accepted are closed, too, which takes
// their Linger at most.
func (l *Listener) Close() error {
	err := error(&net.OpError{Op: "close", Net: network, Addr: l.Addr(), Err: net.ErrClosed})
	l.close.Do(func() {
		l.cancel()
		err = nil
	})
	<-l.ended
	return err
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.l.Addr()) }
