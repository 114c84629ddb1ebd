package connect

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
)

// Binding is a local address and port that is taken for a listener or for connections to come. Any
// goroutine.
type Binding struct {
	host   *Host
	at     netip.AddrPort // 0.0.0.0: all of IPv4; ::, of IPv6; the zero Addr: of both
	shared bool
	socket *transport.HeldSocket // over the kernel's sockets
	on     []*PollerState        // that hold the port
	once   sync.Once
}

// bindings are those of a Host, by port.
type bindings struct {
	mu  sync.Mutex
	all map[uint16][]*Binding
}

// Bind takes a local address and port; port 0 picks one. local's address is as in stack.ListenAt.
// Two that are shared may have an address and port in common, until one listens. Errors:
// stack.ErrPortUsed, stack.ErrNotLocal, stack.ErrStopped, those of the kernel, and ctx's.
func (h *Host) Bind(ctx context.Context, local netip.AddrPort, shared bool) (*Binding, error) {
	if h.IsClosed() {
		return nil, ErrClosed
	}
	local = netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
	if len(h.Pollers) > 0 { // each has one link, and needs no zone to know it
		local = netip.AddrPortFrom(local.Addr().WithZone(""), local.Port())
	}
	b := &Binding{host: h, at: local, shared: shared}
	if local.Port() != 0 && !h.bound.enter(b) {
		return nil, fmt.Errorf("bind %v: %w", local, stack.ErrPortUsed)
	}
	err := b.take(ctx)
	if err == nil && local.Port() == 0 && !h.bound.enter(b) {
		err = stack.ErrPortUsed // of a binding for connections that have the port by now
	}
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("bind %v: %w", local, err)
	}
	return b, nil
}

// take takes the port from the kernel, or on the Pollers.
func (b *Binding) take(ctx context.Context) (err error) {
	port := b.at.Port()
	if len(b.host.Pollers) == 0 {
		v6Only := b.at.Addr().IsValid()
		b.socket, port, err = transport.HoldSocket(b.at, v6Only, b.shared)
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			return fmt.Errorf("%w: %w", stack.ErrPortUsed, err)
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			return fmt.Errorf("%w: %w", stack.ErrNotLocal, err)
		case err != nil:
			return err
		}
		b.at = netip.AddrPortFrom(b.at.Addr(), port)
		return nil
	}
	for range portsTriedMax {
		if err = b.hold(ctx, port); port != 0 || !errors.Is(err, stack.ErrPortUsed) {
			break
		}
	}
	return err
}

// portsTriedMax is how many ports are tried that one Poller has chosen and another one may not
// have.
const portsTriedMax = 64

// hold holds the port on all Pollers that have the address, or on none.
func (b *Binding) hold(ctx context.Context, port uint16) error {
	var elsewhere error
	for _, p := range b.host.Pollers {
		at := netip.AddrPortFrom(b.at.Addr(), port)
		held, err := b.holdOn(ctx, p, at)
		switch {
		case errors.Is(err, stack.ErrNotLocal):
			elsewhere = err
		case err != nil:
			b.release(port)
			return err
		default:
			b.on, port = append(b.on, p), held
		}
	}
	if len(b.on) == 0 {
		return elsewhere
	}
	b.at = netip.AddrPortFrom(b.at.Addr(), port)
	return nil
}

// holdOn holds the port on one Poller.
func (b *Binding) holdOn(ctx context.Context, p *PollerState, at netip.AddrPort) (uint16, error) {
	held := uint16(0) // the Poller's goroutine's
	port, err := callFor(ctx, b.host, p, func() (_ uint16, err error) {
		held, err = p.Poller.Hold(at)
		return held, err
	})
	// should it come to hold the port later, this comes right after
	if err != nil && ctx.Err() != nil {
		_ = OrderUntil(context.WithoutCancel(ctx), b.host, p.Poller.Submit, func() {
			if held != 0 {
				p.Poller.Release(held)
			}
		})
	}
	return port, err
}

// release gives the port back on all Pollers.
func (b *Binding) release(port uint16) {
	for _, p := range b.on {
		// a stopped one holds nothing
		_ = OrderUntil(context.Background(), b.host, p.Poller.Submit, func() { p.Poller.Release(port) })
	}
	b.on = nil
}

// SourceFor is the local address from which a connection to remote would come. Errors are those of
// stack.Poller.SourceFor, of the first Poller, and ctx's.
func (h *Host) SourceFor(ctx context.Context, remote netip.Addr) (local netip.Addr, err error) {
	if len(h.Pollers) == 0 {
		return transport.SourceFor(remote)
	}
	for _, p := range h.Pollers {
		found, why := callFor(ctx, h, p, func() (netip.Addr, error) { return p.Poller.SourceFor(remote) })
		if why == nil {
			return found, nil
		}
		if err == nil {
			err = why
		}
	}
	return netip.Addr{}, err
}

// Local is the address as it was asked for, and the port.
func (b *Binding) Local() netip.AddrPort { return b.at }

// Pollers are those that hold the port; none: the kernel does.
func (b *Binding) Pollers() []*PollerState { return b.on }

// Share lets the binding's own sockets have the address and port. Listen is the caller's next call.
func (b *Binding) Share() error {
	if b.socket == nil {
		return nil
	}
	return b.socket.Share()
}

// SetShared has Bind's shared be true from now on.
func (b *Binding) SetShared() error {
	s := &b.host.bound
	s.mu.Lock()
	b.shared = true
	s.mu.Unlock()
	return b.Share()
}

// Used says that a socket of the kernel's has the port by now: nothing else need keep it.
func (b *Binding) Used() {
	if b.socket != nil {
		b.socket.Close()
	}
}

// Alone says whether no other has an address in common: a shared one may listen then.
func (b *Binding) Alone() bool {
	s := &b.host.bound
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(s.all[b.at.Port()], func(o *Binding) bool {
		return o != b && b.meets(o)
	})
}

// Close gives the address and port back. What listens or connects goes on. It blocks while the
// Pollers have no room for the order.
func (b *Binding) Close() {
	b.once.Do(func() {
		if b.socket != nil {
			b.socket.Close()
		}
		b.release(b.at.Port())
		b.host.bound.leave(b)
	})
}

// enter adds b, unless another one has its address and port, and either of them is not shared.
func (s *bindings) enter(b *Binding) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	port := b.at.Port()
	if slices.ContainsFunc(s.all[port], func(o *Binding) bool {
		return !(b.shared && o.shared) && b.meets(o)
	}) {
		return false
	}
	if s.all == nil {
		s.all = map[uint16][]*Binding{}
	}
	s.all[port] = append(s.all[port], b)
	return true
}

// leave takes b out, if it has entered.
func (s *bindings) leave(b *Binding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	port := b.at.Port()
	left := slices.DeleteFunc(s.all[port], func(o *Binding) bool { return o == b })
	if len(left) == 0 {
		delete(s.all, port)
		return
	}
	s.all[port] = left
}

// meets says whether b and o have an address in common.
func (b *Binding) meets(o *Binding) bool {
	x, y := b.at.Addr(), o.at.Addr()
	switch {
	case !x.IsValid() || !y.IsValid():
		return true
	case x.IsUnspecified() || y.IsUnspecified():
		return x.Is4() == y.Is4()
	}
	return x == y
}
