package rnic

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// What an Adapter gives out is bounded when it is opened, and a region that cannot be is refused.
//
// req: 5041-8.3.2-1, 5042-3-1
func TestRegister(t *testing.T) {
	a, err := Open(Config{RegionsMax: 2})
	require.NoError(t, err)
	pd := a.AllocPD()
	_, err = pd.Register(nil, 0)
	require.ErrorContains(t, err, "rnic: register 0 octets")
	_, err = pd.RegisterWith(make([]byte, 2), RegisterOptions{Base: 1<<64 - 2})
	require.ErrorContains(t, err, "rnic: register 2 octets")
	for range 2 {
		_, err = pd.Register(make([]byte, 1), RemoteWrite)
		require.NoError(t, err)
	}
	_, err = pd.Register(make([]byte, 1), RemoteWrite)
	require.ErrorContains(t, err, "all 2 memory regions are in use")
	require.Equal(t, 2, a.Regions())
}

// Slice names a range of the region and nothing else.
func TestSlice(t *testing.T) {
	a, err := Open(Config{})
	require.NoError(t, err)
	m, err := a.AllocPD().Register(make([]byte, 100), 0)
	require.NoError(t, err)
	require.Equal(t, SGE{STag: m.STag(), Length: 100}, m.Slice(0, 100))
	require.Equal(t, SGE{STag: m.STag(), Offset: 100}, m.Slice(100, 0))
	require.Equal(t, SGE{STag: m.STag(), Offset: 99, Length: 1}, m.Slice(99, 1))
	for _, bad := range [][2]int{{-1, 1}, {0, -1}, {101, 0}, {100, 1}, {1, 100}, {0, 101},
		{1 << 62, 1 << 62}} {
		require.Panics(t, func() { m.Slice(bad[0], bad[1]) }, "%v", bad)
	}
}

// No octet is placed after Deregister has returned, while the peer keeps writing as fast as it can.
//
// req: 5041-8.3.1-6, 5042-6.2.2-2, 5042-A-1
func TestDeregisterUnderWrites(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		for round := range 8 {
			s, c := r.connect(opts{}, opts{QPOptions: QPOptions{SendDepth: 16}})
			r.exchange(s, c)
			posted := 0
			post := func() {
				for errOf(c.qp.PostSend(c.write(s, uint64(posted), 0, regionBytes))) == nil {
					posted++
				}
			}
			post()
			r.until("some Writes", func() bool {
				post()
				c.poll()
				return len(c.done) > 20+5*round
			})
			s.region.Deregister()
			for i := range s.region.Bytes() { // ours alone now: -race would see another writer
				s.region.Bytes()[i] = 0x5a
			}
			post() // if all that was under way had arrived
			c.awaitClosed()
			s.awaitClosed()
			var pe *PeerError
			require.ErrorAs(t, c.qp.Err(), &pe)
			require.Equal(t, "DDP tagged buffer error: invalid STag (layer 1, type 1, code 0x00)",
				pe.said.Terminate.Cause.String())
			require.True(t, bytes.Equal(bytes.Repeat([]byte{0x5a}, regionBytes), s.region.Bytes()))
			s.unharmed(t)
			c.poll()
			require.Len(t, c.done, posted)
		}
	})
}

// A region's right can be taken away and given back: the new STag works, the old one does not.
//
// req: 5041-8.3.1-4
func TestRevalidate(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.connect(opts{}, opts{})
		old := c.write(s, 1, 0, 10)
		s.region.Revoke()
		s.region.Revalidate()
		c.post(c.write(s, 2, 100, 10))
		require.Equal(t, Success, c.await(1)[0].Status)
		c.post(as(OpWrite, old))
		c.awaitClosed()
		s.awaitClosed()
		require.Equal(t, c.source.Bytes()[100:110], s.region.Bytes()[100:110])
		require.Equal(t, make([]byte, 100), s.region.Bytes()[:100])
	})
}

// A region bound to a queue pair is so for what peers may do; the application may post any of the
// domain's as local.
//
// req: 5041-8.2-3
func TestBoundRegionIsLocalToAll(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.connect(opts{}, opts{})
		other, err := r.client.CreateQP(QPOptions{PD: c.pd, SendCQ: c.cq, RecvCQ: c.cq})
		require.NoError(t, err)
		for _, owner := range []*QueuePair{c.qp, other} {
			m, err := c.pd.RegisterWith([]byte("bound"), RegisterOptions{For: owner})
			require.NoError(t, err)
			s.postRecv(s.recvAt(1, 0, 5))
			c.post(WorkRequest{Op: OpSend, Local: m.Slice(0, 5)})
			require.Equal(t, Success, s.await(1)[0].Status, "%v", c.qp.Err())
			require.Equal(t, "bound", string(s.inbox.Bytes()[:5]))
			clear(s.inbox.Bytes()[:5])
		}
	})
}

// What an Adapter tells of its STags, and where it draws them from.
func TestSTagsOfAnAdapter(t *testing.T) {
	drawn := uint32(0)
	a, err := Open(Config{RegionsMax: 8, DrawSTag: func() uint32 { drawn++; return drawn << 8 }})
	require.NoError(t, err)
	pd := a.AllocPD()
	cq, err := a.CreateCQ(4)
	require.NoError(t, err)
	qp, err := a.CreateQP(QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq})
	require.NoError(t, err)
	b := make([]byte, 64)
	m, err := pd.RegisterWith(b, RegisterOptions{Access: RemoteWrite, For: qp})
	require.NoError(t, err)
	readable, err := pd.Register(b[:8], RemoteRead|LocalWrite)
	require.NoError(t, err)
	require.NotZero(t, drawn)
	require.True(t, m.Exclusive())
	require.False(t, readable.Exclusive())
	require.Equal(t, RemoteWrite, m.Access())
	require.Equal(t, "LocalWrite|RemoteRead", readable.Access().String())
	require.Equal(t, 2, a.Regions())
	require.Equal(t, []STag{m.STag()}, a.Writers(b[:1]))
	require.True(t, a.Valid(m.STag()))
	require.True(t, a.Valid(readable.STag()))
	require.False(t, a.Valid(0))
	m.Revoke()
	require.False(t, a.Valid(m.STag()))
	require.Empty(t, a.Writers(b))
	m.Deregister()
	readable.Deregister()
	require.Zero(t, a.Regions())
}
