package fault

import "github.com/rnicd/rnicd/mem"

// held is a frame on its way through a direction.
type held struct {
	buf     mem.Buf
	reorder bool   // delayed: to be overtaken once its delay is over
	due     int64  // when it goes, at the latest
	after   uint64 // overtaken: goes when this many frames have passed
}

// fifo is a bounded queue of held frames. Both reasons to hold a frame keep order among those they
// hold, so that the first is always the next to go.
type fifo struct {
	items []held
	head  int
	n     int
}

func newFIFO(limit int) fifo { return fifo{items: make([]held, limit)} }

func (f *fifo) full() bool { return f.n == len(f.items) }

// push: f is not full.
func (f *fifo) push(h held) {
	at := f.head + f.n
	if at >= len(f.items) {
		at -= len(f.items)
	}
	f.items[at] = h
	f.n++
}

// first is the oldest, nil when there is none; valid until pop.
func (f *fifo) first() *held {
	if f.n == 0 {
		return nil
	}
	return &f.items[f.head]
}

func (f *fifo) pop() {
	f.head++
	if f.head == len(f.items) {
		f.head = 0
	}
	f.n--
}
