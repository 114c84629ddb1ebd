package qp

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"testing"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/stretchr/testify/require"
)

// A Terminate whose FPDU is larger than a segment goes out in two. One that does not fit after
// other FPDUs waits for the next segment.
func TestTerminateLargerThanASegment(t *testing.T) {
	body := terminateBody(nil)
	write := func() *sendHalf {
		s := &sendHalf{}
		s.start(&Engine{Config: Config{SGEMax: 1}}, &StartOptions{
			Terms: &mpa.Terms{Agreement: mpa.Agreement{Version: 1, Send: mpa.Mode{CRC: true}}}, Opened: true,
		})
		s.terminate(body)
		return s
	}
	var room [256]byte
	n := write().putTerminate(room[:], len(room))
	require.Equal(t, crc32.Checksum(room[:n-4], crc32.MakeTable(crc32.Castagnoli)),
		binary.LittleEndian.Uint32(room[n-4:]), "CRC")
	for _, emss := range []int{n, n + 1, 1460} { // exactly the room that is left
		s, rest := write(), make([]byte, n)
		require.Equal(t, n, s.putTerminate(rest, emss))
		require.Equal(t, room[:n], rest)
		require.Equal(t, s.carryEnd, s.carryOff, "nothing is left to send")
	}
	for emss := 1; emss < n; emss++ {
		s := write()
		require.Zero(t, s.putTerminate(make([]byte, emss), 2*emss), "after others")
		front := make([]byte, emss)
		require.Equal(t, emss, s.putTerminate(front, emss))
		require.Equal(t, room[:n], append(front, s.carry[s.carryOff:s.carryEnd]...))
	}
}

// What an error becomes on the wire when it is none of the protocols'.
func TestTerminateForOther(t *testing.T) {
	require.Equal(t, rdmap.Terminate{Cause: rdmap.CauseStream}, terminateFor(io.ErrUnexpectedEOF))
}
