package mem

import (
	"runtime"
	"slices"
	"sync/atomic"
)

// Reader is one goroutine's word in the question whether memory may still be touched through an old
// entry.
//
// The word is odd between Enter and Exit. Revoke first takes the entry away and then looks at each
// word: even, and that goroutine will not find the entry any more; odd, and it waits until the word
// changes. Both sides store before they load, so one of the two sees the other (the epoch scheme of
// K. Fraser, "Practical lock-freedom", section 5.2.3, with a count per reader).
//
// For that each side needs a full barrier between its store and its loads. Enter is called for each
// segment and Revoke seldom, so where the kernel offers it, Revoke does both: it has all threads of
// the process do one (fence), and Enter is an ordinary store (M. Desnoyers et al., "User-level
// implementations of read-copy update", 2012, on sys_membarrier). Elsewhere Enter's store is a
// barrier.
type Reader struct {
	_      [lineBytes]byte
	word   atomic.Uint64 // written by its goroutine only
	fenced bool          // by Revoke
	_      [lineBytes - 8]byte
	table  *Table
}

// NewReader gives a goroutine that calls Check its own epoch word. Enter/Exit bracket a burst of
// Check + copy.
func (t *Table) NewReader() *Reader {
	r := &Reader{table: t, fenced: t.fence != nil}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readers = append(t.readers, r)
	return r
}

// Enter begins a burst. Only the Reader's goroutine; it panics inside a burst. Between Enter and
// Exit the goroutine must not block, nor call Revoke or Deregister: those would wait for it.
func (r *Reader) Enter() {
	w := r.word.Load()
	if w&1 != 0 {
		panic("mem: Reader.Enter inside Enter")
	}
	if r.fenced {
		StoreRelease(&r.word, w+1)
	} else {
		r.word.Store(w + 1)
	}
}

// Exit ends the burst: slices that Check returned in it must no longer be touched.
func (r *Reader) Exit() {
	w := r.word.Load()
	if w&1 == 0 {
		panic("mem: Reader.Exit without Enter")
	}
	StoreRelease(&r.word, w+1) // what was touched was touched before; nothing that comes need wait
}

// Close gives the Reader back, outside a burst. It must not be used again.
func (r *Reader) Close() {
	if r.word.Load()&1 != 0 {
		panic("mem: Reader.Close inside Enter")
	}
	t := r.table
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readers = slices.DeleteFunc(t.readers, func(other *Reader) bool { return other == r })
}

// quiesce returns when every Reader that was inside a burst has left it. A Reader made meanwhile
// finds the entries as they are now and is not waited for. Not under t.mu: a Poller may need that
// to leave.
func (t *Table) quiesce() {
	t.mu.Lock()
	readers := slices.Clone(t.readers)
	t.mu.Unlock()
	if t.fence != nil && len(readers) > 0 {
		t.fence()
	}
	for _, r := range readers {
		w := r.word.Load()
		for spins := 0; w&1 != 0 && r.word.Load() == w; spins++ {
			if spins >= quiesceSpins {
				runtime.Gosched()
			}
		}
	}
}

// quiesceSpins is how often quiesce looks at a word before it lets other goroutines run: about one
// burst long. To yield at once would cost up to a scheduler's time slice for a burst of a few
// microseconds.
const quiesceSpins = 4096
