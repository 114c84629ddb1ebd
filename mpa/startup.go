package mpa

import "encoding/binary"

// FrameKind of a start-up frame.
type FrameKind uint8

const (
	Request FrameKind = iota + 1
	Reply
	Rtr // Ready-to-Receive, of the peer-to-peer proposal
)

const (
	FrameLen       = 20  // Key, flags, Rev, PD_Length
	PrivateDataMax = 512 // Rev 1 and up (RFC 5044 section 7.1.1); at Rev 0 PD_Length's 65535
)

// Where the fields stand and what the flag octet holds (RFC 5044 section 7.1.1; S: RFC 6581 section
// 6).
const (
	keyLen     = 16
	keyRequest = "MPA ID Req Frame"
	keyReply   = "MPA ID Rep Frame"
	// the proposal's text; its hex says RtR, which is taken too (DECISIONS 1)
	keyRtr    = "MPA ID Rtr Frame"
	keyRtrHex = "MPA ID RtR Frame"

	flagMarkers = 0x80
	flagCRC     = 0x40
	flagReject  = 0x20
	flagS       = 0x10
	// Two of the bits that are "reserved [...] and not checked on receipt" there: ours, what a Request
	// asks for and a Reply grants (docs/adr/0046-queue-pairs-by-number.md). A Reply of siw has the
	// reserved bits of the Request.
	flagAskAcknowledged   = 0x01
	flagGrantAcknowledged = 0x02

	privateDataMaxRev0 = 65535
)

// Errors of ParseFrame; compare with errors.Is. RFC 5044 section 7.1.2 rules 2, 3, 5, 8 and 9: each
// closes the TCP connection at once and is reported to the ULP.
var (
	ErrKey          = &Error{Code: ErrStartup, What: "start-up frame has the wrong Key"}
	ErrBothInitiate = &Error{Code: ErrStartup,
		What: "a Request came where a Reply is due: both ends are Initiators"}
	ErrBothRespond = &Error{Code: ErrStartup,
		What: "a Reply came where a Request is due: both ends are Responders"}
	ErrPrivateData = &Error{Code: ErrStartup, What: "PD_Length is above the limit of private data"}
)

// ErrReadyRev: a Ready-to-Receive frame does not go on with the revision that the Reply has settled
// (RFC 5044 section 7.1.1: "If the MPA receiver cannot interoperate with the received version, then
// it MUST close the connection").
var ErrReadyRev = &Error{Code: ErrStartup, Offset: keyLen + 1,
	What: "Rev of the Ready-to-Receive frame is not the Reply's"}

// Frame is a start-up frame. Every Rev is decoded alike; whether a Rev is served, and what S and
// the front of the private data mean at that Rev, is for the caller to say.
type Frame struct {
	Kind FrameKind
	// Reject: in a Reply only, elsewhere not looked at; S: not in an Rtr frame
	Markers, CRC, Reject, S bool
	Acknowledged            bool // acknowledged mode of rnic, in an enhanced frame
	Rev                     uint8
	PrivateData             []byte
}

func (k FrameKind) key() string {
	switch k {
	case Request:
		return keyRequest
	case Reply:
		return keyReply
	case Rtr:
		return keyRtr
	}
	panic("mpa: neither Request, Reply nor Rtr")
}

// ParseFrame decodes a frame of the wanted kind at the front of b. n is its length; n == 0 with a
// nil error: more octets are needed. A wrong Key is reported as soon as it shows, a PD_Length above
// the limit with the 20th octet. PrivateData aliases b. Octets after the frame are not looked at.
//
// privateDataMax is the size of the application's buffer for a frame of Rev 0; at Rev 1 and up 512
// is the limit, whatever it says (DECISIONS 9). Errors are *Error with code 4.
func ParseFrame(b []byte, want FrameKind, privateDataMax int) (f Frame, n int, err error) {
	if err := checkKey(b, want); err != nil {
		return Frame{}, 0, err
	}
	if len(b) < FrameLen {
		return Frame{}, 0, nil
	}
	flags := b[keyLen]
	f = Frame{
		Kind:    want,
		Markers: flags&flagMarkers != 0,
		CRC:     flags&flagCRC != 0,
		Reject:  want == Reply && flags&flagReject != 0,
		S:       want != Rtr && flags&flagS != 0,
		Rev:     b[keyLen+1],
	}
	f.Acknowledged = f.IsEnhanced() && flags&(flagAskAcknowledged|flagGrantAcknowledged) ==
		acknowledgedFlag(want)
	length := int(binary.BigEndian.Uint16(b[keyLen+2:]))
	if f.Rev > 0 {
		privateDataMax = PrivateDataMax
	}
	if length > privateDataMax {
		return Frame{}, 0, &Error{Code: ErrStartup, Offset: keyLen + 2, What: ErrPrivateData.What}
	}
	if len(b) < FrameLen+length {
		return Frame{}, 0, nil
	}
	if length > 0 {
		f.PrivateData = b[FrameLen : FrameLen+length : FrameLen+length]
	}
	return f, FrameLen + length, nil
}

// BeginsFrame says whether b, at least four octets, can be the front of a Request or a Reply.
func BeginsFrame(b []byte) bool {
	b = b[:min(len(b), keyLen)]
	return len(b) >= 4 && (mismatch(b, keyRequest) < 0 || mismatch(b, keyReply) < 0)
}

// checkKey compares as much of the Key as b holds.
func checkKey(b []byte, want FrameKind) error {
	b = b[:min(len(b), keyLen)]
	key := want.key()
	bad := mismatch(b, key)
	if bad < 0 || want == Rtr && mismatch(b, keyRtrHex) < 0 {
		return nil
	}
	e := ErrKey
	// Rule 8: a Request where a Reply is due tells of two Initiators.
	if want == Reply && mismatch(b, keyRequest) < 0 {
		e = ErrBothInitiate
	}
	if want == Request && mismatch(b, keyReply) < 0 {
		e = ErrBothRespond
	}
	return &Error{Code: ErrStartup, Offset: uint64(bad), What: e.What}
}

// mismatch is the index of the first octet of b that differs from key, or -1.
func mismatch(b []byte, key string) int {
	for i, c := range b {
		if c != key[i] {
			return i
		}
	}
	return -1
}

// Append writes the frame after b. Reserved bits are zero, except for Acknowledged. Private data
// above the Rev's limit is the caller's fault and panics.
func (f *Frame) Append(b []byte) []byte {
	limit := PrivateDataMax
	if f.Rev == 0 {
		limit = privateDataMaxRev0
	}
	if len(f.PrivateData) > limit {
		panic("mpa: private data above the limit of the frame's Rev")
	}
	var flags byte
	if f.Markers {
		flags |= flagMarkers
	}
	if f.CRC {
		flags |= flagCRC
	}
	if f.Reject && f.Kind == Reply {
		flags |= flagReject
	}
	if f.S && f.Kind != Rtr {
		flags |= flagS
	}
	if f.Acknowledged && f.IsEnhanced() {
		flags |= acknowledgedFlag(f.Kind)
	}
	b = append(b, f.Kind.key()...)
	b = append(b, flags, f.Rev)
	b = binary.BigEndian.AppendUint16(b, uint16(len(f.PrivateData)))
	return append(b, f.PrivateData...)
}

// acknowledgedFlag is that of Frame.Acknowledged.
func acknowledgedFlag(kind FrameKind) byte {
	switch kind {
	case Request:
		return flagAskAcknowledged
	case Reply:
		return flagGrantAcknowledged
	}
	return 0
}
