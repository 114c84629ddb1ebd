package memif

import (
	"sync/atomic"

	"github.com/rnicd/rnicd/hugepages"
)

// session is the shared memory of one connection: what both ends agreed on when it was made.
// Queues go over to a new session by themselves, each on its own goroutine, so memory is unmapped
// only when the last of them has left.
//
//	made ──publish──► current ──the peer is gone──► left by its queues, one after the other ──► unmapped
type session struct {
	regions [][]byte // as descriptors number them; memory that the other end may change at any time
	rings   []pair   // one for each queue
	own     *ownMemory
	guarded bool // no page of its regions can be taken away without an error

	users    atomic.Int32  // queues in it, and one for being current
	unused   chan struct{} // closed when there are none
	failed   chan string   // what a queue found wrong: the end of the connection
	bells    *bells
	offended atomic.Bool // its memory held up a queue, or could have
	// eventfds, one for each queue, that the peer writes to when what we receive has come; nil: none
	wakers []int
}

// pair is the two rings of a queue.
type pair struct {
	rx, tx ring
}

// ownMemory is what a client, whose memory it is, knows of it without reading descriptors.
type ownMemory struct {
	arena *hugepages.Arena // zero copy: region 1
	// Copying: buffers of bufBytes octets in region 0, the transmit ring's of a queue and then the
	// receive ring's, queue by queue.
	bufFrom, bufBytes int
}

func newSession(regions [][]byte, rings []pair, own *ownMemory) *session {
	s := &session{regions: regions, rings: rings, own: own, guarded: own != nil,
		unused: make(chan struct{}), failed: make(chan string, 1)}
	s.users.Store(1)
	for i := range rings {
		rings[i].rx.maskInterrupts()
	}
	return s
}

// enter keeps the memory mapped until leave; false: it is being given up.
func (s *session) enter() bool {
	for {
		n := s.users.Load()
		if n <= 0 {
			return false
		}
		if s.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (s *session) leave() {
	if s.users.Add(-1) == 0 {
		close(s.unused)
	}
}

// fail ends the connection, soon. Any goroutine; it does not wait.
func (s *session) fail(why string) {
	select {
	case s.failed <- why:
	default: // one reason is enough
	}
}

// offend is fail for a peer whose memory is not as it was.
func (s *session) offend(why string) {
	s.offended.Store(true)
	s.fail(why)
}

// at is what a descriptor means by region, offset and length: nil if that is not all inside one
// region, or nothing at all.
func (s *session) at(d desc) []byte {
	if int(d.region()) >= len(s.regions) {
		return nil
	}
	region, off, n := s.regions[d.region()], uint64(d.offset()), uint64(d.length())
	if n == 0 || n > uint64(len(region)) || off > uint64(len(region))-n {
		return nil
	}
	return region[off : off+n : off+n]
}

// bufferAt is where the buffer of a slot lies in region 0.
func (o *ownMemory) bufferAt(queue int, rx bool, slot uint16, size int) int {
	ring := 2 * queue
	if rx {
		ring++
	}
	return o.bufFrom + (ring*size+int(slot))*o.bufBytes
}
