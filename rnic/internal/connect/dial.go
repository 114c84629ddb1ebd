package connect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
)

// An Initiator connects: BeginConnecting, Dial, InService, each on the goroutine of the application
// that calls Connect.
//
// A peer that does not know a dialect closes the connection, or answers with a lower Rev. The next
// of Param.Tries is then tried on a new connection (RFC 6581 section 10, DECISIONS 15), two in all
// at most. A dialect that the application named is the only one.

// BeginConnecting takes an idle queue pair for a connection, with p, which was checked, and room
// for the Requests that the peer may send. Any goroutine. An error leaves the queue pair Idle,
// except for ErrClosed, when Abort or Close has come: then it is Closed.
func (e *Endpoint) BeginConnecting(p Param) error {
	if !e.engine.Move(wq.Idle, wq.Connecting) {
		return ErrState
	}
	p.PrivateData = slices.Clone(p.PrivateData)
	err := e.engine.Prepare(p.IRD, p.ORD)
	if err == nil {
		e.param = p
		return nil
	}
	e.engine.Move(wq.Connecting, wq.Idle)
	// whichever of the two looks second sees the other
	if e.Unwanted.Load() && e.engine.Move(wq.Idle, wq.Closed) {
		e.Finish(ErrClosed)
		return ErrClosed
	}
	return fmt.Errorf("rnic: queue pair's control region: %w", err)
}

// Dial begins a connection to host:port. InService returns what came of it. Over kernel sockets
// Dial blocks until the peer's TCP has answered.
func (e *Endpoint) Dial(ctx context.Context, addr string) error {
	if e.host.IsClosed() {
		return ErrClosed // before a peer hears of it
	}
	if e.param.Bound == nil && e.param.Local.Port() != 0 {
		var err error
		if e.own, err = e.host.Bind(ctx, e.param.Local, false); err != nil {
			return err
		}
		e.param.Bound = e.own
	}
	if len(e.host.Pollers) == 0 {
		return e.dialSocket(ctx, addr, e.param.tries())
	}
	return e.dialPoller(ctx, addr)
}

// source is this end, as far as it is given: what is zero is chosen.
func (p *Param) source() netip.AddrPort {
	local := p.Local
	if p.Bound != nil {
		local = p.Bound.at
		if p.Local.Addr().IsValid() {
			local = netip.AddrPortFrom(p.Local.Addr(), local.Port())
		}
	}
	if local.Addr().IsUnspecified() {
		return netip.AddrPortFrom(netip.Addr{}, local.Port())
	}
	return local
}

// dialer dials from Param.source over the kernel's sockets.
func (p *Param) dialer() (d net.Dialer, err error) {
	if from := p.source(); from != (netip.AddrPort{}) {
		d.LocalAddr = net.TCPAddrFromAddrPort(from)
	}
	if p.Bound != nil {
		d.Control = transport.ReuseAddr
		err = p.Bound.Share()
	}
	return d, err
}

// dialSocket begins a connection over a kernel socket, in the first of the dialects. The others are
// for when it ends early.
func (e *Endpoint) dialSocket(ctx context.Context, addr string, tries []mpa.Dialect) error {
	h := e.host
	at, err := h.takeSlot()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.stopDial.Store(&cancel)
	if e.Unwanted.Load() {
		cancel()
	}
	d, err := e.param.dialer()
	var nc net.Conn
	if err == nil {
		nc, err = d.DialContext(ctx, "tcp", addr)
	}
	if err != nil {
		at.Free()
		if e.Unwanted.Load() {
			return ErrClosed
		}
		return transport.SocketError(err)
	}
	if e.param.Bound != nil {
		e.param.Bound.Used()
	}
	c, s, err := newKernelConnection(h, nc.(*net.TCPConn), at)
	if err != nil {
		at.Free()
		_ = nc.Close() // the error at hand says more
		return err
	}
	_ = s.Submit(func() { // Host.Close knows the connection already
		c.initiate(e, tries)
		c.again = func() { go e.redialSocket(addr, tries[1:]) }
		if err := e.join(c); err != nil {
			c.Fail(err) // Run then finds a connection that is over, and finishes the queue pair
		}
	})
	s.Run(nil)
	return nil
}

// redialSocket is the next try over kernel sockets.
func (e *Endpoint) redialSocket(addr string, tries []mpa.Dialect) {
	ctx, cancel := awake.Timeout(context.Background(), replyTimeout, nil)
	defer cancel()
	if err := e.dialSocket(ctx, addr, tries); err != nil {
		e.failDial(err)
	}
}

// failDial ends a queue pair whose next connection could not be begun.
func (e *Endpoint) failDial(err error) {
	if e.Unwanted.Load() {
		err = ErrClosed
	}
	e.startedUp(err)
	e.Finish(err)
}

// dialPoller dials from one of the Adapter's Pollers, each in turn: of those that hold the port, if
// one is given.
func (e *Endpoint) dialPoller(ctx context.Context, addr string) error {
	remote, err := resolve(ctx, addr)
	if err != nil {
		return err
	}
	h := e.host
	d := pollerDial{endpoint: e, pollers: h.Pollers, remote: remote}
	if e.param.Bound != nil {
		d.pollers = e.param.Bound.on
	}
	if d.left = len(d.pollers) - 1; d.left < 0 {
		return ErrClosed // of a Binding that was closed
	}
	d.at = int(h.next.Add(1)-1) % len(d.pollers)
	d.from = d.pollers[d.at]
	return d.try(e.param.tries(),
		func(fn func()) error { return OrderUntil(ctx, h, d.from.Poller.Submit, fn) })
}

// resolve looks a name up with the system's resolver. A literal address needs none.
func resolve(ctx context.Context, addr string) (netip.AddrPort, error) {
	if ap, err := netip.ParseAddrPort(addr); err == nil {
		return ap, nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("address %q is not host:port: %w", addr, err)
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return netip.AddrPort{}, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if len(ips) == 0 {
		return netip.AddrPort{}, errors.New("no address found")
	}
	return netip.AddrPortFrom(ips[0].Unmap(), uint16(n)), nil
}

// pollerDial is a queue pair's way to a peer from a Poller, for as many tries as it has dialects.
type pollerDial struct {
	endpoint *Endpoint
	pollers  []*PollerState
	at       int // of from
	left     int // Pollers that were not tried
	from     *PollerState
	remote   netip.AddrPort
}

// try begins a connection. submit runs the rest on the Poller's goroutine.
func (d pollerDial) try(tries []mpa.Dialect, submit func(func()) error) error {
	c, u := newPollerConnection(d.endpoint.host, d.from)
	c.initiate(d.endpoint, tries)
	if len(c.older) > 0 {
		// on the Poller's goroutine, in the middle of a connection's end
		c.again = func() { d.retry(c.older, d.from.Poller.Submit) }
	}
	if d.left > 0 {
		c.elsewhere = func() {
			next := d.next()
			next.retry(tries, next.from.Poller.Submit)
		}
	}
	if err := d.endpoint.join(c); err != nil {
		return err
	}
	if !d.endpoint.host.addConnection(c) {
		return ErrClosed
	}
	err := submit(func() {
		if c.Err != nil { // Abort or Adapter.Close was quicker
			c.Closed(c.Err)
			return
		}
		u.Dial(d.endpoint.param.source(), d.endpoint.param.Bound != nil, d.remote)
	})
	if err != nil {
		d.endpoint.host.dropConnection(c)
		c.Gone.Give() // no transport will drive it
	}
	return err
}

// next is d over the next Poller.
func (d pollerDial) next() pollerDial {
	d.left--
	d.at = (d.at + 1) % len(d.pollers)
	d.from = d.pollers[d.at]
	return d
}

// retry is the next try. The Poller's goroutine cannot wait for room in its control ring: when that
// is full, another one waits.
func (d pollerDial) retry(tries []mpa.Dialect, submit func(func()) error) {
	err := d.try(tries, submit)
	switch {
	case errors.Is(err, stack.ErrBusy):
		go d.retry(tries, func(fn func()) error { return Order(d.unlessUnwanted, fn) })
	case err != nil:
		d.endpoint.failDial(err)
	}
}

func (d pollerDial) unlessUnwanted(fn func()) error {
	if d.endpoint.Unwanted.Load() {
		return ErrClosed
	}
	return d.from.Poller.Submit(fn)
}

// InService waits for the end of start-up, or of ctx. If both have come it returns how start-up
// ended: a rejection may have a connection that the caller has to close.
func (e *Endpoint) InService(ctx context.Context) error {
	select {
	case <-e.started.C():
	case <-ctx.Done():
		if !e.started.Given() {
			return e.giveUp(ctx)
		}
	}
	if e.outcome != nil {
		<-e.Done.C()
	}
	return e.outcome
}

// giveUp ends start-up because ctx has ended. It returns ctx's error, or the rejection that came
// first and has a connection to be closed.
func (e *Endpoint) giveUp(ctx context.Context) error {
	e.Abort()
	late, stop := awake.After(abortTimeout)
	defer stop()
	select {
	case <-e.Done.C():
	case <-late: // no goroutine turns the Poller
		return ctx.Err()
	}
	if c := e.Connection.Load(); c != nil && c.Returned != nil {
		return e.Err // a rejection
	}
	if errors.Is(e.Err, stack.ErrTentative) {
		return fmt.Errorf("%w: %w", stack.ErrTentative, ctx.Err())
	}
	return ctx.Err()
}
