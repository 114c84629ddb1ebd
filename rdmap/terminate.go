package rdmap

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/rnicd/rnicd/ddp"
)

// terminateMax is the longest Terminate: control, segment length, untagged DDP header, Read Request
// header.
const terminateMax = terminateControlLen + segmentLengthLen + ddp.UntaggedLen + ReadRequestLen

const (
	terminateControlLen = 4 // 19 bits and 13 reserved
	segmentLengthLen    = 2

	// HdrCt, bits 16 to 18 of the control word.
	hdrCtM = 0x80
	hdrCtD = 0x40
	hdrCtR = 0x20
)

// Terminate is the Terminate header, RFC 5040 section 4.8: the cause and, as far as known, the
// segment that brought it.
//
//	Layer EType Code M D R reserved │ DDP Segment Length, if M or D │ DDP header, if D │ Read Request, if R
type Terminate struct {
	Cause         Cause
	HasSegmentLen bool // M
	HasDDP        bool // D
	HasRead       bool // R
	SegmentLen    uint16
	DDP           ddp.Header
	Read          ReadRequest
}

// TerminateDDP answers an error that DDP found: with segment length and DDP header, except for a
// local catastrophic error (Figure 10).
func TerminateDDP(e *ddp.Error) Terminate {
	if e.Type == ddp.TypeLocalCatastrophic {
		return Terminate{Cause: ddpCause(e)}
	}
	t := Terminate{Cause: ddpCause(e)}
	t.addSegment(&e.Header, e.SegmentLen)
	return t
}

// TerminateLLP answers an error that MPA found, by its code, and no header (Figure 10).
func TerminateLLP(code uint8) Terminate { return Terminate{Cause: LLPCause(code)} }

// TerminateRDMAP answers an error of RDMAP's own. h is the DDP header of the delivered message and
// segmentLen the length of its last segment; nil when no incoming message is to blame. read is its
// Read Request, nil for any other opcode: only Read Requests are copied. A local catastrophic error
// carries none of it (Figure 10).
func TerminateRDMAP(cause Cause, h *ddp.Header, segmentLen int, read *ReadRequest) Terminate {
	t := Terminate{Cause: cause}
	if cause.Type() == TypeLocalCatastrophic {
		return t
	}
	if h != nil {
		t.addSegment(h, segmentLen)
	}
	if read != nil {
		t.HasRead, t.Read = true, *read
	}
	return t
}

func (t *Terminate) addSegment(h *ddp.Header, segmentLen int) {
	t.HasSegmentLen, t.HasDDP, t.DDP = true, true, *h
	t.SegmentLen = uint16(min(max(segmentLen, 0), math.MaxUint16))
}

// Len is the encoded length, at most terminateMax.
func (t *Terminate) Len() int {
	n := terminateControlLen
	if t.HasSegmentLen || t.HasDDP {
		n += segmentLengthLen
	}
	if t.HasDDP {
		n += t.DDP.Len()
	}
	if t.HasRead {
		n += ReadRequestLen
	}
	return n
}

// Put encodes into the first Len octets of b, which must be there.
func (t *Terminate) Put(b []byte) {
	b = b[:t.Len()]
	var hdrCt byte
	if t.HasSegmentLen {
		hdrCt |= hdrCtM
	}
	if t.HasDDP {
		hdrCt |= hdrCtD
	}
	if t.HasRead {
		hdrCt |= hdrCtR
	}
	binary.BigEndian.PutUint16(b, uint16(t.Cause))
	b[2], b[3] = hdrCt, 0
	b = b[terminateControlLen:]
	if t.HasSegmentLen || t.HasDDP {
		binary.BigEndian.PutUint16(b, t.SegmentLen)
		b = b[segmentLengthLen:]
	}
	if t.HasDDP {
		t.DDP.Put(b)
		b = b[t.DDP.Len():]
	}
	if t.HasRead {
		t.Read.Put(b)
	}
}

// ParseTerminate decodes a Terminate message. Octets after what HdrCt announces are ignored. false:
// it is shorter than it announces; the Cause is still good when b has the control word, so look at
// it, for the stream is over either way.
func ParseTerminate(b []byte) (t Terminate, ok bool) {
	if len(b) < terminateControlLen {
		return Terminate{}, false
	}
	t.Cause = Cause(binary.BigEndian.Uint16(b))
	m, d, r := b[2]&hdrCtM != 0, b[2]&hdrCtD != 0, b[2]&hdrCtR != 0
	b = b[terminateControlLen:]
	if m || d {
		if len(b) < segmentLengthLen {
			return t, false
		}
		t.HasSegmentLen, t.SegmentLen = m, binary.BigEndian.Uint16(b)
		b = b[segmentLengthLen:]
	}
	if d {
		n := 0
		if t.DDP, n, ok = ddp.Parse(b); !ok {
			return t, false
		}
		t.HasDDP, b = true, b[n:]
	}
	if r {
		if len(b) < ReadRequestLen {
			return t, false
		}
		t.Read, t.HasRead = ParseReadRequest(b[:ReadRequestLen])
	}
	return t, true
}

// String is for people: the cause and the segment.
func (t *Terminate) String() string {
	s := t.Cause.String()
	if t.HasSegmentLen {
		s += fmt.Sprintf(", segment of %d octets", t.SegmentLen)
	}
	if t.HasDDP {
		_, op := ParseControl(t.DDP.ULP)
		if t.DDP.Tagged {
			s += fmt.Sprintf(", %v to STag 0x%08x, TO 0x%x", op, uint32(t.DDP.STag), t.DDP.TO)
		} else {
			s += fmt.Sprintf(", %v on QN %d, MSN %d, MO %d", op, t.DDP.QN, t.DDP.MSN, t.DDP.MO)
		}
		if t.Cause == causeTaggedVersion || t.Cause == causeUntaggedVersion {
			s += fmt.Sprintf(", version %d", t.DDP.Version)
		}
	}
	if t.HasRead {
		s += fmt.Sprintf(", reading %d octets from STag 0x%08x, TO 0x%x", t.Read.Size,
			uint32(t.Read.SrcSTag), t.Read.SrcTO)
	}
	return s
}
