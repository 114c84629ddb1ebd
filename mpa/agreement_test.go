package mpa

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Both ends, all sixteen combinations of M and C: each end's Send is the other's Receive.
//
// req: D01-5.2-12, D01-6.1.1-6, D01-6.1.1-7, D01-6.1.1-9, 5044-7.1.1-2, 5044-C.3-1
func TestAgreeOnMarkersAndCRC(t *testing.T) {
	for i := range 16 {
		a := Preferences{Markers: i&1 != 0, CRC: i&2 != 0, Rev: 1}.Frame(Request, nil)
		b := Preferences{Markers: i&4 != 0, CRC: i&8 != 0, Rev: 1}.Frame(Reply, nil)
		x, y := agree(a, b), agree(b, a)
		require.Equal(t, x.Send, y.Receive)
		require.Equal(t, y.Send, x.Receive)
		require.Equal(t, Agreement{
			Send:    Mode{Markers: i&4 != 0, CRC: i&2 != 0 || i&8 != 0},
			Receive: Mode{Markers: i&1 != 0, CRC: i&2 != 0 || i&8 != 0},
			Rev:     1, Version: 1,
		}, x)
	}
}

// DECISIONS 6.
func TestAgreeOnRev(t *testing.T) {
	for _, c := range []struct{ local, remote, rev, version uint8 }{
		{0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {1, 1, 1, 1}, {2, 1, 1, 1}, {2, 2, 2, 1}, {2, 0, 0, 0},
	} {
		a := agree(Frame{Rev: c.local}, Frame{Rev: c.remote})
		require.Equal(t, c.rev, a.Rev)
		require.Equal(t, c.version, a.Version)
	}
}
