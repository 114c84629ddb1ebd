package engine

import (
	"cmp"
	"syscall"

	"github.com/rnicd/rnicd/internal/waiting"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// ud is a queue pair for datagrams, with its rings. Everything but create and destroy is done by
// the goroutine that looks at doorbells, which also drives the port: no lock is needed.
//
//	doorbell --> send: ring --> port --> network
//	network --> port --> receive: buffer from the ring --> completion
type ud struct {
	subject
	engine       *Engine
	port         *udPort
	number       uint32
	pd           *rnic.ProtectionDomain
	sends, recvs *queue
	srq          *srq // buffers come from there; nil: from recvs
	scq, rcq     *cq
	ctx          *opened
	bit          int
	underway     waiting.Underway
	state        uint64 // of ring.ModifyUD
	qkey         uint32
	lines        uint8      // in which udLine, by their bits
	waited       uint8      // Turns in which a datagram has waited since the last was delivered
	buffer       wq.Request // the next to be filled, or none
}

// States of enum ibv_qp_state.
const (
	udReset = 0
	udRTR   = 2
	udRTS   = 3
	udError = 6
)

// createUD makes a queue pair for datagrams: see ring.CreateQP.
func (e *Engine) createUD(c *call) (err error) {
	pd, err1 := find[*rnic.ProtectionDomain](&e.objects, c.arg[0])
	scq, err2 := find[*cq](&e.objects, c.arg[1])
	rcq, err3 := find[*cq](&e.objects, c.arg[2])
	ctx, err4 := find[*opened](&e.objects, c.arg[9])
	sdepth, rdepth, ranges, inline := c.arg[4], c.arg[5], c.arg[6], c.arg[7]
	if err := cmp.Or(err1, err2, err3, err4); err != nil {
		return err
	}
	if sdepth > depthMax || rdepth > depthMax || ranges > sgeMax || inline > inlineMax {
		return syscall.EINVAL
	}
	var shared *srq
	if c.arg[3] != 0 {
		if shared, err = find[*srq](&e.objects, c.arg[3]); err != nil {
			return err
		}
	}
	port, err := e.datagrams()
	if err != nil {
		return err
	}
	u := &ud{subject: subject{cookie: c.arg[8]}, engine: e, port: port, pd: pd, scq: scq, rcq: rcq,
		ctx: ctx, srq: shared}
	u.buffer.List = make([]wq.SGE, sgeMax)
	if err = u.mapRings(max(1, int(sdepth)), max(1, int(rdepth)), max(1, int(ranges)),
		int(inline)); err != nil {
		return err
	}
	if u.bit = e.takeBit(&qp{ud: u}); u.bit < 0 {
		u.sends.release()
		return syscall.ENOMEM
	}
	if u.number, err = e.slot.enter(u); err != nil {
		e.qps[u.bit].Store(nil)
		u.sends.release()
		return err
	}
	e.whenUDQuiet(func() { port.all[u.number%numbersMax] = u })
	c.out = [ring.CallArgs]uint64{
		e.objects.add(u), uint64(u.number), uint64(u.bit), u.sends.addr(),
		uint64(len(u.sends.entries)), u.recvs.addr(), uint64(len(u.recvs.entries)),
	}
	return nil
}

// mapRings makes the rings, with which the completion queues stay mapped.
func (u *ud) mapRings(sdepth, rdepth, ranges, inline int) (err error) {
	if u.sends, err = newQueue(sdepth, ranges, inline); err != nil {
		return err
	}
	if u.recvs, err = newQueue(rdepth, ranges, 0); err != nil {
		u.sends.release()
		return err
	}
	u.sends.ranged = true
	u.sends.keep(u.recvs.mapping)
	others := []*mapping{u.scq.mapping, u.rcq.mapping}
	if u.srq != nil {
		others = append(others, u.srq.recvs.mapping)
	}
	for _, m := range others {
		if !m.hold() {
			u.sends.release()
			return syscall.EINVAL // destroyed meanwhile
		}
		u.sends.keep(m)
	}
	return nil
}

// modifyUD moves a queue pair. The program's library has looked whether it may be.
func (e *Engine) modifyUD(c *call) error {
	u, err := find[*ud](&e.objects, c.arg[0])
	if err != nil {
		return err
	}
	e.whenUDQuiet(func() { u.move(c.arg[1], uint32(c.arg[2])) })
	if c.arg[3] != 0 { // what was taken from the ring has completed
		u.ctx.tell(eventSQDrained, &u.subject)
	}
	return nil
}

// destroyUD returns when nothing of the queue pair completes any more.
func (e *Engine) destroyUD(c *call) error {
	u, err := take[*ud](&e.objects, c.arg[0])
	if err != nil {
		return err
	}
	u.leave(u.ctx.events.Load())
	e.detachAll(u)
	e.whenUDQuiet(func() {
		u.move(udReset, 0)
		e.qps[u.bit].Store(nil)
		u.port.all[u.number%numbersMax] = nil
	})
	e.slot.leave(u.number)
	u.sends.release()
	return nil
}

func (u *ud) move(state uint64, qkey uint32) {
	u.qkey = qkey
	switch state {
	case udReset:
		u.sends.restart()
		u.recvs.restart()
		if u.srq != nil && u.buffer.Op != 0 {
			u.srq.giveBack(uint32(u.buffer.ID))
		}
		u.buffer.Op, u.underway = 0, waiting.Underway{}
		u.over(false)
	case udError:
		u.fail()
		return
	}
	u.state = state
	u.doorbell()
}

// over says whether what is posted needs a doorbell, to be flushed, even receive buffers.
func (u *ud) over(yes bool) {
	u.sends.end(yes)
	u.recvs.end(yes)
}

// fail is the state of error: what was posted is flushed, and so is what will be.
func (u *ud) fail() {
	first := u.state != udError
	u.state = udError
	u.over(true)
	u.doorbell()
	if first && u.srq != nil {
		u.ctx.tell(eventQPLastWQE, &u.subject)
	}
}

// ring has the goroutine that drives datagrams look at what the program has posted.
func (u *ud) ring() {
	if u.engine.polled {
		u.doorbell()
	} else {
		u.engine.udTurn.ring(u.bit)
	}
}

// doorbell is called when the program has posted something.
func (u *ud) doorbell() {
	switch u.state {
	case udRTS:
		u.port.send(u)
	case udError:
		u.flush()
	}
}

// flush completes what is in the rings, and in hand of a shared receive queue.
func (u *ud) flush() {
	r := &u.port.out[0].request
	for n := u.sends.peek(r); n > 0; n = u.sends.peek(r) {
		u.sends.taken(n)
		u.complete(u.scq, r, wq.Flushed, 0)
	}
	for u.buffer.Op != 0 || u.srq == nil && u.nextBuffer() {
		u.complete(u.rcq, &u.buffer, wq.Flushed, 0)
		u.buffer.Op = 0
	}
	u.engine.progress()
}

// nextBuffer says whether there is a buffer, and has it in u.buffer. One of a shared receive queue
// that was taken for a datagram that is too long is this queue pair's from then on.
func (u *ud) nextBuffer() bool {
	if u.buffer.Op != 0 {
		return true
	}
	if u.srq != nil {
		return u.srq.rnic.Take(&u.buffer)
	}
	n := u.recvs.peek(&u.buffer)
	if n == 0 {
		u.buffer.Op = 0
		return false
	}
	u.recvs.taken(n)
	u.buffer.Op = wq.OpRecv
	return true
}

// complete adds the completion of a request that nothing more is known of.
func (u *ud) complete(to *cq, r *wq.Request, st wq.Status, length int) {
	u.put(to, &rnic.Completion{ID: r.ID, QP: u.number, Op: r.Op, Status: st, Len: uint32(length)})
}

// put adds a completion to its queue.
func (u *ud) put(to *cq, c *rnic.Completion) {
	if !to.add(c) && u.srq != nil && c.Op == rnic.OpRecv {
		u.srq.giveBack(uint32(c.ID))
	}
}

// bufferPD is the protection domain of receive buffers.
func (u *ud) bufferPD() *rnic.ProtectionDomain {
	if u.srq != nil {
		return u.srq.pd
	}
	return u.pd
}

// broken fails a queue pair whose rings, or memory, cannot be.
func (u *ud) broken() {
	u.ctx.tell(eventQPFatal, &u.subject)
	u.fail()
}
