package mpa

import (
	"encoding/binary"
	"strings"
)

// EnhancedLen is the length of RFC 6581's data in front of the ULP's private data (section 9).
const EnhancedLen = 4

// Read depths are 14 bits wide. DepthULP says that the ULPs settle IRD or ORD themselves (RFC 6581
// section 9.1).
const (
	DepthMax = DepthULP - 1
	DepthULP = 0x3FFF
)

const (
	flagA = 0x8000 // over IRD: peer-to-peer
	flagB = 0x4000 // over IRD: zero-length FULPDU, a Send
	flagC = 0x8000 // over ORD: zero-length RDMA Write
	flagD = 0x4000 // over ORD: zero-length RDMA Read
)

// RTRKinds is a set of the messages that tell the Responder it may send (RFC 6581 section 9.2).
type RTRKinds uint8

const (
	RTRSend RTRKinds = 1 << iota
	RTRWrite
	RTRRead

	AllRTR = RTRSend | RTRWrite | RTRRead
)

func (k RTRKinds) String() string {
	var names []string
	for i, name := range []string{"Send", "Write", "Read"} {
		if k&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// choose takes one of a set. A Write first: it needs nothing of the peer, and adapters are known
// that serve no Send.
func (k RTRKinds) choose() RTRKinds {
	for _, kind := range []RTRKinds{RTRWrite, RTRRead, RTRSend} {
		if k&kind != 0 {
			return kind
		}
	}
	return 0
}

// Enhanced is RFC 6581's connection establishment data.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+---------------------------+-+-+---------------------------+
//	|A|B|            IRD            |C|D|            ORD            |
//	+-+-+---------------------------+-+-+---------------------------+
type Enhanced struct {
	PeerToPeer bool     // A
	RTR        RTRKinds // B, C, D; empty unless PeerToPeer
	IRD, ORD   uint16   // 14 bits
}

// Append writes the data after b. A depth above 14 bits is the caller's fault and panics. Without A
// the other flags are zero.
func (e Enhanced) Append(b []byte) []byte {
	if e.IRD > DepthULP || e.ORD > DepthULP {
		panic("mpa: IRD or ORD has more than 14 bits")
	}
	ird, ord := e.IRD, e.ORD
	if e.PeerToPeer {
		ird |= flagA
		ird |= flagIf(e.RTR&RTRSend != 0, flagB)
		ord |= flagIf(e.RTR&RTRWrite != 0, flagC)
		ord |= flagIf(e.RTR&RTRRead != 0, flagD)
	}
	b = binary.BigEndian.AppendUint16(b, ird)
	return binary.BigEndian.AppendUint16(b, ord)
}

func flagIf(on bool, flag uint16) uint16 {
	if on {
		return flag
	}
	return 0
}

// parseEnhanced decodes the first EnhancedLen octets of b. B, C and D are ignored without A.
func parseEnhanced(b []byte) (e Enhanced) {
	ird, ord := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	e.IRD, e.ORD = ird&DepthULP, ord&DepthULP
	if e.PeerToPeer = ird&flagA != 0; !e.PeerToPeer {
		return e
	}
	for _, x := range []struct {
		word, flag uint16
		kind       RTRKinds
	}{{ird, flagB, RTRSend}, {ord, flagC, RTRWrite}, {ord, flagD, RTRRead}} {
		if x.word&x.flag != 0 {
			e.RTR |= x.kind
		}
	}
	return e
}

// ErrEnhanced: a frame of Rev 2 has the S bit and less private data than that promises.
var ErrEnhanced = &Error{Code: ErrStartup, What: "S bit without the 4 octets of enhanced data"}

// IsEnhanced says whether the frame carries RFC 6581's data.
func (f *Frame) IsEnhanced() bool { return f.S && f.Rev >= 2 }

// Enhanced splits the private data of an enhanced frame into RFC 6581's and the ULP's; any other
// frame's is all the ULP's.
func (f *Frame) Enhanced() (e Enhanced, private []byte, err error) {
	if !f.IsEnhanced() {
		return Enhanced{}, f.PrivateData, nil
	}
	if len(f.PrivateData) < EnhancedLen {
		return Enhanced{}, nil, &Error{Code: ErrStartup, Offset: FrameLen, What: ErrEnhanced.What}
	}
	return parseEnhanced(f.PrivateData), f.PrivateData[EnhancedLen:], nil
}
