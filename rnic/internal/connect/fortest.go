package connect

import (
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/transport"
)

// What tests of package rnic ask of connections, and nothing else. Each is for the goroutine that
// drives the connection, or for a test that turns the Poller itself.

// NewInitiator makes a connection in full operation for e, on tr with its memory m, as start-up
// leaves it that agreed on t and whose last frame, out, is still to be pulled.
func NewInitiator(h *Host, e *Endpoint, tr transport.Conn, m transport.Memory, out []byte,
	t *mpa.Terms) *Connection {
	c := NewConnection(h)
	c.Transport, c.Memory = tr, m
	c.phase, c.engine, c.endpoint, c.out = phaseFull, e.engine, e, out
	c.start(t)
	return c
}

// Reserve is what MPA must leave of the Poller's packet buffers, to be read or changed.
func (p *PollerState) Reserve() *mpa.Reserve { return p.shared.Reserve() }

// In and Out are start-up octets: received and not yet a frame, and not yet pulled.
func (c *Connection) In() []byte  { return c.in }
func (c *Connection) Out() []byte { return c.out }

// SetOut replaces the start-up octets that are not yet pulled.
func (c *Connection) SetOut(b []byte) { c.out = b }

// RxNext is the stream offset of the next start-up octet.
func (c *Connection) RxNext() uint64 { return c.rxNext }

// EarlyData is how many pieces of early data wait. over: none will come any more.
func (c *Connection) EarlyData() (pieces int, over bool) {
	if c.early == nil {
		return 0, true
	}
	return len(c.early.pieces), false
}

// ProgressSeen is what the linger timer has noted of the transport's progress.
func (c *Connection) ProgressSeen() uint64 { return c.progressSeen }

// BeforeRedial has fn called in place of the next try in an older dialect, which fn is given.
func (c *Connection) BeforeRedial(fn func(redial func())) {
	redial := c.again
	c.again = func() { fn(redial) }
}

// BeginAbort is Abort's first half: it marks the connection as unwanted.
func (e *Endpoint) BeginAbort() { e.connectionOrUnwanted() }

// Param is what BeginConnecting was given, as far as it is kept.
func (e *Endpoint) Param() *Param { return &e.param }

// Dialling says whether a dial over a kernel socket has begun, or has been.
func (e *Endpoint) Dialling() bool { return e.stopDial.Load() != nil }
