package ddp

import (
	"fmt"

	"github.com/rnicd/rnicd/mem"
)

// Error types of section 9.2. Type 3 is reserved for the LLP and never made here.
const (
	TypeLocalCatastrophic uint8 = 0x0
	TypeTagged            uint8 = 0x1
	TypeUntagged          uint8 = 0x2
	TypeLLP               uint8 = 0x3
)

// Error codes of TypeTagged, section 9.2.
const (
	// also: access right not granted, for which the drafts have no code
	CodeInvalidSTag    uint8 = 0x00
	CodeBounds         uint8 = 0x01
	CodeNotAssociated  uint8 = 0x02
	CodeWrap           uint8 = 0x03
	CodeTaggedVersion  uint8 = 0x04
	codeTaggedAccepted uint8 = 0xff // no error; never leaves the package
)

// Error codes of TypeUntagged, section 9.2.
const (
	CodeInvalidQN       uint8 = 0x01
	CodeNoBuffer        uint8 = 0x02 // MSN at or above the posted buffers
	CodeMSNRange        uint8 = 0x03 // MSN of a message that is already complete
	CodeInvalidMO       uint8 = 0x04
	CodeTooLong         uint8 = 0x05
	CodeUntaggedVersion uint8 = 0x06
)

// Error is a DDP error of section 9.2 with the header it was found in. A Stream owns the only Error
// it ever reports; it stays valid and unchanged until the next Init.
type Error struct {
	Type, Code uint8
	Header     Header // zero when Truncated
	SegmentLen int    // the ULPDU's length
	Truncated  bool   // the ULPDU was too short for its header
}

// Text is the name that section 9.2 gives the pair, for instance "tagged buffer error: TO wrap".
func (e *Error) Text() string { return ErrorText(e.Type, e.Code) }

// ErrorText names an error type and code of section 9.2, own or received in a Terminate.
func ErrorText(errType, code uint8) string {
	switch errType {
	case TypeLocalCatastrophic:
		return "local catastrophic error"
	case TypeTagged:
		return "tagged buffer error: " + nameIn(taggedNames[:], code)
	case TypeUntagged:
		return "untagged buffer error: " + nameIn(untaggedNames[:], code)
	case TypeLLP:
		return "error of the lower layer"
	}
	return "unknown error type"
}

var taggedNames = [...]string{
	CodeInvalidSTag:   "invalid STag",
	CodeBounds:        "base or bounds violation",
	CodeNotAssociated: "STag not associated with the stream",
	CodeWrap:          "TO wrap",
	CodeTaggedVersion: "invalid DDP version",
}

var untaggedNames = [...]string{
	CodeInvalidQN:       "invalid QN",
	CodeNoBuffer:        "invalid MSN: no buffer available",
	CodeMSNRange:        "invalid MSN: range is not valid",
	CodeInvalidMO:       "invalid MO",
	CodeTooLong:         "message too long for the available buffer",
	CodeUntaggedVersion: "invalid DDP version",
}

func nameIn(names []string, code uint8) string {
	if int(code) < len(names) && names[code] != "" {
		return names[code]
	}
	return "unknown code"
}

// Error says what the peer (or, for type 0, this host) did wrong and in which segment. Not for the
// packet path.
func (e *Error) Error() string {
	s := fmt.Sprintf("ddp: %s (type %d, code 0x%02x), segment of %d octets", e.Text(), e.Type, e.Code,
		e.SegmentLen)
	h := &e.Header
	switch {
	case e.Truncated:
		return s + " is too short for a header"
	case h.Tagged:
		return fmt.Sprintf("%s: STag 0x%08x, TO 0x%x, version %d", s, uint32(h.STag), h.TO, h.Version)
	}
	return fmt.Sprintf("%s: QN %d, MSN %d, MO %d, version %d", s, h.QN, h.MSN, h.MO, h.Version)
}

// taggedCode is the one table from mem's verdict to the code of a Tagged Buffer Error.
var taggedCode = [...]uint8{
	mem.CheckOK:            codeTaggedAccepted,
	mem.CheckInvalidSTag:   CodeInvalidSTag,
	mem.CheckBounds:        CodeBounds,
	mem.CheckNotAssociated: CodeNotAssociated,
	mem.CheckWrap:          CodeWrap,
	mem.CheckAccess:        CodeInvalidSTag,
}
