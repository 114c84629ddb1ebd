package rnic

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rdmap"
)

// An Atomic Response with the identifier of another Request ends the connection; its original
// value is not completed.
func TestResponseOfAnotherAtomic(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		c := r.newEnd(r.client, noMarkers(opts{ConnParam: ConnParam{ORD: 1}}))
		p := r.peerResponds(c)
		c.post(WorkRequest{Op: OpFetchAdd, Add: 1, ID: 1, RemoteSTag: 0x100, Signaled: true})
		outstanding, ok := rdmap.ParseAtomicRequest(p.nextFPDU().payload)
		require.True(t, ok)
		h := rdmap.OpAtomicResponse.Header(1)
		h.Version, h.Last, h.MSN = 1, true, 1
		body := make([]byte, rdmap.AtomicResponseLen)
		(&rdmap.AtomicResponse{ID: outstanding.ID + 1, Original: 7}).Put(body)
		p.inject(fpdu{h, body})
		p.expectTerminateFor(rdmap.CauseOperation)
		p.closeSend()
		c.awaitClosed()
		got := c.await(1)[0]
		require.Equal(t, BadResponse, got.Status)
		require.Zero(t, got.Original)
	})
}

// req: 7306-5-2, 7306-5.4-1, 7306-5.2.1-2, 7306-5.1.1-2, 7306-5.1.2-1
func TestAtomics(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.connect(serving(4), asking(4))
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
		r.close(s, c)
	})
}

// An atomic with Local stores the original value there, also with an SGEMax of 1. Local must be
// writable when the request begins and when its Response comes.
func TestAtomicsOriginalInMemory(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
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
	})
}

// Local that was revoked after the atomic was sent is not written, and the connection ends.
func TestAtomicsOriginalRevoked(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		c := r.newEnd(r.client, noMarkers(opts{ConnParam: ConnParam{ORD: 1}}))
		p := r.peerResponds(c)
		c.post(WorkRequest{Op: OpFetchAdd, Add: 1, ID: 1, RemoteSTag: 0x100, Local: c.inbox.Slice(0, 8),
			Signaled: true})
		outstanding, ok := rdmap.ParseAtomicRequest(p.nextFPDU().payload)
		require.True(t, ok)
		c.inbox.Revoke()
		h := rdmap.OpAtomicResponse.Header(1)
		h.Version, h.Last, h.MSN = 1, true, 1
		body := make([]byte, rdmap.AtomicResponseLen)
		(&rdmap.AtomicResponse{ID: outstanding.ID, Original: 7}).Put(body)
		p.inject(fpdu{h, body})
		p.expectTerminateFor(rdmap.CauseLocal)
		p.closeSend()
		c.awaitClosed()
		require.Equal(t, LocalProtection, c.await(1)[0].Status)
		require.Zero(t, binary.NativeEndian.Uint64(c.inbox.Bytes()))
	})
}
