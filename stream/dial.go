package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rnicd/rnicd/stack"
)

// Dialer opens connections over Pollers, in turn. DialContext fits http.Transport.DialContext.
type Dialer struct {
	Pollers []*stack.Poller
	Options Options
	Timeout time.Duration // of one address; 0: what ctx and the SYN's retransmissions allow
	// LocalAddr is our end, a *net.TCPAddr: its address, its port, or both; what is zero, or a nil
	// LocalAddr, is chosen. Of Pollers the one takes the connection that has the address, and in a
	// Group the one that the port leads to. EADDRNOTAVAIL: none has the address; EADDRINUSE: the
	// port is listened on, or a connection to the same remote end has it.
	LocalAddr net.Addr
	// Lookup finds a host's addresses; nil: net.DefaultResolver, which asks over the kernel's
	// network.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)

	turn atomic.Uint32
}

// DialContext dials address (host:port) on network tcp, tcp4 or tcp6. The addresses of a name are
// tried one after the other. Blocks until the handshake is done, ctx ends, or it failed. It also
// waits for duplicate address detection of our address (stack.Config.QuickDAD); an error of ctx is
// then also stack.ErrTentative.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	if network != "tcp" && network != "tcp4" && network != "tcp6" {
		return fail(net.UnknownNetworkError(network))
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return fail(err)
	}
	port, err := net.DefaultResolver.LookupPort(ctx, network, service)
	if err != nil {
		return fail(err)
	}
	local, err := localEnd(d.LocalAddr)
	if err != nil {
		return fail(err)
	}
	addrs, err := d.lookup(ctx, network, host, local.Addr())
	if err != nil {
		return fail(err)
	}
	var first error
	for _, a := range addrs {
		c, err := d.dial(ctx, network, local, netip.AddrPortFrom(a, uint16(port)))
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, first
}

// localEnd is what LocalAddr says; the zero AddrPort leaves the choice.
func localEnd(addr net.Addr) (netip.AddrPort, error) {
	if addr == nil {
		return netip.AddrPort{}, nil
	}
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, &net.AddrError{Err: "mismatched local address type", Addr: addr.String()}
	}
	if tcp == nil {
		return netip.AddrPort{}, nil
	}
	at := tcp.AddrPort()
	ip := at.Addr().Unmap().WithZone("")
	if ip.IsUnspecified() {
		ip = netip.Addr{}
	}
	return netip.AddrPortFrom(ip, at.Port()), nil
}

// Dial is DialContext without a context.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

func (d *Dialer) dial(ctx context.Context, network string, local,
	remote netip.AddrPort) (*Conn, error) {
	if d.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	return (&dial{network: network, pollers: d.Pollers, turn: &d.turn, local: local, remote: remote,
		opts: d.Options}).open(ctx)
}

// lookup gives at least one address of the network's kind, and of local's family if that is given.
func (d *Dialer) lookup(ctx context.Context, network, host string,
	local netip.Addr) ([]netip.Addr, error) {
	var addrs []netip.Addr
	if a, err := netip.ParseAddr(host); err == nil {
		addrs = []netip.Addr{a}
	} else {
		find := d.Lookup
		if find == nil {
			find = func(ctx context.Context, host string) ([]netip.Addr, error) {
				return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
			}
		}
		if addrs, err = find(ctx, host); err != nil {
			return nil, err
		}
	}
	var fit []netip.Addr
	for _, a := range addrs {
		a = a.Unmap()
		if (network == "tcp" || a.Is4() == (network == "tcp4")) &&
			(!local.IsValid() || a.Is4() == local.Is4()) {
			fit = append(fit, a)
		}
	}
	if len(fit) == 0 {
		return nil, &net.AddrError{Err: "no suitable address", Addr: host}
	}
	return fit, nil
}

var errNoPoller = errors.New("stream: no Poller given")

var dialTurn atomic.Uint32

// Dial opens a connection to remote over one of pollers, which take turns. It blocks until the
// handshake is done, ctx ends, or it failed: a *net.OpError, as of net.Dial.
func Dial(ctx context.Context, pollers []*stack.Poller, remote netip.AddrPort,
	opts Options) (*Conn, error) {
	return (&dial{network: network, pollers: pollers, turn: &dialTurn, remote: remote, opts: opts}).
		open(ctx)
}

// dial is one address to dial, over pollers in turn.
type dial struct {
	network       string
	pollers       []*stack.Poller
	turn          *atomic.Uint32
	local, remote netip.AddrPort
	opts          Options
	source        net.Addr // of the last try, if it came so far
}

// open tries the Pollers, beginning with the one whose turn it is, until one can have the local end
// that is wanted.
func (d *dial) open(ctx context.Context) (c *Conn, err error) {
	if len(d.pollers) == 0 {
		return nil, errNoPoller
	}
	if d.opts, err = d.opts.filled(); err != nil {
		return nil, err
	}
	if d.local != (netip.AddrPort{}) {
		d.source = net.TCPAddrFromAddrPort(d.local)
	}
	first := int(d.turn.Add(1) - 1)
	var why error
	for i := range d.pollers {
		c, err = d.over(ctx, d.pollers[(first+i)%len(d.pollers)])
		if err == nil {
			return c, nil
		}
		elsewhere := errors.Is(err, stack.ErrOtherMember)
		if why == nil || !elsewhere {
			why = err
		}
		if !elsewhere && !errors.Is(err, stack.ErrNotLocal) {
			break
		}
	}
	return nil, d.opError(why)
}

// over dials over p.
func (d *dial) over(ctx context.Context, p *stack.Poller) (*Conn, error) {
	c := newConn(pollerStateOf(p), &d.opts)
	c.remote = net.TCPAddrFromAddrPort(d.remote)
	var refused error // written before opened
	var tentative atomic.Bool
	try := func() (again bool) {
		refused = c.connect(ctx, p, d.local, d.remote)
		again = errors.Is(refused, stack.ErrTentative)
		tentative.Store(again)
		if refused != nil && !again {
			c.u.opened <- struct{}{}
		}
		return again
	}
	start := func() {
		if err := p.UntilChecked(try); err != nil {
			refused = err
			c.u.opened <- struct{}{}
		}
	}
	if err := submit(ctx, p, start); err != nil {
		return nil, err
	}
	select {
	case <-c.u.opened:
	case <-ctx.Done():
		c.cancelDial(p)
		if tentative.Load() {
			return nil, &tentativeError{giveUp(ctx)}
		}
		return nil, giveUp(ctx)
	}
	if c.local != nil {
		d.source = c.local
	}
	state := c.u.state.Load()
	switch {
	case refused != nil:
		return nil, refused
	case state&stateOpen != 0:
		return c, nil
	case errors.Is(c.u.err, stack.ErrAborted): // by the timer that stands for ctx
		return nil, context.DeadlineExceeded
	}
	return nil, c.u.err
}

// opError is the *net.OpError of a dial that failed, as package net has it.
func (d *dial) opError(err error) error {
	e := &net.OpError{
		Op: "dial", Net: d.network, Source: d.source, Addr: net.TCPAddrFromAddrPort(d.remote),
		Err: sysError("connect", err),
	}
	switch {
	case errors.Is(err, stack.ErrPortUsed) && d.local.Port() == 0: // no ephemeral port is left
		e.Err = os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)
	case errors.Is(err, stack.ErrPortUsed), errors.Is(err, stack.ErrNotLocal),
		errors.Is(err, stack.ErrOtherMember):
		e.Err = sysError("bind", err)
	}
	return e
}

// connect starts the handshake, on the Poller's goroutine.
func (c *Conn) connect(ctx context.Context, p *stack.Poller, local, remote netip.AddrPort) error {
	if ctx.Err() != nil {
		return giveUp(ctx)
	}
	s, err := p.DialFrom(local, remote, &c.u)
	if err != nil {
		return err
	}
	c.attach(s)
	c.u.settings.applyEarly(s)
	if t, ok := ctx.Deadline(); ok { // should the order to give up find the control ring full
		s.SetTimer(p.Now() + max(1, int64(time.Until(t))))
	}
	return nil
}

// cancelDial ends a handshake that is no longer waited for. When the control ring is full the
// connection is ended as soon as it is established, be it this very moment, or by its timer, or
// when the SYN is given up.
func (c *Conn) cancelDial(p *stack.Poller) {
	c.closed.Store(true)
	c.u.request(requestReset)
	_ = p.Submit(func() {
		if c.u.conn != nil {
			c.u.conn.Abort()
		}
	})
}

// submit gives fn to p, waiting for room in its control ring as long as ctx and p live.
func submit(ctx context.Context, p *stack.Poller, fn func()) error {
	if err := ctx.Err(); err != nil {
		return giveUp(ctx)
	}
	for wait := controlRetry; ; wait = min(2*wait, controlRetryMax) {
		err := p.Submit(fn)
		if !errors.Is(err, stack.ErrBusy) {
			return err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return giveUp(ctx)
		case <-p.Done():
			t.Stop()
			return fmt.Errorf("stream: poller %q: %w", p.Name(), stack.ErrStopped)
		}
	}
}
