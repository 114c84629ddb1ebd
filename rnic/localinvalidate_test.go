package rnic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// tied registers memory of e that its peer alone may reach.
func (r *rig) tied(e *end, b []byte, access Access) *MemoryRegion {
	r.t.Helper()
	m := must(e.pd.RegisterWith(b, RegisterOptions{Access: access, For: e.qp}))
	return m
}

// A Local Invalidate takes place in its turn: what was posted before and sends from the region goes
// out whole, also when it is unsignaled; what is posted after finds it invalid. The same for a
// window, whose region stays as it is.
func TestLocalInvalidate(t *testing.T) {
	r, s, c := connected(t, opts{}, opts{})
	m := r.tied(c, randomBytes(1, 40000), RemoteRead|LocalWrite)
	w := must(c.pd.NewWindow())
	defer w.Free()
	stag := must(w.Bind(m, WindowOptions{Len: 10, Access: RemoteRead, For: c.qp}))
	s.postRecv(s.recvAt(1, 0, 40000))
	c.post(WorkRequest{Op: OpLocalInvalidate, ID: 1, LocalSTag: stag, Signaled: true},
		WorkRequest{Op: OpSend, ID: 2, Local: m.Slice(0, 40000), Signaled: true},
		WorkRequest{Op: OpLocalInvalidate, ID: 3, LocalSTag: m.STag()})
	s.expectCompletions(Completion{ID: 1, Op: OpRecv, Len: 40000})
	require.Equal(t, m.Bytes(), s.inbox.Bytes()[:40000])
	require.False(t, w.Valid())
	require.False(t, m.Valid())
	c.post(WorkRequest{Op: OpSend, ID: 4, Local: m.Slice(0, 1)},
		WorkRequest{Op: OpSend, ID: 5, Local: c.source.Slice(0, 1)})
	c.expectCompletions(Completion{ID: 1, Op: OpLocalInvalidate},
		Completion{ID: 2, Op: OpSend, Len: 40000},
		Completion{ID: 4, Op: OpSend, Status: LocalProtection},
		Completion{ID: 5, Op: OpSend, Status: Flushed})
	s.awaitClosed()
	require.Zero(t, c.cq.promised())
}

// After a Read into the region it needs Fence, and completes after the Read either way; without,
// the Response finds no sink.
func TestLocalInvalidateAfterRead(t *testing.T) {
	for _, fence := range []bool{true, false} {
		r, c, p := responded(t, noMarkers(connOpts(ConnParam{ORD: 2})))
		sink := r.tied(c, make([]byte, 100), LocalWrite|RemoteRead)
		wr := WorkRequest{ID: 1, Local: sink.Slice(0, 8), RemoteSTag: 5, Signaled: true}
		c.post(as(OpRead, wr))
		c.post(WorkRequest{Op: OpLocalInvalidate, ID: 2, LocalSTag: sink.STag(), Signaled: true,
			Fence: fence})
		c.post(WorkRequest{Op: OpSend, ID: 3, Inline: []byte("beyond"), Signaled: true})
		rr := p.request()
		if !fence {
			require.Equal(t, "beyond", string(p.nextFPDU().payload))
			require.False(t, sink.Valid())
		}
		c.expectNoCompletion()
		p.inject(answerFPDU(rr, 0, "12345678", true))
		if fence {
			require.Equal(t, []uint64{1, 2, 3}, ids(t, c.await(3)))
			require.Equal(t, "12345678", string(sink.Bytes()[:8]))
			require.False(t, sink.Valid())
			continue
		}
		p.expectTerminateFor(rdmap.Cause(0x1100))
		p.leave(c)
		require.Equal(t, []Status{LocalProtection, Flushed, Flushed}, statuses(c.await(3)))
		require.Equal(t, make([]byte, 100), sink.Bytes())
	}
}

// What a peer may not invalidate this end does not either, in the order of the queue. The
// connection is over then, and all after is flushed.
func TestLocalInvalidateRefused(t *testing.T) {
	each(t, rigConfig{}, notInvalidated,
		func(t *testing.T, r *rig, of func(*rig, *end, *end) mem.STag) {
			s, c := r.connect(opts{}, opts{})
			stag := of(r, c, r.newEnd(r.client, qpOpts(QPOptions{PD: c.pd})))
			s.postRecv(s.recvAt(1, 0, 0))
			c.post(WorkRequest{Op: OpSend, ID: 1, Signaled: true},
				WorkRequest{Op: OpLocalInvalidate, ID: 2, LocalSTag: stag},
				WorkRequest{Op: OpLocalInvalidate, ID: 3, LocalSTag: stag})
			c.expectClosedBy(qp.ErrLocalInvalidate)
			s.awaitClosed()
			c.expectCompletions(Completion{ID: 1, Op: OpSend},
				Completion{ID: 2, Op: OpLocalInvalidate, Status: LocalOperation},
				Completion{ID: 3, Op: OpLocalInvalidate, Status: Flushed})
			require.True(t, c.region.Valid())
		})
}
