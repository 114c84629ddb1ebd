package engine

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/ring"
)

// patience bounds every wait.
const patience = 20 * time.Second

// program is the other side of an engine, as the C library is.
type program struct {
	t      *testing.T
	area   *ring.Area
	engine *Engine
	events int // a socket on which asynchronous events come
	ctx    uint64
	pd     uint64
}

func newProgram(t *testing.T) *program {
	t.Helper()
	p := &program{t: t, area: &ring.Area{}}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	require.NoError(t, err)
	p.area.WakeFD = int32(fd)
	p.engine, err = newEngine(p.area)
	require.NoError(t, err)
	go p.engine.run()
	mine, theirs := p.channel()
	p.events = mine
	p.ctx = p.do(ring.Open, uint64(theirs))[0]
	p.pd = p.do(ring.AllocPD)[0]
	return p
}

func (p *program) channel() (mine, theirs int) {
	p.t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = unix.Close(fds[0]) })
	return fds[0], fds[1]
}

// call makes a control call and waits for its answer.
func (p *program) call(op uint32, data []byte, args ...uint64) (out [ring.CallArgs]uint64, err syscall.Errno) {
	p.t.Helper()
	c := &p.area.Calls[0]
	c.Op, c.Size = op, uint32(copy(c.Data[:], data))
	c.Arg = [ring.CallArgs]uint64{}
	copy(c.Arg[:], args)
	atomic.StoreUint32(&c.State, ring.CallPosted)
	p.wake()
	p.until("an answer", func() bool { return atomic.LoadUint32(&c.State) == ring.CallDone })
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

func (p *program) until(what string, cond func() bool) {
	p.t.Helper()
	for end := time.Now().Add(patience); !cond(); runtime.Gosched() {
		require.True(p.t, time.Now().Before(end), "waiting for %s", what)
	}
}

// at is what lies at an address that the engine has told.
func at[T any](addr uint64) *T { return (*T)(pointer(addr)) }

func entries[T any](addr uint64, header uintptr, n uint64) []T {
	return unsafe.Slice((*T)(unsafe.Add(pointer(addr), header)), n)
}

// testQP is a queue pair with the program's view of its rings.
type testQP struct {
	handle, bit uint64
	sq, rq      *ring.Queue
	sends       []ring.WQE
	cq          *ring.CQ
	done        []ring.CQE
}

func (p *program) newQP() *testQP {
	p.t.Helper()
	c := p.do(ring.CreateCQ, 64, ^uint64(0), 1, p.ctx)
	o := p.do(ring.CreateQP, p.pd, c[0], c[0], 0, 16, 16, 4, 64, 7, p.ctx)
	return &testQP{
		handle: o[0], bit: o[2], sq: at[ring.Queue](o[3]), rq: at[ring.Queue](o[5]),
		sends: entries[ring.WQE](o[3], unsafe.Sizeof(ring.Queue{}), o[4]),
		cq:    at[ring.CQ](c[1]), done: entries[ring.CQE](c[1], unsafe.Sizeof(ring.CQ{}), c[2]),
	}
}

// A queue pair is destroyed while the engine sleeps, many times: the call always returns.
func TestDestroyWakesTheEngine(t *testing.T) {
	p := newProgram(t)
	for range 200 {
		q := p.newQP()
		p.until("the engine's sleep", func() bool { return atomic.LoadUint32(&p.area.Sleeping) != 0 })
		p.do(ring.DestroyQP, q.handle)
	}
}

// Calls with handles of nothing, or of something else, are refused.
func TestWrongHandles(t *testing.T) {
	p := newProgram(t)
	for op := uint32(0); op <= ring.Adopt+1; op++ {
		switch op {
		case ring.Open, ring.AllocPD, ring.CMCreate, ring.CloseChannel:
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
	m, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
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
		atomic.OrUint64(&p.area.Doorbells[q.bit/64], 1<<(q.bit%64))
		atomic.OrUint64(&p.area.Summary, 1<<(q.bit/64))
		p.wake()
		p.do(ring.DestroyQP, q.handle)
	}
}

// Requests that are over complete as flushed, each once, in their order.
func TestFlushedAtTheDoorbell(t *testing.T) {
	p := newProgram(t)
	q := p.newQP()
	p.do(ring.AbortQP, q.handle)
	for i := range 5 {
		q.sends[i] = ring.WQE{ID: uint64(100 + i), Op: ring.OpSend, Flags: ring.Signaled}
	}
	atomic.StoreUint32(&q.sq.Tail, 5)
	atomic.OrUint64(&p.area.Doorbells[q.bit/64], 1<<(q.bit%64))
	atomic.OrUint64(&p.area.Summary, 1<<(q.bit/64))
	p.wake()
	p.until("completions", func() bool { return atomic.LoadUint32(&q.done[4].Seq) == 5 })
	for i := range 5 {
		require.EqualValues(t, 100+i, q.done[i].ID)
		require.EqualValues(t, rnic.Flushed, q.done[i].Status)
	}
	require.EqualValues(t, 5, atomic.LoadUint32(&q.sq.Head))
}

// A completion queue that is full loses completions and says so once.
func TestCQOverflow(t *testing.T) {
	p := newProgram(t)
	c := p.do(ring.CreateCQ, 2, ^uint64(0), 42, p.ctx)
	q, err := find[*cq](&p.engine.objects, c[0])
	require.NoError(t, err)
	for i := range 5 {
		q.put(rnic.Completion{ID: uint64(i)})
	}
	var ev ring.AsyncEvent
	b := unsafe.Slice((*byte)(unsafe.Pointer(&ev)), unsafe.Sizeof(ev))
	n, err := unix.Read(p.events, b)
	require.NoError(t, err)
	require.Equal(t, len(b), n)
	require.Equal(t, ring.AsyncEvent{Cookie: 42, Type: eventCQError}, ev)
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(p.events), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), syscall.MSG_DONTWAIT, 0, 0)
	require.Equal(t, syscall.EAGAIN, errno, "no second event")
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
		_, err := unix.Read(mine, unsafe.Slice((*byte)(unsafe.Pointer(&got)), 8))
		require.NoError(t, err)
		require.Equal(t, i, got)
	}
}

// A ring that says what cannot be is not read any more, and the program is told.
func TestBrokenRing(t *testing.T) {
	for name, breakIt := range map[string]func(q *testQP) (tail uint32){
		"more entries than there are": func(q *testQP) uint32 { return uint32(len(q.sends)) + 1 },
		"ranges that are not there":   func(q *testQP) uint32 { q.sends[0].More = 3; return 1 },
		"more ranges than allowed":    func(q *testQP) uint32 { q.sends[0].More = 4; return 2 },
		"inline data that is not there": func(q *testQP) uint32 {
			q.sends[0].Flags, q.sends[0].Local.Length = ring.Inline, 64
			return 1
		},
		"more inline data than allowed": func(q *testQP) uint32 {
			q.sends[0].Flags, q.sends[0].Local.Length = ring.Inline, 65
			return 3
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProgram(t)
			q := p.newQP()
			p.do(ring.AbortQP, q.handle)
			for i := range q.sends {
				q.sends[i] = ring.WQE{Op: ring.OpSend, Flags: ring.Signaled}
			}
			atomic.StoreUint32(&q.sq.Tail, breakIt(q))
			atomic.OrUint64(&p.area.Doorbells[q.bit/64], 1<<(q.bit%64))
			atomic.OrUint64(&p.area.Summary, 1<<(q.bit/64))
			p.wake()
			var ev ring.AsyncEvent
			_, err := unix.Read(p.events, unsafe.Slice((*byte)(unsafe.Pointer(&ev)), unsafe.Sizeof(ev)))
			require.NoError(t, err)
			require.Equal(t, ring.AsyncEvent{Cookie: 7, Type: eventQPFatal}, ev)
			require.Zero(t, atomic.LoadUint32(&q.sq.Head))
			require.Zero(t, atomic.LoadUint32(&q.done[0].Seq))
		})
	}
}
