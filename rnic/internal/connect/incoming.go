package connect

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
)

// Responder is what is served on connections that come in, and what is told of them. Its functions
// run on the goroutine that drives the connection, and must not block.
type Responder struct {
	Dialects   mpa.Dialects
	PrivateMax int // the longest private data taken with a Request of Rev 0
	// Allow, if set, says whether the connection of an address is taken at all.
	Allow func(remote netip.AddrPort) bool
	// Offer queues a connection whose Request waits for the ULP's decision. f.Kind is 0 where the
	// dialect has no Request. An error ends the connection. f's private data is good for the call.
	Offer func(c *Connection, f mpa.Frame) error
	// Report, if set, tells why a connection has ended. started: it had reached full operation.
	// offered: the ULP has its Request, and learns of the end from its own calls too.
	Report func(c *Connection, started, offered bool, err error)
}

// errNotAllowed ends a connection that the ULP does not want from that address.
var errNotAllowed = errors.New("connections of its address are not allowed")

// allows says whether a connection is taken, and counts it if not.
func (h *Host) allows(r *Responder, remote netip.AddrPort) bool {
	if r.Allow == nil || r.Allow(remote) {
		return true
	}
	h.Refuse(RefusedULP)
	return false
}

// Incoming makes the Upper of a connection that one of the Pollers has accepted; nil when it is not
// taken, or the Host is closed. Poller's goroutine.
func (h *Host) Incoming(p *PollerState, sc *stack.Conn, r *Responder) stack.Upper {
	if !h.allows(r, sc.Remote()) {
		return nil
	}
	c, u := newPollerConnection(h, p)
	c.respondFor(r)
	if !h.addConnection(c) {
		return nil
	}
	u.Enter(sc)
	return c
}

// SocketOrder has the Requests of one client's connections offered in the order in which they came:
// one that was there when a later connection was accepted is offered before that one's. A client
// that connects several times, each time after its last Request, relies on it to know which is
// which (perftest's ib_send_bw -q). Clients are told apart by their addresses: silent connections
// of others cost no time, but the order is kept of the last unheardMax of all alone. One goroutine.
type SocketOrder struct {
	unheard []earlier // of the last ones, those of which nothing had come
}

// earlier is a connection of a client.
type earlier struct {
	from netip.Addr
	conn interface {
		Heard() bool   // at once
		Unheard() bool // by a system call
	}
}

// unheardMax is of how many silent connections the order is kept.
const unheardMax = 64

// next returns when what has come on its client's connections before s was offered, and adds s.
func (o *SocketOrder) next(s earlier) {
	heard := func(e earlier) bool { return e.conn.Heard() || e.from == s.from && !e.conn.Unheard() }
	o.unheard = append(slices.DeleteFunc(o.unheard, heard), s)
	if len(o.unheard) > unheardMax {
		o.unheard = slices.Delete(o.unheard, 0, 1)
	}
}

// IncomingSocket takes over a connection that a kernel socket has accepted. If it returns an error
// nc is closed. The goroutine of o.
func (h *Host) IncomingSocket(nc *net.TCPConn, r *Responder, o *SocketOrder) error {
	from := transport.AddrPort(nc.RemoteAddr())
	if !h.allows(r, from) {
		_ = nc.SetLinger(0)
		_ = nc.Close()
		return errNotAllowed
	}
	at, gaveWay, err := h.Slots.TakeFor(from.Addr())
	if gaveWay != nil {
		gaveWay.GiveWay()
	}
	if err == nil {
		var c *Connection
		var s *transport.KernelConn
		if c, s, err = newKernelConnection(h, nc, at); err == nil {
			_ = s.Submit(func() { c.respondFor(r) }) // Host.Close knows the connection already
			o.next(earlier{from.Addr(), s})
			s.Run(nil)
			return nil
		}
		at.Free()
	}
	h.Refuse(refusalOfSocket(err))
	_ = nc.SetLinger(0)
	_ = nc.Close() // refused: there is no more to say to this peer
	return err
}

// Ask runs fn on the goroutine that drives the connection and waits for its answer. When Ask
// returns because ctx or the connection has ended, fn will no longer run. Any goroutine.
func (c *Connection) Ask(ctx context.Context, fn func() error) error {
	res := make(chan error, 1)
	var taken atomic.Bool // by the first of two: the driving goroutine, or Ask when it gives up
	err := OrderUntil(ctx, c.Host, c.Transport.Submit, func() {
		if taken.CompareAndSwap(false, true) {
			res <- fn()
		}
	})
	if err != nil {
		return err
	}
	c.Host.Turn()
	select {
	case err = <-res:
		return err
	case <-c.Gone.C():
		err = c.OverError()
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !taken.CompareAndSwap(false, true) {
		return <-res
	}
	return err
}
