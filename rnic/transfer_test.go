package rnic

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// framings are the options that change what is on the wire.
var framings = map[string]opts{
	"markers":         {},
	"no markers":      {ConnParam: ConnParam{NoMarkers: true}},
	"no CRC":          {ConnParam: ConnParam{NoCRC: true}},
	"neither of them": {ConnParam: ConnParam{NoMarkers: true, NoCRC: true}},
}

// Messages of every size around the limits of a segment arrive whole and alone.
//
// req: DDP-7.2-4, DDP-7.2-5, DDP-7.4-3, 5040-5.3-2, 5040-5.1-5, DDP-3.2-1, D01-5.2-6, D01-5.1-2
// req: D01-1.2-5, D01-2-5
func TestSizes(t *testing.T) {
	for name, opt := range framings {
		t.Run(name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				const room = 256 << 10
				s, c := r.connectEnds(r.newEndOf(r.server, opt, room), r.newEndOf(r.client, opt, room))
				full := must(c.qp.PayloadMax(r.ctx))
				require.Greater(t, full, 1000)
				sizes := []int{1, 2, 3, 4, 5, 63, 64, 65, 505, 506, 507}
				// a Send's header is longer
				for _, at := range []int{full - 18 + 14, full, 2 * full, 3 * full} {
					for d := -4; d <= 4; d++ {
						sizes = append(sizes, at+d)
					}
				}
				for _, n := range sizes {
					r.sendAndWrite(s, c, n)
				}
				r.close(s, c)
			})
		})
	}
}

// sendAndWrite carries n octets by Write and by Send from c to s and compares all of s's memory.
func (r *rig) sendAndWrite(s, c *end, n int) {
	r.t.Helper()
	clear(s.region.Bytes())
	clear(s.inbox.Bytes())
	s.postRecv(WorkRequest{ID: 9, Local: s.inbox.Slice(64, s.inbox.Len()-64)})
	wr := c.write(s, 1, 0, n)
	wr.RemoteOffset = 7
	c.post(as(OpWrite, wr))
	c.post(c.send(2, 0, n))
	s.expectCompletions(Completion{ID: 9, Op: OpRecv, Len: uint32(n)})
	c.expectCompletions(Completion{ID: 1, Op: OpWrite, Len: uint32(n)},
		Completion{ID: 2, Op: OpSend, Len: uint32(n)})
	for _, x := range []struct {
		got []byte
		at  int
	}{{s.region.Bytes(), 7}, {s.inbox.Bytes(), 64}} {
		want := make([]byte, len(x.got))
		copy(want[x.at:], c.source.Bytes()[:n])
		require.Truef(r.t, bytes.Equal(want, x.got), "%d octets: memory differs", n)
	}
	s.unharmed(r.t)
}

// A zero-length Write asks for no STag; a zero-length Send consumes a buffer.
//
// req: 5040-5.1-6, DDP-7.2-13, 5041-5.2-2, 5040-5.3-5
func TestZeroLength(t *testing.T) {
	r, s, c := connected(t, opts{}, opts{})
	s.postRecv(WorkRequest{ID: 8}) // room for nothing
	s.postRecv(s.recvAt(9, 0, 10))
	c.post(WorkRequest{Op: OpWrite, ID: 1, RemoteSTag: 0xdeadbeef, RemoteOffset: 1 << 63,
		Signaled: true})
	c.post(WorkRequest{Op: OpSend, ID: 2, Signaled: true})
	c.post(c.send(3, 5, 0))
	c.expectCompletions(Completion{ID: 1, Op: OpWrite}, Completion{ID: 2, Op: OpSend},
		Completion{ID: 3, Op: OpSend})
	s.expectCompletions(Completion{ID: 8, Op: OpRecv}, Completion{ID: 9, Op: OpRecv})
	require.Equal(t, uint64(1), r.stats(s.qp).WritesRecvd)
	r.close(s, c)
}

// Completions come in the order of posting, and successes only for what was signalled.
//
// req: 5040-5.5-9, DDP-7.3-2, DDP-7.3-7, 5040-5.3-3
func TestManyOutstanding(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		const rounds, depth, room = 30, 64, 1000
		opt := qpOpts(QPOptions{SendDepth: depth, RecvDepth: depth})
		s, c := r.connect(opt, opt)
		rng := rand.New(rand.NewPCG(4, 4))
		for round := range rounds {
			var completed, received []Completion
			var sent [][]byte
			for i := range uint64(depth) {
				off, n := rng.IntN(regionBytes-3000), rng.IntN(3000)
				wr := c.write(s, i, off, n)
				if rng.IntN(3) == 0 {
					n %= room
					wr, sent = c.send(i, off, n), append(sent, c.source.Bytes()[off:off+n])
					at := len(received)
					s.postRecv(s.recvAt(uint64(at), at*room, room))
					received = append(received, Completion{ID: uint64(at), Op: OpRecv, Len: uint32(n)})
				}
				wr.Signaled = i == depth-1 || rng.IntN(2) == 0 // the last tells that there is room
				if c.post(wr); wr.Signaled {
					completed = append(completed, Completion{ID: i, Op: wr.Op, Len: uint32(n)})
				}
			}
			c.expectCompletions(completed...)
			s.expectCompletions(received...)
			for i, octets := range sent {
				require.True(t, bytes.Equal(octets, s.inbox.Bytes()[i*room:][:len(octets)]),
					"message %d of round %d", i, round)
			}
		}
		r.close(s, c)
		require.Zero(t, c.cq.promised(), "promised entries of the client's queue")
	})
}

// Any goroutine may post. Every request is carried out, and completed once.
func TestPostConcurrently(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		const posters, each, size = 4, 300, 128
		opt := qpOpts(QPOptions{SendDepth: 16})
		opt.PD = r.client.AllocPD()
		opt.SendCQ, _ = r.client.CreateCQ(24)
		opt.RecvCQ = opt.SendCQ
		s, c := r.connectEnds(r.newEndOf(r.server, opts{}, posters*each*size),
			r.newEndOf(r.client, opt, posters*each*size))
		var wg sync.WaitGroup
		for g := range posters {
			wg.Go(func() {
				for i := range each {
					k := g*each + i
					for r.ctx.Err() == nil {
						_, err := c.qp.PostSend(c.write(s, uint64(k), k*size, size))
						if err == nil {
							break
						}
						if err != ErrSendQueueFull && err != ErrCQFull {
							t.Errorf("post: %v", err)
							return
						}
						yield()
					}
				}
			})
		}
		cs := c.await(posters * each)
		wg.Wait()
		next := [posters]uint64{}
		for _, cm := range cs {
			require.Equal(t, Success, cm.Status)
			g := cm.ID / each
			require.Equal(t, g*each+next[g], cm.ID, "one poster's requests complete in its order")
			next[g]++
		}
		r.exchange(s, c)
		require.True(t, bytes.Equal(c.source.Bytes(), s.region.Bytes()))
	})
}

// Counters say what was done.
//
// req: 5040-5.1-2, 5040-3.2-2, 5042-2.2.6-1, 5040-5.1-7, D01-3.1.2-13, C02-5.1.2-13
func TestStats(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.connect(opts{}, opts{})
		// req: DDP-8.1-1
		r.exchange(s, c)
		require.Empty(t, append(s.done, c.done...), "a Write tells only the end that posted it")
		check := func() {
			t.Helper()
			for _, e := range []*end{s, c} {
				st := r.stats(e.qp)
				require.Equal(t, uint64(6000), st.PayloadSent)
				require.Equal(t, uint64(2), st.MessagesSent)
				require.Equal(t, uint64(1), st.MessagesRecvd)
				require.Equal(t, uint64(1), st.WritesRecvd)
				require.GreaterOrEqual(t, st.FPDUsSent, uint64(2))
				require.Equal(t, uint64(6000), st.Placed.Direct+st.Placed.Reassembled)
				require.Zero(t, st.Placed.OutOfOrder)
				require.Equal(t, r.kind == sockets, st.TCP.Kernel)
				require.Positive(t, st.TCP.SegmentsIn)
				require.Positive(t, st.TCP.SegmentsOut)
				require.Positive(t, st.TCP.EMSS)
			}
		}
		check()
		r.close(s, c)
		check() // those at the end
		idle := r.newEnd(r.client, opts{})
		require.Equal(t, Stats{}, r.stats(idle.qp))
		_, err := idle.qp.PayloadMax(r.ctx)
		require.ErrorIs(t, err, ErrState)
		_, err = s.qp.PayloadMax(r.ctx)
		require.ErrorIs(t, err, ErrState)
	})
}

func TestNames(t *testing.T) {
	var got []string
	for _, v := range []fmt.Stringer{
		OpSend, OpWrite, OpRecv, OpLocalInvalidate, Opcode(99), Success, LocalProtection, LocalLength,
		Flushed, LocalOperation, Status(99),
		Idle, Connecting, RTS, Closing, Terminating, Error, Closed, State(9),
	} {
		got = append(got, v.String())
	}
	require.Equal(t, []string{"Send", "RDMA Write", "Receive", "Local Invalidate", "opcode 99",
		"success", "local protection error", "local length error", "flushed", "local operation error",
		"status 99", "idle", "connecting", "rts", "closing", "terminating", "error", "closed", "state 9",
	}, got)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(got))), len(got))
}
