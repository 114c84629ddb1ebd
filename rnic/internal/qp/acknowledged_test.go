package qp

import (
	"encoding/binary"
	"math/rand/v2"
	"pgregory.net/rapid"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
)

// pair is two engines in acknowledged mode, back to back, in memory of their own. What one sends
// stays in its wire until the other takes it.
type pair struct {
	t    require.TestingT
	ends [2]*half
}

// half is one end of a pair.
type half struct {
	*Engine
	p       *pair
	pool    *mem.Pool
	m       *mem.MemoryRegion
	wire    [][]byte // sent, and not yet taken by the other
	at      uint64   // offset of the next that is taken from the other
	effects Effects
	err     error
	emss    int
}

const pairMemory = 1 << 16

func newPair(t *testing.T, change func(*Config, *StartOptions)) *pair {
	p := &pair{t: t}
	for i := range p.ends {
		h := &half{p: p, pool: newPool(t, 40, 66560), emss: 1460}
		h.Engine = start(t, h.pool, mpa.Mode{CRC: true}, func(c *Config, o *StartOptions) {
			c.SendDepth, c.RecvDepth, c.SGEMax, c.RecvRanges, c.InlineMax = 8, 4, 2, 2, 64
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

// settleAll lets both ends send and take until nothing is left. SendLater is heeded at once, the
// NotReady that there is at first once.
func (p *pair) settleAll() {
	for _, h := range p.ends {
		if h.effects&EffectNotReady != 0 {
			h.effects &^= EffectNotReady
			h.Resume()
		}
	}
	for again := true; again; {
		again = false
		for _, h := range p.ends {
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

// Many messages that have come together are acknowledged at once, by one message.
func TestBurstIsAcknowledgedAtOnce(t *testing.T) {
	p := newPair(t, func(c *Config, _ *StartOptions) { c.SendDepth = 2 * ackBurst })
	a, b := p.ends[0], p.ends[1]
	write := func(n int) {
		for i := range n {
			a.post(uint64(i), wq.OpWrite, 0, 1)
		}
		for a.pull(4) > 0 {
		}
		b.arrive(1 << 20)
	}
	write(ackBurst - 1)
	require.Equal(t, EffectSendLater, b.effects)
	require.Zero(t, b.pull(4), "not yet")
	require.True(t, b.SendAcknowledgements())
	require.Equal(t, 1, b.pull(4))
	a.arrive(1)
	require.Len(t, drainCQ(nil, a.SendCQ), ackBurst-1)

	b.effects = 0
	write(ackBurst + 1)
	require.NotZero(t, b.effects&EffectSend)
	require.Equal(t, 1, b.pull(4))
	a.arrive(1)
	require.Len(t, drainCQ(nil, a.SendCQ), ackBurst+1)
	require.False(t, b.SendAcknowledgements(), "said")
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

// rcModel is what a reliable connection has one end of a pair do.
type rcModel struct {
	*half
	posted    []wq.WQE // in order
	lengths   []uint32
	completed int      // of posted
	received  int      // messages that use a buffer, of the other's
	sends     []int    // of posted: those that use a buffer
	buffers   uint64   // posted for receiving
	words     []uint64 // what atomics that completed have found
}

const (
	rcSlot     = 600 // octets that a request has for itself at both ends
	rcRequests = pairMemory / 2 / rcSlot / 2
	rcWord     = pairMemory - 8 // that atomics add to
	rcBuffer   = 500
)

// slot is where the octets of request i are, here and at the other end.
func (m *rcModel) slot(i int) int { return (2*i + b2i(m.half == m.p.ends[0])) * rcSlot }

// random posts a request with octets of its own, if there are any left.
func (m *rcModel) random(t *rapid.T) {
	i := len(m.posted)
	if i == rcRequests {
		return
	}
	n := uint32(rapid.IntRange(0, rcBuffer).Draw(t, "octets"))
	off := uint32(m.slot(i))
	w := wq.WQE{ID: uint64(i), Flags: wq.FlagSignaled, Local: m.sge(off, n),
		RemoteSTag: m.other().m.STag(), RemoteOffset: m.other().m.Base() + uint64(off)}
	w.Op = rapid.SampledFrom([]wq.Opcode{wq.OpSend, wq.OpSend, wq.OpWrite, wq.OpWrite, wq.OpRead,
		wq.OpSendImmediate, wq.OpImmediate, wq.OpFetchAdd}).Draw(t, "op")
	var list []wq.SGE
	var inline []byte
	if w.Op == wq.OpSendImmediate {
		w.Operands[0] = uint64(i)
	}
	switch {
	case w.Op == wq.OpImmediate:
		w.Local, n = wq.SGE{}, 8
		w.Operands[0] = uint64(i)
	case w.Op == wq.OpFetchAdd:
		w.Local, n = wq.SGE{}, 8
		w.RemoteOffset, w.Operands[0] = m.other().m.Base()+rcWord, 1
	case w.Op == wq.OpRead:
		w.Local = m.sge(off, n)
		w.RemoteOffset += pairMemory / 2 // nobody writes there, except atomics beyond
	case n <= 64 && rapid.Bool().Draw(t, "inline"):
		inline = append(inline, m.m.Bytes()[off:off+n]...)
		if w.Local = (wq.SGE{Length: n}); n > 0 {
			w.Flags |= wq.FlagInline
		}
	case n > 2 && rapid.Bool().Draw(t, "list"):
		list, w.More = []wq.SGE{m.sge(off+n/2, n-n/2)}, 1
		w.Local.Length = n / 2
	}
	if rapid.IntRange(0, 4).Draw(t, "fence") == 0 {
		w.Flags |= wq.FlagFence
	}
	if m.PostSend(&w, list, inline) != nil {
		return // the ring is full
	}
	if w.Op == wq.OpSend || w.Op == wq.OpSendImmediate || w.Op == wq.OpImmediate {
		m.sends = append(m.sends, i)
	}
	m.posted, m.lengths = append(m.posted, w), append(m.lengths, n)
}

// buffer posts a receive buffer, if there is room for one.
func (m *rcModel) buffer() {
	w := wq.WQE{ID: m.buffers, Op: wq.OpRecv,
		Local: m.sge(pairMemory/2+uint32(m.buffers%8)*rcBuffer, rcBuffer)}
	if m.PostRecv(&w, nil) == nil {
		m.buffers++
	}
}

// check compares what has completed since the last time.
func (m *rcModel) check(other *rcModel) {
	t := m.p.t
	for _, c := range drainCQ(nil, m.RecvCQ) {
		i := other.sends[m.received]
		w := other.posted[i]
		require.Equal(t, wq.Success, c.Status)
		require.EqualValues(t, m.received, c.ID)
		require.Equal(t, other.lengths[i], c.Len)
		require.Equal(t, w.Op == wq.OpSendImmediate, c.BesideSend)
		require.Equal(t, c.BesideSend || w.Op == wq.OpImmediate, c.WithImmediate)
		if c.BesideSend {
			require.EqualValues(t, i, binary.BigEndian.Uint32(c.Immediate[:4]))
		}
		if w.Op == wq.OpImmediate {
			require.EqualValues(t, i, binary.BigEndian.Uint64(c.Immediate[:]))
		} else {
			at := pairMemory/2 + (m.received%8)*rcBuffer
			require.Equal(t, other.m.Bytes()[other.slot(i):][:c.Len], m.m.Bytes()[at:][:c.Len])
		}
		m.received++
	}
	for _, c := range drainCQ(nil, m.SendCQ) {
		w, n := m.posted[m.completed], m.lengths[m.completed]
		want := sent(w.ID, w.Op, n)
		if w.Op == wq.OpFetchAdd {
			want.Original = c.Original
			m.words = append(m.words, c.Original)
		}
		require.Equal(t, want, c)
		off := m.slot(m.completed)
		if w.Op == wq.OpWrite { // it is there
			require.Equal(t, m.m.Bytes()[off:][:n], other.m.Bytes()[off:][:n])
		}
		m.completed++
	}
}

// Whatever is posted, whenever buffers are, and wherever octets are cut: each request is carried
// out once and in order, and completes when it has been.
func TestReliableConnection(t *testing.T) {
	notReady, again := uint64(0), uint64(0)
	rapid.Check(t, func(rt *rapid.T) {
		emss := rapid.SampledFrom([]int{100, 300, 1460, 8948}).Draw(rt, "EMSS")
		mode := mpa.Mode{CRC: true, Markers: rapid.Bool().Draw(rt, "markers")}
		pack := rapid.Bool().Draw(rt, "pack")
		p := newPair(t, func(c *Config, o *StartOptions) {
			c.Table.DrawFrom(rand.New(rand.NewPCG(1, 1)).Uint32)
			o.EMSS, o.PackFull = emss, pack
			o.Terms.Agreement.Send, o.Terms.Agreement.Receive = mode, mode
			o.Terms.IRD, o.Terms.ORD = 1, 1
		})
		p.t = rt
		ends := [2]*rcModel{{half: p.ends[0]}, {half: p.ends[1]}}
		for i, m := range ends {
			_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(m.m.Bytes()[:pairMemory/2])
		}
		for range rapid.IntRange(1, 300).Draw(rt, "steps") {
			i := rapid.IntRange(0, 1).Draw(rt, "end")
			m, other := ends[i], ends[1-i]
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0, 1:
				m.random(rt)
			case 2:
				m.buffer()
			case 3, 4, 5:
				m.pull(rapid.IntRange(1, 4).Draw(rt, "segments"))
			case 6, 7:
				m.arrive(rapid.IntRange(1, 4).Draw(rt, "segments"))
			case 8:
				if m.effects&EffectSendLater != 0 {
					m.effects &^= EffectSendLater
					m.SendAcknowledgements()
				}
			case 9:
				if m.effects&EffectNotReady != 0 {
					m.effects &^= EffectNotReady
					m.Resume()
				}
			}
			m.check(other)
			other.check(m)
		}
		for range 2 * rcRequests {
			ends[0].buffer()
			ends[1].buffer()
			p.settleAll()
			ends[0].check(ends[1])
			ends[1].check(ends[0])
		}
		for i, m := range ends {
			require.NoError(rt, m.err)
			require.Equal(rt, len(m.posted), m.completed)
			require.Equal(rt, len(m.sends), ends[1-i].received)
			require.True(rt, m.Idle())
			for k, word := range m.words {
				require.EqualValues(rt, k, word, "once each")
			}
			notReady += m.Stats().NotReadyRecvd
			again += m.Stats().MessagesSent - uint64(len(m.posted))
		}
	})
	t.Logf("%d times not ready, %d messages sent again", notReady, again)
	require.NotZero(t, notReady)
}
