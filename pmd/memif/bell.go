package memif

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bells wake peers that wait for interrupts. The descriptors are the peer's, too, which can make a
// write to one block for ever, at any time and whoever it is; so it is never the queue's goroutine
// that writes, but one of ours, and those that a peer keeps from ending are bounded.
type bells struct {
	wanted  chan int // rings; each is in it once at most
	pending []atomic.Bool
	fds     []int
	end     chan struct{}
	ended   chan struct{} // the goroutine is gone
	once    sync.Once
	closing sync.Mutex // of fds
}

// ringersMax bounds the goroutines that write to eventfds, and so the threads that may be stuck in
// that: one for each program of a switch, and more.
const ringersMax = 2048

var ringers atomic.Int32

// newBells takes over descriptors, one for each queue; some may be -1. Without a spare goroutine it
// wakes none.
func newBells(fds []int) *bells {
	b := &bells{
		wanted: make(chan int, len(fds)), pending: make([]atomic.Bool, len(fds)), fds: fds,
		end: make(chan struct{}), ended: make(chan struct{}),
	}
	if ringers.Add(1) > ringersMax {
		ringers.Add(-1)
		for i := range b.pending {
			b.pending[i].Store(true) // for ever
		}
		b.close()
		return b
	}
	go b.run()
	return b
}

// ring has the peer woken that consumes what queue i sends. It does not wait, and a peer that has
// not been woken yet is woken once.
func (b *bells) ring(i int) {
	if b.fds[i] >= 0 && !b.pending[i].Swap(true) {
		b.wanted <- i // there is room for all
	}
}

func (b *bells) run() {
	defer ringers.Add(-1)
	defer b.close()
	octets := (*[8]byte)(unsafe.Pointer(&one))[:]
	for {
		select {
		case i := <-b.wanted:
			b.pending[i].Store(false)
			_, _ = unix.Write(b.fds[i], octets)
		case <-b.end:
			return
		}
	}
}

var one uint64 = 1 // to add to an eventfd

// stop ends the goroutine, which closes the descriptors.
func (b *bells) stop() {
	b.once.Do(func() { close(b.end) })
	b.drain()
}

// drain reads what no other goroutine may be left to read, so that a write that waits for room
// ends. Several goroutines at once.
func (b *bells) drain() {
	b.closing.Lock()
	defer b.closing.Unlock()
	select {
	case <-b.ended: // the descriptors are others' by now
		return
	default:
	}
	octets := make([]byte, 8)
	for _, fd := range b.fds {
		_, _ = unix.Preadv2(fd, [][]byte{octets}, -1, unix.RWF_NOWAIT) // -1, or nothing to read
	}
}

func (b *bells) close() {
	b.closing.Lock()
	defer b.closing.Unlock()
	closeAll(b.fds)
	close(b.ended)
}

func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
