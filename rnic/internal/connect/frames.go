package connect

import (
	"github.com/rnicd/rnicd/mpa"
)

// frames are a connection's start-up frames.
type frames struct {
	own        mpa.Frame       // that this end has sent or is going to send
	in         []byte          // octets received that are not yet a frame, of one that comes in pieces
	out        []byte          // octets not yet pulled
	room       [frameRoom]byte // of out, for a frame that is short and alone
	privateMax int             // the longest private data taken in a frame of Rev 0
}

// frameRoom is the longest start-up frame for which nothing is allocated.
const frameRoom = mpa.FrameLen + 28

// put has f sent after what is still to be pulled.
func (s *frames) put(f *mpa.Frame) {
	if s.out == nil {
		s.out = s.room[:0]
	}
	s.out = f.Append(s.out)
}

// longest is the longest frame that is taken, of any Rev.
func (s *frames) longest() int { return mpa.FrameLen + max(s.privateMax, mpa.PrivateDataMax) }
