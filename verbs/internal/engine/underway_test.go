package engine

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/waiting"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// Of errors, and of what it waits to read, a program is told at once, however much is under way.
func TestErrorsAreToldAtOnce(t *testing.T) {
	p := newProgram(t)
	q := must(find[*qp](&p.engine.objects, p.newQP().handle))(t)
	for range 100 {
		q.underway.Take(true)
	}
	told := func(op rnic.Opcode, status rnic.Status) bool {
		before := atomic.LoadUint32(&p.area.Progress)
		q.sent(rnic.Completion{Op: op, Status: status})
		return atomic.LoadUint32(&p.area.Progress) != before
	}
	require.False(t, told(rnic.OpWrite, rnic.Success))
	require.False(t, told(rnic.OpSend, rnic.Success))
	require.False(t, told(rnic.OpSendInvalidate, rnic.Success))
	require.True(t, told(rnic.OpWrite, rnic.Flushed))
	require.True(t, told(rnic.OpRead, rnic.Success))
	require.True(t, told(rnic.OpFetchAdd, rnic.Success))
}

// What was posted is under way before it is taken, however many entries a request has.
func TestPostedIsUnderWay(t *testing.T) {
	q := must(newQueue(16, 4, 64))(t)
	defer q.release()
	var u waiting.Underway
	r := &wq.Request{List: make([]wq.SGE, 3)}
	for i := range 10 {
		q.entries[2*i] = wq.WQE{Op: wq.OpWrite, Flags: wq.FlagSignaled, More: 3}
	}
	q.entries[20] = wq.WQE{Op: wq.OpWrite}
	for _, tail := range []uint32{2, 21, 21} {
		atomic.StoreUint32(&q.shared.Tail, tail)
		require.EqualValues(t, 2, q.peek(r))
		q.count(&u)
	}
	for i := range 4 {
		require.True(t, u.Complete(), i)
	}
	for range 6 {
		require.False(t, u.None())
		require.False(t, u.Complete())
	}
	require.True(t, u.None())
}

// Of ten Writes that a program has posted at once it is told when half of them are left, and of
// each from there on. All of them are in its queue.
func TestProgramWithEnoughUnderWayIsLeftAsleep(t *testing.T) {
	p := newProgram(t)
	q, l := p.newQP(), p.listen("127.0.0.1:0")
	dev := must(rnic.Open(rnic.Config{}))(t)
	far, connected := (&peer{t, dev}).connect(l.addr)
	p.do(ring.CMAccept, l.request(), q.handle)
	require.NoError(t, <-connected)
	made := must(find[*qp](&p.engine.objects, q.handle))(t)
	until(func() bool { return !made.deliveries.connecting.Load() })
	before := atomic.LoadUint32(&p.area.Progress)
	for i := range uint64(10) {
		q.sends[i] = wq.WQE{ID: i, Op: wq.OpWrite, Flags: wq.FlagSignaled}
	}
	atomic.StoreUint32(&q.sq.Tail, 10)
	p.ring(q)
	until(func() bool { return atomic.LoadUint32(&p.area.Progress)-before >= 6 })
	for i := range 10 {
		require.True(t, wq.There(&q.done[i], uint32(i)))
		require.EqualValues(t, rnic.Success, q.done[i].Status)
	}
	require.EqualValues(t, 6, atomic.LoadUint32(&p.area.Progress)-before)
	far.Disconnect()
	<-far.Done()
}
