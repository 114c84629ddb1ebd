package rdmap

import (
	"encoding/binary"
	"time"

	"github.com/rnicd/rnicd/ddp"
)

// Reliability Messages are our own (ADR 0046): between two ends that have agreed on acknowledged
// mode they say what was accepted, that a receiver is not ready, and where the sender resumes.
// Neither RFC 5040 nor RFC 7306 assigns their opcode or their queue; without the mode both are
// invalid, as any other that is not assigned.
const (
	OpReliability = Opcode(15)
	QNReliability = 4
)

// TriesForEver in Reliability.Tries has the sender send again as often as it takes.
const TriesForEver = 8

// ReliabilityLen is the length of the message.
const ReliabilityLen = 16

// ReliabilityKind is what a Reliability Message says.
type ReliabilityKind uint8

const (
	Acknowledge ReliabilityKind = iota + 1 // Count messages were accepted
	// NotReady: Count messages were accepted, and the next has no receive buffer. It and all that
	// follow are dropped until Resume, which the sender sends when Timer's time is over.
	NotReady
	Resume // message Count follows
)

// Reliability is a Reliability Message.
type Reliability struct {
	Kind  ReliabilityKind
	Timer uint8 // NotReady: a code of RNRTime
	// NotReady: how often the sender may send the message again, and 1: TriesForEver at most. 0: the
	// sender decides.
	Tries uint8
	// messages of the stream, modulo 2^32: Sends, Writes, Immediate Data, Read and Atomic Requests
	Count uint32
	// NotReady: the next MSN of queues 0 and 1
	SendMSN, ReadMSN uint32
}

// Put encodes into the first ReliabilityLen octets of b, which must be there.
func (r *Reliability) Put(b []byte) {
	p := (*[ReliabilityLen]byte)(b)
	p[0], p[1], p[2], p[3] = uint8(r.Kind), r.Timer, r.Tries, 0
	binary.BigEndian.PutUint32(p[4:8], r.Count)
	binary.BigEndian.PutUint32(p[8:12], r.SendMSN)
	binary.BigEndian.PutUint32(p[12:16], r.ReadMSN)
}

// ParseReliability decodes a message. false: its length, its kind or its timer is none that there
// is, or what its kind leaves unused is not zero.
func ParseReliability(b []byte) (r Reliability, ok bool) {
	if len(b) != ReliabilityLen {
		return Reliability{}, false
	}
	p := (*[ReliabilityLen]byte)(b)
	r = Reliability{
		Kind: ReliabilityKind(p[0]), Timer: p[1], Tries: p[2], Count: binary.BigEndian.Uint32(p[4:8]),
		SendMSN: binary.BigEndian.Uint32(p[8:12]), ReadMSN: binary.BigEndian.Uint32(p[12:16]),
	}
	ok = p[3] == 0
	switch r.Kind {
	case Acknowledge, Resume:
		ok = ok && r.Timer == 0 && r.Tries == 0 && r.SendMSN == 0 && r.ReadMSN == 0
	case NotReady:
		ok = ok && int(r.Timer) < len(rnrTimes) && r.Tries <= TriesForEver
	default:
		ok = false
	}
	if !ok {
		return Reliability{}, false
	}
	return r, true
}

// IsReliability says whether h is a Reliability Message's, which is one segment. version is the
// stream's.
func IsReliability(h *ddp.Header, version uint8) bool {
	return !h.Tagged && h.QN == QNReliability && h.Last && h.MO == 0 &&
		h.ULP == Control(version, OpReliability)
}

// rnrTimes are the times of the RNR NAK timer field by its code, in units of 10 us (InfiniBand
// Architecture Specification, volume 1, table "Encoding for RNR NAK Timer Field").
var rnrTimes = [...]uint16{
	0 /* 65536 */, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
	1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

const rnrUnit = 10 * time.Microsecond

// RNRTime is how long a sender waits for a receiver that is not ready, by the code of a timer,
// which must be below 32: 0.01 ms (1) to 655.36 ms (0).
func RNRTime(code uint8) time.Duration {
	if code == 0 {
		return 65536 * rnrUnit
	}
	return time.Duration(rnrTimes[code]) * rnrUnit
}

// RNRCode is the code of the shortest time that is not below d, or of the longest.
func RNRCode(d time.Duration) uint8 {
	for code := uint8(1); int(code) < len(rnrTimes); code++ {
		if RNRTime(code) >= d {
			return code
		}
	}
	return 0
}
