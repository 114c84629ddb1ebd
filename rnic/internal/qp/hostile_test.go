package qp

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// hostile is the peer of an end in acknowledged mode. It mostly says what can be, which it knows
// from that end's own state.
type hostile struct {
	*half   // the end that it attacks
	t       *rapid.T
	tx      mpa.Sender
	msn     [rdmap.QNAtomic + 2]uint32
	posted  uint64 // to the end: requests, and receive buffers
	buffers uint64
}

// wrong says whether it is to say what cannot be.
func (h *hostile) wrong() bool { return rapid.IntRange(0, 19).Draw(h.t, "wrong") == 0 }

// count is one of messages, first to last.
func (h *hostile) count(first, last uint32) uint32 {
	if h.wrong() {
		return first + uint32(rapid.IntRange(-1, 2).Draw(h.t, "count"))
	}
	return first + rapid.Uint32Range(0, last-first).Draw(h.t, "count")
}

func (h *hostile) says(header ddp.Header, payload []byte) {
	header.Version = 1
	h.other().wire = append(h.other().wire, fpdu(&h.tx, &header, payload))
	h.arrive(1)
}

func (h *hostile) untagged(op rdmap.Opcode, qn uint32, payload []byte) {
	h.says(ddp.Header{Last: true, ULP: rdmap.Control(1, op), QN: qn, MSN: h.msn[qn]}, payload)
	h.msn[qn]++
}

// request posts one.
func (h *hostile) request() {
	w := wq.WQE{ID: h.posted, Flags: wq.FlagSignaled, Local: h.sge(0, 8)}
	w.Op = rapid.SampledFrom([]wq.Opcode{wq.OpSend, wq.OpWrite, wq.OpRead, wq.OpFetchAdd,
		wq.OpImmediate, wq.OpSendImmediate}).Draw(h.t, "op")
	if w.Op.HasInline() {
		w.Local.Length = uint32(rapid.IntRange(0, 900).Draw(h.t, "octets"))
	}
	if h.wrong() {
		w.Op, w.RemoteSTag = wq.OpLocalInvalidate, 1<<8
	}
	if rapid.IntRange(0, 3).Draw(h.t, "fence") == 0 {
		w.Flags |= wq.FlagFence
	}
	if h.PostSend(&w, nil, nil) == nil {
		h.posted++
	}
}

// reliability says something of what the end has sent, or will send.
func (h *hostile) reliability() {
	k := &h.ack
	m := rdmap.Reliability{Kind: rdmap.Acknowledge, Count: h.count(k.acked, k.cut)}
	switch rapid.IntRange(0, 2).Draw(h.t, "kind") {
	case 0:
		if k.dropping || h.wrong() {
			m = rdmap.Reliability{Kind: rdmap.Resume, Count: k.accepted}
		}
	case 1:
		if !k.waiting && k.acked != h.begun() || h.wrong() {
			m = h.notReady(h.count(k.acked, max(k.acked, h.begun()-1)))
		}
	}
	cannotBe := m.Kind != rdmap.Resume && int32(m.Count-k.acked) < 0 ||
		m.Kind == rdmap.Acknowledge && int32(m.Count-k.cut) > 0 ||
		m.Kind == rdmap.NotReady && (k.waiting || int32(m.Count-h.begun()) >= 0)
	body := make([]byte, rdmap.ReliabilityLen)
	m.Put(body)
	h.untagged(rdmap.OpReliability, rdmap.QNReliability, body)
	require.False(h.t, cannotBe && h.err == nil, "%+v", m)
}

// notReady has the MSNs as they were when message n was begun.
func (h *hostile) notReady(n uint32) rdmap.Reliability {
	m := rdmap.Reliability{Kind: rdmap.NotReady, Count: n, Timer: 1,
		SendMSN: h.send.seg.MSN(rdmap.QNSend), ReadMSN: h.send.seg.MSN(rdmap.QNRead)}
	sent := &h.requester.sent
	for place := sent.head; place != sent.end(); place++ {
		r := h.ack.at(place)
		switch op := r.wqe.Op; {
		case int32(r.number-n) < 0 || int32(r.number-h.begun()) >= 0 || !isMessage(&r.wqe):
		case op.IsRequest():
			m.ReadMSN--
		case op != wq.OpWrite:
			m.SendMSN--
		}
	}
	return m
}

// response answers the oldest Read or atomic, to its end or not.
func (h *hostile) response() {
	out := &h.requester.outstanding
	switch {
	case out.count == 0 && !h.wrong():
	case out.count > 0 && out.at(0).atomic:
		body := make([]byte, rdmap.AtomicResponseLen)
		r := rdmap.AtomicResponse{ID: h.requester.lastID + 1 - out.count}
		r.Put(body)
		h.untagged(rdmap.OpAtomicResponse, rdmap.QNAtomic, body)
	default:
		h.says(ddp.Header{Tagged: true, Last: !h.wrong(), ULP: rdmap.Control(1, rdmap.OpReadResponse),
			STag: h.m.STag(), TO: h.m.Base()}, make([]byte, 8))
	}
}

// message sends one, for which there may be a buffer.
func (h *hostile) message() {
	w := wq.WQE{ID: h.buffers, Op: wq.OpRecv, Local: h.sge(2000, 100)}
	if rapid.Bool().Draw(h.t, "buffer") && h.PostRecv(&w, nil) == nil {
		h.buffers++
	}
	h.untagged(rdmap.OpSend, rdmap.QNSend, make([]byte, 20))
	if h.ack.dropping && !h.wrong() {
		h.msn[rdmap.QNSend]--
	}
}

// Whatever a peer says in acknowledged mode, and whenever: each request completes once and in
// order, none with success after one without, and so do receive buffers.
func TestHostileInAcknowledgedMode(t *testing.T) {
	ended, notReady, completed := 0, uint64(0), 0
	rapid.Check(t, func(rt *rapid.T) {
		p := newPair(t, func(_ *Config, o *StartOptions) {
			o.EMSS, o.Terms.ORD, o.Terms.IRD = 300, 2, 2
		})
		p.t = rt
		h := &hostile{half: p.ends[0], t: rt, msn: [...]uint32{1, 1, 1, 1, 1}}
		h.tx.Init(mpa.Mode{CRC: true})
		var sends, recvs []wq.CQE
		for n := rapid.IntRange(1, 60).Draw(rt, "steps"); n > 0 && h.err == nil; n-- {
			switch rapid.IntRange(0, 10).Draw(rt, "step") {
			case 0, 1:
				h.request()
			case 2, 3, 4:
				h.pull(rapid.IntRange(1, 4).Draw(rt, "segments"))
			case 5:
				h.Resume()
				h.SendAcknowledgements()
			case 6, 7, 8:
				h.reliability()
			case 9:
				h.response()
			case 10:
				h.message()
			}
			sends, recvs = drainCQ(sends, h.SendCQ), drainCQ(recvs, h.RecvCQ)
			require.LessOrEqual(rt, h.ack.acked, h.ack.cut)
		}
		ended += b2i(h.err != nil)
		notReady += h.Stats().NotReadyRecvd
		completed += len(sends)
		h.Finish()
		sends, recvs = drainCQ(sends, h.SendCQ), drainCQ(recvs, h.RecvCQ)
		require.EqualValues(rt, h.posted, len(sends))
		require.EqualValues(rt, h.buffers, len(recvs))
		for _, all := range [][]wq.CQE{sends, recvs} {
			for i, c := range all {
				require.EqualValues(rt, i, c.ID)
				require.False(rt, c.Status == wq.Success && i > 0 && all[i-1].Status != wq.Success)
			}
		}
		require.Equal(rt, h.pool.Size(), h.pool.Available(), "packet buffers")
	})
	t.Logf("%d ended, %d times not ready, %d completed before", ended, notReady, completed)
}
