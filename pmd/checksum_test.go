package pmd

import (
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
)

func TestCompleteChecksumGolden(t *testing.T) {
	// RFC 1071 section 3: the words 0001 f203 f4f5 f6f7 sum to ddf2.
	frame, _ := hex.DecodeString("aabb" + "0001f203f4f5f6f7" + "0000")
	require.True(t, CompleteChecksum(frame, 2, 8))
	require.Equal(t, "aabb"+"0001f203f4f5f6f7"+"220d", hex.EncodeToString(frame))
}

func TestCompleteChecksumVerifies(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		frame := make([]byte, 34+18+rng.IntN(200))
		for i := range frame {
			frame[i] = byte(rng.Uint32())
		}
		pseudo := uint16(rng.Uint32())
		frame[34+16], frame[34+17] = byte(pseudo>>8), byte(pseudo)
		require.True(t, CompleteChecksum(frame, 34, 16))
		// A receiver sums the pseudo-header and the segment with its checksum and wants all ones.
		sum := uint32(onesSum(frame[34:])) + uint32(pseudo)
		sum = sum>>16 + sum&0xffff
		require.EqualValues(t, 0xffff, sum, "seed %d, length %d", seed, len(frame))
	}
}

// A sum that comes out as 0 is sent as 0 except for UDP, where 0 would say that there is none.
func TestCompleteChecksumZero(t *testing.T) {
	for offset, want := range map[uint16][]byte{2: {0, 0}, 6: {0xff, 0xff}, 16: {0, 0}} {
		frame := make([]byte, 20)
		copy(frame[18:], []byte{0xff, 0xff})
		require.True(t, CompleteChecksum(frame, 0, offset))
		require.Equal(t, want, frame[offset:offset+2], "offset %d", offset)
	}
}

func TestCompleteChecksumOutside(t *testing.T) {
	for n := range 52 {
		frame := make([]byte, n)
		require.False(t, CompleteChecksum(frame, 34, 17), "length %d", n)
		require.Equal(t, make([]byte, n), frame)
	}
	require.False(t, CompleteChecksum(make([]byte, 60), 0xffff, 0xffff))
}

func TestIncomplete(t *testing.T) {
	require.False(t, Incomplete(&mem.Desc{}))
	require.False(t, Incomplete(&mem.Desc{Flags: mem.RxChecksumGood}))
	require.False(t, Incomplete(&mem.Desc{CsumOffset: 16}))
	require.True(t, Incomplete(&mem.Desc{Flags: mem.RxChecksumGood, CsumStart: 34, CsumOffset: 16}))
	require.True(t, Incomplete(&mem.Desc{Flags: mem.TxChecksum, CsumStart: 34, CsumOffset: 16}))
}
