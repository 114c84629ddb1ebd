package engine

import (
	"cmp"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// srq is a shared receive queue with its ring.
type srq struct {
	subject
	rnic     *rnic.SharedReceiveQueue
	pd       *rnic.ProtectionDomain
	recvs    *queue
	buffer   wq.Request // in hand
	returned []uint64   // a bit for each buffer of which no completion will tell the program
	ctx      *opened
}

func (e *Engine) createSRQ(c *call) (err error) {
	pd, err1 := find[*rnic.ProtectionDomain](&e.objects, c.arg[0])
	ctx, err2 := find[*opened](&e.objects, c.arg[4])
	depth, ranges := c.arg[1], c.arg[2]
	if err := cmp.Or(err1, err2); err != nil {
		return err
	}
	if depth < 1 || depth > depthMax || ranges > ring.SRQRangesMax {
		return syscall.EINVAL
	}
	if err = e.limits.srqs.take(); err != nil {
		return err
	}
	defer e.limits.srqs.giveIf(&err)
	s := &srq{subject: subject{cookie: c.arg[3]}, ctx: ctx, pd: pd}
	if s.recvs, err = newQueue(int(depth), ring.SRQRangesMax, 0); err != nil {
		return err
	}
	m, err := newMapping((int(depth) + 63) / 64 * 8)
	if err != nil {
		s.recvs.release()
		return err
	}
	s.buffer.List = make([]wq.SGE, ring.SRQRangesMax)
	s.recvs.keep(m)
	s.returned = unsafe.Slice((*uint64)(unsafe.Pointer(&m.mem[0])), len(m.mem)/8)
	s.rnic, err = e.adapter.CreateSRQ(rnic.SRQOptions{PD: pd, Depth: int(depth), Source: s.fill})
	if err != nil {
		s.recvs.release()
		return err
	}
	c.out = [ring.CallArgs]uint64{e.objects.add(s), s.recvs.addr(), uint64(len(s.recvs.entries)),
		m.addr()}
	return nil
}

// fill posts the buffers that the program has.
func (s *srq) fill(f rnic.SharedFeed) {
	for {
		r := &s.buffer
		n := s.recvs.peek(r)
		if n == 0 {
			return
		}
		clip(r)
		if f.RecvEntry(&r.WQE, r.List[:r.More]) != nil {
			return
		}
		s.recvs.taken(n)
	}
}

// giveBack gives the program a buffer back whose completion is discarded. Any goroutine.
func (s *srq) giveBack(index uint32) {
	if i := index / 64; i < uint32(len(s.returned)) {
		atomic.OrUint64(&s.returned[i], 1<<(index%64))
	}
}

// destroySRQ gives the ring back when the last queue pair that takes from it is over, too.
func (e *Engine) destroySRQ(c *call) error {
	s, err := take[*srq](&e.objects, c.arg[0])
	if err == nil {
		e.limits.srqs.give()
		s.leave(s.ctx.events.Load())
		s.recvs.release()
	}
	return err
}

// querySRQ tells the limit that is armed.
func (e *Engine) querySRQ(c *call) error {
	s, err := find[*srq](&e.objects, c.arg[0])
	if err == nil {
		c.out[0] = uint64(s.rnic.Armed())
	}
	return err
}

func (e *Engine) armSRQ(c *call) error {
	s, err := find[*srq](&e.objects, c.arg[0])
	if err != nil {
		return err
	}
	if !s.recvs.hold() { // which Arm looks at
		return syscall.EINVAL
	}
	defer s.recvs.release()
	return s.rnic.Arm(int(min(c.arg[1], depthMax+1)))
}
