package ddp

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// segment is one cut piece, as a test wants to see it.
type segment struct {
	Header Header
	Off    uint32
	N      int
}

func cutAll(t testing.TB, s *Segmenter, mulpdu func() int) []segment {
	t.Helper()
	var out []segment
	for s.Active() {
		limit := mulpdu()
		want := s.NextLen(limit)
		h, off, n := s.Next(limit)
		require.Equal(t, want, h.Len()+n)
		out = append(out, segment{*h, off, n})
	}
	return out
}

func fixed(mulpdu int) func() int { return func() int { return mulpdu } }

func untaggedMessage(qn, length uint32) Message {
	return Message{Header: Header{ULP: 0x43, ULP32: 0x01020304, QN: qn}, Len: length}
}

func taggedMessage(to uint64, length uint32) Message {
	return Message{Header: Header{Tagged: true, ULP: 0x40, STag: 0xabcdef01, TO: to}, Len: length}
}

// req: DDP-7.2-7, 5041-5.2-3, DDP-6.3-8, DDP-6.3-10, DDP-3.2-4
func TestSegmenterUntaggedExample(t *testing.T) {
	var s Segmenter
	s.Init(0)
	s.Start(untaggedMessage(0, 2048))
	head := Header{ULP: 0x43, ULP32: 0x01020304, MSN: 1}
	last := head
	last.MO, last.Last = 1482, true
	require.Equal(t, []segment{{head, 0, 1482}, {last, 1482, 566}}, cutAll(t, &s, fixed(1500)))
}

// req: DDP-7.2-10, 5041-5.2-3, DDP-7.2-8
func TestSegmenterTaggedExample(t *testing.T) {
	var s Segmenter
	s.Init(1)
	s.Start(taggedMessage(16384, 2048))
	head := Header{Tagged: true, Version: 1, ULP: 0x40, STag: 0xabcdef01, TO: 16384}
	last := head
	last.TO, last.Last = 17870, true
	require.Equal(t, []segment{{head, 0, 1486}, {last, 1486, 562}}, cutAll(t, &s, fixed(1500)))
}

// req: DDP-7.2-11, 5041-5.2-1, DDP-6.4-1
func TestSegmenterZeroLength(t *testing.T) {
	var s Segmenter
	s.Init(1)
	s.Start(taggedMessage(7, 0))
	require.Equal(t, 14, s.NextLen(1500))
	require.Equal(t, []segment{{Header{Tagged: true, Last: true, Version: 1, ULP: 0x40,
		STag: 0xabcdef01, TO: 7}, 0, 0}}, cutAll(t, &s, fixed(1500)))
	s.Start(Message{Header: Header{ULP: 0x43}})
	require.Equal(t, 18, s.NextLen(1500))
	require.Equal(t, []segment{{Header{Last: true, Version: 1, ULP: 0x43, MSN: 1}, 0, 0}},
		cutAll(t, &s, fixed(1500)))
}

// req: DDP-6.1-4, DDP-6.1-5, DDP-6.1-6, DDP-6.1-7, DDP-6.2-4, DDP-6.2-8, DDP-6.3-4, DDP-6.3-6
// req: DDP-6.3-7, DDP-7.2-1, DDP-7.2-2, DDP-7.2-4, DDP-7.2-6, DDP-7.2-9, DDP-7.3-2, DDP-7.3-3
// req: 5041-4.2-1, 5041-4.3-1, C02-7.3.2-4, D01-5.3.2-5
func TestSegmenterProperties(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	var s Segmenter
	s.Init(1)
	var sent [queuesMax]uint32
	for range 500 {
		m := Message{Len: rng.Uint32N(20000)}
		if rng.IntN(4) == 0 {
			m.Len = rng.Uint32N(3)
		}
		m.Header = Header{ULP: uint8(rng.Uint32()), ULP32: rng.Uint32(), QN: rng.Uint32N(queuesMax)}
		if rng.IntN(2) == 0 {
			m.Header = Header{Tagged: true, ULP: uint8(rng.Uint32()), STag: 77, TO: rng.Uint64() >> 1}
		} else {
			sent[m.Header.QN]++
		}
		s.Start(m)
		var off uint32
		for s.Active() {
			mulpdu := 128 + rng.IntN(3000)
			h, at, n := s.Next(mulpdu)
			require.Equal(t, off, at)
			require.LessOrEqual(t, h.Len()+n, mulpdu)
			want := m.Header
			want.Version, want.Last = 1, off+uint32(n) == m.Len
			if h.Tagged {
				want.TO += uint64(off)
			} else {
				want.MO, want.MSN = off, sent[h.QN]
			}
			require.Equal(t, want, *h)
			require.Equal(t, h.Last, !s.Active())
			if !h.Last {
				require.Equal(t, mulpdu, h.Len()+n, "as large as MULPDU allows")
			}
			off += uint32(n)
		}
		require.Equal(t, m.Len, off, "all of the message")
	}
}

// req: DDP-6.3-9
func TestSegmenterMSNWraps(t *testing.T) {
	var s Segmenter
	s.Init(1)
	s.msn[2] = 0xfffffffe
	var got []uint32
	for range 4 {
		s.Start(untaggedMessage(2, 0))
		h, _, _ := s.Next(128)
		got = append(got, h.MSN)
	}
	require.Equal(t, []uint32{0xfffffffe, 0xffffffff, 0, 1}, got)
	s.Start(untaggedMessage(0, 0))
	h, _, _ := s.Next(128)
	require.Equal(t, uint32(1), h.MSN, "queues are counted apart")
}

// req: DDP-3.2-6, C02-5.2-5, D01-3.2-5
func TestSegmenterLongestMessage(t *testing.T) {
	for _, m := range []Message{untaggedMessage(0, 1<<32-1), taggedMessage(1<<63, 1<<32-1)} {
		var s Segmenter
		s.Init(1)
		s.Start(m)
		var sum uint64
		var h Header
		for s.Active() {
			var off uint32
			var n int
			cut, at, k := s.Next(1 << 20)
			h, off, n = *cut, at, k
			if uint64(off) != sum || h.Len()+n > 64768 {
				t.Fatalf("segment at %d, %d octets sent, ULPDU of %d", off, sum, h.Len()+n)
			}
			sum += uint64(n)
		}
		require.Equal(t, uint64(1<<32-1), sum)
		require.True(t, h.Last)
	}
}

func TestSegmenterAbort(t *testing.T) {
	var s Segmenter
	s.Init(1)
	s.Start(untaggedMessage(0, 5000))
	s.Next(1500)
	s.Abort()
	require.False(t, s.Active())
	s.Start(untaggedMessage(2, 4))
	h, off, n := s.Next(1500)
	require.Equal(t, Header{Last: true, Version: 1, ULP: 0x43, ULP32: 0x01020304, QN: 2, MSN: 1}, *h)
	require.Zero(t, off)
	require.Equal(t, 4, n)
}

func TestSegmenterMisuse(t *testing.T) {
	var s Segmenter
	s.Init(1)
	require.Panics(t, func() { s.Next(1500) })
	require.Panics(t, func() { s.NextLen(1500) })
	require.Panics(t, func() { s.Start(untaggedMessage(queuesMax, 1)) })
	s.Init(1)
	s.Start(untaggedMessage(0, 1))
	require.Panics(t, func() { s.Start(untaggedMessage(0, 1)) })
	require.Panics(t, func() { s.Next(UntaggedLen) })
}

func TestSegmenterAllocs(t *testing.T) {
	var s Segmenter
	s.Init(1)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s.Start(taggedMessage(0, 8000))
		for s.Active() {
			s.NextLen(1460)
			s.Next(1460)
		}
	}))
}
