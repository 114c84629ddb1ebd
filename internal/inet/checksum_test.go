package inet

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// naiveSum is RFC 1071's definition, one 16-bit word at a time.
func naiveSum(b []byte, s uint64) uint64 {
	for ; len(b) >= 2; b = b[2:] {
		s += uint64(b[0])<<8 | uint64(b[1])
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	return s
}

func naiveFold(s uint64) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// dice makes random octets and prints its seed when the test fails.
func dice(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// Against the definition: all lengths to 600 and around 1500, 9000 and 65535, at all alignments,
// over octets that are random, all ones (most carries), all zero, and sparse.
func TestSumOracle(t *testing.T) {
	r := dice(t)
	mem := make([]byte, 65535+8)
	fills := map[string]func() byte{
		"random": func() byte { return byte(r.Uint32()) }, "ones": func() byte { return 0xff },
		"zero":   func() byte { return 0 },
		"sparse": func() byte { return byte(r.Uint32() & r.Uint32() & r.Uint32()) },
	}
	var lengths []int
	for n := range 600 {
		lengths = append(lengths, n)
	}
	lengths = append(lengths, 1499, 1500, 1501, 8999, 9000, 65533, 65534, 65535)
	starts := []uint64{0, 1, 0xffff, 0x1fffe, 1 << 32, 1<<48 - 1}
	for name, fill := range fills {
		for i := range mem {
			mem[i] = fill()
		}
		for _, n := range lengths {
			for align := range 8 {
				b := mem[align : align+n]
				start := starts[(n+align)%len(starts)]
				want := naiveFold(naiveSum(b, start))
				if got := Fold(Sum(b, start)); got != want {
					t.Fatalf("%s, %d octets at %d, start %#x: %#04x, want %#04x", name, n, align, start, got, want)
				}
				if got := Checksum(b, start); got != ^want {
					t.Fatalf("Checksum %#04x, want %#04x", got, ^want)
				}
			}
		}
	}
}

// The carries that can come last: words and a start that leave the sum one step from wrapping.
func TestSumCarries(t *testing.T) {
	words := []uint64{0, 1, 1 << 63, 1<<64 - 2, 1<<64 - 1}
	starts := []uint64{0, 1, 0xffff, 1<<64 - 0x10000, 1<<64 - 2, 1<<64 - 1}
	var b [23]byte
	for _, v := range words {
		for _, w := range words {
			for _, x := range words {
				binary.BigEndian.PutUint64(b[0:], v)
				binary.BigEndian.PutUint64(b[8:], w)
				copy(b[16:], binary.BigEndian.AppendUint64(nil, x)[:7])
				for _, s := range starts {
					want := naiveFold(naiveSum(b[:], uint64(naiveFold(s))))
					require.Equal(t, want, Fold(Sum(b[:], s)), "%x %x %x start %x", v, w, x, s)
				}
			}
		}
	}
}

// The pseudo header of both families, written out and summed by the definition.
func TestPseudoSum(t *testing.T) {
	r := dice(t)
	for i := range 10000 {
		var src, dst Addr
		for k := range src {
			src[k], dst[k] = byte(r.Uint32()), byte(r.Uint32())
			if i < 8 { // the most carries
				src[k], dst[k] = 0xff, 0xff*byte(i>>2)
			}
		}
		length := r.IntN(65536)
		header := append(append([]byte{}, src[:]...), dst[:]...)
		header = append(binary.BigEndian.AppendUint32(header, uint32(length)), 0, 0, 0, ProtoTCP)
		if i%2 == 0 {
			src, dst = AddrFrom4([4]byte(src[12:])), AddrFrom4([4]byte(dst[12:]))
			header = append(append([]byte{}, src[12:]...), dst[12:]...)
			header = binary.BigEndian.AppendUint16(append(header, 0, ProtoTCP), uint16(length))
		}
		require.Equal(t, naiveFold(naiveSum(header, 0)), Fold(PseudoSum(src, dst, ProtoTCP, length)))
	}
}

func TestUpdateChecksum(t *testing.T) {
	// RFC 1624, 4: the example that equation 2 of RFC 1141 gets wrong.
	require.Equal(t, uint16(0x0000), UpdateChecksum(0xdd2f, 0x5555, 0x3285))
	r := dice(t)
	for range 30000 {
		b := make([]byte, 20)
		for i := range b {
			b[i] = byte(r.Uint32() & r.Uint32())
		}
		b[0] |= 1 // never all zero, as in any IP header
		before := Checksum(b, 0)
		at := 2 + 2*r.IntN(9)
		old, now := binary.BigEndian.Uint16(b[at:]), uint16(r.Uint32())
		binary.BigEndian.PutUint16(b[at:], now)
		require.Equal(t, Checksum(b, 0), UpdateChecksum(before, old, now))
	}
}

func FuzzSum(f *testing.F) {
	f.Add([]byte{}, uint64(0), uint8(0))
	f.Add(golden(f, "frag-needed"), uint64(1<<64-1), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, s uint64, cut uint8) {
		want := naiveFold(naiveSum(b, uint64(naiveFold(s))))
		require.Equal(t, want, Fold(Sum(clipped(b), s)))
		n := min(int(cut)*2, len(b)&^1)
		require.Equal(t, want, Fold(Sum(b[n:], Sum(b[:n], s))))
	})
}
