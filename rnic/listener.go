package rnic

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/stack"
)

// ListenOptions of Adapter.Listen.
type ListenOptions struct {
	Backlog int // connection requests that wait for Accept: default 128, at most BacklogMax
	// Dialects that are served; each Request is answered in its own. Default: all that begin with a
	// Request, Rev 0 among them (what RFC 5044 section C.1 calls permissive). With Culley02 alone,
	// connections are offered as soon as they stand; with Culley02 among others, the peer's first
	// octet tells.
	Dialects []Dialect
	// PrivateDataMax is the longest private data taken with a Request of Rev 0 (default 512, up to
	// 65535); from Rev 1 on 512 is the limit in any case.
	PrivateDataMax int
	// V6Only has a listener at an unspecified IPv6 address, over kernel sockets, take no connections
	// of IPv4 (IPV6_V6ONLY), for which another may listen at the same port.
	V6Only bool
	// Allow, if set, says whether the connection of an address is taken; else it is reset as soon as
	// it stands, before its peer can say anything. It must not block: it runs on the listener's
	// goroutine or, over Pollers, on theirs, where OnFailure is not told.
	Allow func(remote netip.AddrPort) bool
	// OnFailure, if set, is told of every connection to this listener that ended in an error:
	// before it was accepted (a wrong key, a time-out) or later. It runs on a goroutine of the
	// listener; when it is slow, reports are dropped and counted.
	OnFailure func(ConnFailure)
}

// ConnFailure describes a connection that ended with an error.
type ConnFailure struct {
	Remote  netip.AddrPort
	Started bool // it had reached full operation
	// its request was returned by Accept or Poll: the ULP learns of the end from its own calls, too
	Offered bool
	Err     error
}

// Listener accepts MPA connection requests as Responder. It is an io.Closer.
type Listener struct {
	adapter  *Adapter
	addr     netip.AddrPort
	requests chan *ConnRequest
	failures chan ConnFailure
	dropped  atomic.Uint64 // of Dropped
	done     chan struct{}
	once     sync.Once
	stop     func(context.Context)
	stopped  atomic.Bool // over a socket: stop was called
	reporter sync.WaitGroup
	role     connect.Responder
}

// Listen waits for connections to addr ("host:port"): without a host, at ::, or over Pollers at
// all addresses of theirs, at 0.0.0.0 at all of IPv4. Over Pollers the host is empty or an address,
// of one of them at least. Port 0 picks a free one; see Listener.Addr. It returns when all Pollers
// listen, or with an error when ctx ends: errors are ErrClosed after Adapter.Close,
// stack.ErrPortUsed and stack.ErrNotLocal or the kernel's, stack.ErrStopped, ctx.Err(), and invalid
// options. Any application goroutine.
func (a *Adapter) Listen(ctx context.Context, addr string, opt ListenOptions) (*Listener, error) {
	return a.listen(ctx, addr, opt, nil)
}

// listen is Listen where bound has been taken for addr, if it is not nil.
func (a *Adapter) listen(ctx context.Context, addr string, opt ListenOptions,
	bound *connect.Binding) (*Listener, error) {
	if a.host.IsClosed() {
		return nil, &listenError{addr, ErrClosed}
	}
	if opt.Backlog < 0 || opt.Backlog > BacklogMax {
		return nil, fmt.Errorf("rnic: ListenOptions.Backlog %d, 1 to %d possible, or 0 for %d",
			opt.Backlog, BacklogMax, BacklogDefault)
	}
	if opt.Backlog == 0 {
		opt.Backlog = BacklogDefault
	}
	l := &Listener{
		adapter: a, requests: make(chan *ConnRequest, opt.Backlog), failures: make(chan ConnFailure, 64),
		done: make(chan struct{}),
	}
	l.role.Report = l.report
	err := l.serve(opt)
	if err != nil {
		return nil, err
	}
	if len(a.host.Pollers) == 0 {
		err = l.listenKernel(ctx, addr, opt.V6Only, bound)
	} else {
		err = l.listenPollers(ctx, addr, &opt, bound)
	}
	if err != nil {
		return nil, &listenError{addr, err}
	}
	if !a.addListener(l) { // Adapter.Close came meanwhile
		l.stop(ctx)
		close(l.done)
		return nil, &listenError{addr, ErrClosed}
	}
	if opt.OnFailure != nil {
		l.reporter.Go(func() { l.tell(opt.OnFailure) })
	}
	return l, nil
}

// tell reports failures until the Listener is closed.
func (l *Listener) tell(onFailure func(ConnFailure)) {
	for {
		select {
		case f := <-l.failures:
			onFailure(f)
		case <-l.done:
			return
		}
	}
}

// serve takes over what is served.
func (l *Listener) serve(opt ListenOptions) error {
	l.role.Offer, l.role.Allow = l.offer, opt.Allow
	l.role.Dialects, l.role.PrivateMax = mpa.FramedDialects,
		cmp.Or(opt.PrivateDataMax, mpa.PrivateDataMax)
	if opt.PrivateDataMax < 0 || opt.PrivateDataMax > privateDataCap {
		return fmt.Errorf("rnic: ListenOptions.PrivateDataMax %d, 0 to %d possible", opt.PrivateDataMax,
			privateDataCap)
	}
	if len(opt.Dialects) == 0 {
		return nil
	}
	for _, d := range opt.Dialects {
		if !d.Valid() {
			return fmt.Errorf("rnic: ListenOptions.Dialects: %v is unknown", d)
		}
	}
	l.role.Dialects = setOf(opt.Dialects...)
	return nil
}

// listenPollers listens on every Poller that has the address, or on none.
func (l *Listener) listenPollers(ctx context.Context, addr string, opt *ListenOptions,
	bound *connect.Binding) error {
	own := bound == nil
	if own {
		at, err := parseListen(addr, opt.V6Only)
		if err != nil {
			return err
		}
		if bound, err = l.adapter.host.Bind(ctx, at, false); err != nil {
			return err
		}
	} else if !bound.Alone() {
		return fmt.Errorf("port %d: %w", bound.Local().Port(), stack.ErrPortUsed)
	}
	a, at := l.adapter, bound.Local()
	for i, ln := range bound.Pollers() {
		err := a.host.Call(ctx, ln, func() error {
			return ln.Poller.ListenAt(at, true, opt.Backlog, func(c *stack.Conn) stack.Upper {
				return a.host.Incoming(ln, c, &l.role)
			})
		})
		if err == nil {
			continue
		}
		// no goroutine turns the Poller; should it listen later, Unlisten comes right after
		if ctx.Err() != nil {
			i++
		}
		l.unlisten(context.WithoutCancel(ctx), bound.Pollers()[:i], at)
		if own {
			bound.Close()
		}
		return err
	}
	l.addr = at
	if !at.Addr().IsValid() || at.Addr().IsUnspecified() {
		l.addr = netip.AddrPortFrom(a.host.Pollers[0].Poller.Addr(), at.Port())
	}
	pollers := bound.Pollers()
	l.stop = func(ctx context.Context) {
		l.unlisten(ctx, pollers, at)
		if own {
			bound.Close()
		}
	}
	return nil
}

// parseListen is where addr, "host:port", has a listener of Pollers listen (stack.ListenAt).
func parseListen(addr string, v6Only bool) (at netip.AddrPort, err error) {
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return at, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return at, fmt.Errorf("port %q is not a number from 1 to 65535, or 0 for a free one", portText)
	}
	var a netip.Addr
	if host != "" {
		if a, err = netip.ParseAddr(host); err != nil {
			return at, fmt.Errorf("%q is not an address of the poller's: %w", host, err)
		}
		if a = a.Unmap(); a.Is6() && a.IsUnspecified() && !v6Only {
			a = netip.Addr{}
		}
	}
	return netip.AddrPortFrom(a, uint16(port)), nil
}

// unlisten gives up, when ctx ends, on a Poller that does not turn.
func (l *Listener) unlisten(ctx context.Context, pollers []*connect.PollerState,
	at netip.AddrPort) {
	for _, ln := range pollers {
		// a stopped one listens no more
		_ = connect.OrderUntil(ctx, &l.adapter.host, ln.Poller.Submit, func() {
			ln.Poller.UnlistenAt(at)
		})
	}
}

// Addr is where the Listener listens. Any goroutine.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Accept returns the next connection request, or an error when ctx ends (ctx.Err()) or the Listener
// or its Adapter is closed (ErrClosed). Any application goroutine.
func (l *Listener) Accept(ctx context.Context) (*ConnRequest, error) {
	for {
		if isClosed(l.done) { // whatever still waits
			return nil, ErrClosed
		}
		select {
		case r := <-l.requests:
			if r.connection.Claimed() {
				return r, nil
			} // else its connection is over, and OnFailure was told
		case <-l.done:
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Poll is Accept without the wait; nil when there is no request. Any goroutine.
func (l *Listener) Poll() *ConnRequest {
	for !isClosed(l.done) {
		select {
		case r := <-l.requests:
			if r.connection.Claimed() {
				return r
			}
		default:
			return nil
		}
	}
	return nil
}

// Serve accepts until ctx ends and calls handle for each request, on a goroutine of its own, with
// ctx. It returns when all of them have: with nil when ctx has ended, otherwise with Accept's
// error. It bounds nothing: that is for handle to do, which may Reject. Any application goroutine.
func (l *Listener) Serve(ctx context.Context, handle func(context.Context, *ConnRequest)) error {
	var handling sync.WaitGroup
	defer handling.Wait()
	for {
		req, err := l.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		handling.Go(func() { handle(ctx, req) })
	}
}

// Close stops listening, and returns when OnFailure is not being called any more: OnFailure must
// not call it. Accepted connections go on; requests not yet accepted time out. The error is nil, as
// of every further Close. Any application goroutine.
func (l *Listener) Close() error {
	l.end(context.Background())
	l.reporter.Wait()
	return nil
}

// end is Close without the wait.
func (l *Listener) end(ctx context.Context) {
	l.once.Do(func() {
		l.stop(ctx)
		close(l.done)
		l.adapter.dropListener(l)
	})
}

// offer queues a connection request. Driver's goroutine; never blocks.
func (l *Listener) offer(ln *connect.Connection, f mpa.Frame) error {
	r := &ConnRequest{adapter: l.adapter, connection: ln, frame: f,
		remote: ln.Transport.Remote(), local: ln.Transport.Local()}
	r.frame.PrivateData = append(r.room[:0], f.PrivateData...)
	r.enhanced, r.private, _ = r.frame.Enhanced() // which was looked at already
	select {
	case l.requests <- r:
		return nil
	default:
		return ErrBacklog
	}
}

// fail hands a failure to OnFailure's goroutine; when that is slow the failure is counted and
// forgotten.
func (l *Listener) fail(f ConnFailure) {
	select {
	case l.failures <- f:
	default:
		l.dropped.Add(1)
	}
}

// Dropped is how many failure reports were lost because OnFailure was slow. Any goroutine.
func (l *Listener) Dropped() uint64 { return l.dropped.Load() }

// report tells of a connection that did not end well.
func (l *Listener) report(ln *connect.Connection, started, offered bool, err error) {
	l.fail(ConnFailure{Remote: ln.Peer, Started: started, Offered: offered, Err: err})
}

// ConnRequest is a peer's MPA Request that waits for Accept or Reject. It times out after 10 s.
type ConnRequest struct {
	adapter    *Adapter
	connection *connect.Connection
	frame      mpa.Frame // Kind 0: culley-02, there was none
	enhanced   mpa.Enhanced
	private    []byte // the ULP's part
	remote     netip.AddrPort
	local      netip.AddrPort
	room       [privateRoom]byte // of the frame's private data, where that is short
}

// privateRoom is how much private data of a Request takes no allocation of its own.
const privateRoom = 32

// PrivateData of the Request: a copy, the application's to keep. Any goroutine.
func (r *ConnRequest) PrivateData() []byte { return r.private }

// Dialect in which it will be answered. Any goroutine.
func (r *ConnRequest) Dialect() Dialect {
	if r.frame.Kind == 0 {
		return Culley02
	}
	d, _ := r.connection.Responder.Dialects.Serve(&r.frame)
	return Dialect(d)
}

// ReadDepths are the Initiator's IRD and ORD; false: the Request has none. ReadDepthULP: the ULPs
// are to settle it. Any goroutine.
func (r *ConnRequest) ReadDepths() (ird, ord int, ok bool) {
	return int(r.enhanced.IRD), int(r.enhanced.ORD), r.frame.IsEnhanced()
}

// PeerToPeer says whether the Initiator offers to let this end send first. Any goroutine.
func (r *ConnRequest) PeerToPeer() bool {
	return r.enhanced.PeerToPeer || r.connection.Responder.Dialects.AsksReady(&r.frame)
}

// Remote is the peer's address. Any goroutine.
func (r *ConnRequest) Remote() netip.AddrPort { return r.remote }

// Local is this end's address, to which the peer has connected. Any goroutine.
func (r *ConnRequest) Local() netip.AddrPort { return r.local }

// Revision is the MPA revision of the Request. Any goroutine.
func (r *ConnRequest) Revision() int { return int(r.frame.Rev) }

// Accept puts an idle QueuePair, whose first receive buffers should have been posted, into service
// on the connection, and sends conn.PrivateData with the MPA Reply. The QueuePair may post at once;
// MPA holds its FPDUs back until the Initiator's first FPDU or RTR message has arrived. If the
// Initiator allows a smaller ORD than ConnParam.ORDMin, the Reply rejects and the error is
// ErrORDShort. Other errors: ErrState if the QueuePair is not idle or the request was already
// answered, ctx.Err(), and the error of a connection that has ended. Any application goroutine.
//
// Some errors change nothing, so that the request may still be accepted, by this QueuePair or
// another, or rejected: a QueuePair that is not idle, or of another Adapter, what cannot be in
// conn, and *mem.TableFullError, for a connection takes one of Config.RegionsMax entries. After any
// other error the QueuePair is Closed.
func (r *ConnRequest) Accept(ctx context.Context, q *QueuePair, conn ConnParam) error {
	if err := r.take(q, &conn); err != nil {
		return err
	}
	err := r.connection.Ask(ctx, func() error { return r.connection.Accept(&q.end, r.frame) })
	if err != nil {
		if q.end.Connection.Load() == nil {
			q.end.Finish(err)
		}
		return fmt.Errorf("rnic: accept %v: %w", r.remote, err)
	}
	return nil
}

// StartAccept is Accept without the wait for its Poller: State becomes RTS or Closed, and Err is
// then what Accept would have returned. Errors of its own are those that change nothing, and
// ctx.Err() or stack.ErrStopped, where the Poller did not take the call: then the QueuePair is
// Closed. Any application goroutine: it waits only while its Poller has no room for the call.
func (r *ConnRequest) StartAccept(ctx context.Context, q *QueuePair, conn ConnParam) error {
	if err := r.take(q, &conn); err != nil {
		return err
	}
	err := connect.OrderUntil(ctx, &r.adapter.host, r.connection.Transport.Submit, func() {
		if err := r.connection.Accept(&q.end, r.frame); err != nil && q.end.Connection.Load() == nil {
			q.end.Finish(fmt.Errorf("rnic: accept %v: %w", r.remote, err))
		}
	})
	if err != nil {
		q.end.Finish(err)
		return fmt.Errorf("rnic: accept %v: %w", r.remote, err)
	}
	return nil
}

// take takes q for the request, with a conn that can be. An error changes nothing, except for
// ErrClosed.
func (r *ConnRequest) take(q *QueuePair, conn *ConnParam) error {
	if q == nil {
		return fmt.Errorf("rnic: accept %v: no queue pair given", r.remote)
	}
	if q.adapter != r.adapter {
		return fmt.Errorf("rnic: accept %v: the queue pair belongs to another adapter", r.remote)
	}
	if err := conn.checkAccept(r.Dialect()); err != nil {
		return err
	}
	if err := q.end.BeginConnecting(conn.param()); err != nil {
		return err
	}
	if conn.Quirks.SendFirst {
		_ = q.SendFirst() // ErrState: the request's connection will say why
	}
	return nil
}

// Reject answers the Request with the R bit and private (Dialect.PrivateDataMax octets at most),
// then closes the connection. culley-02 has no answer: the connection is reset. RejectStream keeps
// the connection. Any application goroutine.
func (r *ConnRequest) Reject(ctx context.Context, private []byte) error {
	if err := privateDataError(private, r.Dialect()); err != nil {
		return fmt.Errorf("rnic: reject %v: %w", r.remote, err)
	}
	private = append([]byte(nil), private...)
	return r.connection.Ask(ctx, func() error { return r.connection.Reject(r.frame, private, false) })
}

// Done is closed when the connection of the request is over: after Reject, when the peer has closed
// it, too, or a bound for that has passed. Adapter.Close before then may reset it, and the peer not
// hear of the Reject. Any goroutine.
func (r *ConnRequest) Done() <-chan struct{} { return r.connection.Gone.C() }
