package engine

import (
	"encoding/binary"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// fuzzed is one program for all inputs: an engine serves a process for as long as that lives.
var fuzzed struct {
	sync.Once
	*program
	memory   []byte    // that it may register
	listener *listener // of connections
	waits    ring.Waits
}

// both is set in the number of a call that is made at once with the next.
const both = 0x80

// Whatever calls a program makes, with whichever arguments, in whichever order and two at once,
// each is answered, and what was made can be destroyed, queue pairs with hostile rings too. Four
// octets are an argument: a number, or the handle of an object that was made before, or of a
// connection request that has come. Nothing leaves the machine: addresses are 127.0.0.1, where
// the program itself listens at one port.
func FuzzCalls(f *testing.F) {
	f.Add([]byte{ring.CreateCQ, 9, 0, 0, 4, 0, 0, 0})
	f.Add([]byte{ring.RegMR, 1, 0, 0, 0x80, 2, 0, 0, 0, 2, 0, 0, 0})
	all := make([]byte, 0, 256)
	for op := byte(1); op <= ring.FindMR+1; op++ {
		all = append(all, op, 3, 0, 0, 0x80, 1, 0, 0, 0, 255, 255, 255, 255)
	}
	f.Add(all)
	for i := 0; i < len(all); i += 13 {
		all[i] |= both
	}
	f.Add(all)
	f.Add(connects(0))
	f.Add(connects(both))
	f.Fuzz(makeCalls)
}

// makeCalls is one input.
func makeCalls(t *testing.T, data []byte) {
	fuzzed.Do(func() {
		fuzzed.program = newProgram(t)
		var err error
		fuzzed.memory = must(unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANON))(t)
		fuzzed.listener = fuzzed.listen("127.0.0.1:0")
		fuzzed.listener.events, err = unix.Dup(fuzzed.listener.events) // the first is closed with t
		require.NoError(t, err)
	})
	fuzzed.t = t
	c := newCalls(fuzzed.program)
	var pending []*fuzzCall
	for n := 0; len(data) > 0 && n < 64; n++ {
		x := &fuzzCall{op: uint32(data[0] &^ both)}
		again := data[0]&both != 0 && len(pending) == 0
		data = c.arguments(&x.args, data[1:])
		var ok bool
		if x.body, ok = c.safe(x.op, &x.args); !ok {
			continue
		}
		if pending = append(pending, x); again {
			continue
		}
		c.make(pending)
		pending = nil
		if c.ring != nil && len(data) > 4 {
			c.ring.Tail = binary.LittleEndian.Uint32(data) // looked at when the queue pair is over
		}
	}
	c.make(pending)
	c.destroyAll(t)
}

// connects are calls that connect the first queue pair to the listener, and accept with another.
func connects(at byte) (b []byte) {
	call := func(op byte, args ...uint32) {
		b = append(b, op|at)
		for _, v := range args {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
		for range 10 - len(args) {
			b = binary.LittleEndian.AppendUint32(b, 0)
		}
	}
	const handle = 1 << 31
	const ctx, pd, cq, qp, id, qp2, request = handle, handle + 1, handle + 2, handle + 3, handle + 4,
		handle + 5, handle + 6
	call(ring.CMCreate)
	call(ring.CMResolve, id, 0, syscall.AF_INET, 16, 1)
	call(ring.CreateQP, pd, cq, cq, 0, 4, 4, 4, 64, 3, ctx)
	call(ring.CMConnect, id, qp)
	call(ring.Adopt, request)
	call(ring.CMAccept, request, qp2)
	call(ring.CMRoute, id)
	call(ring.Forget)
	call(ring.CMRoute, id)
	call(ring.CMMigrate, id)
	call(ring.CMDisconnect, id)
	call(ring.Open)
	call(ring.Close, request+1)
	call(ring.Leave)
	return b
}

// fuzzCall is one call.
type fuzzCall struct {
	op   uint32
	body []byte
	args [10]uint64
	out  [ring.CallArgs]uint64
	err  syscall.Errno
}

// calls are those of one input.
type calls struct {
	p        *program
	handles  []uint64 // of all objects; the first own of them are no call's of the input
	own      int
	qp       uint64
	ring     *ring.Queue // the send queue of qp, nil once that is destroyed
	cq       *ring.CQ
	channels [][2]int // both ends: the program's, the engine's
	contexts map[uint64]bool
}

func newCalls(p *program) *calls {
	cq := p.do(ring.CreateCQ, 16, ^uint64(0), 1, p.ctx)
	q := p.do(ring.CreateQP, p.pd, cq[0], cq[0], 0, 4, 4, 4, 64, 2, p.ctx)
	handles := []uint64{p.ctx, p.pd, cq[0], q[0]}
	return &calls{
		p: p, handles: handles, own: len(handles), qp: q[0], ring: at[ring.Queue](q[3]),
		cq:       at[ring.CQ](cq[1]),
		contexts: map[uint64]bool{},
	}
}

// make makes some calls at once.
func (c *calls) make(all []*fuzzCall) {
	var under sync.WaitGroup
	for i, x := range all {
		under.Go(func() { x.out, x.err = c.p.callIn(1+i, x.op, x.body, x.args[:]...) })
	}
	under.Wait()
	for _, x := range all {
		if x.err == 0 && x.out[0] != 0 {
			c.handles = append(c.handles, x.out[0])
			if x.op == ring.Open {
				c.contexts[x.out[0]] = true
			}
		}
		if x.op == ring.DestroyQP && x.args[0] == c.qp {
			c.ring = nil
		}
		if x.op == ring.DestroyCQ && x.args[0] == c.handles[2] {
			c.cq = new(ring.CQ)
		}
	}
	c.takeRequests(slices.ContainsFunc(all, func(x *fuzzCall) bool {
		return x.op == ring.CMConnect && x.err == 0
	}))
}

// takeRequests takes the requests that have come, and waits a little for one if it should come.
func (c *calls) takeRequests(wait bool) {
	for n := 0; ; n++ {
		if b := receive(fuzzed.listener.events); b != nil {
			c.handles = append(c.handles, (*ring.CMEvent)(unsafe.Pointer(&b[0])).Request)
			wait = false
		} else if !wait || n > 5000 {
			return
		}
		runtime.Gosched()
	}
}

// arguments takes those of one call from data and returns the rest.
func (c *calls) arguments(args *[10]uint64, data []byte) []byte {
	for i := range args {
		if len(data) < 4 {
			break
		}
		v := binary.LittleEndian.Uint32(data)
		data = data[4:]
		switch {
		case v == ^uint32(0):
			args[i] = ^uint64(0)
		case v>>31 != 0:
			args[i] = c.handles[int(v&0xffff)%len(c.handles)]
		default:
			args[i] = uint64(v)
		}
	}
	return data
}

// safe changes what could harm this process; the call is to be left out if not ok.
func (c *calls) safe(op uint32, args *[10]uint64) (body []byte, ok bool) {
	if args[0] == fuzzed.listener.id {
		return nil, false // it is for all inputs
	}
	switch op {
	case ring.CloseChannel: // a descriptor of this process
		fds := c.channel()
		c.channels = c.channels[:len(c.channels)-1]
		_ = unix.Close(fds[0])
		args[0] = uint64(fds[1])
	case ring.Close:
		return nil, c.contexts[args[0]]
	case ring.FreePD:
		return nil, args[0] != c.p.pd
	case ring.CreateCQ:
		args[0] %= 1 << 12
		if args[1] != ^uint64(0) {
			args[1], args[4] = uint64(c.channel()[1]), uint64(uintptr(unsafe.Pointer(&fuzzed.waits)))
		}
	case ring.ResizeCQ:
		args[1] %= 1 << 13
		c.cq.Head = uint32(args[2])
	case ring.Open, ring.CMCreate:
		args[0] = uint64(c.channel()[1])
	case ring.CMMigrate:
		args[1], args[2] = uint64(c.channel()[1]), uint64(c.anyEnd(args[2]))
	case ring.Adopt:
		args[1] = uint64(c.channel()[1])
	case ring.Forget:
		if len(c.channels) > 0 {
			args[0] = uint64(c.channels[args[0]%uint64(len(c.channels))][1])
		}
		args[1] = uint64(c.anyEnd(args[1]))
	case ring.RegMR:
		// half of it is not there
		args[1] = uint64(uintptr(unsafe.Pointer(&fuzzed.memory[0]))) + args[1]%(1<<21)
	case ring.CMBind, ring.CMResolve:
		body = []byte{byte(args[2]), 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}
		if args[4]&1 != 0 {
			binary.BigEndian.PutUint16(body[2:], fuzzed.listener.addr.Port())
		}
		body = append(body, body...)[:min(32, int(args[3]%40))]
	}
	return body, true
}

// channel is a channel for events.
func (c *calls) channel() [2]int {
	fds := must(unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0))(c.p.t)
	c.channels = append(c.channels, fds)
	return fds
}

// anyEnd is a program's end of some channel.
func (c *calls) anyEnd(n uint64) int {
	if len(c.channels) == 0 {
		return -1
	}
	return c.channels[n%uint64(len(c.channels))][0]
}

// destroyAll destroys what the input's calls made, and what they did not destroy of newCalls'
// objects.
func (c *calls) destroyAll(t *testing.T) {
	for i := len(c.handles) - 1; i >= 2; i-- {
		for _, destroy := range []uint32{ring.DestroyQP, ring.CMDestroy, ring.FreeMW, ring.DeregMR,
			ring.DestroySRQ, ring.DestroyCQ} {
			if _, err := c.p.call(destroy, nil, c.handles[i]); err != 0 && i < c.own {
				require.Equal(t, syscall.EINVAL, err)
			}
		}
	}
	for _, h := range c.handles[2:] {
		if h != c.p.ctx && h != c.p.pd {
			_, _ = c.p.call(ring.FreePD, nil, h)
		}
	}
	for ctx := range c.contexts {
		_, _ = c.p.call(ring.Close, nil, ctx)
	}
	for _, fds := range c.channels {
		c.p.do(ring.CloseChannel, uint64(fds[1]))
		_ = unix.Close(fds[0])
	}
}
