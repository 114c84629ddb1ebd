package rnic

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rdmap"
)

// Immediate data are 8 octets in the Completion and in the buffer, delivered in order with Sends and after earlier Writes.
// Solicited is reported.
//
// req: 7306-6.3-1, 5040-5.3-4, 7306-4.1-2
func TestImmediateData(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.connect(opts{}, opts{})
		for i := range 5 {
			s.postRecv(s.recvAt(uint64(10+i), 20*i, 20))
		}
		data := [8]byte{1, 2, 3, 4, 5, 6, 7, 8}
		c.post(WorkRequest{Op: OpSend, Local: c.source.Slice(0, 5), Solicited: true})
		c.post(c.write(s, 2, 0, 5000))
		c.post(WorkRequest{Op: OpImmediate, Immediate: data, ID: 3, Signaled: true})
		c.post(WorkRequest{Op: OpImmediate, Immediate: [8]byte{}, ID: 4, Signaled: true, Solicited: true})
		c.post(WorkRequest{Op: OpSend, ID: 5, Local: c.source.Slice(0, 6), Signaled: true})
		recv := Completion{QP: s.qp.Number(), Op: OpRecv}
		want := []Completion{recv, recv, recv, recv}
		want[0].ID, want[0].Len, want[0].Solicited = 10, 5, true
		want[1].ID, want[1].Len, want[1].WithImmediate, want[1].Immediate = 11, 8, true, data
		want[2].ID, want[2].Len, want[2].WithImmediate, want[2].Solicited = 12, 8, true, true
		want[3].ID, want[3].Len = 13, 6
		require.Equal(t, want[:2], s.await(2))
		require.True(t, bytes.Equal(c.source.Bytes()[:5000], s.region.Bytes()[:5000]), "the Write before it")
		require.Equal(t, want[2:], s.await(2))
		require.Equal(t, data[:], s.inbox.Bytes()[20:28])
		cs := c.await(4)
		require.Equal(t, []uint64{2, 3, 4, 5}, ids(t, cs))
		require.Equal(t, Completion{ID: 3, QP: c.qp.Number(), Op: OpImmediate, Len: 8}, cs[1])
		c.post(WorkRequest{Op: OpImmediate, Immediate: data})
		s.await(1)
		s.postRecv(s.recvAt(1, 0, 7))
		c.post(WorkRequest{Op: OpImmediate, Immediate: data})
		require.Equal(t, LocalLength, s.await(1)[0].Status, "a buffer of 7 octets")
	})
}

// Immediate data of the wrong length ends the connection and is not delivered.
//
// req: 7306-6.3-2
func TestImmediateDataOfTheWrongLength(t *testing.T) {
	for _, n := range []int{0, 7, 9} {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			s := r.newEnd(r.server, opts{})
			s.postRecv(s.recvAt(1, 0, 20))
			p, _ := r.peerConnects(s, false)
			h := rdmap.OpImmediate.Header(1)
			h.Last, h.Version, h.MSN = true, 1, 1
			p.inject(fpdu{h, make([]byte, n)})
			p.expectTerminate(rdmap.Terminate{Cause: 0x02ff, HasDDP: true, HasSegmentLen: true, SegmentLen: uint16(18 + n), DDP: h})
			p.closeSend()
			s.awaitClosed()
			s.expectCompletions(Completion{ID: 1, Op: OpRecv, Status: Flushed})
		})
	}
}
