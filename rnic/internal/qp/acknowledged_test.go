package qp

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
)

// pair is two engines in acknowledged mode, back to back, in memory of their own. What one sends
// stays in its wire until the other takes it.
type pair struct {
	t    testing.TB
	ends [2]*half
}

// half is one end of a pair.
type half struct {
	*Engine
	p        *pair
	pool     *mem.Pool
	m        *mem.MemoryRegion
	wire     [][]byte // sent, and not yet taken by the other
	at       uint64   // offset of the next that is taken from the other
	effects  Effects
	err      error
	emss     int
	resumeAt int
}

const pairMemory = 1 << 16

func newPair(t *testing.T, change func(*Config, *StartOptions)) *pair {
	p := &pair{t: t}
	for i := range p.ends {
		h := &half{p: p, pool: newPool(t, 40, 66560), emss: 1460}
		h.Engine = start(t, h.pool, mpa.Mode{CRC: true}, func(c *Config, o *StartOptions) {
			c.SendDepth, c.RecvDepth, c.SGEMax, c.RecvRanges, c.InlineMax = 8, 8, 2, 2, 64
			c.RecvCQ = newCQ(64)
			o.Acknowledged = true
			if change != nil {
				change(c, o)
			}
			h.emss = o.EMSS
		})
		var err error
		h.m, err = h.Table.Register(h.Domain, make([]byte, pairMemory), mem.RegionOptions{
			Access: mem.LocalRead | mem.LocalWrite | mem.RemoteRead | mem.RemoteWrite})
		require.NoError(t, err)
		p.ends[i] = h
	}
	return p
}

func (h *half) other() *half { return h.p.ends[b2i(h == h.p.ends[0])] }

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (h *half) sge(off, n uint32) wq.SGE {
	return wq.SGE{STag: h.m.STag(), Offset: h.m.Base() + uint64(off), Length: n}
}

// post posts a signaled request of octets at off, which for Writes, Reads and atomics are at the
// same place at the other end.
func (h *half) post(id uint64, op wq.Opcode, off, n uint32) {
	w := wq.WQE{ID: id, Op: op, Flags: wq.FlagSignaled, Local: h.sge(off, n)}
	switch {
	case op == wq.OpWrite || op.IsRequest():
		w.RemoteSTag, w.RemoteOffset = h.other().m.STag(), h.other().m.Base()+uint64(off)
	case op == wq.OpImmediate:
		w.Local = wq.SGE{}
		w.Operands[0] = id
	}
	require.NoError(h.p.t, h.PostSend(&w, nil, nil))
}

// postRecv posts a receive buffer of octets at off.
func (h *half) postRecv(id uint64, off, n uint32) {
	require.NoError(h.p.t, h.PostRecv(&wq.WQE{ID: id, Op: wq.OpRecv, Local: h.sge(off, n)}, nil))
}

// pull moves up to n segments to the wire, and says how many.
func (h *half) pull(n int) int {
	dst := make([][]byte, n)
	for i := range dst {
		dst[i] = make([]byte, h.emss)
	}
	n, _ = h.Pull(dst, false)
	h.wire = append(h.wire, dst[:n]...)
	h.take()
	return n
}

// arrive takes up to n segments of the other's wire.
func (h *half) arrive(n int) {
	o := h.other()
	for ; n > 0 && len(o.wire) > 0; n-- {
		b := h.pool.Alloc()
		require.NotEqual(h.p.t, mem.NoBuf, b)
		data := h.pool.Slot(b)[128:]
		data = data[:copy(data, o.wire[0])]
		o.wire = o.wire[1:]
		v := arriveOne(h.Engine, h.at, b, data)
		require.NotEqual(h.p.t, mpa.Refused, v)
		if v != mpa.Kept {
			h.pool.Free(b)
		}
		h.at += uint64(len(data))
		h.LeftEdge(h.at)
		h.take()
	}
}

func (h *half) take() {
	fx, err := h.TakeEffects()
	h.effects |= fx
	if h.err == nil {
		h.err = err
	}
}

// settleAll lets both ends send and take until nothing is left; SendLater and NotReady are heeded
// at once.
func (p *pair) settleAll() {
	for again := true; again; {
		again = false
		for _, h := range p.ends {
			if h.effects&EffectNotReady != 0 {
				h.effects &^= EffectNotReady
				h.Resume()
				again = true
			}
			if h.effects&EffectSendLater != 0 {
				h.effects &^= EffectSendLater
				h.SendAcknowledgements()
			}
			for h.pull(4) > 0 {
				again = true
			}
			h.other().arrive(1 << 20)
		}
	}
}

func sent(id uint64, op wq.Opcode, n uint32) wq.CQE {
	return wq.CQE{ID: id, Op: op, Len: n}
}

// A request completes when the peer says that it has accepted it, not when it was sent.
func TestAcknowledgedCompletion(t *testing.T) {
	p := newPair(t, nil)
	a, b := p.ends[0], p.ends[1]
	b.postRecv(7, 0, 100)
	a.post(1, wq.OpSend, 1000, 50)
	a.post(2, wq.OpWrite, 2000, 60)
	require.Equal(t, 1, a.pull(4))
	require.Empty(t, drainCQ(nil, a.SendCQ))
	require.False(t, a.Idle())
	b.arrive(1)
	require.Equal(t, []wq.CQE{{ID: 7, Op: wq.OpRecv, Len: 50}}, drainCQ(nil, b.RecvCQ))
	require.Equal(t, EffectSendLater, b.effects)
	require.Zero(t, b.pull(1), "not yet")
	require.True(t, b.SendAcknowledgements())
	require.Equal(t, 1, b.pull(4))
	a.arrive(1)
	require.Equal(t, []wq.CQE{sent(1, wq.OpSend, 50), sent(2, wq.OpWrite, 60)}, drainCQ(nil, a.SendCQ))
	require.True(t, a.Idle())
	require.False(t, b.SendAcknowledgements(), "said")
}

// An acknowledgement goes with what else there is to send.
func TestAcknowledgementTravelsWithASend(t *testing.T) {
	p := newPair(t, nil)
	a, b := p.ends[0], p.ends[1]
	a.postRecv(8, 0, 100)
	b.postRecv(7, 0, 100)
	a.post(1, wq.OpSend, 1000, 50)
	a.pull(4)
	b.arrive(1)
	b.post(2, wq.OpSend, 1000, 40)
	require.Equal(t, 1, b.pull(4))
	require.False(t, b.SendAcknowledgements())
	a.arrive(1)
	require.Equal(t, []wq.CQE{sent(1, wq.OpSend, 50)}, drainCQ(nil, a.SendCQ))
	require.Equal(t, []wq.CQE{{ID: 8, Op: wq.OpRecv, Len: 40}}, drainCQ(nil, a.RecvCQ))
}

// A Response acknowledges what was sent before its Read.
func TestResponseAcknowledges(t *testing.T) {
	p := newPair(t, nil)
	a, b := p.ends[0], p.ends[1]
	b.postRecv(7, 0, 100)
	a.post(1, wq.OpSend, 1000, 50)
	a.post(2, wq.OpRead, 3000, 64)
	a.post(3, wq.OpWrite, 2000, 60)
	a.pull(4)
	b.arrive(4)
	b.ack.told = b.ack.accepted // as if it had nothing to say
	b.pull(4)
	a.arrive(4)
	require.Equal(t, []wq.CQE{sent(1, wq.OpSend, 50), sent(2, wq.OpRead, 64)}, drainCQ(nil, a.SendCQ))
}

// Messages without a buffer are sent again when there is one, in order, and nothing after them is
// placed before.
func TestReceiverNotReady(t *testing.T) {
	p := newPair(t, nil)
	a, b := p.ends[0], p.ends[1]
	binary.BigEndian.PutUint32(a.m.Bytes()[2000:], 0xfeedface)
	b.postRecv(1, 0, 100)
	a.post(1, wq.OpSend, 1000, 50)
	a.post(2, wq.OpSend, 1100, 51)
	a.post(3, wq.OpWrite, 2000, 4)
	a.post(4, wq.OpRead, 3000, 8)
	a.post(5, wq.OpImmediate, 0, 0)
	a.pull(4)
	b.arrive(4)
	require.NotZero(t, b.effects&EffectSend)
	require.Zero(t, b.m.Bytes()[2000], "not placed")
	b.pull(4)
	a.arrive(4)
	require.Equal(t, []wq.CQE{sent(1, wq.OpSend, 50)}, drainCQ(nil, a.SendCQ))
	require.NotZero(t, a.effects&EffectNotReady)
	require.Zero(t, a.pull(4), "waits")
	require.Zero(t, a.requester.outstanding.count, "the Read is forgotten")
	b.postRecv(2, 200, 100)
	a.effects = 0
	a.Resume()
	require.Equal(t, 1, a.pull(4))
	b.arrive(4)
	require.EqualValues(t, 0xfeedface, binary.BigEndian.Uint32(b.m.Bytes()[2000:]))
	require.True(t, b.ack.dropping, "for the immediate data")
	b.postRecv(3, 400, 0)
	p.settleAll()
	require.Equal(t, []wq.CQE{sent(2, wq.OpSend, 51), sent(3, wq.OpWrite, 4), sent(4, wq.OpRead, 8),
		sent(5, wq.OpImmediate, 8)}, drainCQ(nil, a.SendCQ))
	got := drainCQ(nil, b.RecvCQ)
	require.Len(t, got, 3)
	require.Equal(t, []uint64{1, 2, 3}, []uint64{got[0].ID, got[1].ID, got[2].ID})
	require.EqualValues(t, 51, got[1].Len)
	require.True(t, got[2].WithImmediate)
	require.True(t, a.Idle())
}
