package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// testCQ is the program's view of a completion queue.
type testCQ struct {
	p       *program
	handle  uint64
	head    *ring.CQ
	entries []wq.CQE
}

func (p *program) newCQ(depth uint64) (*testCQ, *cq) {
	p.t.Helper()
	c := p.do(ring.CreateCQ, depth, ^uint64(0), 1, p.ctx)
	q := must(find[*cq](&p.engine.objects, c[0]))(p.t)
	return &testCQ{p: p, handle: c[0], head: at[ring.CQ](c[1]),
		entries: entries[wq.CQE](c[1], unsafe.Sizeof(ring.CQ{}), c[2])}, q
}

func (c *testCQ) resize(n uint64) syscall.Errno {
	out, err := c.p.call(ring.ResizeCQ, nil, c.handle, n)
	if err == 0 {
		c.entries = entries[wq.CQE](out[0], 0, out[1])
	}
	return err
}

// poll is the next completion's ID.
func (c *testCQ) poll() (id uint64, ok bool) {
	e := &c.entries[c.head.Head&uint32(len(c.entries)-1)]
	if !wq.There(e, c.head.Head) {
		return 0, false
	}
	id = e.ID
	atomic.StoreUint32(&c.head.Head, c.head.Head+1)
	return id, true
}

// A queue that grows keeps what it holds, in its order, and then has room for more. It is refused
// what would not hold that.
func TestResizeCQ(t *testing.T) {
	p := newProgram(t)
	c, q := p.newCQ(4)
	q.tail.Store(1<<32 - 2) // positions wrap
	q.rings[0].Load().first = 1<<32 - 2
	c.head.Head = 1<<32 - 2
	next, polled := uint64(0), uint64(0)
	put := func(n int) {
		for range n {
			q.add(&rnic.Completion{ID: next})
			next++
		}
	}
	put(1)
	_, ok := c.poll()
	require.True(t, ok)
	polled++
	put(4)
	require.Equal(t, syscall.EINVAL, c.resize(3))
	require.Equal(t, syscall.EINVAL, c.resize(rnic.CQDepthMax+1))
	require.Equal(t, syscall.EINVAL, c.resize(0))
	require.Zero(t, c.resize(4))
	require.Len(t, c.entries, 4)
	require.Zero(t, c.resize(5))
	require.Len(t, c.entries, 8)
	put(4)
	require.Zero(t, c.resize(100))
	require.Len(t, c.entries, 128)
	put(120)
	require.False(t, q.lost.Load())
	for ; polled < next; polled++ {
		id, ok := c.poll()
		require.True(t, ok)
		require.Equal(t, polled, id)
	}
	_, ok = c.poll()
	require.False(t, ok)
	p.do(ring.DestroyCQ, c.handle)
}

// It grows while completions come from several goroutines, and loses none.
func TestResizeCQUnderWay(t *testing.T) {
	const producers, each = 3, 1 << 15
	p := newProgram(t)
	c, q := p.newCQ(producers)
	// each has one completion that is not polled at most, and so none is lost
	var room [producers]chan struct{}
	var wg sync.WaitGroup
	for i := range producers {
		room[i] = make(chan struct{}, 1)
		wg.Go(func() {
			for n := range uint64(each) {
				room[i] <- struct{}{}
				q.add(&rnic.Completion{ID: uint64(i)<<32 | n})
			}
		})
	}
	var next [producers]uint64
	size := uint64(producers)
	for got := 0; got < producers*each; got++ {
		if got%(producers*each/16) == 0 {
			size *= 2
			require.Zero(t, c.resize(size))
		}
		id, ok := c.poll()
		for ; !ok; id, ok = c.poll() {
			runtime.Gosched()
		}
		i := id >> 32
		require.Equal(t, next[i], id&0xffffffff, "of producer %d", i)
		next[i]++
		<-room[i]
	}
	wg.Wait()
	require.False(t, q.lost.Load())
}
