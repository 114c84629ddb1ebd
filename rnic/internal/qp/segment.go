package qp

import (
	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mpa"
)

// roomFor says whether a segment whose free octets are rest had better wait for more: not when what
// comes next is known and did not fit.
func (s *sendHalf) roomFor(rest []byte) bool {
	return len(s.staged) == 0 && !s.stopped && s.term == nil && s.carryOff == s.carryEnd && !s.seg.Active() &&
		len(rest) >= s.tx.Size(ddp.TaggedLen)
}

// stage keeps FPDUs that were built for the segment to come; unstage puts them at its front. After
// EMSS has shrunk they may not fit: the rest then goes on in the next segment, unaligned (the
// drafts' section 5.3: the MTU has become too small).
func (s *sendHalf) stage(fpdus []byte) { s.staged = append(s.staged[:0], fpdus...) }

func (s *sendHalf) unstage(dst []byte) int {
	n := copy(dst, s.staged)
	s.staged = s.staged[:copy(s.staged, s.staged[n:])]
	return n
}

// fillMULPDU is the largest ULPDU for the rest of a segment of emss octets of which room are free.
// To fill segments it shrinks to the room there is, not below 128 (the drafts' section 5.3.2).
func (s *sendHalf) fillMULPDU(room, emss int) int {
	if room < emss {
		if m := s.tx.MULPDU(room); m > mpa.MULPDUMin {
			return m
		}
	}
	return s.tx.MULPDU(emss)
}

// put writes an FPDU of h and the parts that octets has found.
func (s *sendHalf) putFPDU(dst []byte, h *ddp.Header) int {
	h.Put(s.hdr[:])
	s.parts[0] = s.hdr[:h.Len()]
	s.fpdus++
	return s.tx.Put(dst, s.parts)
}

// putULPDU writes an FPDU whose ULPDU is at hand.
func (s *sendHalf) putULPDU(dst, ulpdu []byte) int {
	s.parts = append(s.parts[:0], ulpdu)
	s.fpdus++
	return s.tx.Put(dst, s.parts)
}

// putCarried sends the front of the k octets in carry now; pull sends the rest.
func (s *sendHalf) putCarried(dst []byte, k int) int {
	n := copy(dst, s.carry[:k])
	s.carryOff, s.carryEnd = n, k
	return n
}
