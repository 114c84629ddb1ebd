package tap

import (
	"unsafe"

	"github.com/rnicd/rnicd/mem"
	"golang.org/x/sys/unix"
)

const (
	// payloadAt is where the payload of a cut frame lies in its Buf, if the pool's headroom is not
	// larger: all headers fit in front, and the kernel's in front of them.
	payloadAt = (vnetLen + headersMax + 31) / 32 * 32

	gsoSizeMin = 64 // smaller segments are not prepared for
	wideReads  = 64 // reads without a large frame until no more is prepared for
	poolPart   = 4  // of the pool, at most this part is taken in advance
)

// layout says how a stream of octets lies in Bufs: first octets in Buf 0, rest in each other.
type layout struct{ first, rest int }

// start is the offset in the stream of Buf i's first octet.
func (l layout) start(i int) int {
	if i == 0 {
		return 0
	}
	return l.first + (i-1)*l.rest
}

// scatter is where one readv puts what the kernel hands over: up to 64 KiB before they are cut into
// segments.
//
//	iov[0]      Buf 0: virtio_net_hdr, headers and the first segment's payload, as long as they were in the last
//	            large frame
//	iov[1..n-1] Bufs 1 to n-1: as much payload each
//	iov[n]      spill, its second half: what goes beyond
//
// With the same headers and gso_size as last time every segment lies already in its Buf, with room
// for the headers in front. Otherwise mend moves the octets; what the Bufs then do not hold goes to
// spill, in front of what is there, to be handed out as Bufs are to be had. So neither a wrong
// guess nor a small pool loses a frame. While no large frames come one Buf is prepared, and none is
// kept from the pool after an idle poll.
type scatter struct {
	pool *mem.Pool
	base int // payloadAt, or the headroom

	iov   [1 + piecesMax]unix.Iovec
	armed [piecesMax]mem.Buf
	n     int // armed[:n] are ours and in iov
	lay   layout
	h     int // of lay.first, the octets taken for headers
	wide  int // reads for which large frames are prepared for
	share int // most Bufs to take

	spill []byte // 2*spillHalf
	from  int    // after mend: where in spill the octets are that the Bufs do not hold
}

// spillHalf has one octet more than a frame may: it tells a frame that just fits from one that was
// cut.
const spillHalf = segmentedMax + 1

func newScatter(pool *mem.Pool, mtu int) scatter {
	h := 14 + ipv4Len + tcpLen + 12 // with timestamps
	return scatter{
		pool: pool, base: max(payloadAt, pool.Headroom()), spill: make([]byte, 2*spillHalf),
		h: h, lay: layout{first: 14 + mtu, rest: 14 + mtu - h},
		share: min(max(pool.Size()/poolPart, 1), piecesMax),
	}
}

// refill takes Bufs for the next read. False: there is none.
func (s *scatter) refill() bool {
	want := 1
	if s.wide > 0 {
		want = min(s.share, (segmentedMax-s.lay.first)/s.lay.rest+2)
	}
	if s.n >= want {
		return true
	}
	if n := s.pool.AllocN(s.armed[s.n:min(want, s.n+s.pool.Available())]); n > 0 {
		s.n += n
		s.point()
	}
	return s.n > 0
}

// point writes iov again.
func (s *scatter) point() {
	at, n := s.base-s.h-vnetLen, vnetLen+s.lay.first
	for i, b := range s.armed[:s.n] {
		s.iov[i].Base = &s.pool.Slot(b)[at]
		s.iov[i].SetLen(n)
		at, n = s.base, s.lay.rest
	}
	s.iov[s.n].Base = &s.spill[spillHalf]
	s.iov[s.n].SetLen(spillHalf)
}

// header is the kernel's, of the frame just read.
func (s *scatter) header() *[vnetLen]byte {
	return (*[vnetLen]byte)(s.pool.Slot(s.armed[0])[s.base-s.h-vnetLen:])
}

// read gets one frame and returns its octets.
func (s *scatter) read(fd int) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&s.iov)),
		uintptr(1+s.n))
	if s.wide > 0 {
		s.wide--
	}
	if errno != 0 {
		if s.wide == 0 {
			s.release()
		}
		return 0, errno
	}
	return int(n) - vnetLen, 0
}

// release gives all Bufs back.
func (s *scatter) release() {
	s.pool.FreeN(s.armed[:s.n])
	s.n = 0
}

// takeFirst hands Buf 0 out; its frame begins at base-h.
func (s *scatter) takeFirst() mem.Buf {
	b := s.armed[0]
	s.n--
	s.armed[0] = s.armed[s.n]
	if s.n == 0 {
		return b
	}
	s.iov[0].Base = &s.pool.Slot(s.armed[0])[s.base-s.h-vnetLen]
	s.iov[s.n].Base = &s.spill[spillHalf]
	s.iov[s.n].SetLen(spillHalf)
	return b
}

// next prepares for another frame like the large one that lay as l with headers of h octets, whose
// first k Bufs were handed out. A Buf holds what its room says it does: l.first is at most a frame,
// and l.rest that less h.
func (s *scatter) next(l layout, h, k int) {
	s.n = copy(s.armed[:], s.armed[k:s.n])
	s.wide = wideReads
	if l.rest >= gsoSizeMin {
		s.lay, s.h = l, h
	}
	if s.n > 0 {
		s.point()
	}
}

// octets is what was read at offset x of the stream and lies in one piece after it.
func (s *scatter) octets(x int) []byte {
	i := 0
	if x >= s.lay.first {
		i = 1 + (x-s.lay.first)/s.lay.rest
	}
	if i >= s.n {
		return s.spill[spillHalf+x-s.lay.start(s.n):]
	}
	return s.room(i)[x-s.lay.start(i) : s.lay.start(i+1)-s.lay.start(i)]
}

// room is Buf i from where its part of the stream begins.
func (s *scatter) room(i int) []byte {
	if i == 0 {
		return s.pool.Slot(s.armed[0])[s.base-s.h:]
	}
	return s.pool.Slot(s.armed[i])[s.base:]
}

// gather copies [x, end) of the stream to dst.
func (s *scatter) gather(dst []byte, x, end int) {
	for x < end {
		n := copy(dst[:end-x], s.octets(x))
		dst, x = dst[n:], x+n
	}
}

// mend moves a stream of total octets from the layout it was read in to another. It moves in place,
// which is safe in this order: first what the Bufs no longer hold, into spill, where nothing
// is in the way; then the Bufs whose part begins earlier than what they have, the last first, for
// they are filled from those before; then the others, filled from those after. The starts differ
// by a linear function of i, so the two kinds stand apart and do not disturb each other.
func (s *scatter) mend(to layout, total int) {
	at, end := to.start(s.n), s.lay.start(s.n)
	s.from = spillHalf + at - end
	if to == s.lay {
		return
	}
	if end = min(end, total); at < end {
		s.from = spillHalf + at - end
		s.gather(s.spill[s.from:], at, end)
	}
	for i := s.n - 1; i > 0; i-- {
		if to.start(i) < s.lay.start(i) {
			s.refit(i, to, total)
		}
	}
	for i := range s.n {
		if to.start(i) >= s.lay.start(i) {
			s.refit(i, to, total)
		}
	}
}

// refit fills Buf i with its part of the new layout: what it has of it first, as that is in the way
// of the rest.
func (s *scatter) refit(i int, to layout, total int) {
	dst := s.room(i)
	x, end := to.start(i), min(to.start(i+1), total)
	if x >= end {
		return
	}
	have, haveEnd := max(x, s.lay.start(i)), min(end, s.lay.start(i+1))
	if have >= haveEnd {
		s.gather(dst, x, end)
		return
	}
	copy(dst[have-x:haveEnd-x], dst[have-s.lay.start(i):])
	s.gather(dst, x, have)
	s.gather(dst[haveEnd-x:], haveEnd, end)
}
