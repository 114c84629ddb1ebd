package rnic

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/rnicd/rnicd/stack"
)

// atomicAnswer is the Response of message msn to the Request of this id.
func atomicAnswer(msn, id uint32, original uint64) fpdu {
	body := make([]byte, rdmap.AtomicResponseLen)
	(&rdmap.AtomicResponse{ID: id, Original: original}).Put(body)
	return messageFPDU(rdmap.OpAtomicResponse, msn, body)
}

// atomicRequest reads the next Atomic Request, and returns its identifier.
func (p *peer) atomicRequest() uint32 {
	p.d.t.Helper()
	asked, ok := rdmap.ParseAtomicRequest(p.nextFPDU().payload)
	require.True(p.d.t, ok)
	return asked.ID
}

// An Atomic Response with the identifier of another Request, and one whose original value has no
// place any more for Local was revoked, end the connection: the value is neither completed nor
// written.
func TestAtomicResponseRefused(t *testing.T) {
	for _, revoked := range []bool{false, true} {
		_, c, p := responded(t, noMarkers(connOpts(ConnParam{ORD: 1})))
		c.post(WorkRequest{Op: OpFetchAdd, Add: 1, ID: 1, RemoteSTag: 0x100, Local: c.inbox.Slice(0, 8),
			Signaled: true})
		id, cause, want := p.atomicRequest(), rdmap.CauseLocal, LocalProtection
		if revoked {
			c.inbox.Revoke()
		} else {
			id, cause, want = id+1, rdmap.CauseOperation, BadResponse
		}
		p.inject(atomicAnswer(1, id, 7))
		p.expectTerminateFor(cause)
		p.leave(c)
		got := c.await(1)[0]
		require.Equal(t, want, got.Status)
		require.Zero(t, got.Original)
		require.Zero(t, binary.NativeEndian.Uint64(c.inbox.Bytes()))
	}
}

// req: 7306-5-2, 7306-5.4-1, 7306-5.2.1-2, 7306-5.1.1-2, 7306-5.1.2-1, 7306-5.2.1-4, 7306-5.2.2-3
// req: 7306-5.1.1-3, 7306-5.4-3, 7306-4-2
func TestAtomics(t *testing.T) {
	r, s, c := connected(t, serving(4), asking(4))
	m := r.readable(s, 64, RemoteRead|RemoteWrite)
	clear(m.Bytes())
	all := uint64(math.MaxUint64)
	c.post(fetchAdd(c.wordOf(m, 1, 8), 7))
	c.post(fetchAddFields(c.wordOf(m, 2, 8), 0xffff, 0x8080))
	c.post(compareSwap(c.wordOf(m, 3, 8), CompareSwap{0xff06, all, 9, all}))
	c.post(compareSwap(c.wordOf(m, 4, 8), CompareSwap{0x11, 0xff, 0x12345678, 0xffff}))
	c.post(compareSwap(c.wordOf(m, 5, 8), CompareSwap{0x09, 0xff, 0x12345678, 0xffff}))
	c.post(c.readFrom(m, 6, 8, 8))
	var originals []uint64
	for i, cm := range c.await(6) {
		require.Equal(t, Success, cm.Status, "%d", i)
		require.EqualValues(t, 8, cm.Len)
		originals = append(originals, cm.Original)
	}
	require.Equal(t, []uint64{0, 7, 0xff06, 9, 9, 0}, originals)
	require.EqualValues(t, 0x5678, binary.NativeEndian.Uint64(c.inbox.Bytes()[8:]))
	require.Equal(t, make([]byte, 8), m.Bytes()[:8])
	require.Equal(t, make([]byte, 48), m.Bytes()[16:])
	s.expectNoCompletion()
	r.close(s, c)
}

// An atomic with Local stores the original value there, also with an SGEMax of 1. Local must be
// writable when the request begins and when its Response comes.
func TestAtomicsOriginalInMemory(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	asks := asking(4)
	asks.SGEMax, asks.InlineMax = 1, NoInline
	s, c := r.connect(serving(4), asks)
	m := r.readable(s, 64, RemoteRead|RemoteWrite)
	clear(m.Bytes())
	c.post(fetchAdd(c.wordOf(m, 1, 8), 7))
	for i, wr := range []WorkRequest{
		fetchAdd(c.wordOf(m, 2, 8), 1),
		compareSwap(c.wordOf(m, 3, 8), CompareSwap{8, math.MaxUint64, 5, math.MaxUint64}),
		fetchAdd(c.wordOf(m, 4, 8), 0),
	} {
		wr.Local = c.inbox.Slice(16+8*i, 8)
		c.post(wr)
	}
	require.Equal(t, []uint64{1, 2, 3, 4}, ids(t, c.await(4)))
	for i, want := range []uint64{0, 0, 7, 8, 5, 0} {
		require.Equal(t, want, binary.NativeEndian.Uint64(c.inbox.Bytes()[8*i:]), "word %d", i)
	}
	wr := fetchAdd(c.wordOf(m, 5, 8), 1)
	wr.Local = c.inbox.Slice(0, 4)
	require.ErrorIs(t, errOf(c.qp.PostSend(wr)), ErrShape)
	wr.Local = c.source.Slice(0, 8) // which may not be written
	c.post(wr)
	require.Equal(t, LocalProtection, c.await(1)[0].Status)
}

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
	c := r.newEnd(r.client, connOpts(ConnParam{Dialect: RFC5044, ORD: ord}))
	p := r.markedResponder(c)
	for i := range uint64(ord) {
		c.post(WorkRequest{Op: OpFetchAdd, Add: 1, ID: i, RemoteSTag: 0x100, Signaled: true})
	}
	var early, late []byte
	for msn := range uint32(ord) {
		answer := p.frame(atomicAnswer(msn+1, p.atomicRequest(), 1000+uint64(msn)))
		if msn < ahead {
			late = append(late, answer...)
		} else {
			early = append(early, answer...)
		}
	}
	require.Less(t, len(late), mpa.MarkerSpacing)
	l := c.qp.end.Connection.Load()
	at := l.StreamBase()
	require.Equal(t, stack.Taken, offer(l, at+uint64(len(late)), early))
	require.Equal(t, RTS, c.qp.State())
	require.EqualValues(t, ord-ahead, c.qp.engine.Stats().Receive.FPDUs, "placed ahead of the gap")
	c.expectNoCompletion()
	require.Equal(t, stack.Taken, offer(l, at, late))
	l.Edge(at + uint64(len(late)+len(early)))
	for i, got := range c.await(ord) {
		require.Equal(t, Completion{ID: uint64(i), QP: c.qp.Number(), Op: OpFetchAdd, Len: qp.AtomicLen,
			Original: 1000 + uint64(i)}, got)
	}
	c.qp.Abort()
	c.awaitClosed()
}
