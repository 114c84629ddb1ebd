package fault

import "encoding/binary"

const protoTCP = 6

// tcpParts says where the parts of an Ethernet frame stand that carries TCP.
type tcpParts struct {
	ip, tcp, data int // where each begins
	end           int // of the IP packet: Ethernet may have padded it
	v6            bool
}

// findIP finds the IP header of an Ethernet frame with up to two VLAN tags.
func findIP(frame []byte) (at int, v6, ok bool) {
	at = 12
	for range 3 {
		if at > len(frame)-2 {
			return 0, false, false
		}
		switch binary.BigEndian.Uint16(frame[at:]) {
		case 0x8100, 0x88a8:
			at += 4
		case 0x0800:
			return at + 2, false, true
		case 0x86dd:
			return at + 2, true, true
		default:
			return 0, false, false
		}
	}
	return 0, false, false
}

// isARP says whether an Ethernet frame with up to two VLAN tags carries ARP.
func isARP(frame []byte) bool {
	for at := 12; at+2 <= len(frame) && at <= 12+2*4; at += 4 {
		switch binary.BigEndian.Uint16(frame[at:]) {
		case 0x8100, 0x88a8:
		default:
			return binary.BigEndian.Uint16(frame[at:]) == 0x0806
		}
	}
	return false
}

// findTCP finds TCP over IPv4, a first fragment included, or over IPv6 without extension headers.
func findTCP(frame []byte) (f tcpParts, ok bool) {
	f.ip, f.v6, ok = findIP(frame)
	if !ok {
		return f, false
	}
	b := frame[f.ip:]
	if f.v6 {
		if len(b) < 40 || b[6] != protoTCP {
			return f, false
		}
		f.tcp = f.ip + 40
		f.end = f.tcp + int(binary.BigEndian.Uint16(b[4:]))
	} else {
		if len(b) < 20 || b[9] != protoTCP || binary.BigEndian.Uint16(b[6:])&0x1fff != 0 || b[0]&0xf < 5 {
			return f, false
		}
		f.tcp = f.ip + int(b[0]&0xf)*4
		f.end = f.ip + int(binary.BigEndian.Uint16(b[2:]))
	}
	if f.end > len(frame) || f.tcp > f.end-20 {
		return f, false
	}
	f.data = f.tcp + int(frame[f.tcp+12]>>4)*4
	return f, f.data >= f.tcp+20 && f.data <= f.end
}
