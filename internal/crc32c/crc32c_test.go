package crc32c

import (
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/skip"
)

// forAll runs a test for what is exported and for each kernel of this machine.
func forAll(t *testing.T, test func(t *testing.T, update func(uint32, []byte) uint32)) {
	for _, k := range append([]kernel{{"Update", true, Update}}, kernels...) {
		t.Run(k.name, func(t *testing.T) {
			if !k.has {
				skip.Because(t, skip.Instructions, "%s", k.name)
			}
			test(t, k.update)
		})
	}
}

// same compares with hash/crc32. (Require formats its arguments each time: too slow for each of a
// million.)
func same(t *testing.T, update func(uint32, []byte) uint32, crc uint32, p []byte) {
	t.Helper()
	if want, got := crc32.Update(crc, castagnoli, p), update(crc, p); want != got {
		require.Failf(t, "CRC", "%d octets after %#x: %#x, want %#x", len(p), crc, got, want)
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b)
	return b
}

// Every length to 4096, which is every remainder after blocks and chains, wherever in a line of the
// cache it begins; and some beyond the longest chains.
func TestLengths(t *testing.T) {
	room := noise(20000)
	forAll(t, func(t *testing.T, update func(uint32, []byte) uint32) {
		for _, at := range []int{0, 1, 2, 4, 7, 8, 15, 31, 33, 63} {
			for n := range 4097 {
				same(t, update, 0, room[at:at+n])
				same(t, update, binary.LittleEndian.Uint32(room[n:]), room[at:at+n])
			}
			for n := 4097; n < len(room)-at; n += 61 {
				same(t, update, uint32(n), room[at:at+n])
			}
		}
	})
}

// RFC 3720 appendix B.4; the CRC stands there as on the wire.
func TestVectors(t *testing.T) {
	for _, v := range []struct{ octets, crc string }{
		{"0000000000000000000000000000000000000000000000000000000000000000", "aa36918a"},
		{"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff", "43aba862"},
		{"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "4e79dd46"},
		{"1f1e1d1c1b1a191817161514131211100f0e0d0c0b0a09080706050403020100", "5cdb3f11"},
		{"01c00000000000000000000000000000140000000000040000000014000000182800000000000000" +
			"0200000000000000", "563a96d9"},
	} {
		b, err := hex.DecodeString(v.octets)
		require.NoError(t, err)
		forAll(t, func(t *testing.T, update func(uint32, []byte) uint32) {
			require.Equal(t, v.crc, hex.EncodeToString(binary.LittleEndian.AppendUint32(nil, update(0, b))))
		})
	}
}

func FuzzUpdate(f *testing.F) {
	for _, n := range []int{0, 1, 18, 64, 65, 71, 72, 193, 257, 1444} {
		f.Add(uint32(n), n/3, noise(n))
	}
	f.Fuzz(func(t *testing.T, crc uint32, at int, b []byte) {
		at = min(max(at, 0), len(b))
		for _, k := range kernels {
			if k.has {
				same(t, k.update, crc, b[at:])
				same(t, k.update, k.update(crc, b[:at]), b[at:])
			}
		}
	})
}
