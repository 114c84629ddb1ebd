package qp

import (
	"testing"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/stretchr/testify/require"
)

// receiver is an Engine in service with four receive buffers, and the stream that its peer sends.
// Octets are given to the Engine in any order; the left edge is told separately.
type receiver struct {
	*Engine
	t      *testing.T
	tx     mpa.Sender
	pool   *mem.Pool
	stream []byte
}

func newReceiver(t *testing.T) *receiver { return newReceiverOf(t, nil, 0) }

// newReceiverOf is one of several that share what one goroutine's engines do, of a peer's.
func newReceiverOf(t *testing.T, shared *Shared, peer uint64) *receiver {
	const stride, bufs = 2048, 8
	pool, err := mem.NewPool(hugepages.Heap(bufs*stride+bufs*64+1<<16),
		mem.PoolConfig{Bufs: bufs, Stride: stride})
	require.NoError(t, err)
	table := mem.NewTable(8)
	mode := mpa.Mode{CRC: true, Markers: true}
	r := &receiver{t: t, pool: pool, Engine: &Engine{
		Config: Config{
			Table: table, Domain: table.AllocDomain(), Stream: 1, SendCQ: newCQ(8), RecvCQ: newCQ(8),
			SendDepth: 4, RecvDepth: 4, SGEMax: 1, RecvRanges: 1,
		},
		SQ: mem.NewMPSC(make([]mem.MPSCSlot[wq.WQE], 4)),
		RQ: mem.NewMPSC(make([]mem.MPSCSlot[wq.WQE], 4)),
	}}
	require.NoError(t, r.Prepare(1, 1))
	r.Start(&StartOptions{
		Terms: &mpa.Terms{Agreement: mpa.Agreement{Version: 1, Send: mode, Receive: mode},
			IRD: 1, ORD: 1},
		Opened: true, EMSS: 1460, Reader: table.NewReader(), Pool: pool, BufsMax: mpa.BufsMin(stride) + 1,
		Shared: shared, Peer: peer,
	})
	r.tx.Init(mode)
	m, err := table.Register(r.Domain, make([]byte, 4*sendLen),
		mem.RegionOptions{Access: mem.LocalWrite})
	require.NoError(t, err)
	for id := range uint64(4) {
		buffer := wq.SGE{STag: m.STag(), Length: sendLen, Offset: m.Base() + id*sendLen}
		require.NoError(t, r.PostRecv(&wq.WQE{ID: id, Op: wq.OpRecv, Local: buffer}, nil))
	}
	return r
}

// sendLen is such a length that each FPDU has a marker, by which it is found beyond a gap: the
// first ends 4 octets before the second marker.
const sendLen = 480

// untagged adds an FPDU with a whole message to the stream, and returns where it begins.
func (r *receiver) untagged(op rdmap.Opcode, qn, msn uint32, payload []byte) (off int) {
	h := ddp.Header{Last: true, Version: 1, ULP: rdmap.Control(1, op), QN: qn, MSN: msn}
	header := make([]byte, h.Len())
	h.Put(header)
	off = len(r.stream)
	r.stream = append(r.stream, make([]byte, r.tx.Size(len(header)+len(payload)))...)
	r.tx.Put(r.stream[off:], [][]byte{header, payload})
	return off
}

// arrive gives the Engine stream[off:end].
func (r *receiver) arrive(off, end int) {
	b := r.pool.Alloc()
	n := copy(r.pool.Slot(b)[128:], r.stream[off:end])
	require.Equal(r.t, mpa.Done, arriveOne(r.Engine, uint64(off), b, r.pool.Slot(b)[128:][:n]))
}

// A Terminate that was placed ahead of a gap ends the stream when the left edge passes it, not when
// something else arrives.
func TestTerminateAheadOfAGap(t *testing.T) {
	r := newReceiver(t)
	r.untagged(rdmap.OpSend, rdmap.QNSend, 1, make([]byte, sendLen))
	said := rdmap.Terminate{Cause: rdmap.CauseStream}
	body := make([]byte, said.Len())
	said.Put(body)
	at := r.untagged(rdmap.OpTerminate, rdmap.QNTerminate, 1, body)
	r.arrive(at, len(r.stream))
	require.False(t, r.HasEffects(), "placed, not delivered")
	r.arrive(0, at)
	var c [2]wq.CQE
	require.Equal(t, 1, r.RecvCQ.Poll(c[:]), "delivered in Arrive")
	require.Equal(t, wq.CQE{ID: 0, Op: wq.OpRecv, Len: sendLen}, c[0])
	require.False(t, r.Reported())
	r.LeftEdge(uint64(len(r.stream)))
	fx, err := r.TakeEffects()
	require.Equal(t, EffectLeave, fx)
	var te *TerminateError
	require.ErrorAs(t, err, &te)
	require.True(t, te.Remote)
	require.ErrorContains(t, te.Cause, said.String())
	require.True(t, r.Reported())
}

// Sends that were placed ahead of a gap complete when the left edge passes them, in their order.
func TestSendsAheadOfAGap(t *testing.T) {
	r := newReceiver(t)
	var at [3]int
	for i := range at {
		at[i] = r.untagged(rdmap.OpSend, rdmap.QNSend, uint32(i+1), make([]byte, sendLen))
	}
	r.arrive(at[2], len(r.stream))
	r.arrive(at[1], at[2])
	r.LeftEdge(0)
	require.Zero(t, r.RecvCQ.Waiting())
	r.arrive(0, at[1])
	require.Equal(t, 1, r.RecvCQ.Waiting(), "the one in order")
	r.LeftEdge(uint64(len(r.stream)))
	var c [4]wq.CQE
	require.Equal(t, 3, r.RecvCQ.Poll(c[:]))
	for id := range uint64(3) {
		require.Equal(t, wq.CQE{ID: id, Op: wq.OpRecv, Len: sendLen}, c[id])
	}
	require.Equal(t, uint64(len(r.stream)), r.Passed())
}

// A peer that leaves gaps open on many connections leaves room for what other peers send ahead of a
// gap.
func TestGapsOfOnePeerLeaveRoom(t *testing.T) {
	s := NewShared(1460, mpa.BufsMin(2048)+1, mpa.Reserve{})
	s.pending = ddp.NewPendingMemory(pendingMax(1460), 4)
	gap := func(peer uint64) mpa.Verdict {
		r := newReceiverOf(t, s, peer)
		at := [4]int{}
		for i := range at {
			at[i] = r.untagged(rdmap.OpSend, rdmap.QNSend, uint32(i+1), make([]byte, sendLen))
		}
		for i, end := range []int{len(r.stream), at[3]} {
			b := r.pool.Alloc()
			n := copy(r.pool.Slot(b)[128:], r.stream[at[3-i]:end])
			if arriveOne(r.Engine, uint64(at[3-i]), b, r.pool.Slot(b)[128:][:n]) == mpa.Refused {
				require.EqualValues(t, 1, r.Stats().RefusedPending)
				return mpa.Refused
			}
		}
		return mpa.Done
	}
	for range 3 {
		require.Equal(t, mpa.Done, gap(1))
	}
	require.Equal(t, mpa.Refused, gap(1))
	require.Equal(t, mpa.Done, gap(2))
}

// After a segment was cut nothing of the engines points into memory of the application, which may
// deregister and unmap it.
func TestCutOctetsAreForgotten(t *testing.T) {
	s := NewShared(1460, mpa.BufsMin(2048)+1, mpa.Reserve{})
	r := newReceiverOf(t, s, 1)
	m, err := r.Table.Register(r.Domain, make([]byte, 64), mem.RegionOptions{Access: mem.LocalRead})
	require.NoError(t, err)
	for _, length := range []uint32{64, 65} { // the second ends the stream
		w := wq.WQE{ID: 1, Op: wq.OpWrite,
			Local: wq.SGE{STag: m.STag(), Length: length, Offset: m.Base()}, RemoteSTag: 1}
		require.NoError(t, r.PostSend(&w, nil, nil))
		var out [1460]byte
		require.Equal(t, length == 64, pullOne(r.Engine, out[:]) > 0)
		for _, part := range s.parts {
			require.Nil(t, part)
		}
	}
}
