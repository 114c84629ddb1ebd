package mpa

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/internal/crc32c"
)

// plainHead is how many octets of a ULPDU PutPlain takes in words: a tagged DDP header. With
// ULPDU_Length they are two words of eight octets.
const (
	plainHead = 14
	plainAt   = HeaderLen + plainHead
)

// PlainHere says whether the next FPDU may be written by PutPlain: it has a CRC, and no marker
// stands before the 15th octet of its ULPDU.
func (s *Sender) PlainHere() bool {
	at := s.off % MarkerSpacing
	return s.mode.CRC && (!s.mode.Markers || at != 0 && at+plainAt < MarkerSpacing)
}

// PutPlain is Put of a ULPDU that consists of the first 14 octets of hi and lo, the most
// significant first, and of payload. It panics as Put does, and unless PlainHere.
//
// The head goes from registers to memory in the words in which the CRC then reads it. What was
// written in smaller or other pieces, as Put writes it, the CPU has to bring to the cache before it
// can be read: that took as long as a fourth of copying and CRC of 1428 octets.
func (s *Sender) PutPlain(dst []byte, hi, lo uint64, payload []byte) int {
	n := plainHead + len(payload)
	if n > mulpduMax || !s.PlainHere() {
		panic("mpa: ULPDU above 64768 octets, or PutPlain without CRC or across a marker")
	}
	size := int(s.mode.endOf(s.off, n) - s.off)
	fpdu := dst[:len(dst):len(dst)][:size]
	binary.BigEndian.PutUint64(fpdu, uint64(n)<<48|hi>>16)
	binary.BigEndian.PutUint64(fpdu[8:], hi<<48|lo>>16)
	room := s.room(plainAt)
	crc, k := crc32c.CopyMarked(crc32c.Update(0, fpdu[:plainAt]), fpdu[plainAt:], payload, room,
		uint32(plainAt+room))
	summed := plainAt + k
	at := putPad(fpdu, summed, roomAfter(room, len(payload)), 0, n)
	if summed < at {
		crc = crc32c.Update(crc, fpdu[summed:at])
	}
	binary.LittleEndian.PutUint32(fpdu[at:], crc)
	s.off += uint64(size)
	return size
}
