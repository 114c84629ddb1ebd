package mpa

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/internal/crc32c"
)

// Sender writes the FPDUs of one half-connection in stream order. It belongs to one goroutine and
// allocates nothing.
type Sender struct {
	mode Mode
	off  uint64 // always a multiple of four
}

// Init starts a half-connection at offset 0, the first octet after the start-up frames.
func (s *Sender) Init(mode Mode) { *s = Sender{mode: mode} }

// Offset is the MPA stream offset of the next octet (0 = first octet after start-up).
func (s *Sender) Offset() uint64 { return s.off }

// MULPDU by RFC 5044 section 4.5, clamped to 128..64768.
func (s *Sender) MULPDU(emss int) int { return s.mode.MULPDU(emss) }

// MULPDUHere is MULPDU adjusted to the current position, as RFC 5044 section 4.5 allows: the
// formula reckons with the most markers that emss octets may have, and where there are fewer the
// ULPDU may be longer by as much. So full segments are equally long, which lets a device or a
// kernel cut a run of them (DECISIONS 21); except for one that would end with a marker, which is
// the next FPDU's. Never less than MULPDU.
func (s *Sender) MULPDUHere(emss int) int {
	n := s.mode.MULPDU(emss)
	if !s.mode.Markers || n == MULPDUMin {
		return n
	}
	size := uint64(emss &^ 3)
	// in [off, off+size)
	markers := (s.off+size+MarkerSpacing-1)/MarkerSpacing - (s.off+MarkerSpacing-1)/MarkerSpacing
	return min(max(n, int(size-MarkerLen*markers)-HeaderLen-CRCLen), mulpduMax)
}

// Size is how many stream octets an FPDU with an n-octet ULPDU takes at the current position,
// markers included.
func (s *Sender) Size(n int) int {
	f := s.mode.frameOf(s.off, n)
	return int(f.end - f.begin)
}

// Put writes the FPDU whose ULPDU is the concatenation of parts to dst (at least Size octets) and
// returns its size. Copies payload once; allocates nothing; keeps neither dst nor parts. A ULPDU
// above mulpduMax or a dst that is too short is the caller's fault and panics.
//
// Without CRC the field is there and zero (RFC 5044 section 7.1.1).
func (s *Sender) Put(dst []byte, parts [][]byte) int {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	if n > mulpduMax {
		panic("mpa: ULPDU above 64768 octets")
	}
	fpdu := dst[:len(dst):len(dst)][:s.Size(n)]
	if s.mode.CRC && n >= onePassMin {
		s.putOnePass(fpdu, n, parts)
	} else {
		if s.mode.Markers {
			s.putMarked(fpdu, n, parts)
		} else {
			binary.BigEndian.PutUint16(fpdu, uint16(n))
			at := HeaderLen
			for _, p := range parts {
				at += copy(fpdu[at:], p)
			}
			clear(fpdu[at:])
		}
		if s.mode.CRC {
			crcPut(fpdu)
		}
	}
	s.off += uint64(len(fpdu))
	return len(fpdu)
}

// putHead writes a leading marker, if there is one, and ULPDU_Length, and returns where that
// stands.
func (s *Sender) putHead(fpdu []byte, n int) int {
	head := int(s.mode.headOf(s.off) - s.off)
	if head != 0 {
		putMarker(fpdu, 0)
	}
	binary.BigEndian.PutUint16(fpdu[head:], uint16(n))
	return head
}

// room is how many content octets there are from at, an octet of the next FPDU, up to the next
// marker: more than any FPDU has where there are none.
func (s *Sender) room(at int) int {
	if !s.mode.Markers {
		return fpduMax
	}
	return MarkerSpacing - int((s.off+uint64(at))%MarkerSpacing)
}

// putMarked writes everything but the CRC, which it leaves zero.
func (s *Sender) putMarked(fpdu []byte, n int, parts [][]byte) {
	head := s.putHead(fpdu, n)
	at := head + HeaderLen
	room := s.room(at)
	for _, p := range parts {
		at, room = copyMarked(fpdu, at, room, head, p)
	}
	clear(fpdu[putPad(fpdu, at, room, head, n):])
}

// onePassMin is from how many octets on a copy that computes the CRC too is faster than a copy now
// and the CRC together with what stands around them.
const onePassMin = 128

// putOnePass writes everything, and takes parts of some length into the CRC as they are copied.
// (What it counts with are variables: fields of a struct are written to memory and read again, 6 ns
// an FPDU.)
func (s *Sender) putOnePass(fpdu []byte, n int, parts [][]byte) {
	head := s.putHead(fpdu, n)
	at, summed, crc := head+HeaderLen, 0, uint32(0) // crc covers summed octets of the FPDU
	room := s.room(at)
	for _, p := range parts {
		if len(p) < onePassMin {
			at, room = copyMarked(fpdu, at, room, head, p)
			continue
		}
		k := 0
		crc = crc32c.Update(crc, fpdu[summed:at])
		crc, k = crc32c.CopyMarked(crc, fpdu[at:], p, room, uint32(at+room-head))
		at += k
		summed = at
		room = roomAfter(room, len(p))
	}
	at = putPad(fpdu, at, room, head, n)
	if summed < at {
		crc = crc32c.Update(crc, fpdu[summed:at])
	}
	binary.LittleEndian.PutUint32(fpdu[at:], crc)
}

// roomAfter is how many content octets there are up to the next marker when n more have been
// written, and the markers in them, after a place with room of them.
func roomAfter(room, n int) int {
	if room -= n; room < 0 {
		room = markerGap - 1 - (-room-1)%markerGap
	}
	return room
}

// copyMarked copies p to at and sets the markers in it, the first of them after room octets. It
// returns what at and room are then.
func copyMarked(fpdu []byte, at, room, head int, p []byte) (int, int) {
	for len(p) > room {
		at += copy(fpdu[at:], p[:room])
		p = p[room:]
		putMarker(fpdu[at:], at-head)
		at += MarkerLen
		room = markerGap
	}
	return at + copy(fpdu[at:], p), room - len(p)
}

// putPad writes PAD, and returns where the CRC stands. PAD fills a four-octet word that the ULPDU
// began, so no marker falls into it; one may stand after it.
func putPad(fpdu []byte, at, room, head, n int) int {
	k := pad(n)
	clear(fpdu[at : at+k])
	at += k
	if room == k {
		putMarker(fpdu[at:], at-head)
		at += MarkerLen
	}
	return at
}
