package qp

import (
	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mpa"
)

// roomFor says whether a segment with the octets of rest free should wait for more FPDUs. It should
// not when the next one is known: that one did not fit.
func (s *sendHalf) roomFor(rest []byte) bool {
	return len(s.staged) == 0 && !s.stopped && s.term == nil && s.carryOff == s.carryEnd &&
		!s.seg.Active() &&
		len(rest) >= s.tx.Size(ddp.TaggedLen)
}

// stage keeps FPDUs of a segment that waits for more; unstage puts them at the front of the next
// segment. If EMSS has become smaller they may not fit. What is left then goes on in the segment
// after it, unaligned (the drafts' section 5.3: the MTU has become too small).
func (s *sendHalf) stage(fpdus []byte) { s.staged = append(s.staged[:0], fpdus...) }

func (s *sendHalf) unstage(dst []byte) int {
	n := copy(dst, s.staged)
	s.staged = s.staged[:copy(s.staged, s.staged[n:])]
	return n
}

// fillMULPDU is the MULPDU that fills the rest of a segment: room of its emss octets are free.
// It is not below 128 (the drafts' section 5.3.2).
func (s *sendHalf) fillMULPDU(room, emss int) int {
	if room < emss {
		if m := s.tx.MULPDUHere(room); m > mpa.MULPDUMin {
			return m
		}
	}
	return s.tx.MULPDUHere(emss)
}

// putFPDU writes the FPDU of a DDP header and the parts that findOctets has found, and forgets
// them: when their region is deregistered nothing may look like a pointer into memory that the
// application then unmaps.
func (s *sendHalf) putFPDU(dst []byte, h *ddp.Header) int {
	s.fpdus++
	s.totals.FPDUsOut++
	n := s.putParts(dst, h)
	s.forget()
	return n
}

// putParts writes the FPDU of h and of the parts after the first.
func (s *sendHalf) putParts(dst []byte, h *ddp.Header) int {
	if len(s.parts) == 2 && h.Tagged && s.tx.PlainHere() {
		hi, lo := h.Words()
		return s.tx.PutPlain(dst, hi, lo, s.parts[1])
	}
	h.Put(s.hdr[:])
	s.parts[0] = s.hdr[:h.Len()]
	return s.tx.Put(dst, s.parts)
}

func (s *sendHalf) forget() {
	clear(s.parts)
	s.parts = s.parts[:1]
}

// putULPDU writes the FPDU of a ULPDU that is there in one piece.
func (s *sendHalf) putULPDU(dst, ulpdu []byte) int {
	s.parts = append(s.parts[:0], ulpdu)
	s.fpdus++
	s.totals.FPDUsOut++
	return s.tx.Put(dst, s.parts)
}

// putCarried fills dst with the front of the k octets in carry. Pull sends the rest in the next
// segment.
func (s *sendHalf) putCarried(dst []byte, k int) int {
	n := copy(dst, s.carry[:k])
	s.carryOff, s.carryEnd = n, k
	return n
}
