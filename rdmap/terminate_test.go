package rdmap

import (
	"testing"

	"github.com/rnicd/rnicd/ddp"
	"github.com/stretchr/testify/require"
)

var (
	writeHeader = ddp.Header{Tagged: true, Last: true, Version: 1, ULP: 0x40,
		STag: 0xdeadbe00, TO: 0x1000}
	readHeader      = ddp.Header{Last: true, Version: 1, ULP: 0x41, QN: 1, MSN: 3}
	atomicHeader    = ddp.Header{Last: true, Version: 1, ULP: 0x4a, QN: 1, MSN: 3}
	immediateHeader = ddp.Header{Last: true, Version: 1, ULP: 0x48, MSN: 9}
	sendHeader      = ddp.Header{Last: true, Version: 1, ULP: 0x44, ULP32: 0x99, QN: 0,
		MSN: 7, MO: 1442}
	aRead = ReadRequest{SinkSTag: 0x01020304, SinkTO: 0x10, Size: 0x800, SrcSTag: 0x05060708,
		SrcTO: 0x20}
)

const (
	writeWire        = "c140 deadbe00 0000000000001000"
	readDDPWire      = "4141 00000000 00000001 00000003 00000000"
	atomicDDPWire    = "414a 00000000 00000001 00000003 00000000"
	immediateDDPWire = "4148 00000000 00000000 00000009 00000000"
	aReadWire        = "01020304 0000000000000010 00000800 05060708 0000000000000020"
)

// Layouts, and who carries what: Figure 10 and section 7.1 of RFC 5040.
// req: 5040-4.8-1, 5040-4.8-2, 5040-4.8-3, 5040-4.8-7, 5040-4.8-8, 5040-4.8-9, 5040-4.8-11
// req: 5040-7.1-2, 5040-7.1-3, 5040-7.1-4, 5040-3.1-3, 7306-8.2-2
func TestTerminateGolden(t *testing.T) {
	for _, c := range []struct {
		name, wire string
		term       Terminate
	}{
		{"DDP, tagged", "1100c000 0010" + writeWire,
			TerminateDDP(&ddp.Error{Type: 1, Code: 0, Header: writeHeader, SegmentLen: 16})},
		{"DDP, untagged", "1202c000 002e" + readDDPWire,
			TerminateDDP(&ddp.Error{Type: 2, Code: 2, Header: readHeader, SegmentLen: 46})},
		{"DDP, local catastrophic", "10000000",
			TerminateDDP(&ddp.Error{Header: sendHeader, SegmentLen: 46})},
		{"DDP, no header", "10000000", TerminateDDP(&ddp.Error{SegmentLen: 3, Truncated: true})},
		{"MPA, bad CRC", "20020000", TerminateLLP(LLPCRC)},
		{"RDMAP, no message to blame", "02ff0000", TerminateRDMAP(CauseOperation, nil, 0, nil)},
		{"RDMAP, local catastrophic", "00000000", TerminateRDMAP(CauseLocal, &readHeader, 46, &aRead)},
		{"RDMAP, opcode of a Write", "0206c000 05b4" + writeWire,
			TerminateRDMAP(CauseOpcode, &writeHeader, 1460, nil)},
		{"RDMAP, Read out of bounds", "0101e000 002e" + readDDPWire + aReadWire,
			TerminateRDMAP(CauseBounds, &readHeader, 46, &aRead)},
		// no RDMA header: RFC 7306 section 8.1
		{"RDMAP, misaligned atomic", "0207c000 0046" + atomicDDPWire,
			TerminateRDMAP(CauseStream, &atomicHeader, 70, nil)},
		{"RDMAP, immediate data of the wrong length", "02ffc000 0019" + immediateDDPWire,
			TerminateRDMAP(CauseOperation, &immediateHeader, 25, nil)},
		{"RDMAP, Read alone", "01012000" + aReadWire, TerminateRDMAP(CauseBounds, nil, 0, &aRead)},
		{"length alone", "02068000 0010", Terminate{Cause: CauseOpcode, HasSegmentLen: true,
			SegmentLen: 16}},
		{"header without a valid length", "02064000 0000" + writeWire,
			Terminate{Cause: CauseOpcode, HasDDP: true, DDP: writeHeader}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wire := unhex(t, c.wire)
			require.Equal(t, len(wire), c.term.Len())
			require.LessOrEqual(t, len(wire), terminateMax)
			out := make([]byte, len(wire))
			for i := range out {
				out[i] = 0xff
			}
			c.term.Put(out)
			require.Equal(t, wire, out)

			got, ok := ParseTerminate(wire)
			require.True(t, ok)
			require.Equal(t, c.term, got)

			// Reserved bits and further octets are ignored.
			noisy := append(append([]byte(nil), wire...), 1, 2, 3)
			noisy[2] |= 0x1f
			noisy[3] = 0xff
			got, ok = ParseTerminate(noisy)
			require.True(t, ok)
			require.Equal(t, c.term, got)

			for n := range wire {
				got, ok := ParseTerminate(wire[:n])
				require.False(t, ok, "%d octets", n)
				if n >= 4 {
					require.Equal(t, c.term.Cause, got.Cause, "the cause survives")
				}
			}
			require.Panics(t, func() { c.term.Put(make([]byte, len(wire)-1)) })
		})
	}
}

// What Linux siw really sent for a Write to an unknown STag: it puts HdrCt into the low bits of
// its octet.
func TestTerminateFromSiw(t *testing.T) {
	got, ok := ParseTerminate(unhex(t, "11000300 0010 c140 deadbe00 0000000000001000"))
	require.True(t, ok)
	require.Equal(t, Terminate{Cause: 0x1100}, got)
	require.Equal(t, "DDP tagged buffer error: invalid STag (layer 1, type 1, code 0x00)",
		got.String())
}

func TestTerminateLongSegment(t *testing.T) {
	got := TerminateDDP(&ddp.Error{Type: 1, SegmentLen: 1 << 20})
	require.Equal(t, uint16(65535), got.SegmentLen)
}

func TestTerminateString(t *testing.T) {
	term := TerminateRDMAP(CauseBounds, &readHeader, 46, &aRead)
	require.Equal(t, "RDMAP remote protection error: base or bounds violation (layer 0, type 1, "+
		"code 0x01), segment of 46 octets, "+
		"RDMA Read Request on QN 1, MSN 3, MO 0, reading 2048 octets from STag 0x05060708, TO 0x20",
		term.String())
	term = TerminateDDP(&ddp.Error{Type: 1, Code: 3, Header: writeHeader, SegmentLen: 16})
	require.Equal(t, "DDP tagged buffer error: TO wrap (layer 1, type 1, code 0x03), segment of "+
		"16 octets, "+
		"RDMA Write to STag 0xdeadbe00, TO 0x1000", term.String())
	term = TerminateDDP(&ddp.Error{Type: 1, Code: 4, Header: writeHeader, SegmentLen: 16})
	require.Equal(t, "DDP tagged buffer error: invalid DDP version (layer 1, type 1, code 0x04), "+
		"segment of 16 octets, "+
		"RDMA Write to STag 0xdeadbe00, TO 0x1000, version 1", term.String())
	term = TerminateDDP(&ddp.Error{Type: 2, Code: 6, Header: sendHeader, SegmentLen: 900})
	require.Contains(t, term.String(), ", version 1")
}

func TestTerminateAllocs(t *testing.T) {
	e := &ddp.Error{Type: 1, Code: 1, Header: writeHeader, SegmentLen: 16}
	var b [terminateMax]byte
	require.Zero(t, testing.AllocsPerRun(100, func() {
		term := TerminateDDP(e)
		term.Put(b[:])
		if _, ok := ParseTerminate(b[:term.Len()]); !ok {
			t.Fatal("not parsed")
		}
	}))
}

func FuzzTerminate(f *testing.F) {
	f.Add(unhex(f, "1100c000 0010"+writeWire))
	f.Add(unhex(f, "0101e000 002e"+readDDPWire+aReadWire))
	f.Add(unhex(f, "01012000"+aReadWire))
	f.Add(unhex(f, "02068000 0010"))
	f.Fuzz(func(t *testing.T, b []byte) {
		term, ok := ParseTerminate(b)
		if !ok {
			return
		}
		_ = term.String()
		n := term.Len()
		require.LessOrEqual(t, n, len(b))
		require.LessOrEqual(t, n, terminateMax)
		out := make([]byte, n)
		term.Put(out)
		in := append([]byte(nil), b[:n]...)
		in[2], in[3] = in[2]&0xe0, 0
		if term.HasDDP {
			in[6] &^= 0x3c // reserved bits of the DDP control field
		}
		require.Equal(t, in, out)
	})
}
