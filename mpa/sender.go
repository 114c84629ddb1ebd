package mpa

import "encoding/binary"

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

// Size is how many stream octets an FPDU with an n-octet ULPDU takes at the current position,
// markers included.
func (s *Sender) Size(n int) int {
	f := s.mode.frameOf(s.off, n)
	return int(f.end - f.begin)
}

// Put writes the FPDU whose ULPDU is the concatenation of parts to dst (at least Size octets) and
// returns its size. Copies payload once; allocates nothing; keeps neither dst nor parts. A ULPDU
// above MULPDUMax or a dst that is too short is the caller's fault and panics.
//
// Without CRC the field is there and zero (RFC 5044 section 7.1.1).
func (s *Sender) Put(dst []byte, parts [][]byte) int {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	if n > MULPDUMax {
		panic("mpa: ULPDU above 64768 octets")
	}
	fpdu := dst[:len(dst):len(dst)][:s.Size(n)]
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
	s.off += uint64(len(fpdu))
	return len(fpdu)
}

// putMarked writes everything but the CRC, which it leaves zero.
func (s *Sender) putMarked(fpdu []byte, n int, parts [][]byte) {
	head := int(s.mode.headOf(s.off) - s.off)
	if head != 0 {
		putMarker(fpdu, 0)
	}
	binary.BigEndian.PutUint16(fpdu[head:], uint16(n))
	at := head + HeaderLen
	room := MarkerSpacing - int((s.off+uint64(at))%MarkerSpacing) // content octets up to the next marker
	for _, p := range parts {
		for len(p) > 0 {
			if room == 0 {
				putMarker(fpdu[at:], at-head)
				at += MarkerLen
				room = markerGap
			}
			k := copy(fpdu[at:at+min(room, len(fpdu)-at)], p)
			p = p[k:]
			at += k
			room -= k
		}
	}
	// PAD fills a four-octet word that the ULPDU began, so no marker falls into it; one may stand
	// after it.
	k := pad(n)
	clear(fpdu[at : at+k])
	at += k
	if room == k {
		putMarker(fpdu[at:], at-head)
		at += MarkerLen
	}
	clear(fpdu[at:])
}
