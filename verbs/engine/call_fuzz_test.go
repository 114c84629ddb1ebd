package engine

import (
	"encoding/binary"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/verbs/ring"
)

// fuzzed is one program for all inputs: an engine serves a process for as long as that lives.
var fuzzed struct {
	sync.Once
	*program
	memory []byte // that it may register
}

// Whatever calls a program makes, with whichever arguments and in whichever order, each is answered, and what was made can be
// destroyed, queue pairs with hostile rings too. Four octets are an argument: a number, or the handle of an object that was made
// before. Nothing leaves the machine: addresses are 127.0.0.1, where nothing listens.
func FuzzCalls(f *testing.F) {
	f.Add([]byte{ring.CreateCQ, 9, 0, 0, 4, 0, 0, 0})
	f.Add([]byte{ring.RegMR, 1, 0, 0, 0x80, 2, 0, 0, 0, 2, 0, 0, 0})
	all := make([]byte, 0, 256)
	for op := byte(1); op <= ring.ResizeCQ+1; op++ {
		all = append(all, op, 3, 0, 0, 0x80, 1, 0, 0, 0, 255, 255, 255, 255)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzed.Do(func() {
			fuzzed.program = newProgram(t)
			var err error
			fuzzed.memory, err = unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			require.NoError(t, err)
		})
		fuzzed.t = t
		c := newCalls(fuzzed.program)
		for n := 0; len(data) > 0 && n < 64; n++ {
			op := uint32(data[0])
			var args [10]uint64
			data = c.arguments(&args, data[1:])
			body, ok := c.safe(op, &args)
			if !ok {
				continue
			}
			if out, err := c.p.call(op, body, args[:]...); err == 0 && out[0] != 0 {
				c.handles = append(c.handles, out[0])
			}
			if op == ring.DestroyQP && args[0] == c.qp {
				c.ring = nil
			}
			if op == ring.DestroyCQ && args[0] == c.handles[2] {
				c.cq = new(ring.CQ)
			}
			if c.ring != nil && len(data) > 4 {
				c.ring.Tail = binary.LittleEndian.Uint32(data) // looked at when the queue pair is over
			}
		}
		c.destroyAll(t)
	})
}

// calls are those of one input.
type calls struct {
	p        *program
	handles  []uint64 // of all objects; the first own of them are no call's of the input
	own      int
	qp       uint64
	ring     *ring.Queue // the send queue of qp, nil once that is destroyed
	cq       *ring.CQ
	channels []uint64
}

func newCalls(p *program) *calls {
	cq := p.do(ring.CreateCQ, 16, ^uint64(0), 1, p.ctx)
	q := p.do(ring.CreateQP, p.pd, cq[0], cq[0], 0, 4, 4, 4, 64, 2, p.ctx)
	handles := []uint64{p.ctx, p.pd, cq[0], q[0]}
	return &calls{p: p, handles: handles, own: len(handles), qp: q[0], ring: at[ring.Queue](q[3]), cq: at[ring.CQ](cq[1])}
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
	switch op {
	case ring.CMConnect, ring.CMAccept, ring.Leave, ring.CloseChannel, ring.Close, ring.Open:
		return nil, false // connections, and the descriptors of this process
	case ring.FreePD:
		return nil, args[0] != c.p.pd
	case ring.CreateCQ:
		args[1] = ^uint64(0)
		args[0] %= 1 << 12
	case ring.ResizeCQ:
		args[1] %= 1 << 13
		c.cq.Head = uint32(args[2])
	case ring.CMCreate:
		args[0] = c.channel()
	case ring.CMMigrate, ring.Adopt:
		args[1] = c.channel()
	case ring.RegMR:
		args[1] = uint64(uintptr(unsafe.Pointer(&fuzzed.memory[0]))) + args[1]%(1<<21) // half of it is not there
	case ring.CMBind, ring.CMResolve:
		body = []byte{byte(args[2]), 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}
		body = append(body, body...)[:min(32, int(args[3]%40))]
	}
	return body, true
}

// channel is a channel for events whose program has gone.
func (c *calls) channel() uint64 {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(c.p.t, err)
	unix.Close(fds[0])
	c.channels = append(c.channels, uint64(fds[1]))
	return uint64(fds[1])
}

// destroyAll destroys what the input's calls made, and what they did not destroy of newCalls'
// objects.
func (c *calls) destroyAll(t *testing.T) {
	for i := len(c.handles) - 1; i >= 2; i-- {
		for _, destroy := range []uint32{ring.DestroyQP, ring.CMDestroy, ring.FreeMW, ring.DeregMR, ring.DestroySRQ, ring.DestroyCQ} {
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
	for _, fd := range c.channels {
		c.p.do(ring.CloseChannel, fd)
	}
}
