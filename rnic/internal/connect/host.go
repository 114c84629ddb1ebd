package connect

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
)

// Host is what all connections of an Adapter have in common. Its methods are for any goroutine
// except the Pollers', where they do not say otherwise.
type Host struct {
	HostConfig
	Startup startupCounters
	next    atomic.Uint32 // Poller to dial from
	bound   bindings
	sockets *qp.Shared // by the engines over the kernel's sockets

	mu          sync.Mutex
	connections []*Connection // every live one, at its Connection.at
	closed      bool
}

// HostConfig is what a host has from the beginning.
type HostConfig struct {
	Pollers []*PollerState // none: the kernel's sockets carry the connections
	Slots   *transport.Slots
	Loop    *transport.Loop // of the kernel's sockets
	Reader  *mem.Reader     // of all placements by its holder
	Manual  func()          // Config.Manual
	// if set, told of each connection that ended with an error; on its goroutine
	Fell   func(*FlightRecord)
	Public func(error) error // makes an error of this package what the application gets
}

// startupCounters are what rnic.StartupCounters says.
type startupCounters struct {
	Fallbacks, UnaskedS, WakeUps atomic.Uint64
	Refused                      [RefusalMax]atomic.Uint64
}

// Refuse counts a start-up that a peer began. Any goroutine.
func (h *Host) Refuse(r Refusal) {
	if r != Taken {
		h.Startup.Refused[r].Add(1)
	}
}

// PollerState is what the connections of one Poller have in common. Shared belongs to the Poller's
// goroutine.
type PollerState struct {
	Poller *stack.Poller
	Reader *mem.Reader // of all placements on the Poller's goroutine
	Shared *qp.Shared  // by their engines
}

// NewPollerState makes what connections over p will have in common. r is of all placements on p's
// goroutine.
func NewPollerState(p *stack.Poller, r *mem.Reader) *PollerState {
	b := p.Budget()
	reserve := mpa.Reserve{Spare: b.Spare, Low: b.SpareInOrder, Partial: b.PartialMax}
	stride := p.Pool().Stride()
	return &PollerState{Poller: p, Reader: r,
		Shared: qp.NewShared(stride, mpa.BufsMin(stride)+transport.AheadMax, reserve)}
}

// Init readies h.
func (h *Host) Init(cfg HostConfig) {
	h.HostConfig = cfg
	h.sockets = qp.NewSharedInOrder(mpa.BufsMin(transport.KernelStride))
}

// StateOf is the PollerState of p; nil: p is none of the Adapter's.
func (h *Host) StateOf(p *stack.Poller) *PollerState {
	for _, s := range h.Pollers {
		if s.Poller == p {
			return s
		}
	}
	return nil
}

// addConnection is false once the Host is closed. Any goroutine.
func (h *Host) addConnection(c *Connection) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	c.at = len(h.connections)
	h.connections = append(h.connections, c)
	return true
}

// dropConnection forgets a connection that has ended. Any goroutine.
func (h *Host) dropConnection(c *Connection) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.connections) - 1
	if c.at > n || h.connections[c.at] != c {
		return
	}
	last := h.connections[n]
	h.connections[c.at], last.at = last, c.at
	h.connections[n], h.connections = nil, h.connections[:n]
}

// Live are the connections that have not ended.
func (h *Host) Live() []*Connection {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.connections)
}

// Shut refuses connections from now on.
func (h *Host) Shut() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
}

// IsClosed says whether Shut or Close was called.
func (h *Host) IsClosed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

// Turn lets a simulation carry out what was just ordered.
func (h *Host) Turn() {
	if h.Manual != nil {
		h.Manual()
	}
}

// Wait returns nil when ch is closed, or ctx's error when that has ended and ch is not closed. A
// simulation turns meanwhile.
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

// unlessClosed is ctx's error, unless ch is closed as well: a connection that is there has to reach
// its caller.
func unlessClosed(ch <-chan struct{}, ctx context.Context) error {
	select {
	case <-ch:
		return nil
	default:
		return ctx.Err()
	}
}

// OrderUntil submits fn and waits until ctx ends while the control ring is full. A simulation turns
// meanwhile. Its error is ctx's or submit's.
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

// Call runs fn on a Poller's goroutine and returns its error, or ctx's when that ends first: fn may
// then run later.
func (h *Host) Call(ctx context.Context, p *PollerState, fn func() error) error {
	_, err := callFor(ctx, h, p, func() (struct{}, error) { return struct{}{}, fn() })
	return err
}

// callFor is Call of a function with a result.
func callFor[T any](ctx context.Context, h *Host, p *PollerState,
	fn func() (T, error)) (none T, _ error) {
	type result struct {
		value T
		err   error
	}
	res := make(chan result, 1)
	if err := OrderUntil(ctx, h, p.Poller.Submit, func() {
		var r result
		r.value, r.err = fn()
		res <- r
	}); err != nil {
		return none, err
	}
	h.Turn()
	select {
	case r := <-res:
		return r.value, r.err
	case <-p.Poller.Done():
		return none, stack.ErrStopped
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// Order submits fn and waits while the control ring is full. The Poller must be turning.
func Order(submit func(func()) error, fn func()) error {
	for {
		err := submit(fn)
		if !errors.Is(err, stack.ErrBusy) {
			return err
		}
		runtime.Gosched()
	}
}

// takeSlot takes the slot of a connection that we open, from a silent one if there is no other.
func (h *Host) takeSlot() (*transport.Slot, error) {
	at, gaveWay, err := h.Slots.Take()
	if gaveWay != nil {
		gaveWay.GiveWay()
	}
	return at, err
}
