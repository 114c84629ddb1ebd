package engine

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// A program is told when half of the most that it has had under way is left, and of each completion
// from there on; of errors, and of what it waits to read, at once. What asks for no completion does
// not count.
func TestUnderWay(t *testing.T) {
	var u underway
	complete := func(op rnic.Opcode, status rnic.Status) bool {
		return u.complete(&rnic.Completion{Op: op, Status: status})
	}
	for range 10 {
		u.take(true)
	}
	for i, op := range []rnic.Opcode{rnic.OpWrite, rnic.OpSend, rnic.OpSendInvalidate, rnic.OpWrite} {
		require.True(t, complete(op, rnic.Success), "%d are left", 9-i)
	}
	require.False(t, complete(rnic.OpWrite, rnic.Success), "5 of 10 are left")
	for range 5 {
		u.take(true)
		u.take(false)
	}
	require.True(t, complete(rnic.OpWrite, rnic.Success), "it has posted more")
	require.False(t, complete(rnic.OpRead, rnic.Success))
	require.False(t, complete(rnic.OpFetchAdd, rnic.Success))
	require.True(t, complete(rnic.OpWrite, rnic.Success), "6 are left")
	require.False(t, complete(rnic.OpWrite, rnic.Flushed))
	for range 10 {
		require.False(t, complete(rnic.OpWrite, rnic.Success),
			"few or none are left, also of more than were asked for")
	}
	for range 3 {
		u.take(true)
		require.False(t, complete(rnic.OpWrite, rnic.Success), "one at a time")
	}
	u = underway{}
	u.take(true)
	for range 100 {
		u.take(false)
	}
	require.False(t, complete(rnic.OpWrite, rnic.Success), "no other completion will come")
}

// Of ten Writes that a program has posted at once it is told when half of them are left, and of
// each from there on. All of them are in its queue.
func TestProgramWithEnoughUnderWayIsLeftAsleep(t *testing.T) {
	p := newProgram(t)
	q, l := p.newQP(), p.listen("127.0.0.1:0")
	dev, err := rnic.Open(rnic.Config{})
	require.NoError(t, err)
	far, connected := (&peer{t, dev}).connect(l.addr)
	p.do(ring.CMAccept, l.request(), q.handle)
	require.NoError(t, <-connected)
	made, err := find[*qp](&p.engine.objects, q.handle)
	require.NoError(t, err)
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
