package rnic

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
)

// hoarders are connections that send octets beyond a gap, which no marker locates, until the
// Adapter takes no more.
func (h *segmentRig) hoarders(n int) (qps []*QueuePair, peers []*forged) {
	h.t.Helper()
	const size, segments = 1448, 300
	for i := range n {
		s := h.newEnd(opts{})
		c := h.startUp(uint16(3000+i), 1460, s)
		gap := len(c.stream)
		c.stream = append(c.stream, bytes.Repeat([]byte{0xff}, segments*size)...)
		for at := gap + 1; at+size <= len(c.stream); at += size {
			c.sendOctets(at, at+size, 0)
			if (at-gap)/size%16 == 0 {
				h.turn(time.Microsecond)
			}
		}
		h.turns(2, time.Microsecond)
		qps, peers = append(qps, s.qp), append(peers, c)
	}
	return qps, peers
}

// orderly is a connection beside the hoarders' whose peer may write to 64 octets of ours.
func (h *segmentRig) orderly() (*QueuePair, *MemoryRegion, *forged) {
	h.t.Helper()
	pd := h.adapter.AllocPD()
	region := must(pd.Register(make([]byte, 64), RemoteWrite))
	s := h.newEnd(qpOpts(QPOptions{PD: pd}))
	c := h.startUp(9, 1460, s)
	return s.qp, region, c
}

// spare is how many Bufs octets that have to wait leave free.
func (h *segmentRig) spare() int { return h.adapter.host.Pollers[0].Shared.Reserve().Spare }

// Peers that never finish their frames do not make the Poller deaf: new connections come about,
// and the data of peers that keep their frames whole are placed, in order and beyond a gap that
// closes.
func TestHeldFramesLeaveBufsForOthers(t *testing.T) {
	const bufs, peers = 2048, 8 // each may hold more than an eighth of them
	h := newSegmentRig(t, segmentRigConfig{bufs: bufs, connsMax: 32})
	qps, _ := h.hoarders(peers)
	require.GreaterOrEqual(t, h.pool.Available(), h.spare()-1)
	require.Less(t, h.pool.Available(), h.spare()+10, "they did not take what there was")
	refused := uint64(0)
	for _, q := range qps {
		require.Equal(t, RTS, q.State())
		refused += q.engine.Stats().Receive.RefusedSpare
	}
	require.Positive(t, refused)

	q, region, c := h.orderly()
	write := func(to int, text string) (lo, hi int) {
		return c.say(writeFPDU(region.STag(), uint64(to), text))
	}
	for i, text := range []string{"this ", "way ", "in "} {
		lo, hi := write(5*i, text)
		c.sendOctets(lo, hi, 0)
		h.turn(time.Microsecond)
	}
	require.Equal(t, "this way \x00in ", string(region.Bytes()[:13]))
	lo, mid := write(20, "first")
	_, hi := write(30, "second")
	for range 2 { // refused, as a sender sees a loss, and sent again
		c.sendOctets(mid, hi, 0)
		c.sendOctets(lo, mid, 0)
		h.turn(time.Microsecond)
	}
	require.Equal(t, "first", string(region.Bytes()[20:25]))
	require.Equal(t, "second", string(region.Bytes()[30:36]))

	for _, q := range qps {
		q.Abort()
	}
	h.turns(3, time.Microsecond)
	for _, q := range qps {
		require.True(t, isDone(q))
	}
	require.GreaterOrEqual(t, h.pool.Available(), bufs-1, "the Poller keeps one at hand")
	lo, hi = c.say(writeFPDU(region.STag(), 40, "held"))
	c.sendOctets(lo, lo+10, 0)
	h.turn(time.Microsecond)
	require.EqualValues(t, 1, q.engine.Stats().Receive.HeldBufs,
		"with Bufs to spare it may hold some again")
	c.sendOctets(lo+10, hi, 0)
	h.turn(time.Microsecond)
	require.Equal(t, "held", string(region.Bytes()[40:44]))
}

// A peer that cuts frames across segments gets on at once where Bufs are short for another reason
// than cut frames: others hold octets beyond a gap, or, as here, all but what sending leaves is
// out.
func TestCutFramesInAShortPool(t *testing.T) {
	h := newSegmentRig(t, segmentRigConfig{bufs: 1024, connsMax: 8})
	q, region, c := h.orderly()
	var out []mem.Buf
	for h.pool.Available() > h.adapter.host.Pollers[0].Poller.Reserve() {
		out = append(out, h.pool.Alloc())
	}
	for i, text := range []string{"in ", "two ", "segments"} {
		lo, hi := c.say(writeFPDU(region.STag(), uint64(8*i), text))
		c.sendOctets(lo, lo+10, 0)
		c.sendOctets(lo+10, hi, 0)
		h.turn(time.Microsecond)
		require.Equal(t, text, string(region.Bytes()[8*i:][:len(text)]))
	}
	require.Zero(t, q.engine.Stats().Receive.RefusedSpare)
	h.pool.FreeN(out)
}

// A peer that cuts frames across segments gets on although others hoard, and hold all that may be
// held of octets in order, too: those whose frames make no progress are ended, the worst first,
// until there is room.
func TestHoardersGiveWay(t *testing.T) {
	const bufs, peers = 2048, 8
	h := newSegmentRig(t, segmentRigConfig{bufs: bufs, connsMax: 32})
	h.adapter.host.Pollers[0].Shared.Reserve().Partial = 0
	qps, _ := h.hoarders(peers)
	var states []State // in which a hoarder's error is told
	public := h.adapter.host.Public
	h.adapter.host.Public = func(err error) error {
		if errors.Is(err, ErrHoarding) {
			for _, q := range qps {
				if s := q.State(); s != RTS && s != Closed {
					states = append(states, s)
				}
			}
		}
		return public(err)
	}
	q, region, c := h.orderly()
	lo, hi := c.say(writeFPDU(region.STag(), 0, "in two segments"))
	send := func() {
		c.sendOctets(lo, lo+10, 0)
		c.sendOctets(lo+10, hi, 0)
		h.turn(time.Microsecond)
	}
	send()
	require.Positive(t, q.engine.Stats().Receive.RefusedSpare, "there is no room yet")
	for range 20 { // as TCP does, with growing pauses
		h.turn(500 * time.Millisecond)
		send()
	}
	require.Equal(t, "in two segments", string(region.Bytes()[:15]))
	require.Equal(t, RTS, q.State())
	ended := 0
	for _, q := range qps {
		if isDone(q) {
			require.ErrorIs(t, q.Err(), ErrHoarding)
			require.NotErrorAs(t, q.Err(), new(*mpa.Error), "this end gave up, the stream was not lost")
			ended++
		}
	}
	require.Equal(t, slices.Repeat([]State{Error}, ended), states)
	require.Positive(t, ended)
	require.Less(t, ended, peers, "no more than it takes")
}

// Octets beyond a gap, which are refused because others hoard, come again once the gap is filled:
// for them the others keep what they hold as long as TCP would wait for their peers.
func TestHoardersKeepWhatIsOnlyWanted(t *testing.T) {
	h := newSegmentRig(t, segmentRigConfig{bufs: 2048, connsMax: 32})
	qps, _ := h.hoarders(8)
	ended := func() bool { return slices.ContainsFunc(qps, isDone) }
	q, region, c := h.orderly()
	gap, mid := c.say(writeFPDU(region.STag(), 0, "first"))
	_, hi := c.say(writeFPDU(region.STag(), 5, "second"))
	for range 90 {
		h.turn(time.Second)
		c.sendOctets(mid, hi-1, 0)
		h.turn(0)
	}
	require.Greater(t, q.engine.Stats().Receive.RefusedSpare, uint64(80))
	require.False(t, ended())
	h.turn(10 * time.Second)
	for range 20 {
		h.turn(time.Second)
		c.sendOctets(mid, hi-1, 0)
		h.turn(0)
	}
	require.True(t, ended())
	require.Equal(t, RTS, q.State())
	c.sendOctets(gap, mid, 0)
	c.sendOctets(hi-1, hi, 0)
	h.turn(0)
	require.Equal(t, "firstsecond", string(region.Bytes()[:11]))
}

// One that hoards and is refused more is left alone as long as nobody else is refused.
func TestHoarderAlone(t *testing.T) {
	const bufs = 1024
	h := newSegmentRig(t, segmentRigConfig{bufs: bufs, connsMax: 32})
	h.adapter.host.Pollers[0].Shared.Reserve().Partial = 0
	qps, peers := h.hoarders(1)
	var out []mem.Buf
	for h.pool.Available() > h.spare()-1 {
		out = append(out, h.pool.Alloc())
	}
	q, c := qps[0], peers[0]
	at := len(c.stream) + 1
	c.stream = append(c.stream, make([]byte, 101)...)
	more := func(others func()) {
		refused := q.engine.Stats().Receive.RefusedSpare
		for range 20 {
			h.turn(500 * time.Millisecond)
			c.sendOctets(at, at+100, 0)
			h.turn(0) // it is refused before the others
			others()
			h.turn(0)
		}
		require.True(t, isDone(q) || q.engine.Stats().Receive.RefusedSpare > refused+10)
	}
	more(func() {})
	require.False(t, isDone(q))

	other, region, d := h.orderly()
	lo, _ := d.say(writeFPDU(region.STag(), 0, "in two segments"))
	more(func() { d.sendOctets(lo, lo+10, 0) })
	require.ErrorIs(t, q.Err(), ErrHoarding)
	require.Equal(t, RTS, other.State())
	h.pool.FreeN(out)
}

// Connections end, and give back what they hold, although not a single Buf is left.
func TestAbortWithoutABuf(t *testing.T) {
	const peers = 3
	h := newSegmentRig(t, segmentRigConfig{bufs: 1024, connsMax: 8})
	qps, _ := h.hoarders(peers)
	talker, region, c := h.orderly()
	c.inject(writeFPDU(region.STag(), 0, "speak"))
	h.turns(2, time.Microsecond)

	var others []mem.Buf
	for b := h.pool.Alloc(); b != mem.NoBuf; b = h.pool.Alloc() {
		others = append(others, b)
	}
	// takes the one that the Poller has at hand
	require.NoError(t, errOf(talker.PostSend(WorkRequest{Op: OpSend, Local: region.Slice(0, 5)})))
	h.turns(2, time.Microsecond)
	for _, q := range qps {
		q.Abort()
	}
	h.turns(10, time.Second)
	for i, q := range qps {
		require.True(t, isDone(q), "queue pair %d of %d", i, peers)
		require.ErrorIs(t, q.Err(), ErrClosed)
	}
	talker.Abort()
	h.turns(2, time.Microsecond)
	h.pool.FreeN(others)
	require.GreaterOrEqual(t, h.pool.Available(), h.pool.Size()-1)
}

// A peer that finishes a frame now and then, and not those that it had begun before, is no less
// late.
func TestHoarderThatDribbles(t *testing.T) {
	h := newSegmentRig(t, segmentRigConfig{bufs: 1024, connsMax: 8})
	q, region, c := h.orderly()
	frame := func(to int) (lo, hi int) {
		return c.say(writeFPDU(region.STag(), uint64(to), make([]byte, 8)))
	}
	lo, hi := frame(0)
	for range 8 {
		_, _ = frame(0)
	}
	begun, _ := frame(0)
	c.sendOctets(begun, begun+10, 0) // no marker locates it
	h.turn(time.Microsecond)
	since := h.time
	for range 8 {
		h.turn(time.Second)
		c.sendOctets(lo, hi, 0)
		h.turn(time.Microsecond)
		lo, hi = hi, hi+hi-lo
	}
	bufs, at := held(q)
	require.Equal(t, 1, bufs)
	require.LessOrEqual(t, at, since)
	c.sendOctets(lo, begun, 0)
	h.turn(time.Microsecond)
	bufs, at = held(q)
	require.Equal(t, 1, bufs, "its rest is owed since then, in order or not")
	require.LessOrEqual(t, at, since)
	c.sendOctets(begun+10, len(c.stream), 0)
	h.turn(time.Microsecond)
	bufs, _ = held(q)
	require.Zero(t, bufs)
}

func held(q *QueuePair) (bufs int, since int64) { return q.end.Connection.Load().Held() }
