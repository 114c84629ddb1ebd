package mpa

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/crc32c"
)

// plainHead is how many octets of a ULPDU PutPlain takes in words: a tagged DDP header.
const plainHead = 14

// Plain says whether the half-connection has a CRC and no markers, as PutPlain wants it.
func (s *Sender) Plain() bool { return s.mode.CRC && !s.mode.Markers }

// PutPlain is Put of a ULPDU that consists of the first 14 octets of hi and lo, the most significant
// first, and of payload. It panics as Put does, and unless Plain.
//
// The head goes from registers to memory in the words in which the CRC then reads it. What was
// written in smaller or other pieces, as Put writes it, the CPU has to bring to the cache before it
// can be read: that took as long as a fourth of copying and CRC of 1428 octets.
func (s *Sender) PutPlain(dst []byte, hi, lo uint64, payload []byte) int {
	n := plainHead + len(payload)
	if n > MULPDUMax || !s.Plain() {
		panic("mpa: ULPDU above 64768 octets, or PutPlain with markers or without CRC")
	}
	size := int(s.mode.endOf(s.off, n) - s.off)
	fpdu := dst[:len(dst):len(dst)][:size]
	binary.BigEndian.PutUint64(fpdu, uint64(n)<<48|hi>>16)
	binary.BigEndian.PutUint64(fpdu[8:], hi<<48|lo>>16)
	const head = HeaderLen + plainHead
	crc := crc32c.Copy(crc32c.Update(0, fpdu[:head]), fpdu[head:], payload)
	if pad := fpdu[HeaderLen+n : size-CRCLen]; len(pad) > 0 {
		clear(pad)
		crc = crc32c.Update(crc, pad)
	}
	binary.LittleEndian.PutUint32(fpdu[size-CRCLen:], crc)
	s.off += uint64(size)
	return size
}
