package rdmap

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/rnicd/rnicd/ddp"
	"github.com/stretchr/testify/require"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	require.NoError(t, err)
	return b
}

// req: 5040-4.4-1, 5040-4.4-3, 5040-A-1
func TestReadRequestGolden(t *testing.T) {
	for _, c := range []struct {
		wire string
		read ReadRequest
	}{
		{"01020304 1112131415161718 21222324 31323334 4142434445464748",
			ReadRequest{0x01020304, 0x1112131415161718, 0x21222324, 0x31323334, 0x4142434445464748}},
		{"ffffffff ffffffffffffffff ffffffff 00000000 0000000000000001",
			ReadRequest{0xffffffff, 1<<64 - 1, 1<<32 - 1, 0, 1}},
		{"00000000 0000000000000000 00000000 00000000 0000000000000000", ReadRequest{}},
	} {
		wire := unhex(t, c.wire)
		out := make([]byte, ReadRequestLen)
		c.read.Put(out)
		require.Equal(t, wire, out)
		read, ok := ParseReadRequest(wire)
		require.True(t, ok)
		require.Equal(t, c.read, read)
		for n := range wire {
			_, ok := ParseReadRequest(wire[:n])
			require.False(t, ok, "%d octets", n)
		}
	}
	require.Equal(t, 46, ddp.UntaggedLen+ReadRequestLen, "the whole segment")
}

// req: 5040-4.2-1
func TestReadRequestCarriesNoPayload(t *testing.T) {
	_, ok := ParseReadRequest(make([]byte, ReadRequestLen+1))
	require.False(t, ok)
}

// req: 5040-4.8-10
func TestReadRequestAdvance(t *testing.T) {
	r := ReadRequest{SinkSTag: 1, SinkTO: 100, Size: 5000, SrcSTag: 2, SrcTO: 70000}
	r.Advance(2048)
	require.Equal(t, ReadRequest{SinkSTag: 1, SinkTO: 2148, Size: 2952, SrcSTag: 2, SrcTO: 72048}, r)
	r.Advance(2952)
	require.Zero(t, r.Size)
	require.Panics(t, func() { r.Advance(1) })
}
