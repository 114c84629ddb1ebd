package engine

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// newNumbered makes a queue pair that is to be connected by number.
func (p *udProgram) newNumbered() (*udEnd, *qp) {
	p.t.Helper()
	c := p.do(ring.CreateCQ, 256, ^uint64(0), 1, p.ctx)
	o := p.do(ring.CreateQP, p.pd, c[0], c[0], 0, 128, 128, 3, 64, 7, p.ctx)
	u := &udEnd{p: p, number: uint32(o[1]), testQP: &testQP{
		handle: o[0], bit: o[2], sq: at[ring.Queue](o[3]), rq: at[ring.Queue](o[5]),
		sends: entries[wq.WQE](o[3], unsafe.Sizeof(ring.Queue{}), o[4]),
		recvs: entries[wq.WQE](o[5], unsafe.Sizeof(ring.Queue{}), o[6]),
		cq:    at[ring.CQ](c[1]), done: entries[wq.CQE](c[1], unsafe.Sizeof(ring.CQ{}), c[2]),
	}}
	return u, must(find[*qp](&p.engine.objects, u.handle))(p.t)
}

// connect moves a queue pair to RTR, towards a number of this host, and to RTS without an end of
// patience.
func (u *udEnd) connect(number uint32) {
	u.p.t.Helper()
	_, err := u.p.call(ring.ConnectQP, append(udHere[:], udHere[:]...), u.handle, uint64(number), 4)
	require.Zero(u.p.t, err)
	u.p.do(ring.TimeQP, u.handle, 0, 7, forEver, 1, 1)
}

// What the program posts while its queue pair goes to ERR completes after what was posted before.
func TestPostsDuringTheEndCompleteInOrder(t *testing.T) {
	p := newUDProgram(t)
	a, q := p.newNumbered()
	b, _ := p.newNumbered()
	a.connect(b.number)
	b.connect(a.number)
	a.recv(0, p.sge(0, 64))
	a.send(wq.WQE{ID: 0, Op: wq.OpSend, Flags: wq.FlagSignaled, Local: p.sge(0, 16)})
	until(func() bool {
		var taken bool // by the connection; the peer has no buffer for it
		p.engine.whenQuiet(func() { taken = q.sends.head == 1 && q.recvs.head == 1 })
		return taken
	})
	ended := make(chan struct{})
	p.engine.whenQuiet(func() { // which holds up the goroutine that drives the connection
		go func() {
			q.way.abort()
			close(ended)
		}()
		until(func() bool { return q.way.in(wayOver) })
		a.recv(1, p.sge(0, 64))
		a.send(wq.WQE{ID: 1, Op: wq.OpSend, Flags: wq.FlagSignaled, Local: p.sge(0, 16)})
		q.doorbell()
	})
	<-ended
	next := map[wq.Opcode]uint64{}
	for range 4 {
		c := a.poll()
		require.Equal(t, next[c.Op], c.ID, "of %v", c.Op)
		require.EqualValues(t, rnic.Flushed, c.Status)
		next[c.Op]++
	}
}
