package connect

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
)

// Host is what all connections of an Adapter have in common.
type Host struct {
	HostConfig
	next    atomic.Uint32 // Poller to dial from
	Startup startupCounters

	mu          sync.Mutex
	connections map[*Connection]struct{} // every live one
	closed      bool
}

// HostConfig is what a host has from the beginning.
type HostConfig struct {
	Pollers   []*PollerState // none: the kernel's sockets carry the connections
	Places    *transport.Places
	NewReader func() *mem.Reader // of placements on one more goroutine
	Start     time.Time
	Manual    func()            // Config.Manual
	Public    func(error) error // makes an error of this package what the application gets
}

// Init readies h.
func (h *Host) Init(cfg HostConfig) {
	h.HostConfig = cfg
	h.connections = map[*Connection]struct{}{}
}

func (h *Host) addConnection(l *Connection) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.connections[l] = struct{}{}
	return true
}

func (h *Host) dropConnection(l *Connection) {
	h.mu.Lock()
	delete(h.connections, l)
	h.mu.Unlock()
}

// IsClosed says whether no more connections may come about.
func (h *Host) IsClosed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

// Shut has no more connections come about.
func (h *Host) Shut() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
}

// Live are the connections that have not ended.
func (h *Host) live() []*Connection {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.connections))
}

// Close has no more connections come about and resets those that are left, which end soon after.
// ctx bounds the wait for Pollers.
func (h *Host) Close(ctx context.Context) []*Connection {
	h.Shut()
	connections := h.live()
	for _, l := range connections {
		_ = OrderUntil(ctx, h, l.Transport.Submit, func() { l.Fail(ErrClosed) }) // a stopped Poller has ended it already
	}
	return connections
}

func (h *Host) pollerOf(p *stack.Poller) *PollerState {
	for _, ln := range h.Pollers {
		if ln.Poller == p {
			return ln
		}
	}
	return nil
}

// Turn lets a simulation carry out what was just ordered.
func (h *Host) Turn() {
	if h.Manual != nil {
		h.Manual()
	}
}

// Wait returns when ch is closed or ctx has ended; nil if both. A simulation turns meanwhile.
func (h *Host) Wait(ctx context.Context, ch <-chan struct{}) error {
	for h.Manual != nil {
		select {
		case <-ch:
			return nil
		case <-ctx.Done():
			return unlessClosed(ch, ctx)
		default:
			h.Manual()
		}
	}
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return unlessClosed(ch, ctx)
	}
}

// unlessClosed is ctx's end, unless what was waited for has come as well: a connection that is
// there has to reach its caller.
func unlessClosed(ch <-chan struct{}, ctx context.Context) error {
	select {
	case <-ch:
		return nil
	default:
		return ctx.Err()
	}
}

// OrderUntil is order for a call that has a context, and for simulations, in which waiting means
// turning.
func OrderUntil(ctx context.Context, h *Host, submit func(func()) error, fn func()) error {
	for {
		err := submit(fn)
		if !errors.Is(err, stack.ErrBusy) {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		h.Turn()
		runtime.Gosched()
	}
}

// Order submits fn, waiting for room in the control ring. Application goroutines only; the Poller
// must be turning.
func order(submit func(func()) error, fn func()) error {
	for {
		err := submit(fn)
		if !errors.Is(err, stack.ErrBusy) {
			return err
		}
		runtime.Gosched()
	}
}
