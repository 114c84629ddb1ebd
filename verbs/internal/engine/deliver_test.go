package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// While a queue pair connects its completions wait until the program is told what came of that.
func TestCompletionsFollowTheWord(t *testing.T) {
	p := newProgram(t)
	tq := p.newQP()
	q := must(find[*qp](&p.engine.objects, tq.handle))(t)
	q.deliveries.connecting.Store(true)
	for i := range uint64(3) {
		q.received(rnic.Completion{ID: i, Op: rnic.OpRecv})
	}
	require.False(t, wq.There(&tq.done[0], 0))
	q.connected()
	q.received(rnic.Completion{ID: 3, Op: rnic.OpRecv})
	for i := range 4 {
		require.True(t, wq.There(&tq.done[i], uint32(i)))
		require.EqualValues(t, i, tq.done[i].ID)
	}
	q.deliveries.connecting.Store(true)
	q.received(rnic.Completion{ID: 4, Op: rnic.OpRecv})
	p.do(ring.DestroyQP, tq.handle)
	q.connected()
	require.False(t, wq.There(&tq.done[4], 4), "of a queue pair that is destroyed")
}

// A peer sends as soon as it is connected. However late the word of the connection is, it is there
// before the completion; what the peer has read shows that its message was received.
func TestEstablishedComesFirst(t *testing.T) {
	const times = 20
	p := newProgram(t)
	l := p.listen("127.0.0.1:0")
	dev := must(rnic.Open(rnic.Config{}))(t)
	cq := must(dev.CreateCQ(64))(t)
	for held := 0; held < times; {
		tq := p.newQP()
		tq.recvs[0] = wq.WQE{Op: wq.OpRecv}
		atomic.StoreUint32(&tq.rq.Tail, 1)
		far := must(dev.CreateQP(rnic.QPOptions{PD: dev.AllocPD(), SendCQ: cq, RecvCQ: cq}))(t)
		connected := make(chan error)
		go func() {
			connected <- far.Connect(context.Background(), l.addr.String(),
				rnic.ConnParam{PeerToPeer: true, ORD: 1})
		}()
		handle := l.request()
		mine, theirs := p.channel()
		p.do(ring.Adopt, handle, uint64(theirs), 2)
		id := must(find[*cmID](&p.engine.objects, handle))(t)
		p.do(ring.CMAccept, handle, tq.handle, 4, 4)
		id.mu.Lock() // nothing is told about it now
		require.NoError(t, <-connected)
		must(far.PostSend(rnic.WorkRequest{Op: rnic.OpSend},
			rnic.WorkRequest{Op: rnic.OpRead, Signaled: true}))(t)
		var read [1]rnic.Completion
		until(func() bool { return cq.Poll(read[:]) == 1 })
		require.Equal(t, rnic.Success, read[0].Status)
		told := receive(mine)
		if told == nil {
			held++
			require.False(t, wq.There(&tq.done[0], 0), "a completion comes first")
		}
		id.mu.Unlock()
		until(func() bool { return wq.There(&tq.done[0], 0) })
		if told == nil {
			told = receive(mine)
		}
		require.EqualValues(t, cmEstablished, (*ring.CMEvent)(unsafe.Pointer(&told[0])).Type)
		far.Abort()
		<-far.Done()
		p.do(ring.DestroyQP, tq.handle)
		p.do(ring.CMDestroy, handle)
	}
}

// A buffer of a shared receive queue comes back to the program where its completion does not: where
// it has no room in the completion queue, and where the queue pair is destroyed.
func TestDiscardedBuffersAreGivenBack(t *testing.T) {
	const depth = 128
	p := newProgram(t)
	o := p.do(ring.CreateSRQ, p.pd, depth, 1, 3, p.ctx)
	returned := entries[uint64](o[3], 0, depth/64)
	c := p.do(ring.CreateCQ, 2, ^uint64(0), 1, p.ctx)
	handle := p.do(ring.CreateQP, p.pd, c[0], c[0], o[0], 16, 16, 4, 64, 7, p.ctx)[0]
	q := must(find[*qp](&p.engine.objects, handle))(t)
	for _, id := range []uint64{5, 70, 127, 64} {
		q.received(rnic.Completion{ID: id, Op: rnic.OpRecv})
	}
	require.Equal(t, []uint64{0, 1<<(127-64) | 1<<0}, returned, "the first two have room")
	q.sent(rnic.Completion{ID: 9, Op: rnic.OpSend})
	q.goAway()
	q.received(rnic.Completion{ID: 3, Op: rnic.OpRecv})
	q.received(rnic.Completion{ID: 1 << 20, Op: rnic.OpRecv})
	require.Equal(t, []uint64{1 << 3, 1<<(127-64) | 1<<0}, returned)
}
