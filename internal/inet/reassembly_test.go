package inet

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func pieceOf(data []byte, off, n int, id uint32) *Fragment {
	return &Fragment{
		Datagram: Datagram{Src: ip4(10, 0, 0, 1), Dst: ip4(10, 0, 0, 2), ID: id, Proto: ProtoTCP},
		Next:     ProtoTCP,
		Off:      off, More: off+n < len(data), Head: 20, Payload: data[off : off+n],
		Packet: data[off:min(off+8, len(data))],
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// Two datagrams, interleaved and in any order, of sizes up to the largest.
// req: 791-3.2-1
func TestReassemblyInterleaved(t *testing.T) {
	r := NewReassembly(ReassemblyConfig{})
	for _, size := range []int{9, 1480, 1481, 8008, 65515} {
		a, b := noise(size), noise(size)
		whole := 0
		for _, k := range rand.Perm(2 * ((size + 1439) / 1440)) {
			data, off := a, k/2*1440
			if k&1 == 1 {
				data = b
			}
			got, next, d := r.Add(0, pieceOf(data, off, min(1440, size-off), uint32(k&1)))
			require.Equal(t, DropNone, d)
			if got != nil {
				whole++
				require.True(t, bytes.Equal(data, got))
				require.Equal(t, uint8(ProtoTCP), next)
			}
		}
		require.Equal(t, 2, whole)
		require.Equal(t, int64(math.MaxInt64), r.Deadline())
	}
	require.Len(t, r.free, 1024)
	// The same identification of another protocol or source is another datagram.
	data := noise(16)
	for i := range 3 {
		f := pieceOf(data, 0, 8, 1)
		f.Proto, f.Src = uint8(i%2), ip4(10, 0, 0, byte(i/2))
		_, _, d := r.Add(0, f)
		require.Equal(t, DropNone, d)
	}
	require.Equal(t, 3, r.n)
}

// req: 791-3.2-2, 8200-4.5-1
func TestReassemblyRejects(t *testing.T) {
	data := noise(4000)
	for name, c := range map[string]struct {
		frags []*Fragment
		want  Drop
	}{
		"ping of death":    {[]*Fragment{{Off: 65528, Head: 20, Payload: data[:100]}}, DropFragment},
		"header too much":  {[]*Fragment{{Off: 65512, Head: 20, Payload: data[:8]}}, DropFragment},
		"no multiple of 8": {[]*Fragment{{Off: 0, More: true, Payload: data[:12]}}, DropFragment},
		"empty":            {[]*Fragment{{Off: 8, More: true}}, DropFragment},
		"teardrop": {[]*Fragment{pieceOf(data, 0, 1480, 1),
			{Datagram: pieceOf(data, 0, 8, 1).Datagram, Off: 24, Payload: data[:4]}}, DropFragment},
		"overlap": {[]*Fragment{pieceOf(data, 0, 1480, 1), pieceOf(data, 1472, 1480, 1)},
			DropOverlap},
		"overlap inside": {[]*Fragment{pieceOf(data, 800, 800, 1), pieceOf(data, 0, 1600, 1)},
			DropOverlap},
		"other octets": {[]*Fragment{pieceOf(data, 0, 8, 1), func() *Fragment {
			f := pieceOf(data, 0, 8, 1)
			f.Payload = []byte("12345678")
			return f
		}()}, DropOverlap},
		"two ends": {[]*Fragment{pieceOf(data, 3200, 800, 1), pieceOf(data[:3000], 2400, 600, 1)},
			DropFragment},
		"beyond the end": {[]*Fragment{pieceOf(data[:800], 720, 80, 1), pieceOf(data, 800, 80, 1)},
			DropFragment},
	} {
		r := NewReassembly(ReassemblyConfig{})
		for i, f := range c.frags {
			want := DropNone
			if i == len(c.frags)-1 {
				want = c.want
			}
			got, _, d := r.Add(0, f)
			require.Equal(t, want, d, name)
			require.Nil(t, got, name)
		}
		require.Len(t, r.free, 1024, "%s: nothing is held", name)
		if len(c.frags) > 1 { // condemned: the rest is dropped as well, and it ends in silence
			_, _, d := r.Add(1, pieceOf(data, 2000, 800, 1))
			require.Equal(t, DropOverlap, d, name)
			quote, condemned, ok := r.Expire(60 * scriptSecond)
			require.True(t, ok && condemned && quote == nil, name)
		}
	}
	// A network may duplicate.
	r := NewReassembly(ReassemblyConfig{})
	for _, off := range []int{0, 0, 1000, 1000, 3000, 3000} {
		_, _, d := r.Add(0, pieceOf(data, off, 1000, 1))
		require.Equal(t, DropNone, d)
	}
	got, _, _ := r.Add(0, pieceOf(data, 2000, 1000, 1))
	require.True(t, bytes.Equal(data, got))
}

// Sixty seconds from the first fragment, whatever comes later; Time Exceeded is owed only if
// fragment zero came.
// req: 1122-3.3.2-2, 8200-4.5-1
func TestReassemblyTimeout(t *testing.T) {
	data := noise(4000)
	r := NewReassembly(ReassemblyConfig{})
	r.Add(5, pieceOf(data, 0, 800, 1))
	r.Add(30*scriptSecond, pieceOf(data, 800, 800, 1))
	r.Add(40*scriptSecond, pieceOf(data, 800, 800, 2))
	require.Equal(t, int64(60*scriptSecond+5), r.Deadline())
	_, _, ok := r.Expire(60 * scriptSecond)
	require.False(t, ok)
	quote, _, ok := r.Expire(60*scriptSecond + 5)
	require.True(t, ok)
	require.Equal(t, data[:8], quote)
	quote, _, ok = r.Expire(100 * scriptSecond)
	require.True(t, ok)
	require.Nil(t, quote, "fragment zero never came")
	_, _, ok = r.Expire(math.MaxInt64)
	require.False(t, ok)
	require.Len(t, r.free, 1024)
	require.Panics(t, func() { NewReassembly(ReassemblyConfig{TimeoutNs: 59 * scriptSecond}) })
}

// Slots and octets are bounded: the oldest gives way, and a good datagram still gets through a
// flood.
//
// req: C02-13.1.1.1-1, D01-11.2.1-1
func TestReassemblyBounded(t *testing.T) {
	data := noise(65000)
	r := NewReassembly(ReassemblyConfig{DatagramsMax: 4, OctetsMax: 1 << 16})
	for i := range 100 {
		r.Add(int64(i), pieceOf(data, 8000, 1000, uint32(i)))
	}
	require.Equal(t, 4, r.n)
	require.Equal(t, uint64(96), r.Evicted())
	for i := range 100 {
		off := i * 8 % 60000
		r.Add(1000, pieceOf(data, off, 8, 1000)) // one datagram with many blocks
	}
	var got []byte
	for off := 0; off < len(data); off += 1000 {
		got, _, _ = r.Add(2000, pieceOf(data, off, 1000, 5000))
	}
	require.True(t, bytes.Equal(data, got))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		r.Add(3000, pieceOf0)
		r.Expire(math.MaxInt64)
	}))
}

var pieceOf0 = pieceOf(make([]byte, 4000), 0, 800, 77)

// oracle is reassembly by the simplest means: a map from offset to octet.
type oracleDatagram struct {
	octets    map[int]byte
	end, high int
	condemned bool
}

func (o *oracleDatagram) add(f *Fragment) (whole []byte, d Drop) {
	end := f.Off + len(f.Payload)
	if len(f.Payload) == 0 || f.More && len(f.Payload)%8 != 0 || end+f.Head > 65535 {
		return nil, DropFragment
	}
	if o.condemned {
		return nil, DropOverlap
	}
	if !f.More && (o.end >= 0 && o.end != end || end < o.high) || f.More && o.end >= 0 && end > o.end {
		o.condemned = true
		return nil, DropFragment
	}
	there, same := 0, true
	for i, b := range f.Payload {
		if old, ok := o.octets[f.Off+i]; ok {
			there++
			same = same && old == b
		}
	}
	if there > 0 {
		if there == len(f.Payload) && same && (f.More || o.end >= 0) {
			return nil, DropNone
		}
		o.condemned = true
		return nil, DropOverlap
	}
	for i, b := range f.Payload {
		o.octets[f.Off+i] = b
	}
	o.high = max(o.high, end)
	if !f.More {
		o.end = end
	}
	if len(o.octets) != o.end {
		return nil, DropNone
	}
	whole = make([]byte, o.end)
	for i, b := range o.octets {
		whole[i] = b
	}
	return whole, DropNone
}

// Any fragments of a few datagrams, in any order, with any overlap: what the arena says is what the
// oracle says.
func TestReassemblyOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewReassembly(ReassemblyConfig{})
		oracles := map[uint32]*oracleDatagram{}
		size := rapid.SampledFrom([]int{64, 200, 3000}).Draw(t, "size")
		unit := rapid.SampledFrom([]int{8, 16, 504}).Draw(t, "unit")
		for range rapid.IntRange(1, 60).Draw(t, "fragments") {
			id := rapid.Uint32Range(0, 2).Draw(t, "id")
			off := rapid.IntRange(0, size/unit).Draw(t, "off") * unit
			n := rapid.IntRange(1, 3).Draw(t, "n") * unit
			more := true
			if off+n >= size {
				n, more = max(size-off, 0), rapid.IntRange(0, 9).Draw(t, "odd") == 0
			}
			salt := byte(0)
			if rapid.IntRange(0, 19).Draw(t, "forged") == 0 {
				salt = 1
			}
			payload := make([]byte, n)
			for i := range payload {
				payload[i] = byte(off+i)*7 ^ byte((off+i)>>8) ^ byte(id) ^ salt
			}
			f := &Fragment{Datagram: Datagram{ID: id}, Off: off, More: more, Payload: payload}
			o := oracles[id]
			if o == nil {
				o = &oracleDatagram{octets: map[int]byte{}, end: -1}
				oracles[id] = o
			}
			wantWhole, want := o.add(f)
			if want == DropFragment && !o.condemned && len(o.octets) == 0 {
				delete(oracles, id)
			}
			got, _, d := r.Add(0, f)
			require.Equal(t, want, d)
			require.Equal(t, wantWhole == nil, got == nil)
			require.True(t, bytes.Equal(wantWhole, got))
			if wantWhole != nil {
				delete(oracles, id)
			}
		}
		for {
			if _, _, ok := r.Expire(math.MaxInt64); !ok {
				break
			}
		}
		require.Len(t, r.free, 1024)
	})
}

func FuzzReassembly(f *testing.F) {
	f.Add([]byte{0, 0, 1, 1, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReassembly(ReassemblyConfig{DatagramsMax: 2, OctetsMax: 1 << 16})
		octets := make([]byte, 4096)
		for ; len(b) >= 4; b = b[4:] {
			n := int(b[1])*16 + int(b[2]&7)
			got, _, _ := r.Add(0, &Fragment{
				Datagram: Datagram{ID: uint32(b[0] & 3)}, Off: int(b[3]) * 256, More: b[0]&4 != 0,
				Payload: octets[:n],
				Packet:  octets[:int(b[1])*16],
			})
			require.LessOrEqual(t, len(got), datagramMax)
		}
		for {
			if _, _, ok := r.Expire(math.MaxInt64); !ok {
				break
			}
		}
		require.Len(t, r.free, 64)
	})
}

// A congestion mark on any fragment survives; one beside a fragment that could not be marked drops
// the datagram.
//
// req: 3168-5.3-1
func TestReassemblyKeepsTheMark(t *testing.T) {
	const not, ect1, ect0, ce = 0, 1, 2, 3
	for _, c := range []struct {
		first, last uint8
		want        int // -1: dropped
	}{{not, not, not}, {ect0, ect0, ect0}, {ect0, ce, ce}, {ce, ect0, ce}, {ect1, ce, ce},
		{not, ce, -1}, {ce, not, -1}} {
		r := NewReassembly(ReassemblyConfig{})
		data := noise(24)
		a, b := pieceOf(data, 0, 16, 1), pieceOf(data, 16, 8, 1)
		a.TOS, b.TOS = 0xb8|c.first, 0x10|c.last
		r.Add(0, a)
		got, _, d := r.Add(0, b)
		if c.want < 0 {
			require.Equal(t, DropFragment, d, "%+v", c)
			continue
		}
		require.Equal(t, data, got)
		require.Equal(t, 0xb8|uint8(c.want), r.TOS(), "%+v: DSCP of the first", c)
	}
}
