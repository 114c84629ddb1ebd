package mpa

// FrameKind of a start-up frame.
type FrameKind uint8

const (
	Request FrameKind = iota + 1
	Reply
)

const (
	FrameLen       = 20  // Key, flags, Rev, PD_Length
	PrivateDataMax = 512 // Rev 1 and up
)

// Frame is a start-up frame.
type Frame struct {
	Kind                    FrameKind
	Markers, CRC, Reject, S bool
	Rev                     uint8
	PrivateData             []byte
}

// ParseFrame decodes a frame of the wanted kind at the front of b. n is its length; n == 0 with a nil error: more octets are needed
// (a wrong Key is reported as soon as it shows). PrivateData aliases b.
func ParseFrame(b []byte, want FrameKind, privateDataMax int) (f Frame, n int, err error) {
	panic("skeleton")
}

// Append writes the frame.
func (f *Frame) Append(b []byte) []byte { panic("skeleton") }

// Preferences of one end.
type Preferences struct {
	Markers bool // we want markers in what we receive
	CRC     bool // we want CRC; on unless the administrator says otherwise
	Rev     uint8
}

// Agreement is the result of start-up for one end.
type Agreement struct {
	Send, Receive Mode
	Rev           uint8
	Version       uint8 // of DDP and RDMAP: 0 for Rev 0, else 1
}

// Agree computes one end's modes from both frames (local is what we sent or will send).
func Agree(local, remote Frame) Agreement { panic("skeleton") }
