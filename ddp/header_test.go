package ddp

import (
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	out := make([]byte, 0, len(s)/2)
	for i := 0; i < len(s); i++ {
		if s[i] == ' ' {
			continue
		}
		b, err := hex.DecodeString(s[i : i+2])
		require.NoError(t, err)
		out = append(out, b[0])
		i++
	}
	return out
}

// req: DDP-6.1-1, DDP-6.1-10, DDP-6.2-1, DDP-6.2-2, DDP-6.2-6, DDP-6.2-9, DDP-6.3-1, DDP-6.3-2
// req: 5041-4.1-1, 5041-4.3-2, 5040-3.1-3
func TestHeaderGolden(t *testing.T) {
	for _, c := range []struct {
		name, wire string
		header     Header
	}{
		{"tagged last, version 1, from a Linux siw Write", "c140 deadbe00 0000000000001000",
			Header{Tagged: true, Last: true, Version: 1, ULP: 0x40, STag: 0xdeadbe00, TO: 0x1000}},
		{"untagged last, version 1, from a Linux siw Terminate",
			"4147 00000000 00000002 00000001 00000000",
			Header{Last: true, Version: 1, ULP: 0x47, QN: 2, MSN: 1}},
		{"tagged, not last, version 0", "8000 01020304 05060708090a0b0c",
			Header{Tagged: true, STag: 0x01020304, TO: 0x05060708090a0b0c}},
		{"tagged last, version 0, highest TO", "c0ff ffffffff ffffffffffffffff",
			Header{Tagged: true, Last: true, ULP: 0xff, STag: 0xffffffff, TO: 1<<64 - 1}},
		{"untagged last, version 0, every field", "4004 11121314 21222324 31323334 41424344",
			Header{Last: true, ULP: 4, ULP32: 0x11121314, QN: 0x21222324, MSN: 0x31323334, MO: 0x41424344}},
		{"untagged, not last, version 3", "0303 00000000 00000000 ffffffff 000005ca",
			Header{Version: 3, ULP: 3, MSN: 0xffffffff, MO: 1482}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wire := unhex(t, c.wire)
			require.Equal(t, len(wire), c.header.Len())

			out := make([]byte, len(wire)+1)
			out[len(wire)] = 0xa5
			c.header.Put(out)
			require.Equal(t, append(wire[:len(wire):len(wire)], 0xa5), out)

			if c.header.Tagged {
				hi, lo := c.header.Words()
				words := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, hi), lo)
				require.Equal(t, wire, words[:TaggedLen])
			}

			h, n, ok := Parse(wire)
			require.True(t, ok)
			require.Equal(t, len(wire), n)
			require.Equal(t, c.header, h)

			h, n, ok = Parse(append(wire[:len(wire):len(wire)], "payload"...))
			require.True(t, ok)
			require.Equal(t, len(wire), n)
			require.Equal(t, c.header, h)

			for cut := range wire {
				_, _, ok := Parse(wire[:cut])
				require.False(t, ok, "%d octets", cut)
			}
		})
	}
}

// req: DDP-6.1-9
func TestHeaderReservedBits(t *testing.T) {
	for _, wire := range []string{"fd40 deadbe00 0000000000001000",
		"7d47 00000000 00000002 00000001 00000000"} {
		b := unhex(t, wire)
		h, _, ok := Parse(b)
		require.True(t, ok, "set reserved bits are not checked")
		require.True(t, h.Last)
		require.Equal(t, uint8(1), h.Version)
		out := make([]byte, len(b))
		h.Put(out)
		require.Zero(t, out[0]&0x3c, "sent zero")
	}
}

func TestHeaderPutShort(t *testing.T) {
	tagged, untagged := Header{Tagged: true}, Header{}
	require.Panics(t, func() { tagged.Put(make([]byte, TaggedLen-1)) })
	require.Panics(t, func() { untagged.Put(make([]byte, UntaggedLen-1)) })
}

func FuzzHeader(f *testing.F) {
	f.Add(unhex(f, "c140 deadbe00 0000000000001000"))
	f.Add(unhex(f, "4147 00000000 00000002 00000001 00000000"))
	f.Add([]byte{0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, ok := Parse(b)
		want := UntaggedLen
		if len(b) > 0 && b[0]&0x80 != 0 {
			want = TaggedLen
		}
		require.Equal(t, len(b) >= want, ok, "%d octets", len(b))
		if !ok {
			return
		}
		require.Equal(t, want, n)
		require.Equal(t, want, h.Len())
		out := make([]byte, n)
		h.Put(out)
		in := append([]byte(nil), b[:n]...)
		in[0] &^= 0x3c // reserved bits are not kept
		require.Equal(t, in, out)
	})
}
