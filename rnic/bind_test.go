package rnic

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/stack"
)

// self is the client's own address.
func (r *rig) self() netip.Addr {
	return netip.MustParseAddr([...]string{"10.9.0.2", "10.9.0.2", "127.0.0.1"}[r.kind])
}

// A Binding has its address and port until it is closed, from the moment of Bind.
func TestBind(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		any4, any6 := netip.IPv4Unspecified(), netip.IPv6Unspecified()
		bind := func(a netip.Addr, port uint16, opt BindOptions) (*Binding, error) {
			return r.client.Bind(r.ctx, netip.AddrPortFrom(a, port), opt)
		}
		foreign := netip.MustParseAddr("192.0.2.1")
		_, err := bind(foreign, 0, BindOptions{})
		require.ErrorIs(t, err, stack.ErrNotLocal, "the Adapter's first")
		_, err = r.client.Listen(r.ctx, netip.AddrPortFrom(foreign, 0).String(), ListenOptions{})
		require.Error(t, err)
		one, err := bind(r.self(), 0, BindOptions{})
		require.NoError(t, err)
		port := one.Addr().Port()
		require.NotZero(t, port)
		require.Equal(t, r.self(), one.Addr().Addr())
		for _, a := range []netip.Addr{r.self(), any4, any6, {}} {
			_, err = bind(a, port, BindOptions{})
			require.ErrorIs(t, err, stack.ErrPortUsed, "%v", a)
			_, err = bind(a, port, BindOptions{Shared: true})
			require.ErrorIs(t, err, stack.ErrPortUsed, "%v, shared", a)
		}
		six, err := bind(any6, port, BindOptions{V6Only: true})
		require.NoError(t, err, "of the other family")
		six.Close()
		_, err = r.client.Listen(r.ctx, one.Addr().String(), ListenOptions{})
		require.Error(t, err, "another's")
		l := must(one.Listen(r.ctx, ListenOptions{}))
		require.Equal(t, one.Addr(), l.Addr())
		one.Close()
		one.Close()
		_, err = bind(any4, port, BindOptions{})
		require.ErrorIs(t, err, stack.ErrPortUsed, "listened at")
		l.Close()
		r.drive()
		one, err = bind(any4, port, BindOptions{Shared: true})
		require.NoError(t, err, "it is free again")
		two, err := bind(any4, port, BindOptions{Shared: true})
		require.NoError(t, err)
		_, err = two.Listen(r.ctx, ListenOptions{})
		require.ErrorIs(t, err, stack.ErrPortUsed, "two have it")
		one.Close()
		r.drive()
		l = must(two.Listen(r.ctx, ListenOptions{}))
		l.Close()
		two.Close()
	})
}

// drive lets a turned rig carry out what was ordered.
func (r *rig) drive() {
	if r.kind == turned {
		r.step()
	}
}

// A connection comes from where LocalAddr says, in every dialect that is tried, and another one
// cannot while it lasts.
func TestConnectFrom(t *testing.T) {
	cfg := rigConfig{listen: ListenOptions{Dialects: []Dialect{RFC5044}}}
	over(t, all, cfg, func(t *testing.T, r *rig) {
		connect := func(conn ConnParam) *end {
			c := r.newEnd(r.client, opts{})
			conn.ORD = 1 // so that rfc6581 is tried first, and fails
			require.NoError(t, c.qp.StartConnect(r.ctx, r.addr(), conn))
			req := r.request()
			require.NoError(t, req.Accept(r.ctx, r.newEnd(r.server, opts{}).qp, ConnParam{}))
			c.expectInService()
			require.Equal(t, RFC5044, c.qp.Startup().Dialect)
			require.Equal(t, c.qp.LocalAddr(), req.Remote())
			return c
		}
		free := must(r.client.Bind(r.ctx, netip.AddrPortFrom(r.self(), 0), BindOptions{}))
		local := free.Addr()

		require.ErrorIs(t, r.tryConnect(ConnParam{LocalAddr: local}), stack.ErrPortUsed, "it is bound")
		err := r.tryConnect(ConnParam{Binding: &Binding{adapter: r.server}})
		require.ErrorContains(t, err, "another adapter")
		c := connect(ConnParam{Binding: free})
		require.Equal(t, local, c.qp.LocalAddr())
		c.qp.Abort()
		c.awaitClosed()
		free.Close()
		r.drive()

		c = connect(ConnParam{LocalAddr: local})
		require.Equal(t, local, c.qp.LocalAddr())
		require.ErrorIs(t, r.tryConnect(ConnParam{LocalAddr: local}), stack.ErrPortUsed)
		_, err = r.client.Bind(r.ctx, local, BindOptions{})
		require.ErrorIs(t, err, stack.ErrPortUsed)
		c.qp.Abort()
		c.awaitClosed()
		r.until("the port is given back", func() bool {
			b, err := r.client.Bind(r.ctx, local, BindOptions{})
			if err == nil {
				b.Close()
			}
			return err == nil
		})
		r.drive()

		c = connect(ConnParam{LocalAddr: netip.AddrPortFrom(r.self(), 0)})
		require.Equal(t, r.self(), c.qp.LocalAddr().Addr())
		c = connect(ConnParam{LocalAddr: netip.AddrPortFrom(netip.IPv4Unspecified(), local.Port())})
		require.Equal(t, local, c.qp.LocalAddr())
		for _, port := range []uint16{0, 4000} {
			foreign := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)
			require.ErrorIs(t, r.tryConnect(ConnParam{LocalAddr: foreign}), stack.ErrNotLocal)
		}
	})
}

// tryConnect is what came of an attempt that gets no answer.
func (r *rig) tryConnect(conn ConnParam) error {
	c := r.newEnd(r.client, opts{})
	if err := c.qp.StartConnect(r.ctx, r.addr(), conn); err != nil {
		return err // the kernel may be told at once
	}
	c.awaitClosed()
	return c.qp.Err()
}

// members are the two Pollers of a Group, each on a cable of its own with this address at its end,
// and the cables' other ends.
func members(t *testing.T, ports stack.PortRange) (all []*stack.Poller, far [2]*wire.Port) {
	t.Helper()
	g := must(stack.NewGroup(2))
	for i := range far {
		cable := must(wire.New(wire.Config{MTU: 1500}))
		far[i] = cable.Port(1)
		all = append(all, testhost.NewPoller(t, cable.Port(0), stack.Config{
			Pool: testhost.NewPool(t, 1024, 1500), MTU: 1500, ConnsMax: 32, Group: g, Member: i,
			Addr: netip.MustParsePrefix("10.9.0.1/24"), DialPorts: ports,
		}))
	}
	return all, far
}

// In a Group the Poller connects that the port leads to, whichever would be next.
func TestConnectFromInAGroup(t *testing.T) {
	near, ports := members(t, stack.PortRange{})
	var far []*stack.Poller
	for _, port := range ports {
		far = append(far, testhost.NewPoller(t, port, stack.Config{
			Pool: testhost.NewPool(t, 1024, 1500), MTU: 1500, ConnsMax: 32,
			Addr: netip.MustParsePrefix("10.9.0.2/24"),
		}))
	}
	testhost.Run(t, append(far, near...)...)
	client := must(Open(Config{Pollers: near}))
	server := must(Open(Config{Pollers: far}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	defer func() { require.NoError(t, errors.Join(client.Close(ctx), server.Close(ctx))) }()
	l := must(server.Listen(ctx, ":7174", ListenOptions{}))
	defer l.Close()
	d := &driver{t: t}
	for port := range uint16(16) {
		c, s := d.bareEnd(client, opts{}), d.bareEnd(server, opts{})
		at := netip.AddrPortFrom(netip.MustParseAddr("10.9.0.1"), 4000+port)
		require.NoError(t, c.qp.StartConnect(ctx, "10.9.0.2:7174", ConnParam{LocalAddr: at}),
			"port %d", at.Port())
		req, err := l.Accept(ctx)
		require.NoError(t, err, "port %d: %v", at.Port(), c.qp.Err())
		require.Equal(t, at, req.Remote())
		require.NoError(t, req.Accept(ctx, s.qp, ConnParam{}))
		c.qp.Abort()
		<-c.qp.Done()
		<-s.qp.Done()
	}
}

// A Bind to a free port that one of several Pollers has no answer to, or whose context ends, leaves
// no port held at the others.
func TestFailedBindGivesThePortBack(t *testing.T) {
	const ports = 4
	members, _ := members(t, stack.PortRange{First: 50000, Last: 50000 + ports - 1})
	turned, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- members[0].Run(turned) }() // the other one turns for nobody
	a := must(Open(Config{Pollers: members}))
	free := func() int {
		found := make(chan int)
		require.NoError(t, members[0].Submit(func() {
			var held []uint16
			for {
				port, err := members[0].Hold(netip.MustParseAddrPort("10.9.0.1:0"))
				if err != nil {
					break
				}
				held = append(held, port)
			}
			for _, port := range held {
				members[0].Release(port)
			}
			found <- len(held)
		}))
		return <-found
	}
	for range 2 * ports {
		require.Equal(t, ports, free())
		ctx, cancel := context.WithCancel(context.Background())
		failed := make(chan error)
		go func() {
			_, err := a.Bind(ctx, netip.MustParseAddrPort("10.9.0.1:0"), BindOptions{})
			failed <- err
		}()
		for free() == ports { // the first one has not chosen a port
		}
		cancel()
		require.ErrorIs(t, <-failed, context.Canceled)
	}
	stop()
	require.NoError(t, <-ended)
}
