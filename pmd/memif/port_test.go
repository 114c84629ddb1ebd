package memif

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// bothWays passes bursts of frames from each side to the other, on all queues.
func bothWays(t testing.TB, r *rand.Rand, a, b *side, rounds int) {
	t.Helper()
	for range rounds {
		for q := range a.queues {
			for _, d := range [][2]*side{{a, b}, {b, a}} {
				var want [][]byte
				for range 1 + r.IntN(40) {
					want = append(want, frame(r, frameOctets(r)))
				}
				d[0].send(t, q, want...)
				require.Equal(t, want, d[1].receive(t, q, len(want)))
			}
		}
	}
}

// Frames of both directions and all queues arrive as they were sent, with and without copies,
// more than rings hold; nothing is lost of the pools.
func TestPair(t *testing.T) {
	for _, k := range kinds {
		for _, queues := range []int{1, 3} {
			t.Run(k.name, func(t *testing.T) {
				client, server, _ := newPair(t, pairConfig{
					client: Config{Queues: queues, RingLog2: 6}, bind: BindConfig{Queues: queues},
					zero: k.zero, bufs: 256,
				})
				bothWays(t, newRand(t), client, server, 100)
				bothClosed(t, client, server)
			})
		}
	}
}

// Frames longer than a buffer are in several descriptors, and arrive in one piece.
func TestChains(t *testing.T) {
	client, server, _ := newPair(t, pairConfig{client: Config{BufferBytes: 128, RingLog2: 9}})
	bothWays(t, newRand(t), client, server, 100)
	client.closed(t)
}

// A frame is the peer's when Tx has taken it, and one that finds no room stays the caller's.
func TestFullRing(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		client, server, _ := newPair(t, pairConfig{client: Config{RingLog2: 4}, zero: k.zero, bufs: 256})
		r := newRand(t)
		for _, d := range [][2]*side{{client, server}, {server, client}} {
			var bufs []mem.Buf
			var want [][]byte
			for range 20 {
				want = append(want, frame(r, 100))
				bufs = append(bufs, d[0].buf(t, 0, want[len(want)-1]))
			}
			n := d[0].queues[0].Tx(bufs)
			require.Equal(t, 16, n)
			require.EqualValues(t, 4, d[0].queues[0].Counters().TxFull)
			require.Equal(t, want[:n], d[1].receive(t, 0, n))
			require.Equal(t, 4, d[0].queues[0].Tx(bufs[n:]))
			require.Equal(t, want[n:], d[1].receive(t, 0, 4))
			d[0].pools[0].FreeN(bufs)
		}
		bothClosed(t, client, server)
	})
}

// Frames that are none are not sent, and those that ask for an offload are a bug.
func TestFramesThatCannotBeSent(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		client, server, _ := newPair(t, pairConfig{zero: k.zero})
		r := newRand(t)
		for _, s := range []*side{client, server} {
			q := s.queues[0]
			s.send(t, 0, frame(r, pmd.EthernetLen-1), frame(r, 1500+pmd.FrameOverhead+1))
			require.EqualValues(t, 2, q.Drops().Length)
			require.EqualValues(t, 2, q.Counters().TxErrors)
			require.Zero(t, q.Counters().TxFrames)
			b := s.buf(t, 0, frame(r, 60))
			s.pools[0].Desc(b).Flags = mem.TxChecksum
			require.Panics(t, func() { q.Tx([]mem.Buf{b}) })
			s.pools[0].Free(b)
		}
		longest := frame(r, 1500+pmd.FrameOverhead)
		client.send(t, 0, longest)
		require.Equal(t, longest, server.receive(t, 0, 1)[0])
		server.send(t, 0, longest)
		require.Equal(t, longest, client.receive(t, 0, 1)[0])
		bothClosed(t, client, server)
	})
}

// With an empty pool frames wait in the ring.
func TestEmptyPool(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		client, server, _ := newPair(t, pairConfig{zero: k.zero, client: Config{RingLog2: 4}, bufs: 64})
		r := newRand(t)
		for _, d := range [][2]*side{{client, server}, {server, client}} {
			d[1].poll() // what was sent is free again
			all := make([]mem.Buf, 64)
			all = all[:d[1].pools[0].AllocN(all)]
			want := [][]byte{frame(r, 60), frame(r, 61)}
			if !k.zero || d[1] == server {
				d[0].send(t, 0, want...)
				require.Empty(t, d[1].take(0))
				require.NotZero(t, d[1].queues[0].Counters().RxNoBuf)
				d[1].pools[0].FreeN(all)
				require.Equal(t, want, d[1].receive(t, 0, 2))
				continue
			}
			// What was posted is received, and afterwards nothing: the server finds no buffers.
			n := 64 - len(all)
			for range n {
				d[0].send(t, 0, want[0])
			}
			bufs := make([]mem.Buf, 32)
			require.Equal(t, n, d[1].queues[0].Rx(bufs))
			require.Zero(t, d[0].tx(t, want[1]))
			require.NotZero(t, d[1].queues[0].Counters().RxNoBuf)
			d[1].pools[0].FreeN(all)
			d[1].pools[0].FreeN(bufs[:n])
			require.Empty(t, d[1].take(0))
			require.Equal(t, 1, d[0].tx(t, want[1]))
			require.Equal(t, want[1:], d[1].receive(t, 0, 1))
		}
		bothClosed(t, client, server)
	})
}

// Polling and sending allocate nothing.
func TestNoAllocations(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		client, server, _ := newPair(t, pairConfig{zero: k.zero})
		f := frame(newRand(t), 1000)
		in := make([]mem.Buf, 32)
		for _, d := range [][2]*side{{client, server}, {server, client}} {
			out := make([]mem.Buf, 1)
			require.Zero(t, testing.AllocsPerRun(100, func() {
				out[0] = d[0].pools[0].Alloc()
				d[0].pools[0].Desc(out[0]).Len = uint32(len(f))
				d[0].queues[0].Tx(out)
				d[0].pools[0].Free(out[0])
				d[1].pools[0].FreeN(in[:d[1].queues[0].Rx(in)])
			}))
		}
	})
}
