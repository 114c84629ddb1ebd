package engine

import (
	"errors"
	"syscall"

	"github.com/rnicd/rnicd/rnic"
)

// srq is a shared receive queue with its ring.
type srq struct {
	subject
	rnic  *rnic.SharedReceiveQueue
	recvs *queue
	ctx   *opened
}

func (e *Engine) createSRQ(c *call) error {
	pd, err1 := find[*rnic.ProtectionDomain](&e.objects, c.arg[0])
	ctx, err2 := find[*opened](&e.objects, c.arg[4])
	depth, ranges := c.arg[1], c.arg[2]
	if errors.Join(err1, err2) != nil || depth < 1 || depth > depthMax || ranges > rnic.SharedSGEMax {
		return syscall.EINVAL
	}
	s := &srq{subject: subject{cookie: c.arg[3]}, ctx: ctx}
	var err error
	if s.recvs, err = newQueue(int(depth), rnic.SharedSGEMax, 0); err != nil {
		return err
	}
	s.rnic, err = e.adapter.CreateSRQ(rnic.SRQOptions{PD: pd, Depth: int(depth), Source: s.fill})
	if err != nil {
		s.recvs.release()
		return err
	}
	c.out[0], c.out[1], c.out[2] = e.objects.add(s), s.recvs.addr(), uint64(len(s.recvs.entries))
	return nil
}

// fill posts the buffers that the program has.
func (s *srq) fill(f rnic.SharedFeed) {
	for {
		n := s.recvs.peek()
		if n == 0 {
			return
		}
		if f.Recv(&s.recvs.wr) != nil {
			return
		}
		s.recvs.taken(n)
	}
}

// destroySRQ gives the ring back when the last queue pair that takes from it is over, too.
func (e *Engine) destroySRQ(c *call) error {
	s, err := take[*srq](&e.objects, c.arg[0])
	if err == nil {
		s.leave(s.ctx.events.Load())
		s.recvs.release()
	}
	return err
}

func (e *Engine) armSRQ(c *call) error {
	s, err := find[*srq](&e.objects, c.arg[0])
	if err == nil {
		err = s.rnic.Arm(int(min(c.arg[1], depthMax+1)))
	}
	return err
}
