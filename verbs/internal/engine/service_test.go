package engine

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

// A datagram in octets, both ways; what is shorter, or longer, or has a field that cannot be, is
// another program's.
func TestServiceOctets(t *testing.T) {
	s := service{kind: serviceAnswer, status: 2, transaction: 0x0102030405060708,
		cookie: [16]byte{0: 0xc0, 15: 0xcf}, number: 0x123456, qkey: 0x01234567,
		private: []byte("hello")}
	b := s.put()
	require.Equal(t, "726e7371"+"02020200"+"0102030405060708"+"c00000000000000000000000000000cf"+
		"00123456"+"01234567"+hex.EncodeToString([]byte("hello")), hex.EncodeToString(b))
	got, ok := parseService(b)
	require.True(t, ok)
	require.Equal(t, s, got)
	for n := range serviceLen {
		_, ok = parseService(b[:n])
		require.False(t, ok, n)
	}
	_, ok = parseService(append(b, make([]byte, serviceMax-len(b)+1)...))
	require.False(t, ok)
	for _, at := range []int{0, 3, 4, 5, 7, 32} {
		bad := append([]byte(nil), b...)
		bad[at]++
		_, ok = parseService(bad)
		require.False(t, ok, at)
	}
	b[5] = serviceProve // which has no status
	_, ok = parseService(b)
	require.False(t, ok)
}

// What is parsed is what was put.
func FuzzService(f *testing.F) {
	s := service{kind: serviceAnswer, status: 1, transaction: 4, number: 2, qkey: 3,
		private: []byte("x")}
	f.Add(s.put())
	f.Add((&service{cookie: [16]byte{1}}).put())
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, ok := parseService(data); ok {
			require.Equal(t, data, s.put())
		}
	})
}
