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
// before. Nothing leaves the machine: addresses are 127.0.0.1, and nobody is connected to.
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
		p := fuzzed.program
		p.t = t
		theirs := func() uint64 {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			require.NoError(t, err)
			unix.Close(fds[0])
			return uint64(fds[1])
		}
		handles := []uint64{p.ctx, p.pd}
		cq := p.do(ring.CreateCQ, 16, ^uint64(0), 1, p.ctx)
		q := p.do(ring.CreateQP, p.pd, cq[0], cq[0], 0, 4, 4, 4, 64, 2, p.ctx)
		handles = append(handles, cq[0], q[0])
		own, mapped := len(handles), true
		var channels []uint64
		for calls := 0; len(data) > 0 && calls < 64; calls++ {
			op := uint32(data[0])
			data = data[1:]
			var args [10]uint64
			for i := range args {
				if len(data) < 4 {
					break
				}
				v := binary.LittleEndian.Uint32(data)
				data = data[4:]
				switch {
				case v>>31 != 0 && v != ^uint32(0):
					args[i] = handles[int(v&0xffff)%len(handles)]
				case v == ^uint32(0):
					args[i] = ^uint64(0)
				default:
					args[i] = uint64(v)
				}
			}
			var body []byte
			switch op {
			case ring.CMConnect, ring.CMAccept, ring.Leave, ring.CloseChannel, ring.Close, ring.Open:
				continue // connections, and the descriptors of this process
			case ring.FreePD:
				if args[0] == p.pd {
					continue
				}
			case ring.CreateCQ:
				args[1] = ^uint64(0)
				args[0] %= 1 << 12
			case ring.ResizeCQ:
				args[1] %= 1 << 13
				at[ring.CQ](cq[1]).Head = uint32(args[2])
			case ring.CMCreate:
				args[0] = theirs()
				channels = append(channels, args[0])
			case ring.CMMigrate, ring.Adopt:
				args[1] = theirs()
				channels = append(channels, args[1])
			case ring.RegMR:
				args[1] = uint64(uintptr(unsafe.Pointer(&fuzzed.memory[0]))) + args[1]%(1<<21) // half of it is not there
			case ring.CMBind, ring.CMResolve:
				body = []byte{byte(args[2]), 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}
				body = append(body, body...)[:min(32, int(args[3]%40))]
			}
			out, err := p.call(op, body, args[:]...)
			if err == 0 && out[0] != 0 {
				handles = append(handles, out[0])
			}
			if op == ring.DestroyQP && args[0] == q[0] {
				mapped = false
			}
			if mapped && len(data) > 4 {
				at[ring.Queue](q[3]).Tail = binary.LittleEndian.Uint32(data) // looked at when the queue pair is over
			}
		}
		for i := len(handles) - 1; i >= 2; i-- {
			for _, destroy := range []uint32{ring.DestroyQP, ring.CMDestroy, ring.FreeMW, ring.DeregMR, ring.DestroySRQ, ring.DestroyCQ} {
				if _, err := p.call(destroy, nil, handles[i]); err != 0 && i < own {
					require.Equal(t, syscall.EINVAL, err)
				}
			}
		}
		for _, h := range handles[2:] {
			if h != p.ctx && h != p.pd {
				_, _ = p.call(ring.FreePD, nil, h)
			}
		}
		for _, fd := range channels {
			p.do(ring.CloseChannel, fd)
		}
	})
}
