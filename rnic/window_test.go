package rnic

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
)

// A window grants a peer exactly its octets: to the octet at both ends, and not what the region
// beside it holds.
//
// req: DDP-10.3-2, 5041-8.3.1-3, 5042-6.3.4-1
func TestWriteThroughAWindow(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		for name, c := range map[string]struct {
			to   uint64
			n    int
			want string
		}{
			"all of it":        {5000, 3000, ""},
			"first octet":      {5000, 1, ""},
			"last octet":       {7999, 1, ""},
			"octet before":     {4999, 2, "base or bounds violation"},
			"octet after":      {7999, 2, "base or bounds violation"},
			"the region's TOs": {1000, 1, "base or bounds violation"},
		} {
			t.Run(name, func(t *testing.T) {
				s, cl := r.connect(opts{}, opts{})
				w, err := s.pd.NewWindow()
				require.NoError(t, err)
				defer w.Free()
				stag, err := w.Bind(s.region,
					WindowOptions{Off: 1000, Len: 3000, Base: 5000, Access: RemoteWrite, For: s.qp})
				require.NoError(t, err)
				wr := cl.write(s, 1, 0, c.n)
				wr.RemoteSTag, wr.RemoteOffset = stag, c.to
				cl.post(as(OpWrite, wr))
				cl.qp.Disconnect()
				cl.awaitClosed()
				s.awaitClosed()
				want := make([]byte, regionBytes)
				if c.want == "" {
					require.NoError(t, cl.qp.Err())
					copy(want[1000+c.to-5000:], cl.source.Bytes()[:c.n])
				} else {
					require.ErrorContains(t, cl.qp.Err(), c.want)
				}
				require.Equal(t, want, s.region.Bytes())
			})
		}
	})
}

// What cannot be bound says so, and why.
func TestBindErrors(t *testing.T) {
	a, err := Open(Config{RegionsMax: 5})
	require.NoError(t, err)
	pd := a.AllocPD()
	cq, err := a.CreateCQ(4)
	require.NoError(t, err)
	qp, err := a.CreateQP(QPOptions{PD: a.AllocPD(), SendCQ: cq, RecvCQ: cq})
	require.NoError(t, err)
	m, err := pd.Register(make([]byte, 10), RemoteWrite)
	require.NoError(t, err)
	foreign, err := a.AllocPD().Register(make([]byte, 10), RemoteWrite)
	require.NoError(t, err)
	w, err := pd.NewWindow()
	require.NoError(t, err)
	_, err = w.Bind(m, WindowOptions{Off: 8, Len: 3, Access: RemoteWrite})
	require.EqualError(t, err, "rnic: bind a window to [8, 8+3) of 10 octets: mem: window's Off is "+
		"8, must be 0 to 7, so that the window ends within the region")
	_, err = w.Bind(m, WindowOptions{Off: -1, Len: 3, Access: RemoteWrite})
	require.ErrorContains(t, err, "mem: window's Off is -1, must be 0 to 7, so that")
	_, err = w.Bind(m, WindowOptions{Len: -1, Access: RemoteWrite})
	require.ErrorContains(t, err, "mem: window's length is -1, must be 1 to 10 octets")
	_, err = w.Bind(m, WindowOptions{Len: 3, Access: RemoteRead})
	require.ErrorContains(t, err,
		"mem: window's Access is RemoteRead, must be some of what the region grants to windows "+
			"(RemoteWrite)")
	_, err = w.Bind(m, WindowOptions{Len: 3, Access: 0x80})
	require.ErrorContains(t, err, "mem: window's Access is 0x80, must be")
	_, err = w.Bind(nil, WindowOptions{Len: 3, Access: RemoteWrite})
	require.EqualError(t, err, "rnic: bind a window: no region given")
	_, err = w.Bind(&MemoryRegion{}, WindowOptions{Len: 3, Access: RemoteWrite})
	require.EqualError(t, err, "rnic: bind a window: no region given")
	_, err = w.Bind(foreign, WindowOptions{Len: 3, Access: RemoteWrite})
	require.ErrorIs(t, err, errForeignRegion)
	_, err = w.Bind(m, WindowOptions{Len: 3, Access: RemoteWrite, For: qp})
	require.ErrorIs(t, err, errForeignQP)
	_, err = pd.RegisterWith(make([]byte, 10), RegisterOptions{For: qp})
	require.ErrorIs(t, err, errForeignQP)
	m.Revoke()
	_, err = w.Bind(m, WindowOptions{Len: 3, Access: RemoteWrite})
	require.ErrorIs(t, err, ErrRevoked)
	for range 2 {
		_, err = pd.NewWindow()
		require.NoError(t, err)
	}
	_, err = pd.NewWindow()
	require.ErrorContains(t, err, "rnic: new window: mem: all 5 memory regions")
	w.Free()
	_, err = w.Bind(m, WindowOptions{Len: 3, Access: RemoteWrite})
	require.ErrorIs(t, err, ErrWindowFreed)
	w.Free()

	other, err := Open(Config{}) // whose first domain has the number of pd
	require.NoError(t, err)
	far, err := other.AllocPD().Register(make([]byte, 10), RemoteWrite)
	require.NoError(t, err)
	w, err = pd.NewWindow()
	require.NoError(t, err, "the entry that Free gave back")
	require.Equal(t, pd.id, far.region.Domain())
	_, err = w.Bind(far, WindowOptions{Len: 3, Access: RemoteWrite})
	require.ErrorIs(t, err, errForeignRegion)
}

// A peer that is given addresses writes to addresses.
func TestRegionByAddress(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.connect(opts{}, opts{})
		b := make([]byte, 3000)
		m, err := s.pd.RegisterWith(b[500:],
			RegisterOptions{Access: RemoteWrite, ByAddr: true, For: s.qp})
		require.NoError(t, err)
		wr := c.write(s, 1, 0, 2000)
		wr.RemoteSTag, wr.RemoteOffset = m.STag(), uint64(uintptr(unsafe.Pointer(&b[700])))
		c.post(as(OpWrite, wr))
		r.close(s, c)
		require.Equal(t, c.source.Bytes()[:2000], b[700:2700])
		require.Equal(t, make([]byte, 700), b[:700])
	})
}

// The peer's Send with Invalidate takes the STag away at its Delivery: the Completion names it,
// and nothing reaches the memory through it any more, without a Revoke of ours.
//
// req: 5040-5.3-7, 5042-6.2.2-1
func TestSendInvalidate(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		for _, kind := range []string{"region", "window"} {
			t.Run(kind, func(t *testing.T) {
				s, c := r.connect(opts{}, opts{})
				m, err := s.pd.RegisterWith(make([]byte, 1000), RegisterOptions{Access: RemoteWrite, For: s.qp})
				require.NoError(t, err)
				w, err := s.pd.NewWindow()
				require.NoError(t, err)
				stag := m.STag()
				if kind == "window" {
					stag, err = w.Bind(m, WindowOptions{Len: 1000, Access: RemoteWrite, For: s.qp})
					require.NoError(t, err)
				}
				wr := c.write(s, 1, 0, 1000)
				wr.RemoteSTag, wr.RemoteOffset = stag, 0
				s.postRecv(s.recvAt(5, 0, 100))
				c.post(as(OpWrite, wr))
				done := WorkRequest{ID: 2, Local: c.source.Slice(0, 100), RemoteSTag: stag, Signaled: true}
				c.post(as(OpSendInvalidate, done))
				s.expectCompletions(Completion{ID: 5, Op: OpRecv, Len: 100, Invalidated: stag})
				require.Equal(t, Completion{ID: 2, QP: c.qp.Number(), Op: OpSendInvalidate, Len: 100},
					c.await(2)[1])
				require.Equal(t, kind == "window", m.Valid(), "a window's end leaves the region")
				require.False(t, w.Valid())
				require.Equal(t, c.source.Bytes()[:1000], m.Bytes())
				clear(m.Bytes()) // ours alone: -race would see a late octet
				c.post(as(OpWrite, wr))
				c.awaitClosed()
				require.ErrorContains(t, c.qp.Err(), "invalid STag")
				require.Equal(t, make([]byte, 1000), m.Bytes())
			})
		}
	})
}

// A peer cannot take away what is not its own: the stream ends with "STag cannot be invalidated",
// the message is not delivered, and everybody else goes on.
//
// req: 5040-5.3-8, 5040-7.2-4, 5040-8.1.1-2
func TestSendInvalidateRefused(t *testing.T) {
	for name, stag := range map[string]func(t *testing.T, s, other *end) mem.STag{
		"unknown":               func(_ *testing.T, s, _ *end) mem.STag { return s.region.STag() ^ 1 },
		"none":                  func(*testing.T, *end, *end) mem.STag { return 0 },
		"shared by all streams": func(_ *testing.T, s, _ *end) mem.STag { return s.region.STag() },
		"not remotely accessible": func(t *testing.T, s, _ *end) mem.STag {
			m, err := s.pd.RegisterWith(make([]byte, 10), RegisterOptions{Access: LocalWrite, For: s.qp})
			require.NoError(t, err)
			return m.STag()
		},
		"another stream's": func(t *testing.T, s, other *end) mem.STag {
			m, err := s.pd.RegisterWith(make([]byte, 10),
				RegisterOptions{Access: RemoteWrite, For: other.qp})
			require.NoError(t, err)
			return m.STag()
		},
		"another domain's": func(t *testing.T, s, _ *end) mem.STag {
			m, err := s.qp.adapter.AllocPD().Register(make([]byte, 10), RemoteWrite)
			require.NoError(t, err)
			return m.STag()
		},
	} {
		t.Run(name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				s, c := r.connect(opts{}, opts{})
				otherS, otherC := r.connect(opts{QPOptions: QPOptions{PD: s.pd}}, opts{})
				target := stag(t, s, otherS)
				s.postRecv(s.recvAt(5, 0, 100))
				s.postRecv(s.recvAt(6, 0, 100))
				c.post(WorkRequest{Op: OpSendInvalidate, Local: c.source.Slice(0, 100), RemoteSTag: target})
				c.post(WorkRequest{Op: OpSend, Local: c.source.Slice(0, 100)})
				c.awaitClosed()
				s.awaitClosed()
				var pe *PeerError
				require.ErrorAs(t, c.qp.Err(), &pe)
				require.Equal(t, "RDMAP remote protection error: STag cannot be invalidated (layer 0, type "+
					"1, code 0x09)", pe.said.Terminate.Cause.String())
				require.EqualValues(t, target, pe.said.Terminate.DDP.ULP32)
				s.expectCompletions(
					Completion{ID: 5, Op: OpRecv, Status: Flushed},
					Completion{ID: 6, Op: OpRecv, Status: Flushed},
				)
				require.True(t, s.region.Valid())
				r.exchange(otherS, otherC)
			})
		})
	}
}
