package rnic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/rnicd/rnicd/stack"
)

// markedResponder is a script against an Initiator of ours that wants markers: only they let
// Responses be placed ahead of a gap.
func (r *rig) markedResponder(c *end) *peer {
	r.t.Helper()
	p := r.peerAccepts(c)
	require.True(r.t, p.expectFrame(mpa.Request).Markers)
	p.start(mpa.Mode{Markers: true, CRC: true})
	p.write(unhex(r.t, hexRep+"4001 0000"))
	c.expectInService()
	return p
}

// atomicAnswer is the Response of message msn to the Request of this id.
func (p *peer) atomicAnswer(msn, id uint32, original uint64) []byte {
	h := rdmap.OpAtomicResponse.Header(1)
	h.Version, h.Last, h.MSN = 1, true, msn
	body := make([]byte, rdmap.AtomicResponseLen)
	resp := rdmap.AtomicResponse{ID: id, Original: original}
	resp.Put(body)
	return p.frame(fpdu{h, body})
}

// ORD atomics may be under way, and there is a buffer for each Response: those that arrive ahead of
// a gap, the last of them too, are placed and wait; when the gap is filled all operations complete
// in the order of posting, each with its own value.
//
// req: 7306-5.2.2-2, 7306-5.2.2-3
func TestAtomicResponsesAheadOfAGap(t *testing.T) {
	const (
		ord   = 32
		ahead = 14 // Responses in front of the marker at 512
	)
	r := newRig(t, turned, rigConfig{})
	c := r.newEnd(r.client, opts{ConnParam: ConnParam{Dialect: RFC5044, ORD: ord}})
	p := r.markedResponder(c)
	for i := range uint64(ord) {
		c.post(WorkRequest{Op: OpFetchAdd, Add: 1, ID: i, RemoteSTag: 0x100, Signaled: true})
	}
	var early, late []byte
	for msn := range uint32(ord) {
		outstanding, ok := rdmap.ParseAtomicRequest(p.nextFPDU().payload)
		require.True(t, ok)
		answer := p.atomicAnswer(msn+1, outstanding.ID, 1000+uint64(msn))
		if msn < ahead {
			late = append(late, answer...)
		} else {
			early = append(early, answer...)
		}
	}
	require.Less(t, len(late), mpa.MarkerSpacing)
	l, pool := c.qp.end.Connection.Load(), r.hosts[1].pool
	at := l.StreamBase()
	arrive := func(off uint64, octets []byte) {
		b := pool.Alloc()
		data := pool.Slot(b)[mem.Headroom:]
		require.Equal(t, stack.Taken, arriveOne(l, off, b, data[:copy(data, octets)]))
		pool.Free(b)
	}
	arrive(at+uint64(len(late)), early)
	require.False(t, c.qp.engine.Reported())
	require.EqualValues(t, ord-ahead, c.qp.engine.Stats().Receive.FPDUs, "placed ahead of the gap")
	c.expectNoCompletion()
	arrive(at, late)
	l.Edge(at + uint64(len(late)+len(early)))
	for i, got := range c.await(ord) {
		require.Equal(t, Completion{ID: uint64(i), QP: c.qp.Number(), Op: OpFetchAdd, Len: qp.AtomicLen,
			Original: 1000 + uint64(i)}, got)
	}
	c.qp.Abort()
	c.awaitClosed()
}
