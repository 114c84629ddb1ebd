package rnic

import (
	"testing"

	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/stretchr/testify/require"
)

// wakes counts how often the doorbell is rung.
type wakes struct {
	transport.Conn
	n int
}

func (w *wakes) Wake() {
	w.n++
	w.Conn.Wake()
}

// Several requests of all kinds go out in their order, for one ring of the doorbell.
func TestPost(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.connect(serving(4), asking(4))
		rung := &wakes{Conn: c.qp.end.Connection.Load().Transport}
		if r.kind == turned { // nobody else looks at car meanwhile
			c.qp.end.Connection.Load().Transport = rung
		}
		m := r.readable(s, 100, RemoteRead)
		own := r.tied(c, make([]byte, 8), RemoteRead)
		theirs := r.tied(s, make([]byte, 8), RemoteRead)
		for i := range 2 {
			s.postRecv(s.recvAt(uint64(i), 10*i, 10))
		}
		read := c.readFrom(m, 3, 0, 100)
		read.Op = OpRead
		write := c.write(s, 1, 0, 100)
		write.Op = OpWrite
		n, err := c.qp.PostSend(write,
			WorkRequest{ID: 2, Op: OpSend, Inline: []byte("octets"), Signaled: true}, read,
			WorkRequest{ID: 4, Op: OpLocalInvalidate, LocalSTag: own.STag(), Signaled: true},
			WorkRequest{ID: 5, Op: OpSendInvalidate, RemoteSTag: theirs.STag(), Signaled: true})
		require.NoError(t, err)
		require.Equal(t, 5, n)
		require.Equal(t, []uint64{1, 2, 3, 4, 5}, ids(t, c.await(5)))
		require.Equal(t, []uint64{0, 1}, ids(t, s.await(2)))
		require.Equal(t, "octets", string(s.inbox.Bytes()[:6]))
		require.Equal(t, c.source.Bytes()[:100], s.region.Bytes()[:100])
		require.False(t, own.Valid())
		require.False(t, theirs.Valid())
		if r.kind == turned {
			require.Equal(t, 1, rung.n)
		}
		n, err = c.qp.PostSend()
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

// What cannot be posted ends the call, which says how many were; those are carried out.
func TestPostInPart(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.connect(opts{}, opts{QPOptions: QPOptions{SGEMax: 2}})
		one := WorkRequest{Op: OpSend, Local: c.source.Slice(0, 1), Signaled: true}
		for _, tc := range []struct {
			bad  func(wr *WorkRequest)
			want error
		}{
			{func(wr *WorkRequest) { wr.List = make([]SGE, 2) }, ErrListTooLong},
			{func(wr *WorkRequest) { wr.Op = 0 }, ErrShape},
			{func(wr *WorkRequest) { wr.Op = OpRecv }, ErrShape},
			{func(wr *WorkRequest) { wr.Op = OpLocalInvalidate + 1 }, ErrShape},
			{func(wr *WorkRequest) { wr.Op = OpFetchAdd }, ErrShape}, // Local of 1 octet
			{func(wr *WorkRequest) { wr.Op, wr.Local = OpFetchAdd, SGE{} }, ErrReadDepth},
			{func(wr *WorkRequest) { wr.Op = OpRead }, ErrReadDepth},
		} {
			batch := []WorkRequest{one, one, one, one}
			tc.bad(&batch[2])
			for range 2 {
				s.postRecv(s.recvAt(0, 0, 10))
			}
			n, err := c.qp.PostSend(batch...)
			require.ErrorIs(t, err, tc.want)
			require.Equal(t, 2, n)
			s.await(2)
			require.Len(t, c.await(2), 2)
			c.expectNoCompletion()
		}
		r.close(s, c)
		n, err := c.qp.PostSend(one)
		require.ErrorIs(t, err, ErrClosed)
		require.Zero(t, n)
	})
}

func TestPostDoesNotAllocate(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	s, c := r.connect(opts{}, opts{})
	var cs [8]Completion
	round := func() {
		wr := c.write(s, 1, 0, 100)
		wr.Op = OpWrite
		inline := [8]byte{1}
		last := WorkRequest{Op: OpWrite, Inline: inline[:], RemoteSTag: s.region.STag(),
			Signaled: true}
		if n, err := c.qp.PostSend(wr, last); n != 2 {
			t.Fatal(err)
		}
		r.reap(2, cs[:], c)
	}
	requireNoAllocations(t, round)
}
