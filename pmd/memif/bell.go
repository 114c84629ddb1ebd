package memif

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// bells wake peers that wait for interrupts. The descriptor may be the peer's, which can make a write to it block for ever; so
// it is not the queue's goroutine that writes, but one of ours, and those that a peer keeps from ending are bounded.
type bells struct {
	wanted  chan int // rings; each is in it once at most
	pending []atomic.Bool
	fds     []int
	end     chan struct{}
	once    sync.Once
}

// ringersMax bounds the goroutines that write to eventfds, and so the threads that may be stuck in that.
const ringersMax = 256

var ringers atomic.Int32

// newBells takes over descriptors, one for each queue, of which some may be -1. Without a spare goroutine it wakes none.
func newBells(fds []int) *bells {
	b := &bells{wanted: make(chan int, len(fds)), pending: make([]atomic.Bool, len(fds)), fds: fds, end: make(chan struct{})}
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

// ring has the peer woken that consumes what queue i sends. It does not wait, and a peer that has not been woken yet is woken
// once.
func (b *bells) ring(i int) {
	if b.fds[i] >= 0 && !b.pending[i].Swap(true) {
		b.wanted <- i // there is room for all
	}
}

func (b *bells) run() {
	defer ringers.Add(-1)
	defer b.close()
	one := make([]byte, 8)
	native.PutUint64(one, 1)
	for {
		select {
		case i := <-b.wanted:
			b.pending[i].Store(false)
			_, _ = unix.Write(b.fds[i], one)
		case <-b.end:
			return
		}
	}
}

// stop ends the goroutine, which closes the descriptors.
func (b *bells) stop() { b.once.Do(func() { close(b.end) }) }

func (b *bells) close() {
	for _, fd := range b.fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
