package stack

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// tcp checks and decodes a segment, which came from src in b.
func (r *receiver) tcp(b mem.Buf, src inet.MAC, remote, local *inet.Addr, tos uint8, octets []byte,
	good bool) found {
	if !good {
		pseudo := inet.PseudoSum(*remote, *local, inet.ProtoTCP, len(octets))
		if inet.Checksum(octets, pseudo) != 0 {
			r.counters.TCP[badChecksum(octets, pseudo)]++
			return foundNothing
		}
	}
	s := &r.seg
	if drop := tcp.Parse(octets, s); drop != tcp.DropNone {
		r.counters.TCP[drop]++
		return foundNothing
	}
	s.TOS = tos
	r.id = tcp.ID{Local: *local, Remote: *remote, LocalPort: s.DstPort, RemotePort: s.SrcPort}
	r.buf, r.src, r.octets, r.good = b, src, octets, good
	return foundSegment
}

// badChecksum says what is wrong with the checksum of a segment.
func badChecksum(octets []byte, pseudo uint64) tcp.Drop {
	if len(octets) >= checksumOffset+2 &&
		binary.BigEndian.Uint16(octets[checksumOffset:]) == inet.Fold(pseudo) {
		return tcp.DropChecksumLeft
	}
	return tcp.DropChecksum
}

// payload is the octets of the segment found.
func (r *receiver) payload() []byte {
	s := &r.seg
	return r.octets[s.HdrLen : s.HdrLen+s.Len]
}
