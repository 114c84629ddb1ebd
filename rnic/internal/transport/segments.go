package transport

import (
	"golang.org/x/sys/unix"
)

// segments are what is sent together: runs of octets, after each of which the kernel is to end a
// TCP segment.
type segments struct {
	out  []byte
	runs []run
	at   int // the first run that is not all sent
	hdrs [sendVec]mmsghdr
	iovs [sendVec]unix.Iovec
}

// run is out[from:to] of segments.
type run struct {
	from, to int
	full     bool // it ends with a full segment: the next one's octets may follow
}

type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   [4]byte
}

func newSegments() *segments {
	return &segments{out: make([]byte, socketWriteMax), runs: make([]run, 0, runsMax)}
}

func (w *segments) reset() { w.runs, w.at = w.runs[:0], 0 }

// full says that there is no room for another run.
func (w *segments) full() bool { return len(w.runs) == cap(w.runs) }

// add adds a segment of n octets at from; segment is how many a full one has.
func (w *segments) add(from, n, segment int) {
	if last := len(w.runs) - 1; last >= 0 && w.runs[last].full {
		w.runs[last].to, w.runs[last].full = from+n, n == segment
		return
	}
	w.runs = append(w.runs, run{from, from + n, n == segment})
}

// prepare makes the message headers of the next runs, and says how many.
func (w *segments) prepare() (n int) {
	for ; n < sendVec && w.at+n < len(w.runs); n++ {
		r := &w.runs[w.at+n]
		v := &w.iovs[n]
		v.Base = &w.out[r.from]
		v.SetLen(r.to - r.from)
		w.hdrs[n] = mmsghdr{}
		w.hdrs[n].hdr.Iov = v
		w.hdrs[n].hdr.SetIovlen(1)
	}
	return n
}

// left is how many octets were not sent.
func (w *segments) left() (n int) {
	for _, r := range w.runs[w.at:] {
		n += r.to - r.from
	}
	return n
}

// sent notes that the kernel took the first n of them, the last one perhaps in part.
func (w *segments) sent(n int) {
	for i := range n {
		r := &w.runs[w.at]
		if r.from += int(w.hdrs[i].len); r.from < r.to {
			return
		}
		w.at++
	}
}
