package inet

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden returns a frame of testdata/linux.hex, a fresh copy each time.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	all := goldens(t)
	require.Contains(t, all, name)
	return all[name]
}

func goldens(t testing.TB) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile("testdata/linux.hex")
	require.NoError(t, err)
	all := map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, digits, ok := strings.Cut(strings.TrimSpace(line), " ")
		require.True(t, ok, line)
		b, err := hex.DecodeString(digits)
		require.NoError(t, err)
		all[name] = b
	}
	return all
}

// goldenIPv4 returns the header and payload of the IPv4 packet in a golden frame.
func goldenIPv4(t testing.TB, name string) (IPv4, []byte) {
	t.Helper()
	_, packet, d := ParseEthernet(golden(t, name))
	require.Equal(t, DropNone, d)
	h, payload, d := ParseIPv4(packet, false)
	require.Equal(t, DropNone, d)
	return h, payload
}

func mac(t testing.TB, s string) MAC {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, ":", ""))
	require.NoError(t, err)
	return MAC(b)
}

func ip4(a, b, c, d byte) Addr { return AddrFrom4([4]byte{a, b, c, d}) }

// clipped copies b into memory that ends with it, so that reading past its end is a fault the
// runtime sees.
func clipped(b []byte) []byte { return append(make([]byte, 0, len(b)), b...)[:len(b):len(b)] }
