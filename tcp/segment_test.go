package tcp

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// golden are headers as they stand on the wire, checksum zero.
var golden = []struct {
	name string
	wire string
	seg  Segment
}{
	{"SYN in the order Linux has",
		"3039 1fb6 01020304 00000000 a002 ffff 0000 0000 020405b4 0402 080a 00000064 00000000 01 030307",
		Segment{SrcPort: 12345, DstPort: 8118, Seq: 0x01020304, Flags: SYN, Window: 65535, HdrLen: 40,
			Options: Options{MSS: 1460, WindowScale: 7, SACKPermitted: true, HasTimestamps: true,
				TSval: 100}}},
	{"SYN without timestamps",
		"3039 1fb6 01020304 00000000 8002 ffff 0000 0000 020405b4 0101 0402 01 030300",
		Segment{SrcPort: 12345, DstPort: 8118, Seq: 0x01020304, Flags: SYN, Window: 65535, HdrLen: 32,
			Options: Options{MSS: 1460, WindowScale: 0, SACKPermitted: true}}},
	{"data",
		"3039 1fb6 01020304 0a0b0c0d 8018 01f5 0000 0000 0101 080a 00000001 00000002",
		Segment{SrcPort: 12345, DstPort: 8118, Seq: 0x01020304, Ack: 0x0a0b0c0d, Flags: ACK | PSH,
			Window: 501, HdrLen: 32,
			Options: Options{WindowScale: -1, HasTimestamps: true, TSval: 1, TSecr: 2}}},
	{"ACK with SACK",
		"3039 1fb6 01020304 0a0b0c0d d010 01f5 0000 0000 0101 080a 00000001 00000002 0101 0512 " +
			"00000005 00000006 00000007 fffffff8",
		Segment{SrcPort: 12345, DstPort: 8118, Seq: 0x01020304, Ack: 0x0a0b0c0d, Flags: ACK,
			Window: 501, HdrLen: 52,
			Options: Options{WindowScale: -1, HasTimestamps: true, TSval: 1, TSecr: 2,
				SACK: [4]SACKBlock{{5, 6}, {7, 0xfffffff8}}, SACKCount: 2}}},
	{"RST",
		"3039 1fb6 01020304 00000000 5004 0000 0000 0000",
		Segment{SrcPort: 12345, DstPort: 8118, Seq: 0x01020304, Flags: RST, HdrLen: 20,
			Options: Options{WindowScale: -1}}},
}

// transmitOf is the Transmit that makes s.
func transmitOf(s *Segment) Transmit {
	return Transmit{ID: ID{LocalPort: s.SrcPort, RemotePort: s.DstPort}, Seq: s.Seq, Ack: s.Ack,
		Flags:  s.Flags,
		Window: s.Window, Options: s.Options, Handle: NoHandle}
}

// req: 9293-MUST-4, 9293-MUST-68, 9293-MUST-69, 9293-SHLD-13, 9293-3.1-1
func TestGoldenHeaders(t *testing.T) {
	for _, tt := range golden {
		wire := unhex(tt.wire)
		var seg Segment
		require.Equal(t, DropNone, Parse(wire, &seg), tt.name)
		require.Equal(t, tt.seg, seg, tt.name)
		x := transmitOf(&tt.seg)
		b := bytes.Repeat([]byte{0xee}, headerLenMax)
		if n := x.HeaderLen(); n != len(wire) {
			t.Errorf("%s: HeaderLen %d, want %d", tt.name, n, len(wire))
			continue
		}
		x.Put(b)
		require.True(t, bytes.Equal(b[:len(wire)], wire), "%s: %x", tt.name, b)
		require.True(t, bytes.Equal(b[len(wire):], bytes.Repeat([]byte{0xee}, headerLenMax-len(wire))),
			"%s: %x", tt.name, b)
	}
}

func TestTruncatedHeaders(t *testing.T) {
	for _, tt := range golden {
		wire := unhex(tt.wire)
		for n := range wire {
			want := DropHeaderLen
			if n < HeaderLenMin {
				want = DropShort
			}
			require.Equal(t, want, Parse(wire[:n:n], new(Segment)), "%s cut to %d", tt.name, n)
		}
	}
	b := unhex(golden[4].wire)
	for _, offset := range []byte{0, 4} {
		b[12] = offset << 4
		require.Equal(t, DropHeaderLen, Parse(b, new(Segment)), "data offset %d", offset)
	}
}

// withOptions is a header with option octets o, padded with EOL, and payload octets after.
func withOptions(o []byte, payload int) []byte {
	o = append(o, make([]byte, (4-len(o)%4)%4)...)
	b := make([]byte, HeaderLenMin, HeaderLenMin+len(o)+payload)
	b[12] = byte((HeaderLenMin+len(o))/4) << 4
	b = append(b, o...)
	return append(b, make([]byte, payload)...)
}

// req: 9293-MUST-5, 9293-MUST-6, 9293-MUST-7, 9293-MUST-64, 7323-2.3-3, 2018-3-1
func TestOptions(t *testing.T) {
	none := Options{WindowScale: -1}
	for _, tt := range []struct {
		name string
		b    string
		want Options
		drop Drop
	}{
		{"unknown kind", "fd04aabb 020405b4", Options{MSS: 1460, WindowScale: -1}, DropNone},
		{"unaligned timestamps", "01 080a 00000001 00000002 01",
			Options{WindowScale: -1, HasTimestamps: true, TSval: 1, TSecr: 2}, DropNone},
		{"EOL ends", "00 020405b4 000000", none, DropNone},
		{"length 0", "fd00 0000", none, DropOptions},
		{"length 1", "fd01 0000", none, DropOptions},
		{"length beyond the header", "0204 05b4 0101 080a", Options{MSS: 1460, WindowScale: -1},
			DropOptions},
		{"length octet missing", "010101 02", none, DropOptions},
		{"MSS of 3", "0203 05 01", none, DropNone},
		{"window scale of 4", "0304 0707", none, DropNone},
		{"window scale of 200", "0303 c8 01", Options{WindowScale: 14, ScaleTooLarge: true}, DropNone},
		{"SACK-permitted of 3", "0403 0001", none, DropNone},
		{"timestamps of 9", "0809 00000000 000000 010101", none, DropNone},
		{"SACK without a block", "0502 0101", none, DropNone},
		{"SACK of 9", "0509 00000001 000000 010101", none, DropNone},
		{"SACK of one", "050a 00000001 00000002 0101",
			Options{WindowScale: -1, SACK: [4]SACKBlock{{1, 2}}, SACKCount: 1}, DropNone},
		{"SACK of four", "0522 00000001 00000002 00000003 00000004 00000005 00000006 00000007 " +
			"00000008 0101",
			Options{WindowScale: -1, SACK: [4]SACKBlock{{1, 2}, {3, 4}, {5, 6}, {7, 8}}, SACKCount: 4},
			DropNone},
	} {
		var seg Segment
		d := Parse(withOptions(unhex(tt.b), 7), &seg)
		require.Equal(t, tt.drop, d, tt.name)
		require.Equal(t, tt.want, seg.Options, tt.name)
		require.False(t, d == DropNone && seg.Len != 7, tt.name)
	}
}

func TestSeqLen(t *testing.T) {
	for _, tt := range []struct {
		f    Flags
		want int
	}{{0, 5}, {SYN, 6}, {FIN, 6}, {SYN | FIN | ACK | RST | PSH, 7}} {
		require.Equal(t, tt.want, (&Segment{Flags: tt.f, Len: 5}).SeqLen(), "%08b", tt.f)
	}
}

// req: 9293-3.4-1
func TestSeqIsModular(t *testing.T) {
	for _, tt := range []struct {
		a, b Seq
		want int
	}{{1, 0, 1}, {0, 1, -1}, {5, 0xfffffffb, 10}, {0xfffffffb, 5, -10}, {7, 7, 0}} {
		require.Equal(t, tt.want, tt.a.Sub(tt.b), "%d - %d", tt.a, tt.b)
		require.Equal(t, tt.want < 0, tt.a.Less(tt.b), "order of %d and %d", tt.a, tt.b)
		require.Equal(t, tt.want <= 0, tt.a.LessEq(tt.b), "order of %d and %d", tt.a, tt.b)
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for d := DropNone; d < DropMax; d++ {
		if name := d.String(); name == "" || name == "?" || seen[name] {
			t.Errorf("drop %d is %q", d, name)
		} else {
			seen[name] = true
		}
	}
	for s := Closed; s <= TimeWait; s++ {
		if name := s.String(); name == "" || name == "?" {
			t.Errorf("state %d is %q", s, name)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, tt := range golden {
		f.Add(unhex(tt.wire))
	}
	f.Add(withOptions(unhex("fd00"), 3))
	f.Add(withOptions([]byte{optNOP, 3, 3, 32}, 2)) // a shift of 32
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Segment
		if Parse(b, &s) != DropNone {
			return
		}
		if s.HdrLen < HeaderLenMin || s.HdrLen+s.Len != len(b) || s.Options.SACKCount > sackBlocksMax {
			t.Fatalf("%+v of %d octets", s, len(b))
		}
		x := transmitOf(&s)
		n := x.HeaderLen()
		if n > headerLenMax {
			return // options that came once each, packed tighter than we write them
		}
		again := make([]byte, n)
		x.Put(again)
		var s2 Segment
		require.Equal(t, DropNone, Parse(again, &s2))
		s2.HdrLen, s2.Len, s2.Urgent = s.HdrLen, s.Len, s.Urgent
		s2.Options.ScaleTooLarge = s.Options.ScaleTooLarge // it is told as 14, the largest
		for i := s.Options.SACKCount; i < sackBlocksMax; i++ {
			s.Options.SACK[i], s2.Options.SACK[i] = SACKBlock{}, SACKBlock{}
		}
		require.Equal(t, s, s2)
	})
}

// A header whose data offset is the greatest there is, 15 words, has headerLenMax octets.
func TestLongestHeader(t *testing.T) {
	b := bytes.Repeat([]byte{optNOP}, headerLenMax)
	b[12] = 15 << 4
	var s Segment
	if d := Parse(b, &s); d != DropNone || s.HdrLen != headerLenMax || s.Len != 0 {
		t.Errorf("%v, header of %d octets, %d after it", d, s.HdrLen, s.Len)
	}
}
