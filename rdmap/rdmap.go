// Package rdmap is the RDMA protocol over DDP: opcodes and Terminate.
package rdmap

// Opcode of RFC 5040 section 4.1.
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
)

// Queue numbers.
const (
	QNSend      = 0
	QNRead      = 1
	QNTerminate = 2
)

// Control is the RDMAP control octet.
func Control(version uint8, op Opcode) uint8          { panic("skeleton") }
func ParseControl(b uint8) (version uint8, op Opcode) { panic("skeleton") }
