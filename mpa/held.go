package mpa

import (
	"unsafe"

	"github.com/rnicd/rnicd/mem"
)

// The budget. A Receiver holds at most BufsMax Bufs, and a TCP that waits for octets which its
// receiver refuses for ever is dead. So octets beyond a gap may hold only BufsMax-BufsMin Bufs, and
// octets that continue the in-order stream are never refused for want of room. That BufsMin is
// enough for them:
//
//   - What is held in order belongs to one FPDU that is not whole, so it is less than fpduMax
//     octets.
//   - Two neighbouring held Bufs whose octets fit into one slot are made one (coalesce), so any
//     two neighbours have more than stride octets together, except for the first, whose front may
//     have been passed.
//
// Hence at most 2*ceil(fpduMax/stride) Bufs, even if the peer sends one octet at a time.

// BufsMin is the least BufsMax for Bufs of stride octets.
func BufsMin(stride int) int { return 2*((fpduMax+stride-1)/stride) + 1 }

// heldBuf is a run of stream octets in a Buf that the Receiver keeps. Some in its middle may have
// been passed already. Held Bufs are sorted by off and do not overlap.
type heldBuf struct {
	off uint64 // stream offset of the first octet
	pos uint32 // where it stands in the slot
	n   uint32
	buf mem.Buf
}

func (h *heldBuf) end() uint64 { return h.off + uint64(h.n) }

// offered is the segment that Input works on. It stands in the list of held Bufs for that time,
// although the Buf is not ours before the Verdict.
type offered struct {
	lo, hi uint64
	buf    mem.Buf
	active bool // Input is working on it
	listed bool // it stands in the list
}

func (c *offered) is(h *heldBuf) bool { return c.active && h.buf == c.buf }

// within says whether f lies in the offered octets and none of it was taken before.
func (c *offered) within(f *frame) bool { return c.active && f.begin >= c.lo && f.end <= c.hi }

// offer lists the octets data of b at off.
func (r *Receiver) offer(off uint64, b mem.Buf, data []byte) {
	slot := r.pool.Slot(b)
	pos := uintptr(unsafe.Pointer(unsafe.SliceData(data))) - uintptr(
		unsafe.Pointer(unsafe.SliceData(slot)))
	if pos > uintptr(len(slot)) || len(data) > len(slot)-int(pos) {
		panic("mpa: octets do not lie in the Buf's slot")
	}
	if len(r.heldBufs) == cap(r.heldBufs) {
		panic("mpa: more Bufs held than BufsMax")
	}
	i := len(r.heldBufs)
	for i > 0 && r.heldBufs[i-1].off > off {
		i--
	}
	r.heldBufs = r.heldBufs[:len(r.heldBufs)+1]
	copy(r.heldBufs[i+1:], r.heldBufs[i:])
	r.heldBufs[i] = heldBuf{off: off, pos: uint32(pos), n: uint32(len(data)), buf: b}
	r.cur = offered{lo: off, hi: off + uint64(len(data)), buf: b, active: true, listed: true}
}

// copyLent copies octets that may have to be held, and joined with others in one slot, out of a Buf
// that must not be written to (mem.Pool.Lent). Input has seen that the pool has one.
func (r *Receiver) copyLent(data []byte) (mem.Buf, []byte) {
	b := r.pool.Alloc()
	if b == mem.NoBuf {
		panic("mpa: a Buf was there for a copy, and was taken before Verdict")
	}
	r.copied = b
	slot := r.pool.Slot(b)
	return b, slot[:copy(slot, data)]
}

// settleCopy turns the Verdict on the copy into that on the lent Buf, which is never kept.
func (r *Receiver) settleCopy() {
	if r.verdict == Kept {
		r.verdict = Done
	} else {
		r.pool.Free(r.copied)
	}
	r.copied = mem.NoBuf
}

// withdraw takes the offered octets off the list again: they are refused.
func (r *Receiver) withdraw() {
	r.remove(r.find(r.cur.lo))
	r.cur = offered{}
}

// commitOffer gives the Verdict on the offered Buf once everything whole has been passed.
func (r *Receiver) commitOffer() Verdict {
	listed, buf, last := r.cur.listed, r.cur.buf, r.cur.hi-1
	r.cur = offered{}
	if !listed {
		return Done
	}
	i := r.find(last) // what is left of it, wherever it was cut
	v := Kept
	if i > 0 && r.mergeable(i-1) {
		i--
		if !r.merge(i, buf) {
			v = Done
		}
	}
	if i+1 < len(r.heldBufs) && r.mergeable(i) && !r.merge(i, buf) {
		v = Done
	}
	r.stats.HeldBufsPeak = max(r.stats.HeldBufsPeak, uint64(len(r.heldBufs)))
	return v
}

// mergeable says whether held Bufs i and i+1 are neighbours in the stream that fit into one slot.
func (r *Receiver) mergeable(i int) bool {
	a, b := &r.heldBufs[i], &r.heldBufs[i+1]
	return a.end() == b.off && int(a.n)+int(b.n) <= r.stride
}

// merge copies the smaller of held Bufs i and i+1 into the other's slot, so that they are one, i,
// and frees its Buf unless it is the caller's. false: the Buf of the caller, mine, is not held any
// more.
func (r *Receiver) merge(i int, mine mem.Buf) bool {
	a, b := &r.heldBufs[i], &r.heldBufs[i+1]
	sa, sb := r.pool.Slot(a.buf), r.pool.Slot(b.buf)
	oa, ob := sa[a.pos:a.pos+a.n], sb[b.pos:b.pos+b.n]
	free := b.buf
	r.stats.Coalesced++
	r.stats.BytesCoalesced += uint64(min(a.n, b.n))
	if a.n >= b.n {
		if len(sa)-int(a.pos+a.n) < len(ob) {
			copy(sa, oa)
			a.pos = 0
		}
		copy(sa[a.pos+a.n:], ob)
		a.n += b.n
	} else {
		free = a.buf
		if int(b.pos) < len(oa) {
			b.pos = uint32(len(sb)) - b.n
			copy(sb[b.pos:], ob)
		}
		b.pos -= a.n
		copy(sb[b.pos:], oa)
		*a = heldBuf{off: a.off, pos: b.pos, n: a.n + b.n, buf: b.buf}
	}
	r.remove(i + 1)
	if free == mine {
		return false
	}
	r.pool.Free(free)
	return true
}

// release lets go of the octets [lo, hi), which have been passed: holds shrink, and Bufs that hold
// nothing else are freed.
func (r *Receiver) release(lo, hi uint64) {
	i := 0
	for i < len(r.heldBufs) && r.heldBufs[i].end() <= lo {
		i++
	}
	to := i
	for ; i < len(r.heldBufs) && r.heldBufs[i].off < hi; i++ {
		h := r.heldBufs[i]
		switch {
		case h.off >= lo && h.end() <= hi:
			if r.cur.is(&h) {
				r.cur.listed = false
			} else {
				r.pool.Free(h.buf)
			}
			continue
		case h.off >= lo:
			k := uint32(hi - h.off)
			h.off, h.pos, h.n = hi, h.pos+k, h.n-k
		case h.end() <= hi:
			h.n = uint32(lo - h.off)
		}
		r.heldBufs[to] = h
		to++
	}
	if to < i {
		n := copy(r.heldBufs[to:], r.heldBufs[i:])
		r.heldBufs = r.heldBufs[:to+n]
	}
}

// remove takes hold i off the list.
func (r *Receiver) remove(i int) {
	copy(r.heldBufs[i:], r.heldBufs[i+1:])
	r.heldBufs = r.heldBufs[:len(r.heldBufs)-1]
}

// freeHeld frees all Bufs but the one that is only offered.
func (r *Receiver) freeHeld() {
	for i := range r.heldBufs {
		if h := &r.heldBufs[i]; !r.cur.is(h) {
			r.pool.Free(h.buf)
		}
	}
	r.heldBufs = r.heldBufs[:0]
	r.runs = r.runs[:0]
}

// find is the index of the last hold that begins at or before off.
func (r *Receiver) find(off uint64) int {
	lo, hi := 0, len(r.heldBufs)
	for lo < hi {
		m := int(uint(lo+hi) / 2)
		if r.heldBufs[m].off <= off {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo - 1
}

// held is the octets [lo, hi) of h.
func (r *Receiver) held(h *heldBuf, lo, hi uint64) []byte {
	at := uint64(h.pos) + lo - h.off
	return r.pool.Slot(h.buf)[at : at+hi-lo]
}

// field is the n held octets at off, at most MarkerLen. It is valid until the next call.
func (r *Receiver) field(off uint64, n int) []byte {
	i := r.find(off)
	if h := &r.heldBufs[i]; off+uint64(n) <= h.end() {
		return r.held(h, off, off+uint64(n))
	}
	for k := range n {
		at := off + uint64(k)
		for r.heldBufs[i].end() <= at {
			i++
		}
		r.word[k] = r.held(&r.heldBufs[i], at, at+1)[0]
	}
	return r.word[:n]
}
