package connect

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"sync/atomic"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/rnicd/rnicd/rnic/internal/transport"
)

// Endpoint is a queue pair as its connection sees it: what it wants of a connection, and what came
// of it. Connections may be tried for it one after the other (dial.go); one comes into service.
type Endpoint struct {
	host   *Host
	engine *qp.Engine
	param  Param    // from BeginConnecting on
	own    *Binding // of Param.Local's port, until the end

	Connection atomic.Pointer[Connection]
	// Abort, Disconnect or Close was called, perhaps before there was a connection
	Unwanted atomic.Bool
	// SendFirst or PeerReady was called, perhaps before there was a connection
	sendsFirst atomic.Uint32
	stopDial   atomic.Pointer[context.CancelFunc]
	started    Signal                    // start-up is over, as outcome says (StartupOver)
	outcome    error                     // before started
	Done       Signal                    // the queue pair is over
	Private    []byte                    // of the peer's Reply
	Terms      atomic.Pointer[mpa.Terms] // terms, from their agreement on
	terms      mpa.Terms

	// Of the goroutine that drives the connection; any goroutine's after Done was given.
	Err   error
	final Counters
	flown *FlightRecord // of a connection that ended with an error
}

// Init readies e for q, whose connections will be h's.
func (e *Endpoint) Init(h *Host, q *qp.Engine) { e.host, e.engine = h, q }

// connectionOrUnwanted returns the connection, and has one that is still coming about end when it
// joins. Any goroutine.
func (e *Endpoint) connectionOrUnwanted() *Connection {
	e.Unwanted.Store(true)
	if stop := e.stopDial.Load(); stop != nil {
		(*stop)()
	}
	return e.Connection.Load()
}

// join makes c the queue pair's connection. It fails when Abort or Close has come before: whichever
// of the two looks second sees the other.
func (e *Endpoint) join(c *Connection) error {
	e.Connection.Store(c)
	if e.Unwanted.Load() {
		return ErrClosed
	}
	return nil
}

// Finish ends the queue pair for err. It is for the goroutine that drives the connection, which
// may only tell of the end afterwards (tellEnd); where no connection came about, for the one that
// tried.
func (e *Endpoint) Finish(err error) {
	if e.Done.Given() {
		panic("rnic: a queue pair ended twice")
	}
	e.Err = err
	if e.own != nil {
		go e.own.Close() // which may wait for room at this very Poller
	}
	e.engine.Finish()
	e.Done.Give()
}

// StartupOver waits until the Initiator has the Reply, or the Responder the Initiator's first FPDU,
// and returns nil then; otherwise why the connection has ended before that, or ctx.Err(). Any
// goroutine.
func (e *Endpoint) StartupOver(ctx context.Context) error {
	select {
	case <-e.started.C():
	case <-e.Done.C():
	case <-ctx.Done():
	}
	switch {
	case e.started.Given():
		return e.outcome
	case e.Done.Given():
		return cmp.Or(e.Err, error(ErrClosed))
	}
	return ctx.Err()
}

// startedUp ends start-up: err is its result, unless there was one before. One goroutine at a time:
// the one that drives the connection, or that tries the next.
func (e *Endpoint) startedUp(err error) {
	if !e.started.Given() {
		e.outcome = err
		e.started.Give()
	}
}

// Counters are those of an engine and its transport.
type Counters struct {
	Engine    qp.Stats
	Transport transport.Stats
}

// snapshot returns the counters of now; after the end those at the end.
func (e *Endpoint) snapshot(c *Connection) (n Counters) {
	if e.engine.State() == wq.Closed {
		return e.final
	}
	e.count(c, &n)
	return n
}

// count is snapshot in service, into n, which is zero.
func (e *Endpoint) count(c *Connection, n *Counters) {
	e.engine.ReadStats(&n.Engine)
	n.Transport = c.Transport.Stats()
}

// View is a connection as it is at one moment.
type View struct {
	Initiator bool
	State     wq.State   // Connecting before there is a queue pair
	Terms     *mpa.Terms // nil during start-up; not to be changed
	Counters  Counters
}

// View fills in how c stands. The goroutine that drives the connection.
func (c *Connection) View(v *View) {
	*v = View{Initiator: c.initiates(), State: wq.Connecting}
	if c.endpoint == nil {
		return
	}
	v.State, v.Terms = c.engine.State(), c.endpoint.Terms.Load()
	if v.Terms != nil {
		v.Counters = c.endpoint.snapshot(c)
	}
}

// Stats returns counters; after Done those at the end. It asks the driving goroutine and may block
// until ctx ends. Any goroutine.
func (e *Endpoint) Stats(ctx context.Context) (Counters, error) {
	c := e.Connection.Load()
	if c == nil {
		return Counters{}, nil
	}
	if e.Done.Given() { // and the Poller perhaps stopped
		return e.final, nil
	}
	ch := make(chan Counters, 1)
	if err := Order(c.Transport.Submit, func() { ch <- e.snapshot(c) }); err != nil {
		return Counters{}, err
	}
	e.host.Turn()
	select {
	case s := <-ch:
		return s, nil
	case <-e.Done.C():
		return e.final, nil
	case <-ctx.Done():
		return Counters{}, ctx.Err()
	}
}

// MULPDU is the largest ULPDU of a segment, now. ErrState unless in service. It asks the driving
// goroutine and may block until ctx ends. Any goroutine.
func (e *Endpoint) MULPDU(ctx context.Context) (int, error) {
	s := e.engine.State() // first: what is in service by then has the connection that is loaded next
	c := e.Connection.Load()
	if c == nil || s == wq.Idle || s == wq.Connecting || s == wq.Closed {
		return 0, ErrState
	}
	ch := make(chan int, 1)
	if err := Order(c.Transport.Submit, func() {
		if c.phase.inService() { // else it has ended meanwhile, and Done says so
			ch <- e.engine.MULPDU(c.Transport.EMSS())
		}
	}); err != nil {
		return 0, err
	}
	e.host.Turn()
	select {
	case n := <-ch:
		return n, nil
	case <-e.Done.C():
		return 0, ErrState
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Wake tells the goroutine that drives the connection that work was posted. Any goroutine.
func (e *Endpoint) Wake() {
	if c := e.Connection.Load(); c != nil {
		c.Transport.Wake()
	}
}

// Addresses are this end's and the peer's, once the connection stands. Any goroutine.
func (e *Endpoint) Addresses() (self, peer netip.AddrPort) {
	if c := e.Connection.Load(); c != nil && e.engine.State() != wq.Connecting {
		return c.self, c.Peer
	}
	return netip.AddrPort{}, netip.AddrPort{}
}

// tellEnd posts that a connection in service has ended, unless that was told already, as its
// Terminate, or this end wanted it.
func (e *Endpoint) tellEnd(told bool, err error) {
	if err == nil || told || errors.Is(err, ErrClosed) {
		return
	}
	e.engine.Tell(wq.EventFailed, 0, err)
}

// tellPeerClosed posts that the peer closed its half, unless this end has begun to close already.
func (e *Endpoint) tellPeerClosed(shut bool) {
	if !shut {
		e.engine.Tell(wq.EventPeerClosed, 0, nil)
	}
}
