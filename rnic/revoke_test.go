package rnic

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/mem"
)

// takeBack is a way to grant a peer a whole region, and to end that for certain.
type takeBack struct {
	name   string
	grant  func(t *testing.T, s *end, w *Window) mem.STag
	revoke func(s *end, w *Window)
}

func byRegion(_ *testing.T, s *end, _ *Window) mem.STag { return s.region.STag() }

func byWindow(t *testing.T, s *end, w *Window) mem.STag {
	stag, err := w.Bind(s.region, WindowOptions{Len: regionBytes, Access: RemoteWrite, For: s.qp})
	require.NoError(t, err)
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
// req: 5041-8.3.1-6, 5042-6.2.2-2, 5042-A-1
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
	s, c := r.connect(opts{}, opts{QPOptions: QPOptions{SendDepth: 16}})
	w, err := s.pd.NewWindow()
	require.NoError(t, err)
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
	c.awaitClosed()
	s.awaitClosed()
	require.True(t, bytes.Equal(bytes.Repeat([]byte{stamp}, regionBytes), memory),
		"an octet was placed after %s returned", way.name)
	s.unharmed(t)
	var pe *PeerError
	require.ErrorAs(t, c.qp.Err(), &pe)
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

// Several peers on several connections write through STags of their own into one region; taking
// one window back leaves the others at work, taking the region back ends all.
//
// req: 5042-6.1.1-3
func TestWindowsOfSeveralPeers(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		const peers = 3
		const share = regionBytes / 4
		pd := r.server.AllocPD()
		memory := make([]byte, regionBytes)
		region, err := pd.RegisterWith(memory, RegisterOptions{Windows: RemoteWrite})
		require.NoError(t, err)
		var ends [peers][2]*end
		var windows [peers]*Window
		var stags [peers]mem.STag
		for i := range ends {
			s, c := r.connect(opts{QPOptions: QPOptions{PD: pd}}, opts{})
			ends[i] = [2]*end{s, c}
			windows[i], err = pd.NewWindow()
			require.NoError(t, err)
			stags[i], err = windows[i].Bind(region,
				WindowOptions{Off: i * share, Len: share, Access: RemoteWrite, For: s.qp})
			require.NoError(t, err)
		}
		write := func(i, octet int) {
			c := ends[i][1]
			wr := c.write(ends[i][0], uint64(octet), octet, share-octet)
			wr.RemoteSTag, wr.RemoteOffset = stags[i], uint64(octet)
			c.post(as(OpWrite, wr))
		}
		expect := func(i int) {
			c := ends[i][1]
			require.Equal(t, Success, c.await(1)[0].Status, "%v", c.qp.Err())
			ends[i][0].postRecv(ends[i][0].recvAt(9, 0, 1))
			c.post(WorkRequest{Op: OpSend, Local: c.source.Slice(0, 1)})
			require.Equal(t, Success, ends[i][0].await(1)[0].Status) // after the Write: that one is placed
		}
		for i := range ends {
			write(i, 0)
			expect(i)
		}
		windows[1].Unbind()
		clear(memory[share : 2*share])
		write(1, 5)
		ends[1][1].awaitClosed()
		for _, i := range []int{0, 2} {
			write(i, 0)
			expect(i)
		}
		region.Revoke() // and not before is it looked at
		for i, c := range ends {
			want := c[1].source.Bytes()[:share]
			if i == 1 {
				want = make([]byte, share)
			}
			require.True(t, bytes.Equal(want, memory[i*share:(i+1)*share]), "peer %d", i)
		}
		clear(memory)
		for _, i := range []int{0, 2} {
			write(i, 7)
			ends[i][1].awaitClosed()
		}
		require.True(t, bytes.Equal(make([]byte, regionBytes), memory))
	})
}
