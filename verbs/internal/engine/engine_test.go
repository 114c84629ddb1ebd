package engine

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// A wait here has no bound of its own: go test's -timeout ends one that is for ever, and shows
// where everybody stands.

// program is the other side of an engine, as the C library is.
type program struct {
	t      *testing.T
	area   *ring.Area
	engine *Engine
	direct bool // calls are made on the caller's goroutine
	events int  // a socket on which asynchronous events come
	ctx    uint64
	pd     uint64
}

func newProgram(t *testing.T) *program {
	t.Helper()
	adapter := must(rnic.Open(Limits()))(t)
	return newProgramOn(t, Host{Adapter: adapter})
}

func newProgramOn(t *testing.T, h Host) *program {
	t.Helper()
	p := unstarted(t)
	p.engine.start(h)
	go p.engine.run()
	p.open()
	return p
}

// unstarted is a program whose engine is not started.
func unstarted(t *testing.T) *program {
	t.Helper()
	p := &program{t: t, area: &ring.Area{}}
	p.area.WakeFD = int32(must(unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK))(t))
	p.engine = must(newEngine(p.area))(t)
	return p
}

// open opens the device.
func (p *program) open() {
	mine, theirs := p.channel()
	p.events = mine
	p.ctx = p.do(ring.Open, uint64(theirs))[0]
	p.pd = p.do(ring.AllocPD)[0]
}

func (p *program) channel() (mine, theirs int) {
	p.t.Helper()
	fds := must(unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0))(p.t)
	p.t.Cleanup(func() { _ = unix.Close(fds[0]) })
	return fds[0], fds[1]
}

// call makes a control call and waits for its answer.
func (p *program) call(op uint32, data []byte,
	args ...uint64) (out [ring.CallArgs]uint64, err syscall.Errno) {
	return p.callIn(0, op, data, args...)
}

// callIn is call in a slot of its own: another goroutine may make one in another slot.
func (p *program) callIn(slot int, op uint32, data []byte,
	args ...uint64) (out [ring.CallArgs]uint64, err syscall.Errno) {
	if p.direct {
		x := &call{op: op, data: data}
		copy(x.arg[:], args)
		fault := p.engine.carryOut(x)
		return x.out, errnoOf(fault)
	}
	c := &p.area.Calls[slot]
	c.Op, c.Size = op, uint32(copy(c.Data[:], data))
	c.Arg = [ring.CallArgs]uint64{}
	copy(c.Arg[:], args)
	atomic.StoreUint32(&c.State, ring.CallPosted)
	p.wake()
	for s := atomic.LoadUint32(&c.State); s != ring.CallDone; s = atomic.LoadUint32(&c.State) {
		futexWait(&c.State, s)
	}
	return c.Arg, syscall.Errno(c.Error)
}

// do is a call that must succeed.
func (p *program) do(op uint32, args ...uint64) [ring.CallArgs]uint64 {
	p.t.Helper()
	out, err := p.call(op, nil, args...)
	require.Zero(p.t, err, "call %d: %v", op, err)
	return out
}

func (p *program) wake() {
	if atomic.LoadUint32(&p.area.Sleeping) != 0 {
		_, _ = unix.Write(int(p.area.WakeFD), []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// futexWait sleeps while *word is was.
func futexWait(word *uint32, was uint32) {
	const wait = 0 | 128 // private
	_, _, _ = syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(word)), wait,
		uintptr(was), 0, 0, 0)
}

// until looks again and again, for what no event tells.
func until(cond func() bool) {
	for !cond() {
		time.Sleep(100 * time.Microsecond) // what it takes is made once a goroutine
	}
}

// ring rings a queue pair's doorbell.
func (p *program) ring(q *testQP) {
	atomic.OrUint64(&p.area.Doorbells[q.bit/64], 1<<(q.bit%64))
	atomic.OrUint64(&p.area.Summary, 1<<(q.bit/64))
	p.wake()
}

// at is what lies at an address that the engine has told.
func at[T any](addr uint64) *T { return (*T)(pointer(addr)) }

func entries[T any](addr uint64, header uintptr, n uint64) []T {
	return unsafe.Slice((*T)(unsafe.Add(pointer(addr), header)), n)
}

// testQP is a queue pair with the program's view of its rings.
type testQP struct {
	handle, bit uint64
	number      uint32
	sq, rq      *ring.Queue
	sends       []wq.WQE
	recvs       []wq.WQE
	cq          *ring.CQ
	done        []wq.CQE
}

func (p *program) newQP() *testQP {
	p.t.Helper()
	return p.newQueues(ring.CreateQP, 64, 16, 4)
}

// newQueues makes a queue pair by op, with a completion queue of its own.
func (p *program) newQueues(op uint32, completions, depth, sges uint64) *testQP {
	p.t.Helper()
	c := p.do(ring.CreateCQ, completions, ^uint64(0), 1, p.ctx)
	o := p.do(op, p.pd, c[0], c[0], 0, depth, depth, sges, 64, 7, p.ctx)
	return &testQP{
		handle: o[0], number: uint32(o[1]), bit: o[2], sq: at[ring.Queue](o[3]),
		rq:    at[ring.Queue](o[5]),
		sends: entries[wq.WQE](o[3], unsafe.Sizeof(ring.Queue{}), o[4]),
		recvs: entries[wq.WQE](o[5], unsafe.Sizeof(ring.Queue{}), o[6]),
		cq:    at[ring.CQ](c[1]), done: entries[wq.CQE](c[1], unsafe.Sizeof(ring.CQ{}), c[2]),
	}
}

// A queue pair is destroyed while the engine sleeps, many times: the call always returns.
func TestDestroyWakesTheEngine(t *testing.T) {
	p := newProgram(t)
	for range 200 {
		q := p.newQP()
		until(func() bool { return atomic.LoadUint32(&p.area.Sleeping) != 0 })
		p.do(ring.DestroyQP, q.handle)
	}
}

// What whenQuiet wants run is in its queue before it wakes run, which looks once and may sleep
// again; and it returns when that was done. Here no goroutine serves the queue, and waking blocks,
// as the pipe in the eventfd's place is full.
func TestWhenQuietQueuesBeforeItWakes(t *testing.T) {
	var fds [2]int
	require.NoError(t, unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	for err := error(nil); err == nil; {
		_, err = unix.Write(fds[1], make([]byte, 4096))
	}
	r, w := os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
	e := &Engine{area: &ring.Area{Dozing: 1}, bell: w, quiet: make(chan func(), 1)}
	var ran atomic.Bool
	returned := make(chan bool)
	go func() {
		e.whenQuiet(func() { ran.Store(true) })
		returned <- ran.Load()
	}()
	f := <-e.quiet
	must(r.Read(make([]byte, 1<<20)))(t)
	f()
	require.True(t, <-returned)
}

// Where a Poller looks at doorbells, run leaves them and what whenQuiet wants to it, and threads
// that wait for completions are told at the end of the Turn, once for all of them.
func TestPolled(t *testing.T) {
	fd := must(unix.Eventfd(0, unix.EFD_CLOEXEC))(t)
	area := &ring.Area{WakeFD: int32(fd)}
	e := must(newEngine(area))(t)
	e.start(Host{Polled: true})
	area.Summary, area.Doorbells[3] = 1<<3, 1<<7
	require.False(t, e.look())
	require.Equal(t, uint64(1<<3), area.Summary)
	require.Equal(t, 1, e.onTurn())
	require.Zero(t, area.Summary+area.Doorbells[3])
	require.Zero(t, e.onTurn())

	e.progress()
	e.progress()
	require.Zero(t, area.Progress, "before the end of the Turn")
	require.Equal(t, 1, e.onTurn())
	require.Zero(t, area.Progress, "more may come in the next")
	require.Zero(t, e.onTurn())
	require.Equal(t, uint32(1), area.Progress)

	area.Dozing = 1
	returned := make(chan struct{})
	go func() {
		e.whenQuiet(func() {})
		close(returned)
	}()
	var b [8]byte
	_, err := unix.Read(int(area.BellFD), b[:]) // as the Poller sleeps
	require.NoError(t, err)
	require.False(t, e.look())
	require.Equal(t, 1, e.onTurn())
	<-returned
}

// Calls with handles of nothing, or of something else, are refused.
func TestWrongHandles(t *testing.T) {
	p := newProgram(t)
	for op := uint32(0); op <= ring.Leave+1; op++ {
		switch op {
		case ring.Open, ring.AllocPD, ring.CMCreate, ring.CloseChannel, ring.Leave:
			continue
		}
		for _, handle := range []uint64{0, 1 << 40} {
			_, err := p.call(op, nil, handle, handle, handle)
			require.NotZero(t, err, "call %d", op)
		}
	}
	_, err := p.call(ring.DeregMR, nil, p.pd)
	require.Equal(t, syscall.EINVAL, err)
}

// Memory that the program does not have, or may not write, is not registered.
func TestRegisterWhatIsNotThere(t *testing.T) {
	p := newProgram(t)
	const page = 4096
	m := must(unix.Mmap(-1, 0, 2*page, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))(t)
	addr := uint64(uintptr(unsafe.Pointer(&m[0])))
	p.do(ring.RegMR, p.pd, addr, 2*page, addr, accessRemoteRead)
	_, errno := p.call(ring.RegMR, nil, p.pd, addr, 2*page, addr, accessLocalWrite)
	require.Equal(t, syscall.EFAULT, errno, "read-only memory")
	_, errno = p.call(ring.RegMR, nil, p.pd, 1<<46, page, 1<<46, accessLocalWrite)
	require.Equal(t, syscall.EFAULT, errno, "no memory")
	_, errno = p.call(ring.RegMR, nil, p.pd, addr, 2*page, addr, accessRemoteWrite)
	require.Equal(t, syscall.EINVAL, errno, "remote without local write")
}

// Whatever a program writes into its send ring ends its own queue pair at most: the engine goes on.
func TestHostileRing(t *testing.T) {
	p := newProgram(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		q := p.newQP()
		p.do(ring.AbortQP, q.handle) // over: what is posted is taken at the doorbell
		for i := range q.sends {
			words := (*[8]uint64)(unsafe.Pointer(&q.sends[i]))
			for j := range words {
				words[j] = rng.Uint64() >> rng.IntN(64)
			}
		}
		atomic.StoreUint32(&q.sq.Tail, rng.Uint32()>>rng.IntN(32))
		atomic.StoreUint32(&q.cq.Head, rng.Uint32()>>rng.IntN(32))
		p.ring(q)
		p.do(ring.DestroyQP, q.handle)
	}
}

// Requests that are over complete as flushed, each once, in their order.
func TestFlushedAtTheDoorbell(t *testing.T) {
	p := newProgram(t)
	q := p.newQP()
	p.do(ring.AbortQP, q.handle)
	for i := range 5 {
		q.sends[i] = wq.WQE{ID: uint64(100 + i), Op: wq.OpSend, Flags: wq.FlagSignaled}
	}
	atomic.StoreUint32(&q.sq.Tail, 5)
	p.ring(q)
	until(func() bool { return wq.There(&q.done[4], 4) })
	for i := range 5 {
		require.EqualValues(t, 100+i, q.done[i].ID)
		require.EqualValues(t, rnic.Flushed, q.done[i].Status)
	}
}

// A completion queue that is full loses completions and says so once.
func TestCQOverflow(t *testing.T) {
	p := newProgram(t)
	c := p.do(ring.CreateCQ, 2, ^uint64(0), 42, p.ctx)
	q := must(find[*cq](&p.engine.objects, c[0]))(t)
	for i := range 5 {
		require.Equal(t, i < 2, q.add(&rnic.Completion{ID: uint64(i)}))
	}
	require.Equal(t, ring.AsyncEvent{Cookie: 42, Type: eventCQError}, p.event())
	p.hasNoEvent()
}

// A channel whose reader is slow gets all events, in order.
func TestSlowChannel(t *testing.T) {
	p := newProgram(t)
	mine, theirs := p.channel()
	ch := p.engine.channels.open(theirs)
	const count = 5000
	for i := range uint64(count) {
		sendStruct(ch, &i)
	}
	for i := range uint64(count) {
		var got uint64
		must(unix.Read(mine, octets(&got)))(t)
		require.Equal(t, i, got)
	}
}

// A ring that says what cannot be is no longer read, and the program is told.
func TestBrokenRing(t *testing.T) {
	for name, breakIt := range map[string]func(q *testQP) (tail uint32){
		"more entries than there are": func(q *testQP) uint32 { return uint32(len(q.sends)) + 1 },
		"ranges that are not there":   func(q *testQP) uint32 { q.sends[0].More = 3; return 1 },
		"more ranges than allowed":    func(q *testQP) uint32 { q.sends[0].More = 4; return 2 },
		"inline data that is not there": func(q *testQP) uint32 {
			q.sends[0].Flags, q.sends[0].Local.Length = wq.FlagInline, 64
			return 1
		},
		"more inline data than allowed": func(q *testQP) uint32 {
			q.sends[0].Flags, q.sends[0].Local.Length = wq.FlagInline, 65
			return 3
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProgram(t)
			q := p.newQP()
			p.do(ring.AbortQP, q.handle)
			for i := range q.sends {
				q.sends[i] = wq.WQE{Op: wq.OpSend, Flags: wq.FlagSignaled}
			}
			atomic.StoreUint32(&q.sq.Tail, breakIt(q))
			p.ring(q)
			require.Equal(t, ring.AsyncEvent{Cookie: 7, Type: eventQPFatal}, p.event())
			require.False(t, wq.There(&q.done[0], 0))
		})
	}
}

// One queue pair more than there is room for is refused, and its rings are unmapped only when no
// goroutine looks at them.
func TestQueuePairsMax(t *testing.T) {
	p := newProgram(t)
	taken := &qp{}
	taken.gone.Store(true)
	for i := range p.engine.qps {
		p.engine.qps[i].Store(taken)
	}
	c := p.do(ring.CreateCQ, 64, ^uint64(0), 1, p.ctx)
	for range 20 {
		_, err := p.call(ring.CreateQP, nil, p.pd, c[0], c[0], 0, 16, 16, 4, 64, 7, p.ctx)
		require.Equal(t, syscall.ENOMEM, err)
	}
	p.engine.qps[7].Store(nil)
	require.EqualValues(t, 7, p.newQP().bit)
}

// The ring of a shared receive queue goes with the last of it and the queue pairs that take from
// it.
func TestSharedRingIsGivenBack(t *testing.T) {
	p := newProgram(t)
	handle := p.do(ring.CreateSRQ, p.pd, 16, 1, 3, p.ctx)[0]
	s := must(find[*srq](&p.engine.objects, handle))(t)
	c := p.do(ring.CreateCQ, 64, ^uint64(0), 1, p.ctx)
	q := p.do(ring.CreateQP, p.pd, c[0], c[0], handle, 16, 16, 4, 64, 7, p.ctx)
	p.do(ring.DestroySRQ, handle)
	require.EqualValues(t, 1, s.recvs.refs.Load())
	p.do(ring.DestroyQP, q[0])
	until(func() bool { return s.recvs.refs.Load() == 0 })
	_, errno := p.call(ring.FreePD, nil, c[0])
	require.Equal(t, syscall.EINVAL, errno, "no protection domain")
	p.do(ring.FreePD, p.pd)
}

// byte_len of a Write with immediate data is the peer's word where that can be true, and no more
// than what was written.
func TestByteLenIsWhatWasWritten(t *testing.T) {
	p := newProgram(t)
	c, q := p.newCQ(4)
	for i, x := range []struct{ said, written, want uint32 }{{math.MaxUint32, 0, 0}, {100, 5, 5},
		{100, 100, 100}, {7, 100, 7}} {
		done := rnic.Completion{Op: rnic.OpRecv, Len: 8, WithImmediate: true, Written: x.written}
		binary.BigEndian.PutUint32(done.Immediate[4:], x.said)
		q.add(&done)
		require.Equal(t, x.want, c.entries[i].Len)
	}
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}
