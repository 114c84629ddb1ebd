package rdmap

import "github.com/rnicd/rnicd/ddp"

// Send with Immediate is our own (ADR 0046), between two ends that have agreed on acknowledged
// mode: a Send with 4 octets beside the message, in ddp.Header.ULP32, where Send with Invalidate
// has its STag. RFC 7306's Immediate Data is a message of its own, which takes a receive buffer.
// Neither RFC 5040 nor RFC 7306 assigns the opcodes; without the mode both are invalid.
const (
	OpSendImm   Opcode = 12
	OpSendImmSE Opcode = 13
)

// HasImmediate says whether the message is a Send with Immediate.
func (op Opcode) HasImmediate() bool { return op == OpSendImm || op == OpSendImmSE }

// CheckAcknowledged is Check in acknowledged mode, where Sends with Immediate are valid.
func CheckAcknowledged(h *ddp.Header, version uint8) (op Opcode, cause Cause, ok bool) {
	if rv, op := ParseControl(h.ULP); op.HasImmediate() && rv == version && version == Extensions &&
		!h.Tagged && h.QN == QNSend {
		return op, 0, true
	}
	return Check(h, version)
}
