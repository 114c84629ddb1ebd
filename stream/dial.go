package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/stack"
)

// Dialer opens connections over Pollers, in turn. DialContext fits http.Transport.DialContext.
type Dialer struct {
	Pollers []*stack.Poller
	Options Options
	Timeout time.Duration // of one address; 0: what ctx and the SYN's retransmissions allow
	// Lookup finds a host's addresses; nil: net.DefaultResolver, which asks over the kernel's network.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)

	turn atomic.Uint32
}

// DialContext dials address (host:port) on network tcp, tcp4 or tcp6. The addresses of a name are tried one after the
// other. Blocks until the handshake is done, ctx ends, or it failed.
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
	addrs, err := d.lookup(ctx, network, host)
	if err != nil {
		return fail(err)
	}
	var first error
	for _, a := range addrs {
		c, err := d.dial(ctx, netip.AddrPortFrom(a, uint16(port)))
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

// Dial is DialContext without a context.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

func (d *Dialer) dial(ctx context.Context, remote netip.AddrPort) (*Conn, error) {
	if d.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	if len(d.Pollers) == 0 {
		return nil, errNoPoller
	}
	p := d.Pollers[int(d.turn.Add(1)-1)%len(d.Pollers)]
	return Dial(ctx, []*stack.Poller{p}, remote, d.Options)
}

// lookup gives at least one address of the network's kind.
func (d *Dialer) lookup(ctx context.Context, network, host string) ([]netip.Addr, error) {
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
		if network == "tcp" || a.Is4() == (network == "tcp4") {
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

// Dial opens a connection to remote over one of pollers, which take turns. It blocks until the handshake is done,
// ctx ends, or it failed: a *net.OpError, as of net.Dial.
func Dial(ctx context.Context, pollers []*stack.Poller, remote netip.AddrPort, opts Options) (*Conn, error) {
	if len(pollers) == 0 {
		return nil, errNoPoller
	}
	opts, err := opts.filled()
	if err != nil {
		return nil, err
	}
	p := pollers[int(dialTurn.Add(1)-1)%len(pollers)]
	c := newConn(laneOf(p), &opts)
	c.remote = net.TCPAddrFromAddrPort(remote)
	var refused error // written before opened
	start := func() {
		if refused = c.connect(ctx, p, remote); refused != nil {
			c.u.opened <- struct{}{}
		}
	}
	if err := submit(ctx, p, start); err != nil {
		return nil, dialError(nil, c.remote, err)
	}
	select {
	case <-c.u.opened:
	case <-ctx.Done():
		c.cancelDial(p)
		return nil, dialError(nil, c.remote, giveUp(ctx))
	}
	state := c.u.state.Load()
	switch {
	case refused != nil:
		return nil, dialError(nil, c.remote, refused)
	case state&stateOpen != 0:
		return c, nil
	case errors.Is(c.u.err, stack.ErrAborted): // by the timer that stands for ctx
		return nil, dialError(c.local, c.remote, context.DeadlineExceeded)
	}
	return nil, dialError(c.local, c.remote, c.u.err)
}

// connect starts the handshake, on the Poller's goroutine.
func (c *Conn) connect(ctx context.Context, p *stack.Poller, remote netip.AddrPort) error {
	if ctx.Err() != nil {
		return giveUp(ctx)
	}
	s, err := p.Dial(remote, &c.u)
	if err != nil {
		return err
	}
	c.attach(s)
	if t, ok := ctx.Deadline(); ok { // should the order to give up find the control ring full
		s.SetTimer(p.Now() + max(1, int64(time.Until(t))))
	}
	return nil
}

// cancelDial ends a handshake that nobody waits for. When the control ring is full the connection is ended as soon as it
// is established, be it this very moment, or by its timer, or when the SYN is given up.
func (c *Conn) cancelDial(p *stack.Poller) {
	c.closed.Store(true)
	c.u.ask(askReset)
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
