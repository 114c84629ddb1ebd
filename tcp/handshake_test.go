package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The shift is 14 then, and the SYN's receiver can count it.
//
// req: 7323-2.3-3
func TestShiftAbove14IsTaken14(t *testing.T) {
	for shift, high := range map[byte]bool{13: false, 14: false, 15: true, 255: true} {
		b := []byte{0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 6 << 4, byte(SYN), 0, 1, 0, 0, 0, 0, optNOP,
			optWindowScale, 3, shift}
		var syn Segment
		require.Equal(t, DropNone, Parse(b, &syn))
		require.Equal(t, high, syn.Options.ScaleTooLarge, "shift %d", shift)
		c := NewConn(Config{})
		c.Accept(0, simID(true), 1, 0, &syn)
		require.Equal(t, min(shift, 14), c.sndShift, "shift %d", shift)
	}
}

// req: 9293-3.5.2-1, 9293-3.10.7.2-1
func TestResetFor(t *testing.T) {
	var x Transmit
	id := simID(true)
	require.False(t, ResetFor(id, &Segment{Flags: RST | ACK}, &x), "reset answered")
	if !ResetFor(id, &Segment{Flags: ACK | PSH, Seq: 5, Ack: 99, Len: 10}, &x) || x.Flags != RST ||
		x.Seq != 99 || x.Ack != 0 {
		t.Errorf("to an ACK: %+v", x)
	}
	if !ResetFor(id, &Segment{Flags: SYN | FIN, Seq: 5, Len: 10}, &x) || x.Flags != RST|ACK ||
		x.Seq != 0 || x.Ack != 17 {
		t.Errorf("to a SYN: %+v", x)
	}
	if x.HeaderLen() != HeaderLenMin || x.ID != id || x.Handle != NoHandle {
		t.Errorf("%+v", x)
	}
}
