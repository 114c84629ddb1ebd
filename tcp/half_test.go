package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A half-open connection judges segments in the RFC's order: RST by its sequence number, SYN, an
// old timestamp, the window, and then the ACK.
//
// req: 9293-MUST-27
func TestHalfJudge(t *testing.T) {
	const irs, iss, wnd = Seq(0xffffff00), Seq(77), 20000
	at := func(n int) Seq { return irs + 1 + Seq(n) }
	for _, tc := range []struct {
		name  string
		flags Flags
		seq   int // from the first octet on
		len   int
		ack   Seq
		want  Judgment
	}{
		{"the RST", RST, 0, 0, 0, HalfForget},
		{"a RST in the window", RST, 1, 0, 0, HalfAgain},
		{"at its end", RST, wnd - 1, 0, 0, HalfAgain},
		{"after it", RST, wnd, 0, 0, HalfIgnore},
		{"before it", RST, -1, 0, 0, HalfIgnore},
		{"a RST with SYN", RST | SYN, 0, 0, 0, HalfForget},
		{"the SYN again", SYN, -1, 0, 0, HalfAgain},
		{"a new SYN", SYN, 0, 0, 0, HalfRenew},
		{"at the window's end", SYN, wnd - 1, 0, 0, HalfRenew},
		{"beyond", SYN, wnd, 0, 0, HalfAgain},
		{"a SYN,ACK", SYN | ACK, 0, 0, iss + 1, HalfAgain},
		{"the ACK", ACK, 0, 0, iss + 1, HalfOpen},
		{"of the SYN only in part", ACK, 0, 0, iss, HalfReset},
		{"of what was not sent", ACK, 0, 0, iss + 2, HalfReset},
		{"no ACK", PSH, 0, 5, iss + 1, HalfIgnore},
		{"no ACK and no octets", 0, 0, 0, iss + 1, HalfIgnore},
		{"empty at the right edge", ACK, wnd, 0, iss + 1, HalfOpen},
		{"empty after it", ACK, wnd + 1, 0, iss + 1, HalfAgain},
		{"empty and old", ACK, -1, 0, iss + 1, HalfAgain},
		{"octets", ACK, 0, 9, iss + 1, HalfOpen},
		{"the last that fits", ACK, wnd - 1, 9, iss + 1, HalfOpen},
		{"octets after the window", ACK, wnd, 9, iss + 1, HalfAgain},
		{"old octets", ACK, -9, 9, iss + 1, HalfAgain},
		{"a new one after old ones", ACK, -9, 10, iss + 1, HalfOpen},
		{"a FIN", ACK | FIN, 0, 0, iss + 1, HalfOpen},
	} {
		h := Half{iss: iss, irs: irs}
		s := Segment{Flags: tc.flags, Seq: at(tc.seq), Ack: tc.ack, Len: tc.len}
		require.Equal(t, tc.want, h.Judge(&Config{ReceiveWindow: wnd}, &s), tc.name)
	}
	// A SYN,ACK's window is not scaled; one of no octets takes what begins at it.
	h := Half{iss: iss, irs: irs}
	for _, tc := range []struct {
		wnd, seq, len int
		want          Judgment
	}{
		{1 << 20, 65534, 1, HalfOpen}, {1 << 20, 65535, 1, HalfAgain}, {0, 0, 1, HalfOpen},
		{0, 1, 1, HalfAgain},
		{0, 0, 0, HalfOpen}, {0, 1, 0, HalfAgain},
	} {
		s := Segment{Flags: ACK, Seq: at(tc.seq), Ack: iss + 1, Len: tc.len}
		require.Equal(t, tc.want, h.Judge(&Config{ReceiveWindow: tc.wnd}, &s), "%+v", tc)
	}
}

// PAWS holds for a half-open connection that has timestamps, on both ends.
func TestHalfJudgeTimestamps(t *testing.T) {
	for _, tc := range []struct {
		ours, noTS, theirs bool
		val                uint32
		want               Judgment
	}{
		{true, false, true, 4, HalfAgain}, {true, false, true, 5, HalfOpen},
		{true, false, true, 6, HalfOpen},
		{false, false, true, 4, HalfOpen}, {true, true, true, 4, HalfOpen},
		{true, false, false, 4, HalfOpen},
	} {
		h := Half{iss: 1, irs: 1, ts: tc.ours, tsVal: 5}
		s := Segment{Flags: ACK, Seq: 2, Ack: 2}
		s.Options.HasTimestamps, s.Options.TSval = tc.theirs, tc.val
		require.Equal(t, tc.want, h.Judge(&Config{ReceiveWindow: 100, NoTimestamps: tc.noTS}, &s),
			"%+v", tc)
	}
}
