package pmd

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/mem"
)

// udpCsumOffset is where a UDP header has its checksum; no other transport has it there.
const udpCsumOffset = 6

// CompleteChecksum computes the Internet checksum (RFC 1071) of frame from csumStart to its end and
// puts it at csumStart+csumOffset, where the folded, uncomplemented sum of the pseudo-header
// stands, as mem.TxChecksum asks of a device. False, with frame untouched: the field is not inside
// the frame. For copies off the fast path.
func CompleteChecksum(frame []byte, csumStart, csumOffset uint16) bool {
	start, field := int(csumStart), int(csumStart)+int(csumOffset)
	if len(frame) < 2 || field > len(frame)-2 {
		return false
	}
	sum := ^onesSum(frame[start:])
	if sum == 0 && csumOffset == udpCsumOffset {
		// The other zero of ones-complement arithmetic, for to UDP 0 means "no checksum" (RFC 768).
		// TCP and ICMP have only the one that complementing makes; tshark takes 0xffff for a fault
		// there (RFC 1624 section 3).
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(frame[field:], sum)
	return true
}

// Incomplete says whether the frame d describes carries only the pseudo-header's sum: one to be
// sent that asks for it, or one received from a sender that shares our memory.
func Incomplete(d *mem.Desc) bool {
	return d.Flags&mem.TxChecksum != 0 || d.Flags&mem.RxChecksumGood != 0 && d.CsumOffset != 0
}

func onesSum(b []byte) uint16 {
	var s uint64
	for len(b) >= 4 {
		s += uint64(binary.BigEndian.Uint32(b))
		b = b[4:]
	}
	if len(b) >= 2 {
		s += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
