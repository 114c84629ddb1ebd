package rnic

import (
	"bytes"
	"context"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/mem"
)

// What an Adapter gives out is bounded when it is opened, and a region that cannot be is refused.
//
// req: 5041-8.3.2-1, 5042-3-1
func TestRegister(t *testing.T) {
	a := must(Open(Config{RegionsMax: 2}))
	pd := a.AllocPD()
	_, err := pd.Register(nil, 0)
	require.ErrorContains(t, err, "rnic: register 0 octets")
	_, err = pd.RegisterWith(make([]byte, 2), RegisterOptions{Base: 1<<64 - 2})
	require.ErrorContains(t, err, "rnic: register 2 octets")
	for range 2 {
		_ = must(pd.Register(make([]byte, 1), RemoteWrite))
	}
	_, err = pd.Register(make([]byte, 1), RemoteWrite)
	require.ErrorContains(t, err, "all 2 memory regions are in use")
	require.Equal(t, 2, a.Regions())
}

// Slice names a range of the region and nothing else.
func TestSlice(t *testing.T) {
	a := must(Open(Config{}))
	const base = 0x123456789abcdef
	m := must(a.AllocPD().RegisterWith(make([]byte, 100), RegisterOptions{Base: base}))
	require.Equal(t, SGE{STag: m.STag(), Offset: base, Length: 100}, m.Slice(0, 100))
	require.Equal(t, SGE{STag: m.STag(), Offset: base + 100}, m.Slice(100, 0))
	require.Equal(t, SGE{STag: m.STag(), Offset: base + 99, Length: 1}, m.Slice(99, 1))
	for _, bad := range [][2]int{{-1, 1}, {0, -1}, {101, 0}, {100, 1}, {1, 100}, {0, 101},
		{1 << 62, 1 << 62}} {
		require.Panics(t, func() { m.Slice(bad[0], bad[1]) }, "%v", bad)
	}
}

// A region bound to a queue pair is so for what peers may do; the application may post any of the
// domain's as local.
//
// req: 5041-8.2-3
func TestBoundRegionIsLocalToAll(t *testing.T) {
	r, s, c := connected(t, opts{}, opts{})
	other := must(r.client.CreateQP(QPOptions{PD: c.pd, SendCQ: c.cq, RecvCQ: c.cq}))
	for _, owner := range []*QueuePair{c.qp, other} {
		m := must(c.pd.RegisterWith([]byte("bound"), RegisterOptions{For: owner}))
		s.postRecv(s.recvAt(1, 0, 5))
		c.post(WorkRequest{Op: OpSend, Local: m.Slice(0, 5)})
		require.Equal(t, Success, s.await(1)[0].Status, "%v", c.qp.Err())
		require.Equal(t, "bound", string(s.inbox.Bytes()[:5]))
		clear(s.inbox.Bytes()[:5])
	}
}

// What an Adapter tells of its STags, and where it draws them from.
func TestSTagsOfAnAdapter(t *testing.T) {
	drawn := uint32(0)
	a := must(Open(Config{RegionsMax: 8, DrawSTag: func() uint32 { drawn++; return drawn << 8 }}))
	pd := a.AllocPD()
	cq := must(a.CreateCQ(4))
	qp := must(a.CreateQP(QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq}))
	b := make([]byte, 64)
	m := must(pd.RegisterWith(b, RegisterOptions{Access: RemoteWrite, For: qp}))
	readable := must(pd.Register(b[:8], RemoteRead|LocalWrite))
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

// What a QueuePair does not permit its peer ends the connection as an access violation, whatever
// the STag grants; what it permits is done, and what it is permitted again.
func TestPermitPeer(t *testing.T) {
	const everything = PeerWrites | PeerReads | PeerAtomics
	for _, x := range []struct {
		name string
		op   Opcode
		may  PeerAccess
	}{
		{"Write", OpWrite, PeerWrites}, {"Read", OpRead, PeerReads},
		{"atomic", OpFetchAdd, PeerAtomics},
	} {
		t.Run(x.name, func(t *testing.T) {
			r, s, c := connected(t, serving(4), asking(4))
			m := r.readable(s, regionBytes, RemoteRead|RemoteWrite)
			before := append([]byte(nil), m.Bytes()...)
			request := func(off int) WorkRequest {
				wr := as(x.op, c.readFrom(m, 1, off, 8))
				if x.op == OpWrite {
					wr.Local = c.source.Slice(0, 8)
				}
				if x.op == OpFetchAdd {
					wr.Local, wr.Add = SGE{}, 1
				}
				return wr
			}
			for _, may := range []PeerAccess{x.may, everything} {
				s.qp.Permit(0)
				s.qp.Permit(may)
				c.post(request(0))
				require.Equal(t, Success, c.await(1)[0].Status)
				// an empty one needs no right; the answer comes after the first
				c.post(as(OpRead, WorkRequest{RemoteSTag: 1, Signaled: true}))
				c.await(1)
			}
			s.qp.Permit(everything &^ x.may)
			c.post(request(64))
			awaitClosed(s, c)
			require.Equal(t, before[8:], m.Bytes()[8:])
			if x.op != OpWrite {
				require.Equal(t, RemoteAccess, c.await(1)[0].Status)
			}
			end := errorAs[*TerminateError](t, s.qp.Err())
			layer, errType, _ := end.Control()
			want := [2]uint8{0, 1} // RDMAP, remote protection
			if x.op == OpWrite {
				want = [2]uint8{1, 1} // DDP, Tagged buffer
			}
			require.Equal(t, want, [2]uint8{layer, errType})
			require.ErrorAs(t, c.qp.Err(), &end)
			require.True(t, end.Remote)
			layer, errType, _ = end.Control()
			require.Equal(t, want, [2]uint8{layer, errType})
		})
	}
}

// A region's rights change, and its STag does not.
func TestPermitRegion(t *testing.T) {
	r, s, c := connected(t, serving(4), asking(4))
	m := r.readable(s, 100, RemoteWrite)
	stag := m.STag()
	require.NoError(t, m.Permit(RemoteRead, 0))
	require.Equal(t, stag, m.STag())
	require.Equal(t, RemoteRead, m.Access())
	c.post(as(OpRead, c.readFrom(m, 1, 0, 8)))
	require.Equal(t, Success, c.await(1)[0].Status)
	require.Equal(t, m.Bytes()[:8], c.inbox.Bytes()[:8])
	require.NoError(t, m.Permit(RemoteWrite, 0))
	c.post(as(OpRead, c.readFrom(m, 2, 0, 8)))
	require.Equal(t, RemoteAccess, c.await(1)[0].Status)
	require.Error(t, m.Permit(1<<7, 0))
	require.Equal(t, RemoteWrite, m.Access())
}

// What a WorkSource refuses completes in its turn, with the status that it says, and ends the
// connection.
func TestRefuse(t *testing.T) {
	for _, st := range []Status{LocalLength, LocalOperation, LocalProtection} {
		r := newRig(t, turned, rigConfig{})
		src := &selective{status: st}
		opt := opts{}
		opt.Source = src
		c := r.newEnd(r.client, opt)
		s, _ := r.connectEnds(r.newEnd(r.server, opts{}), c)
		src.add(&src.sends, c.write(s, 1, 0, 5000), WorkRequest{ID: refusedID, Op: OpSend},
			c.write(s, 3, 5000, 100))
		c.qp.Doorbell()
		got := c.await(3)
		require.Equal(t, Completion{ID: 1, QP: c.qp.Number(), Op: OpWrite, Len: 5000}, got[0])
		require.Equal(t, Completion{ID: refusedID, QP: c.qp.Number(), Op: OpSend, Status: st}, got[1])
		require.Equal(t, [2]any{uint64(3), Flushed}, [2]any{got[2].ID, got[2].Status})
		awaitClosed(c, s)
	}
}

const refusedID = 2

// selective is queues that refuse the request of refusedID.
type selective struct {
	queues
	status Status
}

func (s *selective) Sends(f Feed) {
	s.take(&s.sends, func(wr *WorkRequest) error {
		if wr.ID == refusedID {
			return f.Refuse(wr, s.status)
		}
		return f.Send(wr)
	})
}

// takeBack is a way to grant a peer a whole region, and to end that for certain.
type takeBack struct {
	name   string
	grant  func(t *testing.T, s *end, w *Window) mem.STag
	revoke func(s *end, w *Window)
}

func byRegion(_ *testing.T, s *end, _ *Window) mem.STag { return s.region.STag() }

func byWindow(t *testing.T, s *end, w *Window) mem.STag {
	stag := must(w.Bind(s.region, WindowOptions{Len: regionBytes, Access: RemoteWrite, For: s.qp}))
	return stag
}

var takeBacks = []takeBack{
	{"Revoke", byRegion, func(s *end, _ *Window) { s.region.Revoke() }},
	{"Revalidate", byRegion, func(s *end, _ *Window) { s.region.Revalidate() }},
	{"Deregister", byRegion, func(s *end, _ *Window) { s.region.Deregister() }},
	{"window's Unbind", byWindow, func(_ *end, w *Window) { w.Unbind() }},
	{"window's Free", byWindow, func(_ *end, w *Window) { w.Free() }},
	{"region's Revoke under a window", byWindow, func(s *end, _ *Window) { s.region.Revoke() }},
	{"region's Deregister under a window", byWindow, func(s *end, _ *Window) {
		s.region.Deregister()
	}},
	{"Local Invalidate of a window", byWindow, (*end).invalidate},
}

// invalidate is Local Invalidate, up to its Completion. It is the only work of s.
func (s *end) invalidate(w *Window) {
	if _, err := s.qp.PostSend(
		WorkRequest{Op: OpLocalInvalidate, LocalSTag: w.STag(), Signaled: true}); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.cq.Wait(ctx); err != nil {
		panic(err)
	}
}

// Not one octet is placed after a region or a window was taken back, while a peer keeps writing
// as fast as it can: over Pollers that run on cores of their own, and over kernel sockets. Each
// round the region is stamped as soon as the call has returned, and read again when the
// connection, whose every posted Write was under way, is over. Under -race the detector sees a
// late octet even if it has the stamp's value.
//
// req: 5041-8.3.1-6, 5042-6.2.2-2, 5042-A-1, DDP-10.3-3, 5041-8.3.1-4
func TestNothingIsPlacedAfterTakingBack(t *testing.T) {
	for _, way := range takeBacks {
		t.Run(way.name, func(t *testing.T) {
			over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
				enough := time.Now().Add(time.Duration(sample.Count(100, 700)) * time.Millisecond)
				for round := 0; round < 3 || round < 40 && time.Now().Before(enough); round++ {
					way.hammer(t, r, round)
				}
			})
		})
	}
}

func (way *takeBack) hammer(t *testing.T, r *rig, round int) {
	s, c := r.connect(opts{}, qpOpts(QPOptions{SendDepth: 16}))
	w := must(s.pd.NewWindow())
	stag := way.grant(t, s, w)
	posted := 0
	post := func() {
		wr := c.write(s, uint64(posted), 0, regionBytes)
		for wr.RemoteSTag = stag; errOf(c.qp.PostSend(as(OpWrite, wr))) == nil; posted++ {
		}
	}
	post()
	r.until("some Writes", func() bool {
		post()
		c.poll()
		return len(c.done) > 2+round%16
	})
	way.revoke(s, w)
	memory := s.region.Bytes()
	stamp := byte(round)
	for i := range memory { // ours alone now
		memory[i] = stamp
	}
	post()
	awaitClosed(c, s)
	require.True(t, bytes.Equal(bytes.Repeat([]byte{stamp}, regionBytes), memory),
		"an octet was placed after %s returned", way.name)
	s.unharmed(t)
	pe := errorAs[*PeerError](t, c.qp.Err())
	require.Equal(t, "DDP tagged buffer error: invalid STag (layer 1, type 1, code 0x00)",
		pe.said.Terminate.Cause.String())
	c.poll()
	require.Len(t, c.done, posted)
	for _, x := range []*end{s, c} {
		for _, m := range []*MemoryRegion{x.region, x.source, x.inbox} {
			m.Deregister()
		}
	}
	w.Free()
}

// A window grants a peer exactly its octets: to the octet at both ends, and not what the region
// beside it holds.
//
// req: DDP-10.3-2, 5041-8.3.1-3, 5042-6.3.4-1, DDP-3.2-4, DDP-3.2-5, DDP-6.2-9, DDP-7.1-1
func TestWriteThroughAWindow(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
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
			w := must(s.pd.NewWindow())
			defer w.Free()
			stag := must(w.Bind(s.region,
				WindowOptions{Off: 1000, Len: 3000, Base: 5000, Access: RemoteWrite, For: s.qp}))
			wr := cl.write(s, 1, 0, c.n)
			wr.RemoteSTag, wr.RemoteOffset = stag, c.to
			cl.post(as(OpWrite, wr))
			cl.qp.Disconnect()
			awaitClosed(cl, s)
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
}

// What cannot be bound says so, and why.
func TestBindErrors(t *testing.T) {
	a := must(Open(Config{RegionsMax: 5}))
	pd := a.AllocPD()
	cq := must(a.CreateCQ(4))
	qp := must(a.CreateQP(QPOptions{PD: a.AllocPD(), SendCQ: cq, RecvCQ: cq}))
	m := must(pd.Register(make([]byte, 10), RemoteWrite))
	foreign := must(a.AllocPD().Register(make([]byte, 10), RemoteWrite))
	other := must(Open(Config{})) // whose first domain has the number of pd
	far := must(other.AllocPD().Register(make([]byte, 10), RemoteWrite))
	require.Equal(t, pd.id, far.region.Domain())
	w := must(pd.NewWindow())
	write := WindowOptions{Len: 3, Access: RemoteWrite}
	for _, tc := range []struct {
		to   *MemoryRegion
		opt  WindowOptions
		want string
	}{
		{m, WindowOptions{Off: 8, Len: 3, Access: RemoteWrite}, "rnic: bind a window to [8, 8+3) of 10 " +
			"octets: mem: window's Off is 8, must be 0 to 7, so that the window ends within the region"},
		{m, WindowOptions{Off: -1, Len: 3, Access: RemoteWrite}, "mem: window's Off is -1, must be 0 to 7"},
		{m, WindowOptions{Len: -1, Access: RemoteWrite}, "window's length is -1, must be 1 to 10 octets"},
		{m, WindowOptions{Len: 3, Access: RemoteRead}, "mem: window's Access is RemoteRead, must be some " +
			"of what the region grants to windows (RemoteWrite)"},
		{m, WindowOptions{Len: 3, Access: 0x80}, "mem: window's Access is 0x80, must be"},
		{m, WindowOptions{Len: 3, Access: RemoteWrite, For: qp}, errForeignQP.Error()},
		{nil, write, "rnic: bind a window: no region given"},
		{&MemoryRegion{}, write, "rnic: bind a window: no region given"},
		{foreign, write, errForeignRegion.Error()},
		{far, write, errForeignRegion.Error()},
	} {
		_, err := w.Bind(tc.to, tc.opt)
		require.ErrorContains(t, err, tc.want)
	}
	_, err := pd.RegisterWith(make([]byte, 10), RegisterOptions{For: qp})
	require.ErrorIs(t, err, errForeignQP)
	m.Revoke()
	_, err = w.Bind(m, write)
	require.ErrorIs(t, err, ErrRevoked)
	for range 2 {
		must(pd.NewWindow())
	}
	_, err = pd.NewWindow()
	require.ErrorContains(t, err, "rnic: new window: mem: all 5 memory regions")
	m.Revalidate()
	key := uint8(0xfe)
	write.Key = &key
	require.EqualValues(t, 0xfe, must(w.Bind(m, write))&0xff)
	_, err = w.Bind(m, write)
	require.ErrorContains(t, err, "the window is bound")
	for range 2 {
		w.Free()
		_, err = w.Bind(m, write)
		require.ErrorIs(t, err, ErrWindowFreed)
	}
	must(pd.NewWindow()) // the entry that Free gave back
}

// A peer that is given addresses writes to addresses.
func TestRegionByAddress(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.connect(opts{}, opts{})
		b := make([]byte, 3000)
		m := must(s.pd.RegisterWith(b[500:],
			RegisterOptions{Access: RemoteWrite, ByAddr: true, For: s.qp}))
		wr := c.write(s, 1, 0, 2000)
		wr.RemoteSTag, wr.RemoteOffset = m.STag(), uint64(uintptr(unsafe.Pointer(&b[700])))
		c.post(as(OpWrite, wr))
		r.close(s, c)
		require.Equal(t, c.source.Bytes()[:2000], b[700:2700])
		require.Equal(t, make([]byte, 700), b[:700])
	})
}

// The peer's Send with Invalidate takes the STag away at its Delivery: the Completion names it,
// and nothing reaches the memory through it any more, without a Revoke of ours. It may ask for an
// event.
//
// req: 5040-5.3-7, 5042-6.2.2-1
func TestSendInvalidate(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	for _, kind := range []string{"region", "window"} {
		t.Run(kind, func(t *testing.T) {
			s, c := r.connect(opts{}, opts{})
			m := must(s.pd.RegisterWith(make([]byte, 1000), RegisterOptions{Access: RemoteWrite, For: s.qp}))
			w := must(s.pd.NewWindow())
			stag := m.STag()
			if kind == "window" {
				stag = must(w.Bind(m, WindowOptions{Len: 1000, Access: RemoteWrite, For: s.qp}))
			}
			wr := c.write(s, 1, 0, 1000)
			wr.RemoteSTag, wr.RemoteOffset = stag, 0
			s.postRecv(s.recvAt(5, 0, 100))
			c.post(as(OpWrite, wr))
			solicited := kind == "window"
			done := WorkRequest{ID: 2, Local: c.source.Slice(0, 100), RemoteSTag: stag, Signaled: true,
				Solicited: solicited}
			c.post(as(OpSendInvalidate, done))
			s.expectCompletions(Completion{ID: 5, Op: OpRecv, Len: 100, Invalidated: stag,
				Solicited: solicited})
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
}

// notInvalidated are STags that neither e nor its peer can invalidate; other is a QueuePair of e's
// domain.
var notInvalidated = map[string]func(r *rig, e, other *end) mem.STag{
	"none":           func(*rig, *end, *end) mem.STag { return 0 },
	"unknown":        func(_ *rig, e, _ *end) mem.STag { return e.region.STag() ^ 1 },
	"of all streams": func(_ *rig, e, _ *end) mem.STag { return e.region.STag() },
	"local rights only": func(r *rig, e, _ *end) mem.STag {
		return r.tied(e, make([]byte, 9), LocalWrite).STag()
	},
	"another stream's": func(r *rig, _, other *end) mem.STag {
		return r.tied(other, make([]byte, 9), RemoteWrite).STag()
	},
	"another domain's": func(_ *rig, e, _ *end) mem.STag {
		return must(e.qp.adapter.AllocPD().Register(make([]byte, 9), RemoteWrite)).STag()
	},
	"revoked": func(r *rig, e, _ *end) mem.STag {
		m := r.tied(e, make([]byte, 9), RemoteWrite)
		m.Revoke()
		return m.STag()
	},
}

// A peer cannot take away what is not its own: the stream ends with "STag cannot be invalidated",
// the message is not delivered, and everybody else goes on.
//
// req: 5040-5.3-8, 5040-7.2-4, 5040-8.1.1-2
func TestSendInvalidateRefused(t *testing.T) {
	each(t, rigConfig{}, notInvalidated,
		func(t *testing.T, r *rig, of func(*rig, *end, *end) mem.STag) {
			s, c := r.connect(opts{}, opts{})
			otherS, otherC := r.connect(qpOpts(QPOptions{PD: s.pd}), opts{})
			target := of(r, s, otherS)
			s.postRecvs(2, 100)
			c.post(WorkRequest{Op: OpSendInvalidate, Local: c.source.Slice(0, 100), RemoteSTag: target})
			c.post(c.sendQuietly(0, 100))
			awaitClosed(c, s)
			pe := errorAs[*PeerError](t, c.qp.Err())
			require.Equal(t, "RDMAP remote protection error: STag cannot be invalidated (layer 0, type "+
				"1, code 0x09)", pe.said.Terminate.Cause.String())
			require.EqualValues(t, target, pe.said.Terminate.DDP.ULP32)
			s.expectEach(2, Completion{Op: OpRecv, Status: Flushed})
			require.True(t, s.region.Valid())
			r.exchange(otherS, otherC)
		})
}
