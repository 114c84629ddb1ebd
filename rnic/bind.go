package rnic

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/rnicd/rnicd/rnic/internal/connect"
)

// BindOptions of Adapter.Bind.
type BindOptions struct {
	// V6Only has :: stand for all addresses of IPv6 alone (IPV6_V6ONLY), instead of all addresses.
	V6Only bool
	// Shared lets others that are Shared have an address and port in common with this one, for
	// connections to different peers: as long as they do, none of them can listen.
	Shared bool
}

// Binding is a local address and port that was taken before it is used: by Listen, or by
// connections that name it in ConnParam.Binding. Until Close nothing else on the Adapter, and over
// the kernel's sockets no other program, gets them. Any goroutine.
type Binding struct {
	adapter *Adapter
	addr    netip.AddrPort
	opt     BindOptions
	b       *connect.Binding
}

// Bind takes a local address and port, as bind(2) does. 0.0.0.0 stands for all addresses of IPv4,
// :: and the zero Addr for all addresses. Port 0 takes a free one. Errors: stack.ErrPortUsed, where
// another Binding or a listener has an address and the port; stack.ErrNotLocal; ErrClosed;
// stack.ErrStopped; the kernel's; ctx's. Any application goroutine.
func (a *Adapter) Bind(ctx context.Context, local netip.AddrPort,
	opt BindOptions) (*Binding, error) {
	addr := local.Addr().Unmap()
	if !addr.IsValid() {
		addr, opt.V6Only = netip.IPv6Unspecified(), false
	}
	if addr == netip.IPv6Unspecified() && !opt.V6Only {
		local = netip.AddrPortFrom(netip.Addr{}, local.Port())
	}
	b, err := a.host.Bind(ctx, local, opt.Shared)
	if err != nil {
		return nil, fmt.Errorf("rnic: %w", err)
	}
	return &Binding{a, netip.AddrPortFrom(addr, b.Local().Port()), opt, b}, nil
}

// Addr is the address that Bind was given, and the port. Any goroutine.
func (b *Binding) Addr() netip.AddrPort { return b.addr }

// SetShared has it be BindOptions.Shared from now on. The error is the kernel's. Any goroutine.
func (b *Binding) SetShared() error { return b.b.SetShared() }

// Close gives the address and port back. A Listener has them until its own Close, a connection
// until its end. The second call does nothing; the error is always nil. It waits for the Pollers to
// have room for the order. Any application goroutine.
func (b *Binding) Close() error {
	b.b.Close()
	return nil
}

// Listen waits for connections there. The Binding may be closed then. Errors are those of
// Adapter.Listen; stack.ErrPortUsed too where another one that is Shared has an address and the
// port. Any application goroutine.
func (b *Binding) Listen(ctx context.Context, opt ListenOptions) (*Listener, error) {
	opt.V6Only = b.opt.V6Only
	return b.adapter.listen(ctx, b.addr.String(), opt, b.b)
}

// SourceFor is the local address from which Connect would reach remote, if nothing else is asked
// for. Nothing is sent. Errors: stack.ErrNetUnreachable, stack.ErrNoRoute, *stack.AddrError,
// stack.ErrStopped, the kernel's, ctx's. Any application goroutine.
func (a *Adapter) SourceFor(ctx context.Context, remote netip.Addr) (netip.Addr, error) {
	local, err := a.host.SourceFor(ctx, remote.Unmap())
	if err != nil {
		return local, fmt.Errorf("rnic: %w", err)
	}
	return local, nil
}
