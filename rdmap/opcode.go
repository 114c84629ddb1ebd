package rdmap

import "github.com/rnicd/rnicd/ddp"

// Opcode of RFC 5040 section 4.1, and of RFC 7306 section 4.1.
type Opcode uint8

const (
	OpWrite        Opcode = 0
	OpReadRequest  Opcode = 1
	OpReadResponse Opcode = 2
	OpSend         Opcode = 3
	OpSendInv      Opcode = 4
	OpSendSE       Opcode = 5
	OpSendSEInv    Opcode = 6
	OpTerminate    Opcode = 7

	OpImmediate      Opcode = 8
	OpImmediateSE    Opcode = 9
	OpAtomicRequest  Opcode = 10
	OpAtomicResponse Opcode = 11
)

// Queue numbers, RFC 5040 section 3.1 and RFC 7306 section 4.1.
const (
	QNSend      = 0
	QNRead      = 1 // Atomic Requests too
	QNTerminate = 2
	QNAtomic    = 3 // Atomic Responses
)

// Extensions is the version that has RFC 7306's opcodes: there is none of the RDMA Consortium's.
const Extensions = 1

// The control octet: RV in two bits, two reserved bits, the opcode in four. RV is 1 for RFC 5040
// and 0 for the RDMA Consortium's specification; which one, MPA's revision decides.
const (
	versionShift = 6
	opcodeMask   = 0x0f
)

// opcodeInfo is a row of Figure 4, "RDMA Usage of DDP Fields".
type opcodeInfo struct {
	name        string
	valid       bool
	tagged      bool
	qn          uint32 // untagged only
	invalidates bool   // the rest of RsvdULP is the Invalidate STag
	solicited   bool
	extension   bool // of RFC 7306
	own         bool // of acknowledged mode, where it is valid: see CheckAcknowledged
}

var opcodes = [opcodeMask + 1]opcodeInfo{
	OpWrite:        {name: "RDMA Write", valid: true, tagged: true},
	OpReadRequest:  {name: "RDMA Read Request", valid: true, qn: QNRead},
	OpReadResponse: {name: "RDMA Read Response", valid: true, tagged: true},
	OpSend:         {name: "Send", valid: true, qn: QNSend},
	OpSendInv:      {name: "Send with Invalidate", valid: true, qn: QNSend, invalidates: true},
	OpSendSE:       {name: "Send with Solicited Event", valid: true, qn: QNSend, solicited: true},
	OpSendSEInv: {name: "Send with Solicited Event and Invalidate", valid: true, qn: QNSend,
		invalidates: true, solicited: true},
	OpTerminate: {name: "Terminate", valid: true, qn: QNTerminate},

	OpImmediate: {name: "Immediate Data", valid: true, qn: QNSend, extension: true},
	OpImmediateSE: {name: "Immediate Data with Solicited Event", valid: true, qn: QNSend,
		solicited: true, extension: true},
	OpAtomicRequest:  {name: "Atomic Request", valid: true, qn: QNRead, extension: true},
	OpAtomicResponse: {name: "Atomic Response", valid: true, qn: QNAtomic, extension: true},

	OpSendImm: {name: "Send with Immediate", qn: QNSend, own: true},
	OpSendImmSE: {name: "Send with Immediate and Solicited Event", qn: QNSend, solicited: true,
		own: true},
}

func (op Opcode) info() *opcodeInfo { return &opcodes[op&opcodeMask] }

// valid says whether the opcode is assigned.
func (op Opcode) valid() bool { return op <= opcodeMask && op.info().valid }

// tagged says which DDP model the opcode uses.
func (op Opcode) tagged() bool { return op.info().tagged }

// qn is the queue of an untagged opcode.
func (op Opcode) qn() uint32 { return op.info().qn }

// Invalidates says whether the message carries an STag to invalidate, in ddp.Header.ULP32.
func (op Opcode) Invalidates() bool { return op.info().invalidates }

// Immediate says whether the message is Immediate Data.
func (op Opcode) Immediate() bool { return op == OpImmediate || op == OpImmediateSE }

// Solicited says whether the message asks for an event at the Data Sink.
func (op Opcode) Solicited() bool { return op.info().solicited }

// IsRequest says whether the message is one of the peer's own: no Response, and no Terminate.
func (op Opcode) IsRequest() bool {
	return op != OpReadResponse && op != OpAtomicResponse && op != OpTerminate
}

// String is the name in RFC 5040 or 7306, or our own.
func (op Opcode) String() string {
	if !op.valid() && (op > opcodeMask || !op.info().own) {
		return "reserved opcode"
	}
	return op.info().name
}

// Control is the RDMAP control octet; the reserved bits are sent zero.
func Control(version uint8, op Opcode) uint8 {
	return version<<versionShift | uint8(op)&opcodeMask
}

// ParseControl is the inverse of Control; the reserved bits are ignored.
func ParseControl(b uint8) (version uint8, op Opcode) {
	return b >> versionShift, Opcode(b & opcodeMask)
}

// Header is the template of a message with this opcode: model, queue and control octet. STag and
// TO, or the Invalidate STag of an opcode that has one, are for the caller to fill.
func (op Opcode) Header(version uint8) ddp.Header {
	return ddp.Header{Tagged: op.tagged(), QN: op.qn(), ULP: Control(version, op)}
}

// Check validates what RFC 5040 section 7.2 demands of every incoming message: the version is the
// stream's, the opcode is valid, and it fits the T flag and the queue. When ok is false, cause is
// what to terminate with: 0/2/05 or 0/2/06. The Invalidate STag of an opcode without one is not
// looked at (section 4.1).
func Check(h *ddp.Header, version uint8) (op Opcode, cause Cause, ok bool) {
	rv, op := ParseControl(h.ULP)
	if rv != version {
		return op, CauseVersion, false
	}
	info := op.info()
	switch {
	case !info.valid, info.extension && version != Extensions, info.tagged != h.Tagged, !h.Tagged &&
		info.qn != h.QN:
		return op, CauseOpcode, false
	}
	return op, 0, true
}
