package fault

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/rnicd/rnicd/pmd"
)

// flipBits flips one to three bits of frame, each a different one.
func flipBits(frame []byte, rng *rand.Rand) {
	if len(frame) == 0 {
		return
	}
	bits := len(frame) * 8
	first := rng.IntN(bits)
	frame[first/8] ^= 1 << (first % 8)
	// Neighbours of the first: a burst, and never the same bit again, which would undo it.
	for k := range rng.IntN(3) {
		at := (first + k + 1) % bits
		frame[at/8] ^= 1 << (at % 8)
	}
}

// truncated is a shorter length that leaves the Ethernet header, or n when there is none.
func truncated(n uint32, rng *rand.Rand) uint32 {
	if n <= pmd.EthernetLen {
		return n
	}
	return pmd.EthernetLen + rng.Uint32N(n-pmd.EthernetLen)
}

// swapWords exchanges two different 16-bit words of the TCP payload. The Internet checksum is a sum and does not
// see the order of its words (RFC 1071 section 2), so only a CRC above TCP finds this. False: no TCP payload with
// two different words; frame is untouched.
func swapWords(frame []byte, rng *rand.Rand) bool {
	words := tcpPayload(frame)
	n := len(words) / 2
	if n < 2 {
		return false
	}
	// From a random word, look for the nearest one behind it, in a circle, that is different.
	start := rng.IntN(n)
	skip := 1 + rng.IntN(n-1)
	a := words[2*start:]
	for k := range n - 1 {
		b := words[2*((start+1+(skip-1+k)%(n-1))%n):]
		if a[0] != b[0] || a[1] != b[1] {
			a[0], b[0] = b[0], a[0]
			a[1], b[1] = b[1], a[1]
			return true
		}
	}
	return false
}

// tcpPayload finds what TCP carries in an Ethernet frame with up to two VLAN tags, over IPv4 or over IPv6 without
// extension headers. It begins at an even offset from the TCP header, where checksum words begin. Nil: there is none.
func tcpPayload(frame []byte) []byte {
	at := 12
	for range 3 {
		if at > len(frame)-2 {
			return nil
		}
		switch binary.BigEndian.Uint16(frame[at:]) {
		case 0x8100, 0x88a8:
			at += 4
		case 0x0800:
			return tcpOverIPv4(frame[at+2:])
		case 0x86dd:
			return tcpOverIPv6(frame[at+2:])
		default:
			return nil
		}
	}
	return nil
}

const protoTCP = 6

func tcpOverIPv4(b []byte) []byte {
	if len(b) < 20 || b[9] != protoTCP || binary.BigEndian.Uint16(b[6:])&0x1fff != 0 {
		return nil
	}
	hdr, total := int(b[0]&0xf)*4, int(binary.BigEndian.Uint16(b[2:]))
	if hdr < 20 || total > len(b) || hdr > total {
		return nil
	}
	return behindTCP(b[hdr:total])
}

func tcpOverIPv6(b []byte) []byte {
	if len(b) < 40 || b[6] != protoTCP {
		return nil
	}
	length := int(binary.BigEndian.Uint16(b[4:]))
	if length > len(b)-40 {
		return nil
	}
	return behindTCP(b[40 : 40+length])
}

func behindTCP(b []byte) []byte {
	if len(b) < 20 {
		return nil
	}
	hdr := int(b[12]>>4) * 4
	if hdr < 20 || hdr > len(b) {
		return nil
	}
	return b[hdr:]
}
