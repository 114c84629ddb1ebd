package rdmap

import (
	"fmt"

	"github.com/rnicd/rnicd/ddp"
)

// Cause is why a stream is terminated, as the first 16 bits of Terminate Control say it (RFC 5040
// section 4.8): layer (4 bits), error type (4), error code (8).
type Cause uint16

// Layers.
const (
	LayerRDMAP uint8 = 0x0
	LayerDDP   uint8 = 0x1
	LayerLLP   uint8 = 0x2 // MPA
)

// Error types of LayerRDMAP.
const (
	TypeLocalCatastrophic uint8 = 0x0
	TypeRemoteProtection  uint8 = 0x1
	TypeRemoteOperation   uint8 = 0x2
)

// RDMAP's own causes, Figure 9.
const (
	CauseLocal Cause = 0x0000 // any code is acceptable

	CauseInvalidSTag      Cause = 0x0100
	CauseBounds           Cause = 0x0101
	CauseAccess           Cause = 0x0102
	CauseNotAssociated    Cause = 0x0103
	CauseWrap             Cause = 0x0104
	CauseCannotInvalidate Cause = 0x0109
	CauseProtection       Cause = 0x01ff // unspecified

	CauseVersion            Cause = 0x0205
	CauseOpcode             Cause = 0x0206
	CauseStream             Cause = 0x0207 // catastrophic, localized to the stream
	CauseGlobal             Cause = 0x0208 // catastrophic, global
	CauseCannotInvalidateOp Cause = 0x0209 // accepted; CauseCannotInvalidate is sent
	CauseOperation          Cause = 0x02ff // unspecified
)

// DDP's causes whose text names the version.
const (
	causeTaggedVersion = Cause(LayerDDP)<<12 | Cause(ddp.TypeTagged)<<8 |
		Cause(ddp.CodeTaggedVersion)
	causeUntaggedVersion = Cause(LayerDDP)<<12 | Cause(ddp.TypeUntagged)<<8 |
		Cause(ddp.CodeUntaggedVersion)
)

// Error codes of MPA: RFC 5044 section 8, RFC 6581 section 8. Layer 2, type 0.
const (
	LLPClosed          uint8 = 0x01
	LLPCRC             uint8 = 0x02
	LLPMarker          uint8 = 0x03
	LLPStartup         uint8 = 0x04
	LLPCatastrophic    uint8 = 0x05
	LLPInsufficientIRD uint8 = 0x06
	LLPNoMatchingRTR   uint8 = 0x07
)

// NewCause packs layer, type and code.
func NewCause(layer, errType, code uint8) Cause {
	return Cause(layer&0xf)<<12 | Cause(errType&0xf)<<8 | Cause(code)
}

// ddpCause is the cause of an error that DDP found.
func ddpCause(e *ddp.Error) Cause { return NewCause(LayerDDP, e.Type, e.Code) }

// LLPCause is the cause of an error that MPA found, by MPA's code.
func LLPCause(code uint8) Cause { return NewCause(LayerLLP, 0, code) }

// readCauses is the table from the memory check of a Read Request's source, by mem's verdict. A
// Read is checked by RDMAP, so its errors are RDMAP's, and unlike DDP's they do know access rights.
var readCauses = [...]Cause{
	0: CauseLocal, // accepted: no cause
	1: CauseInvalidSTag,
	2: CauseBounds,
	3: CauseNotAssociated,
	4: CauseWrap,
	5: CauseAccess,
}

// ReadCause is the cause when the memory check refuses the source of a Read Request.
func ReadCause(v ddp.Verdict) Cause { return readCauses[v] }

// Layer, Type and Code unpack.
func (c Cause) Layer() uint8 { return uint8(c >> 12) }
func (c Cause) Type() uint8  { return uint8(c>>8) & 0xf }
func (c Cause) Code() uint8  { return uint8(c) }

// text is the cause without its numbers.
func (c Cause) text() string {
	switch c.Layer() {
	case LayerRDMAP:
		return "RDMAP " + c.rdmapText()
	case LayerDDP:
		return "DDP " + ddp.ErrorText(c.Type(), c.Code())
	case LayerLLP:
		return "MPA " + c.mpaText()
	}
	return "unknown layer"
}

// String is for people: "DDP tagged buffer error: base or bounds violation (layer 1, type 1, code
// 0x01)".
func (c Cause) String() string {
	return fmt.Sprintf("%s (layer %d, type %d, code 0x%02x)", c.text(), c.Layer(), c.Type(), c.Code())
}

func (c Cause) rdmapText() string {
	switch c.Type() {
	case TypeLocalCatastrophic:
		return "local catastrophic error"
	case TypeRemoteProtection:
		return "remote protection error: " + nameOf(protectionNames, c.Code())
	case TypeRemoteOperation:
		return "remote operation error: " + nameOf(operationNames, c.Code())
	}
	return "error of unknown type"
}

func (c Cause) mpaText() string {
	if c.Type() != 0 {
		return "error of unknown type"
	}
	return "error: " + nameOf(mpaNames, c.Code())
}

var protectionNames = map[uint8]string{
	0x00: "invalid STag",
	0x01: "base or bounds violation",
	0x02: "access rights violation",
	0x03: "STag not associated with the stream",
	0x04: "TO wrap",
	0x09: "STag cannot be invalidated",
	0xff: "unspecified",
}

var operationNames = map[uint8]string{
	0x05: "invalid RDMAP version",
	0x06: "unexpected opcode",
	0x07: "catastrophic error of this stream",
	0x08: "catastrophic error, global",
	0x09: "STag cannot be invalidated",
	0xff: "unspecified",
}

var mpaNames = map[uint8]string{
	LLPClosed:          "TCP connection closed, terminated or lost",
	LLPCRC:             "CRC does not match",
	LLPMarker:          "marker and ULPDU length disagree on the start of an FPDU",
	LLPStartup:         "invalid start-up frame",
	LLPCatastrophic:    "local catastrophic error",
	LLPInsufficientIRD: "insufficient IRD resources",
	LLPNoMatchingRTR:   "no matching RTR option",
}

func nameOf(names map[uint8]string, code uint8) string {
	if s, ok := names[code]; ok {
		return s
	}
	return "unknown code"
}
