package engine

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// Bounds of what a call or a goroutine waits for.
const (
	connectWait = 60 * time.Second // also for rdma_establish of a client
	acceptWait  = 15 * time.Second
	rejectWait  = 5 * time.Second
)

// readDepthMax is what responder_resources and initiator_depth are cut to; 255 asks for the most.
const readDepthMax = 128

// listen waits for connections where bind has said.
func (e *Engine) listen(id *cmID, backlog int) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.listening != nil || id.over || id.qp != nil || !id.bindsPort() || id.remote.IsValid() {
		return syscall.EINVAL
	}
	if id.loopback {
		return syscall.EADDRNOTAVAIL
	}
	if id.datagrams && !id.service.usable() {
		return syscall.EADDRINUSE
	}
	if !id.datagrams && id.door == nil {
		if err := e.openDoor(id, backlog); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	id.stop = stop
	id.listening = make(chan struct{})
	id.told = map[uint64]*cmID{}
	id.room = make(chan struct{}, backlogOf(backlog))
	e.tellLog("listening at %v", id.local)
	if id.datagrams {
		id.service.listen()
		go e.serveService(ctx, id)
	} else {
		go e.serveListener(ctx, id)
	}
	return nil
}

// backlogMax is the longest backlog, and that of 0: Linux's (/proc/sys/net/rdma_ucm/max_backlog).
const backlogMax = 1024

// backlogOf is how many requests the program is told of before it takes one. At least as many more
// wait as BacklogDefault: a backlog is a hint, and a doorway may be taken over by the next listener
// at its address, which wants more (perftest's server listens for one connection, then for those of
// its queue pairs).
func backlogOf(asked int) int {
	if asked <= 0 || asked > backlogMax {
		return backlogMax
	}
	return asked
}

// openDoor makes the id's Listener. id is locked.
func (e *Engine) openDoor(id *cmID, backlog int) error {
	ctx, cancel := awake.Timeout(context.Background(), acceptWait, nil)
	defer cancel()
	l, err := id.binding.Listen(
		ctx, rnic.ListenOptions{Backlog: max(backlogOf(backlog), rnic.BacklogDefault),
			Allow: e.takes()})
	if err != nil {
		return err
	}
	id.door = &doorway{Listener: l, binding: id.binding}
	return nil
}

// serveListener makes an id of each request, and tells of it, until ctx ends.
func (e *Engine) serveListener(ctx context.Context, listener *cmID) {
	defer close(listener.listening)
	d := listener.door
	near := listener.local.Addr()
	for {
		select {
		case listener.room <- struct{}{}: // a program that takes none is not told of more
		case <-ctx.Done():
			return
		}
		r, err := d.next(ctx)
		if err != nil {
			return
		}
		id := &cmID{request: r, from: listener, ended: make(chan struct{})}
		id.local, id.remote = e.zoned(r.Local(), near), e.zoned(r.Remote(), near)
		id.end = sync.OnceFunc(func() { close(id.ended) })
		d.came(id.ended)
		ev := &ring.CMEvent{Type: cmConnectRequest, Request: e.objects.add(id)}
		ird, ord, ok := r.ReadDepths()
		if !ok {
			ird, ord = readDepthMax, readDepthMax
		}
		ev.ResponderResources, ev.InitiatorDepth = depth(ord), depth(ird)
		ev.PrivateSize = uint16(copy(ev.Private[:], r.PrivateData()))
		// A client that has its connection may ask for the next. The program hears of them in that
		// order, as with InfiniBand's messages and with the kernel's iWARP connection manager.
		listener.accepting.settle(ctx, isThere)
		listener.tellOf(ev, id)
	}
}

// tellOf tells of a request, with its addresses. It waits in told until the program has taken it.
func (id *cmID) tellOf(ev *ring.CMEvent, request *cmID) {
	request.mu.Lock()
	putAddr(ev.Local[:], request.local)
	putAddr(ev.Peer[:], request.remote)
	request.mu.Unlock()
	id.mu.Lock()
	defer id.mu.Unlock()
	id.told[ev.Request] = request
	if id.over {
		return
	}
	ev.Cookie = id.cookie
	sendStruct(id.channel, ev)
}

func depth(n int) uint8 { return uint8(min(n, readDepthMax)) }

// paramOf is how a call of connect or accept wants it.
func (e *Engine) paramOf(c *call) rnic.ConnParam {
	p := rnic.ConnParam{
		PrivateData: append([]byte(nil), c.data...), PeerToPeer: true, NoCRC: e.noCRC,
		IRD: int(min(c.arg[2], readDepthMax)), ORD: int(min(c.arg[3], readDepthMax)),
		MayAcknowledge: e.roce,
	}
	if e.siw {
		p.NoMarkers, p.Quirks = true, rnic.Quirks{WakeUp: rnic.WakeUpDefault, SendFirst: true}
	}
	return p
}

// retryOf is what a call of connect or accept says of the peer's messages that find no buffer here.
// Of ours the peer says it.
func retryOf(c *call) rnic.Retry {
	return rnic.Retry{Wait: cmNotReady, Tries: -1, PeerTries: uint8(min(c.arg[4], forEver+1))}
}

// cmNotReady is min_rnr_timer, of which librdmacm says nothing: 0.64 ms.
const cmNotReady = 640 * time.Microsecond

// take makes q the id's queue pair, which connects from now on and is held until then: it may be
// destroyed before. If bare, the program has never seen it, and hears nothing of it.
func (id *cmID) take(e *Engine, handle uint64, bare bool) (*qp, error) {
	q, err := find[*qp](&e.objects, handle)
	if err != nil {
		return nil, err
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.qp != nil || id.over || id.listening != nil || !q.hold() {
		return nil, syscall.EINVAL
	}
	if !q.deliveries.connecting.CompareAndSwap(false, true) { // for another id
		q.release()
		return nil, syscall.EINVAL
	}
	if err := q.manage(); err != nil {
		q.deliveries.connecting.Store(false)
		q.release()
		return nil, err
	}
	if bare {
		q.ctx = new(opened) // which has no channel
	}
	id.qp = q
	return q, nil
}

// connect begins to connect, and tells later what came of it.
func (e *Engine) connect(id *cmID, c *call) error {
	q, err := id.take(e, c.arg[1], c.arg[5] != 0)
	if err != nil {
		return err
	}
	ctx, cancel := awake.Timeout(context.Background(), connectWait, nil)
	id.mu.Lock()
	id.stop = cancel
	addr := id.remote
	param := e.paramOf(c)
	if c.arg[5] != 0 {
		param.PeerToPeer, param.Dialect = false, rnic.RFC6581
	}
	param.LocalAddr, param.Binding = id.local, id.binding
	q.rnic.Load().SetRetry(retryOf(c))
	id.mu.Unlock()
	begun, next := e.dials.queue(addr)
	go func() {
		defer q.release()
		defer cancel()
		select {
		case <-begun:
		case <-ctx.Done(): // which StartConnect says
		}
		err := q.rnic.Load().StartConnect(ctx, addr.String(), param)
		next()
		if err == nil {
			if err = q.rnic.Load().StartupOver(ctx); err != nil {
				q.rnic.Load().Abort()
				<-q.rnic.Load().Done()
			}
		}
		if err != nil {
			e.tellLog("connecting to %v: %v", addr, err)
			id.tellFailure(err)
			q.connected()
			return
		}
		id.established(q, q.rnic.Load().PeerPrivateData())
	}()
	return nil
}

// tellFailure says why an active id has no connection, as the kernel's iWARP connection manager
// does. A passive id is told CONNECT_ERROR whatever the reason: REJECTED is the peer's word, which
// a client that vanished has not given, and UNREACHABLE is for active ids (rdma_get_cm_event(3)).
func (id *cmID) tellFailure(err error) {
	ev := &ring.CMEvent{Type: cmConnectError, Status: -int32(errnoOf(err))}
	var rejected *rnic.RejectedError
	switch {
	case errors.As(err, &rejected):
		ev.Type = cmRejected
		ev.PrivateSize = uint16(copy(ev.Private[:], rejected.PrivateData))
	case errors.Is(err, stack.ErrRefused), errors.Is(err, stack.ErrReset):
		ev.Type = cmRejected
	case errors.Is(err, stack.ErrTimeout), errors.Is(err, stack.ErrNoRoute),
		errors.Is(err, stack.ErrNetUnreachable),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, rnic.ErrStartupTimeout):
		ev.Type = cmUnreachable
	}
	id.tell(ev)
}

// lostErrno is the status of a passive id whose connection failed. How a peer that vanished is
// noticed depends on what was under way; that it vanished is ECONNRESET.
func lostErrno(err error) syscall.Errno {
	if errno := errnoOf(err); errno != syscall.EPIPE && errno != syscall.ECONNABORTED {
		return errno
	}
	return syscall.ECONNRESET
}

// established tells of a connection in service, and then of its end.
func (id *cmID) established(q *qp, private []byte) {
	r := q.rnic.Load()
	told := q.engine.endings.await(r) // first: the program may end as soon as it knows
	s := r.Startup()
	ev := &ring.CMEvent{Type: cmEstablished, ResponderResources: depth(s.IRD),
		InitiatorDepth: depth(s.ORD)}
	ev.PrivateSize = uint16(copy(ev.Private[:], private))
	id.tell(ev)
	q.connected()
	crc := "no CRC"
	if r.Framing().CRC {
		crc = "CRC32C"
	}
	if s.Acknowledged {
		crc += ", acknowledged"
	}
	q.engine.tellLog("connected, %v with %v: %v, %s", r.LocalAddr(), r.RemoteAddr(),
		s.Dialect, crc)
	r.Doorbell() // for what was posted meanwhile
	go func() {
		<-r.Done()
		q.engine.tellEnd(r.Err(), "ended, %v with %v: %s", r.LocalAddr(), r.RemoteAddr(), why(r.Err()))
		told()
		id.tell(&ring.CMEvent{Type: cmDisconnected})
		if id.end != nil {
			id.end()
		}
	}()
}

// accept answers a request. It returns at once: the answer may wait for the peer.
func (e *Engine) accept(id *cmID, c *call) error {
	id.mu.Lock()
	r := id.request
	id.mu.Unlock()
	if r == nil {
		return syscall.EINVAL
	}
	q, err := id.take(e, c.arg[1], c.arg[5] != 0)
	if err != nil {
		return err // the request stays, for another queue pair
	}
	id.mu.Lock()
	id.request = nil
	id.mu.Unlock()
	param := e.paramOf(c)
	q.rnic.Load().SetRetry(retryOf(c))
	told := id.from.accepting.await(q.rnic.Load())
	go func() {
		defer q.release()
		defer told()
		ctx, cancel := awake.Timeout(context.Background(), acceptWait, nil)
		defer cancel()
		err := r.Accept(ctx, q.rnic.Load(), param)
		if err == nil && owesWord(q.rnic.Load()) {
			later, cancel := awake.Timeout(context.Background(), connectWait, nil)
			defer cancel()
			err = q.rnic.Load().StartupOver(later)
		}
		if err != nil {
			id.end()
			q.rnic.Load().Abort()
			e.tellLog("accepting from %v: %v", r.Remote(), err)
			id.tell(&ring.CMEvent{Type: cmConnectError, Status: -int32(lostErrno(err))})
			q.connected()
			return
		}
		id.established(q, nil)
	}()
	return nil
}

// owesWord says whether the client of r, which was accepted, says by a first message that it knows.
// Where it has a queue pair of the program's it does so at once, by peer-to-peer start-up; else
// when its program calls rdma_establish.
func owesWord(r *rnic.QueuePair) bool {
	s := r.Startup()
	return s.PeerToPeer || s.Acknowledged
}

func (id *cmID) reject(c *call) error {
	id.mu.Lock()
	r := id.request
	id.request = nil
	id.mu.Unlock()
	if r == nil {
		return syscall.EINVAL
	}
	defer id.end()
	ctx, cancel := awake.Timeout(context.Background(), rejectWait, nil)
	defer cancel()
	return r.Reject(ctx, c.data)
}

// disconnect begins to end the connection in order.
func (id *cmID) disconnect() error {
	id.mu.Lock()
	q := id.qp
	id.mu.Unlock()
	if q == nil {
		return syscall.EINVAL
	}
	q.rnic.Load().Disconnect()
	return nil
}
