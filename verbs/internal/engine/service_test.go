package engine

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

// The private data in octets, both ways; what is shorter, or has a field that cannot be, is another
// program's.
func TestServiceOctets(t *testing.T) {
	s := service{status: 2, number: 0x123456, qkey: 0x01234567, private: []byte("hello")}
	b := s.put()
	require.Equal(t, "726e7371"+"01020000"+"00123456"+"01234567"+hex.EncodeToString([]byte("hello")),
		hex.EncodeToString(b))
	got, ok := parseService(b)
	require.True(t, ok)
	require.Equal(t, s, got)
	for n := range serviceLen {
		_, ok = parseService(b[:n])
		require.False(t, ok, n)
	}
	for _, at := range []int{0, 3, 4, 6, 7, 8} {
		bad := append([]byte(nil), b...)
		bad[at]++
		_, ok = parseService(bad)
		require.False(t, ok, at)
	}
}

// What is parsed is what was put.
func FuzzService(f *testing.F) {
	s := service{status: 1, number: 2, qkey: 3, private: []byte("x")}
	f.Add(s.put())
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, ok := parseService(data); ok {
			require.Equal(t, data, s.put())
		}
	})
}
