package stack

import (
	"unsafe"

	"github.com/rnicd/rnicd/tcp"
)

const (
	prefetchMin = 256 // connections: fewer stay in the cache by themselves
	cacheLine   = 64
)

// hotOctets are the first of a Conn that segments in order, and their ACKs, touch.
const hotOctets = unsafe.Offsetof(Conn{}.tcp) + tcp.HotOctets

// prefetcher brings what is touched soon into the cache.
type prefetcher struct {
	slab   []Conn
	timers *timers
	read   byte // what it read: not used
}

// conns does so with connections, their timers and their Uppers.
func (f *prefetcher) conns(ahead []connIndex) {
	sum := byte(0)
	for _, i := range ahead {
		if i != noConn {
			sum += lines(&f.slab[i], hotOctets) + lines(&f.timers.armed[i], 1)
		}
	}
	for _, i := range ahead {
		if i != noConn {
			sum += first(f.slab[i].upper)
		}
	}
	f.read = sum
}

// first reads an octet of what u points to. Another goroutine may be writing there. The value is
// not used, so that does no harm, but the race detector would report it.
//
//go:norace
func first(u Upper) byte {
	type face struct{ table, value unsafe.Pointer }
	if at := (*face)(unsafe.Pointer(&u)).value; at != nil {
		return *(*byte)(at)
	}
	return 0
}

// lines reads an octet of every cache line of the first n octets of v.
func lines[T any](v *T, n uintptr) (sum byte) {
	for off := uintptr(0); off < n; off += cacheLine {
		sum += *(*byte)(unsafe.Add(unsafe.Pointer(v), off))
	}
	return sum
}
