package engine

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/waiting"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// qp is a queue pair with its rings. It is its QueuePair's WorkSource.
type qp struct {
	subject
	engine       *Engine
	ud           *ud // whose doorbell this is, and nothing else; nil: a connected queue pair
	opt          rnic.QPOptions
	rnic         atomic.Pointer[rnic.QueuePair] // of the connection manager; nil: none, as yet
	way          way                            // to a peer by number
	peerAccess   atomic.Uint32
	number       uint32 // that the program knows it by
	sends, recvs *queue
	scq, rcq     *cq
	ctx          *opened
	bit          int
	srq          *srq // buffers come from there; nil: from recvs
	underway     waiting.Underway
	deliveries   deliveries
	parts        []wq.WQE // of a request that takes several: room for them
	rest         []wq.WQE // of these, what comes next: the first was posted
	bound        bool     // so was the window that the request at the front is about
	drain        drain
	windows      windows
	gone         atomic.Bool   // destroyed: the program's rings are not looked at any more
	abort        sync.Once     // a fatal event is told
	watched      chan struct{} // closed when watch has returned
}

// Limits of a queue pair; the shim tells them as the device's.
const (
	sgeMax    = ring.SGEMax
	inlineMax = ring.InlineMax
	depthMax  = ring.WRMax
)

func (e *Engine) createQP(c *call) error {
	q, err := e.qpOf(c)
	if err != nil {
		return err
	}
	if !e.roce {
		err = q.manage()
	}
	if err == nil {
		err = e.enter(q)
	}
	if err != nil {
		q.gone.Store(true) // or its end would flush what is in its rings
		if r := q.rnic.Load(); r != nil {
			r.Abort()
			<-q.watched
		}
		q.release()
		return err
	}
	c.out = [ring.CallArgs]uint64{
		e.objects.add(q), uint64(q.number), uint64(q.bit), q.sends.addr(),
		uint64(len(q.sends.entries)), q.recvs.addr(), uint64(len(q.recvs.entries)),
	}
	return nil
}

// qpOf is what c asks for, with its rings.
func (e *Engine) qpOf(c *call) (*qp, error) {
	pd, err1 := find[*rnic.ProtectionDomain](&e.objects, c.arg[0])
	scq, err2 := find[*cq](&e.objects, c.arg[1])
	rcq, err3 := find[*cq](&e.objects, c.arg[2])
	ctx, err4 := find[*opened](&e.objects, c.arg[9])
	sdepth, rdepth, ranges, inline := c.arg[4], c.arg[5], c.arg[6], c.arg[7]
	if err := cmp.Or(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	if sdepth > depthMax || rdepth > depthMax || ranges > sgeMax || inline > inlineMax {
		return nil, syscall.EINVAL
	}
	q := &qp{
		subject: subject{cookie: c.arg[8]}, engine: e, scq: scq, rcq: rcq, ctx: ctx,
		watched: make(chan struct{}),
	}
	q.way.q, q.way.ending, q.drain.over = q, newTurns(), q.drained
	q.peerAccess.Store(uint32(rnic.PeerWrites | rnic.PeerReads | rnic.PeerAtomics))
	q.opt = rnic.QPOptions{
		PD: pd, SendCQ: e.adapter.CreateCQSink(q.sentByCM), RecvCQ: e.adapter.CreateCQSink(q.received),
		SendDepth: max(1, int(sdepth)), RecvDepth: max(1, int(rdepth)),
		SGEMax: max(2, int(ranges)), InlineMax: max(1, int(inline)), Source: q,
	}
	if c.arg[3] != 0 {
		s, err := find[*srq](&e.objects, c.arg[3])
		if err != nil {
			return nil, err
		}
		q.opt.SRQ, q.opt.RecvDepth, q.srq = s.rnic, min(s.rnic.Depth(), depthMax), s
	}
	return q, q.mapRings(&q.opt)
}

// manage makes the QueuePair that the connection manager connects. One goroutine at a time.
func (q *qp) manage() error {
	if q.rnic.Load() != nil {
		return nil
	}
	if q.engine.roce && !q.way.move(wayUnset, wayManaged) {
		return syscall.EINVAL // it is connected by number
	}
	r, err := q.engine.adapter.CreateQP(q.opt)
	if err != nil {
		q.way.move(wayManaged, wayUnset)
		return err
	}
	r.Permit(rnic.PeerAccess(q.peerAccess.Load()))
	q.rnic.Store(r)
	go q.watch(r)
	return nil
}

// doorbell has the ring of requests looked at, and after the end that of receive buffers, too. It
// does not block.
func (q *qp) doorbell() {
	if q.ud != nil {
		q.ud.ring()
	} else if r := q.rnic.Load(); r != nil {
		r.Doorbell()
	} else {
		q.way.doorbell()
	}
}

// mapRings makes the rings of the queue pair, with which those that it completes into and takes
// from stay mapped.
func (q *qp) mapRings(opt *rnic.QPOptions) (err error) {
	if q.sends, err = newQueue(opt.SendDepth, opt.SGEMax, opt.InlineMax); err != nil {
		return err
	}
	others := []*mapping{q.scq.mapping, q.rcq.mapping}
	if q.srq != nil {
		others = append(others, q.srq.recvs.mapping)
	}
	for _, m := range others {
		if !m.hold() {
			q.release()
			return syscall.EINVAL // destroyed meanwhile
		}
		q.sends.keep(m)
	}
	if q.recvs, err = newQueue(opt.RecvDepth, opt.SGEMax, 0); err != nil {
		q.release()
		return err
	}
	q.sends.keep(q.recvs.mapping)
	return nil
}

// hold keeps the rings mapped until release; false: the queue pair is gone.
func (q *qp) hold() bool { return q.sends.hold() }

func (q *qp) release() { q.sends.release() }

// enter gives q its doorbell and its number.
func (e *Engine) enter(q *qp) (err error) {
	if q.bit = e.takeBit(q); q.bit < 0 {
		return syscall.ENOMEM
	}
	if r := q.rnic.Load(); r != nil {
		q.number = r.Number()
	} else {
		var s *slot
		if s, err = e.claim(); err == nil {
			q.number, err = s.enter(q)
		}
	}
	if err != nil {
		e.qps[q.bit].Store(nil)
	}
	return err
}

// takeBit gives q a doorbell; -1: all are taken.
func (e *Engine) takeBit(q *qp) int {
	for i := range e.qps {
		if e.qps[i].CompareAndSwap(nil, q) {
			return i
		}
	}
	return -1
}

// SendsWait is rnic's question whether the program has posted requests.
func (q *qp) SendsWait() bool {
	return !q.gone.Load() && (q.begun() || q.drain.asked() || q.requestWaits())
}

// begun says whether part of a request was posted, and the rest was not. Goroutine that drives the
// connection.
func (q *qp) begun() bool { return len(q.rest) > 0 || q.bound }

// requestWaits says whether a request is to be begun.
func (q *qp) requestWaits() bool { return !q.drain.on() && q.sends.waits() }

// Sends posts the next.
func (q *qp) Sends(f rnic.Feed) {
	s, r := q.sends, f.Room()
	if q.gone.Load() {
		return
	}
	if len(q.rest) > 0 {
		if r.WQE = q.rest[0]; q.send(f, r) {
			q.rest = q.rest[1:]
		}
		return
	}
	if q.drain.on() && !q.bound {
		q.drain.mark(f)
		return
	}
	n := s.peek(r)
	if n == 0 {
		q.checkBroken(s)
		return
	}
	s.count(&q.underway)
	q.parts = split(r, q.parts[:0])
	if r.Op == wq.OpBindWindow && !q.bind(r) {
		if f.Refuse(&rnic.WorkRequest{ID: r.ID, Op: r.Op}, wq.WindowBind) == nil {
			s.taken(n)
		}
		return
	}
	if q.send(f, r) {
		if q.bound = false; r.Ready {
			q.rest = q.parts
		}
		s.taken(n)
	}
}

// send posts r, and in its place what completes with an error if the connection cannot have it, as
// a Read without a depth for it. False: not now.
func (q *qp) send(f rnic.Feed, r *wq.Request) bool {
	st := rnic.LocalLength
	if r.Total() <= ring.MessageMax {
		if f.SendEntry() == nil {
			return true
		}
		st = rnic.LocalOperation
	}
	return f.Refuse(&rnic.WorkRequest{ID: r.ID, Op: r.Op}, st) == nil
}

// sent is the completion of a request. While enough are still to come the program is left asleep,
// except for errors, of which there are more than were asked for, and for what a Read brings.
func (q *qp) sent(c rnic.Completion) {
	q.deliver(q.scq, &c)
	mere := c.Op.HasInline() // Writes and Sends
	if !q.underway.Complete() || !mere || c.Status != rnic.Success {
		q.engine.progress()
	}
}

// sentByCM is the same of a connection by librdmacm, where an event tells of the end.
func (q *qp) sentByCM(c rnic.Completion) {
	if c.Status == rnic.RetryExceeded {
		c.Status = rnic.Flushed
	}
	q.sent(c)
}

// received is the completion of a receive buffer.
func (q *qp) received(c rnic.Completion) {
	q.deliver(q.rcq, &c)
	q.engine.progress()
}

// Recvs posts the next receive buffer that the program has.
func (q *qp) Recvs(f rnic.Feed) {
	s, r := q.recvs, f.Room()
	for !q.gone.Load() {
		n := s.peek(r)
		if n == 0 {
			q.checkBroken(s)
			return
		}
		clip(r)
		err := f.RecvEntry()
		if errors.Is(err, rnic.ErrRecvQueueFull) {
			return
		}
		s.taken(n)
		if err == nil {
			return
		}
		q.impossible(&r.WQE)
	}
}

// Written is rnic's word that the peer has written to memory. A program that has an event channel
// may wait there for what a Write brings, as ib_send_bw -e does for credit: it looks at memory when
// it is woken, and nothing of its own will complete. So a thread that waits for an event of the
// completion queue of its sends, armed for any completion, gets one without a completion, which
// ibv_get_cq_event(3) has programs expect; not while requests of its own will bring one, nor where
// receives complete into the same queue: the message that follows a Write tells of it.
func (q *qp) Written() {
	if q.scq == q.rcq || q.scq.notify.Load() == nil || q.gone.Load() || q.deliveries.keepWritten() {
		return
	}
	if q.underway.None() && len(q.rest) == 0 && !q.sends.waits() {
		q.scq.written()
	}
}

// impossible completes a receive buffer that cannot be, and ends the connection.
func (q *qp) impossible(e *wq.WQE) {
	q.deliver(q.rcq, &rnic.Completion{ID: e.ID, Op: e.Op, Status: rnic.LocalOperation})
	q.engine.progress()
	q.endSoon()
}

// checkBroken ends the connection of a queue pair whose ring says what cannot be.
func (q *qp) checkBroken(s *queue) {
	if s.broken {
		q.endSoon()
	}
}

// endSoon aborts on a goroutine of its own: the driver's must not.
func (q *qp) endSoon() {
	q.abort.Do(func() {
		if r := q.rnic.Load(); r != nil {
			q.ctx.tell(eventQPFatal, &q.subject)
			go r.Abort()
		} else {
			go q.way.end(q.way.now(), eventQPFatal)
		}
	})
}

// watch waits for the end. What the program posts from then on needs a doorbell, and what it posted
// before it could see that gets one here.
func (q *qp) watch(r *rnic.QueuePair) {
	defer close(q.watched)
	<-r.Done()
	q.windows.end(r)
	q.setOver(1)
	r.Doorbell()
	if q.srq != nil { // all that it took has completed, and it takes no more
		q.ctx.tell(eventQPLastWQE, &q.subject)
	}
}

// permitQP says what the peer may do, by flags of ibv_access_flags.
func (e *Engine) permitQP(c *call) error {
	q, err := find[*qp](&e.objects, c.arg[0])
	if err != nil {
		return err
	}
	var may rnic.PeerAccess
	for _, x := range []struct {
		flag uint64
		may  rnic.PeerAccess
	}{
		{accessRemoteWrite, rnic.PeerWrites}, {accessRemoteRead, rnic.PeerReads},
		{accessRemoteAtomic, rnic.PeerAtomics},
	} {
		if c.arg[1]&x.flag != 0 {
			may |= x.may
		}
	}
	q.peerAccess.Store(uint32(may))
	for _, r := range q.ends() {
		r.Permit(may)
	}
	return nil
}

// queryQP tells the read depths that start-up settled.
func (e *Engine) queryQP(c *call) error {
	q, err := find[*qp](&e.objects, c.arg[0])
	if err == nil && q.rnic.Load() != nil {
		s := q.rnic.Load().Startup()
		c.out[0], c.out[1] = uint64(depth(s.ORD)), uint64(depth(s.IRD))
	}
	return err
}

func (e *Engine) abortQP(c *call) error {
	q, err := find[*qp](&e.objects, c.arg[0])
	if err != nil {
		return err
	}
	if r := q.rnic.Load(); r != nil {
		r.Abort()
		<-r.Done()
	} else {
		q.way.abort()
	}
	return nil
}

// ends are its connections.
func (q *qp) ends() []*rnic.QueuePair {
	if r := q.rnic.Load(); r != nil {
		return []*rnic.QueuePair{r}
	}
	return q.way.ends()
}

// How long the connection of a destroyed queue pair may take to end in order: the program waits so
// long, and the rest goes on without it. And how long a program that ends waits for all.
const (
	destroyWait = 200 * time.Millisecond
	lingerMax   = 10 * time.Second
	leaveWait   = time.Second
)

// destroyQP ends the connection in order: what was sent last may still be on its way. The rings
// stay until they can be used no longer.
func (e *Engine) destroyQP(c *call) error {
	q, err := take[*qp](&e.objects, c.arg[0])
	if err != nil {
		return err
	}
	q.goAway()
	q.windows.end(nil)
	q.leave(q.ctx.events.Load())
	e.whenQuiet(func() { e.qps[q.bit].Store(nil) })
	if e.roce {
		e.slot.leave(q.number)
	}
	ended := make(chan struct{})
	e.winding.Go(func() { q.windUp(ended) })
	late, stop := awake.After(destroyWait)
	defer stop()
	select {
	case <-ended:
	case <-late:
	}
	return nil
}

func (q *qp) windUp(ended chan<- struct{}) {
	all := q.ends()
	if q.rnic.Load() == nil {
		all = q.way.leave()
	}
	for _, r := range all {
		if r.State() == rnic.Idle || r.State() == rnic.Connecting {
			r.Abort()
		} else {
			r.Disconnect()
		}
	}
	late, stop := awake.After(lingerMax)
	defer stop()
	for _, r := range all {
		select {
		case <-r.Done():
			continue
		case <-late:
		}
		for _, r := range all {
			r.Abort()
		}
		<-r.Done()
	}
	close(ended)
	if q.rnic.Load() != nil {
		<-q.watched
	}
	q.release()
}

// leave is the end of the program. The kernel ends its sockets in order without us, when what was
// received is acknowledged; connections of our own stack have a moment for that.
func (e *Engine) leave() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer e.endings.settle(context.Background(), hasLeft)
		if !e.ownTCP {
			e.acknowledgeAll()
			return
		}
		e.leaveGroups()
		e.winding.Wait()
		for i := range e.qps {
			if q := e.qps[i].Load(); q != nil && q.ud == nil {
				endInOrder(q.ends())
			}
		}
	}()
	late, stop := awake.After(leaveWait)
	defer stop()
	select {
	case <-ended:
	case <-late:
	}
	if e.left != nil {
		e.left()
	}
}

// acknowledgeAll returns when the peers of queue pairs in acknowledged mode have been told of all
// that was received.
func (e *Engine) acknowledgeAll() {
	if !e.roce {
		return
	}
	for i := range e.qps {
		q := e.qps[i].Load()
		if q == nil || q.ud != nil {
			continue
		}
		for _, r := range q.ends() {
			for range 2 { // the second is answered when the Turn of the first is over
				_, _ = r.Stats(context.Background())
			}
		}
	}
}

// endInOrder returns when all have ended.
func endInOrder(all []*rnic.QueuePair) {
	for _, r := range all {
		if r.State() != rnic.Idle {
			r.Disconnect()
			<-r.Done()
		}
	}
}
