package qp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
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
	r := startReceiver(t, 8, func(_ *Config, o *StartOptions) { o.Shared, o.Peer = shared, peer })
	r.postRecvs()
	return r
}

// startReceiver makes one without receive buffers, as change has it.
func startReceiver(t *testing.T, bufs int, change func(*Config, *StartOptions)) *receiver {
	r := &receiver{t: t, pool: newPool(t, bufs, 2048)}
	mode := mpa.Mode{CRC: true, Markers: true}
	r.Engine = start(t, r.pool, mode, change)
	r.tx.Init(mode)
	return r
}

// postRecvs posts as many buffers of sendLen octets as there may be.
func (r *receiver) postRecvs() {
	m, err := r.Table.Register(r.Domain, make([]byte, r.RecvDepth*sendLen),
		mem.RegionOptions{Access: mem.LocalWrite})
	require.NoError(r.t, err)
	for id := range uint64(r.RecvDepth) {
		buffer := wq.SGE{STag: m.STag(), Length: sendLen, Offset: m.Base() + id*sendLen}
		require.NoError(r.t, r.PostRecv(&wq.WQE{ID: id, Op: wq.OpRecv, Local: buffer}, nil))
	}
}

func newPool(t *testing.T, bufs, stride int) *mem.Pool {
	pool, err := mem.NewPool(hugepages.Heap(bufs*stride+bufs*64+1<<16),
		mem.PoolConfig{Bufs: bufs, Stride: stride})
	require.NoError(t, err)
	return pool
}

// start puts an Engine of small queues into service, as change has it.
func start(t *testing.T, pool *mem.Pool, mode mpa.Mode,
	change func(*Config, *StartOptions)) *Engine {
	table := mem.NewTable(8)
	q := &Engine{
		Config: Config{
			Table: table, Domain: table.AllocDomain(), Stream: 1, SendCQ: newCQ(64), RecvCQ: newCQ(8),
			SendDepth: 4, RecvDepth: 4, SGEMax: 1, RecvRanges: 1,
		},
		SQ: mem.NewMPSC(make([]mem.MPSCSlot[wq.WQE], 512)),
		RQ: mem.NewMPSC(make([]mem.MPSCSlot[wq.WQE], 4)),
	}
	o := StartOptions{
		Terms: &mpa.Terms{Agreement: mpa.Agreement{Version: 1, Send: mode, Receive: mode},
			IRD: 1, ORD: 1},
		Opened: true, EMSS: 1460, Reader: table.NewReader(), Pool: pool,
		BufsMax: mpa.BufsMin(pool.Stride()) + 1,
	}
	change(&q.Config, &o)
	require.NoError(t, q.Prepare(1, 1))
	q.Start(&o)
	return q
}

// sendLen is such a length that each FPDU has a marker, by which it is found beyond a gap: the
// first ends 4 octets before the second marker.
const sendLen = 480

// untagged adds an FPDU with a whole message to the stream, and returns where it begins.
func (r *receiver) untagged(op rdmap.Opcode, qn, msn uint32, payload []byte) (off int) {
	return r.segment(&ddp.Header{Last: true, Version: 1, ULP: rdmap.Control(1, op), QN: qn, MSN: msn},
		payload)
}

// emptyWrite adds an RDMA Write without octets to the stream.
func (r *receiver) emptyWrite() {
	r.segment(&ddp.Header{Tagged: true, Last: true, Version: 1,
		ULP: rdmap.Control(1, rdmap.OpWrite)}, nil)
}

func (r *receiver) segment(h *ddp.Header, payload []byte) (off int) {
	off = len(r.stream)
	r.stream = append(r.stream, fpdu(&r.tx, h, payload)...)
	return off
}

// fpdu frames a segment of DDP's.
func fpdu(tx *mpa.Sender, h *ddp.Header, payload []byte) []byte {
	header := make([]byte, h.Len())
	h.Put(header)
	b := make([]byte, tx.Size(len(header)+len(payload)))
	tx.Put(b, [][]byte{header, payload})
	return b
}

// offer gives the Engine stream[off:end], and says whether it took them.
func (r *receiver) offer(off, end int) bool {
	b := r.pool.Alloc()
	require.NotEqual(r.t, mem.NoBuf, b)
	n := copy(r.pool.Slot(b)[128:], r.stream[off:end])
	v := arriveOne(r.Engine, uint64(off), b, r.pool.Slot(b)[128:][:n])
	if v != mpa.Kept {
		r.pool.Free(b)
	}
	return v != mpa.Refused
}

// arrive gives the Engine stream[off:end], and it takes them.
func (r *receiver) arrive(off, end int) { require.True(r.t, r.offer(off, end)) }

// Where octets come in order there is little room for messages that wait, for none does, however
// many are in a segment.
func TestMessagesInOrderNeedNoRoom(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		r := startReceiver(t, 8, func(_ *Config, o *StartOptions) { o.EMSS, o.InOrder = 65_483, inOrder })
		require.Equal(t, inOrder, r.recv.ddp.Room() <= pendingInOrder)
		const messages = pendingInOrder + 1
		for range messages {
			r.emptyWrite()
		}
		for off := 0; off < len(r.stream); off += 1920 {
			end := min(off+1920, len(r.stream))
			r.arrive(off, end)
			r.LeftEdge(uint64(end))
		}
		require.NoError(t, r.recv.fault)
		require.EqualValues(t, messages, r.recv.writes)
	}
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
	require.False(t, r.recv.reported)
	r.LeftEdge(uint64(len(r.stream)))
	fx, err := r.TakeEffects()
	require.Equal(t, EffectLeave, fx)
	var te *TerminateError
	require.ErrorAs(t, err, &te)
	require.True(t, te.Remote)
	require.ErrorContains(t, te.Cause, said.String())
	require.True(t, r.recv.reported)
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
	gap := func(peer uint64) bool {
		r := newReceiverOf(t, s, peer)
		at := [4]int{}
		for i := range at {
			at[i] = r.untagged(rdmap.OpSend, rdmap.QNSend, uint32(i+1), make([]byte, sendLen))
		}
		for i, end := range []int{len(r.stream), at[3]} {
			if !r.offer(at[3-i], end) {
				require.EqualValues(t, 1, r.Stats().RefusedPending)
				return false
			}
		}
		return true
	}
	for range 3 {
		require.True(t, gap(1))
	}
	require.False(t, gap(1))
	require.True(t, gap(2))
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
