package fault

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/stretchr/testify/require"
)

// rig is a faulty port, a sound one, and a cable between them:
//
//	test -> q (faults) -> cable -> peer
type rig struct {
	t        testing.TB
	now      int64
	q        *Queue
	peer     pmd.Queue
	pool     *mem.Pool // of q
	peerPool *mem.Pool
	next     uint64 // number of the next frame
}

const frameLen = 64

func newPool(t testing.TB, bufs int) *mem.Pool {
	cfg := mem.PoolConfig{Bufs: bufs, Stride: 2048}
	pool, err := mem.NewPool(hugepages.Heap(cfg.Bytes()), cfg)
	require.NoError(t, err)
	return pool
}

func newRig(t testing.TB, spec Spec, cable wire.Config) *rig {
	l, err := wire.New(cable)
	require.NoError(t, err)
	r := &rig{t: t, pool: newPool(t, 512), peerPool: newPool(t, 512)}
	if cable.ZeroCopy {
		cfg := mem.PoolConfig{Bufs: 512, Stride: r.pool.Stride()}
		pair, err := mem.NewPair(hugepages.Heap(2*cfg.Bytes()), cfg)
		require.NoError(t, err)
		r.pool, r.peerPool = pair[0], pair[1]
	}
	p, err := NewPort(l.Port(0), spec, func() int64 { return r.now })
	require.NoError(t, err)
	q, err := p.Open(0, r.pool)
	require.NoError(t, err)
	r.q = q.(*Queue)
	r.peer, err = l.Port(1).Open(0, r.peerPool)
	require.NoError(t, err)
	return r
}

// frames makes n numbered frames in Bufs of pool.
func (r *rig) frames(pool *mem.Pool, n int) []mem.Buf {
	bufs := make([]mem.Buf, n)
	require.Equal(r.t, n, pool.AllocN(bufs))
	for _, b := range bufs {
		pool.Desc(b).Len = frameLen
		clear(pool.Data(b))
		binary.BigEndian.PutUint64(pool.Data(b)[14:], r.next)
		r.next++
	}
	return bufs
}

func numberOf(frame []byte) int { return int(binary.BigEndian.Uint64(frame[14:])) }

// send offers n frames to the faulty port and returns how many it took.
func (r *rig) send(n int) int {
	bufs := r.frames(r.pool, n)
	taken := r.q.Tx(bufs)
	r.pool.FreeN(bufs)
	r.next -= uint64(n - taken)
	return taken
}

// sent is the numbers of the frames that have reached the peer.
func (r *rig) sent() []int { return drain(r.peer, r.peerPool) }

// incoming has the peer send n frames.
func (r *rig) incoming(n int) {
	bufs := r.frames(r.peerPool, n)
	require.Equal(r.t, n, r.peer.Tx(bufs))
	r.peerPool.FreeN(bufs)
}

// received is the numbers of the frames that come out of the faulty port.
func (r *rig) received() []int { return drain(r.q, r.pool) }

func drain(q pmd.Queue, pool *mem.Pool) (numbers []int) {
	bufs := make([]mem.Buf, 16)
	for n := q.Rx(bufs); n > 0; n = q.Rx(bufs) {
		for _, b := range bufs[:n] {
			numbers = append(numbers, numberOf(pool.Data(b)))
		}
		pool.FreeN(bufs[:n])
	}
	return numbers
}

// eachWay runs a test for both directions: in puts n frames in, out tells which came out, faults
// sets them.
func eachWay(t *testing.T, test func(t *testing.T, r *rig, in func(n int), out func() []int,
	set func(Faults), counters func() Counters)) {
	t.Run("tx", func(t *testing.T) {
		r := newRig(t, Spec{Seed: 1}, wire.Config{})
		in := func(n int) { require.Equal(t, n, r.send(n)) }
		out := func() []int {
			r.q.Rx(nil) // a turn of the Poller
			return r.sent()
		}
		set := func(f Faults) { require.NoError(t, r.q.Set(Faults{}, f)) }
		test(t, r, in, out, set, func() Counters { _, tx := r.q.Faults(); return tx })
		require.Equal(t, r.pool.Size()-r.q.Held(), r.pool.Available())
	})
	t.Run("rx", func(t *testing.T) {
		r := newRig(t, Spec{Seed: 1}, wire.Config{})
		set := func(f Faults) { require.NoError(t, r.q.Set(f, Faults{})) }
		test(t, r, r.incoming, r.received, set, func() Counters { rx, _ := r.q.Faults(); return rx })
		require.Equal(t, r.pool.Size()-r.q.Held(), r.pool.Available())
	})
}

func upTo(from, to int) (s []int) {
	for i := from; i < to; i++ {
		s = append(s, i)
	}
	return s
}

func TestDrop(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig, in func(int), out func() []int, set func(Faults),
		counters func() Counters) {
		set(Faults{Drop: 1})
		in(10)
		require.Empty(t, out())
		require.Equal(t, Counters{Frames: 10, Dropped: 10}, counters())
		set(Faults{Drop: 0.25})
		got := 0
		for range 100 {
			in(40)
			got += len(out())
		}
		require.InDelta(t, 3000, got, 150, "4000 frames at 25 % loss")
		require.EqualValues(t, 4010-got, counters().Dropped)
	})
}

func TestDuplicate(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig, in func(int), out func() []int, set func(Faults),
		counters func() Counters) {
		set(Faults{Duplicate: 1})
		in(3)
		require.Equal(t, []int{0, 0, 1, 1, 2, 2}, out())
		require.Equal(t, Counters{Frames: 3, Duplicated: 3}, counters())
	})
}

func TestReorderByCount(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig, in func(int), out func() []int, set func(Faults),
		counters func() Counters) {
		set(Faults{Reorder: 1, ReorderBy: 2})
		in(1)
		require.Empty(t, out())
		set(Faults{ReorderBy: 2})
		in(1)
		require.Equal(t, []int{1}, out())
		in(3)
		require.Equal(t, []int{2, 0, 3, 4}, out())
		require.Equal(t, Counters{Frames: 5, Reordered: 1}, counters())
	})
}

func TestReorderByTime(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig, in func(int), out func() []int, set func(Faults),
		counters func() Counters) {
		r.now = 5000
		set(Faults{Reorder: 1, ReorderFor: 100})
		in(2)
		require.Empty(t, out())
		require.EqualValues(t, 5100, r.q.Deadline())
		r.now = 5099
		require.Empty(t, out())
		r.now = 5100
		require.Equal(t, []int{0, 1}, out())
		require.Equal(t, Counters{Frames: 2, Reordered: 2, Overdue: 2}, counters())
		require.EqualValues(t, math.MaxInt64, r.q.Deadline())
	})
}

func TestDelay(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig, in func(int), out func() []int, set func(Faults),
		counters func() Counters) {
		set(Faults{Delay: 1000})
		in(2)
		r.now = 300
		require.Empty(t, out()) // an Rx port sees frames when it polls: from here on for that direction
		in(1)
		require.Empty(t, out())
		first := r.q.Deadline()
		r.now = first - 1
		require.Empty(t, out())
		r.now = first
		got := out()
		require.NotEmpty(t, got)
		require.Equal(t, 0, got[0])
		r.now = 1300
		require.Equal(t, upTo(0, 3), append(got, out()...))
		require.EqualValues(t, 3, counters().Delayed)
		require.EqualValues(t, math.MaxInt64, r.q.Deadline())
	})
}

func TestJitterIsBoundedAndKeepsOrder(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig, in func(int), out func() []int, set func(Faults),
		counters func() Counters) {
		set(Faults{Delay: 1000, Jitter: 500})
		var got []int
		times := map[int64]bool{}
		for i := range 100 {
			r.now = int64(i) * 10
			in(1)
			got = append(got, out()...)
		}
		for len(got) < 100 {
			at := r.q.Deadline()
			require.LessOrEqual(t, at, int64(99*10+1500))
			require.Greater(t, at, r.now)
			times[at] = true
			r.now = at
			got = append(got, out()...)
		}
		require.Equal(t, upTo(0, 100), got)
		require.Greater(t, len(times), 3)
	})
}

func TestHoldIsBounded(t *testing.T) {
	r := newRig(t, Spec{HeldMax: 4, Tx: Faults{Delay: 1000}, Rx: Faults{Reorder: 1}}, wire.Config{})
	require.Equal(t, 6, r.send(6))
	require.Equal(t, 4, r.q.Held())
	_, tx := r.q.Faults()
	require.EqualValues(t, 2, tx.HoldFull, "dropped")
	r.incoming(6)
	require.Equal(t, []int{10, 11}, r.received(), "not held, so at once")
	rx, _ := r.q.Faults()
	require.EqualValues(t, 2, rx.HoldFull)
	require.Equal(t, 8, r.q.Held())
	require.Equal(t, 8, r.q.Drop())
	require.Equal(t, r.pool.Size(), r.pool.Available())
	require.EqualValues(t, math.MaxInt64, r.q.Deadline())
}

func TestEmptyPool(t *testing.T) {
	r := newRig(t, Spec{Tx: Faults{Corrupt: 1}, Rx: Faults{Duplicate: 1}}, wire.Config{})
	bufs := r.frames(r.pool, r.pool.Size())
	require.Equal(t, 2, r.q.Tx(bufs[:2]))
	require.Empty(t, r.sent())
	_, tx := r.q.Faults()
	require.EqualValues(t, 2, tx.NoBuf)
	r.incoming(1)
	r.pool.FreeN(bufs[:1])
	one := make([]mem.Buf, 4)
	require.Equal(t, 1, r.q.Rx(one), "the frame without its duplicate")
	rx, _ := r.q.Faults()
	require.Equal(t, Counters{Frames: 1, NoBuf: 1}, rx)
}

// The caller's Buf may be sent again: faults never show in it.
func TestTransmittedBufStaysSound(t *testing.T) {
	for _, f := range []Faults{{Corrupt: 1}, {Truncate: 1}, {Swap: 1}, {Reorder: 1}, {Delay: 5}} {
		r := newRig(t, Spec{Tx: f}, wire.Config{})
		frame := tcpFrame(t, 0, false, 0, []byte("some words to be swapped"))
		b := r.pool.Alloc()
		r.pool.Desc(b).Len = uint32(len(frame))
		copy(r.pool.Data(b), frame)
		for range 20 {
			require.Equal(t, 1, r.q.Tx([]mem.Buf{b}))
			require.Equal(t, frame, r.pool.Data(b))
		}
		r.now = 1 << 40
		r.q.Rx(nil)
		bufs := make([]mem.Buf, 32)
		n := r.peer.Rx(bufs)
		require.Equal(t, 20, n)
		damaged := 0
		for _, got := range bufs[:n] {
			if !bytes.Equal(frame, r.peerPool.Data(got)) {
				damaged++
			}
		}
		if f.Corrupt+f.Truncate+f.Swap > 0 {
			require.Equal(t, 20, damaged, "%+v", f)
		} else {
			require.Zero(t, damaged, "%+v", f)
		}
	}
}

func TestReceivedFramesAreDamaged(t *testing.T) {
	frame := tcpFrame(t, 0, false, 0, []byte("some words to be swapped"))
	for _, c := range []struct {
		f    Faults
		want Counters
	}{
		{Faults{Corrupt: 1}, Counters{Frames: 1, Corrupted: 1}},
		{Faults{Truncate: 1}, Counters{Frames: 1, Truncated: 1}},
		{Faults{Swap: 1}, Counters{Frames: 1, Swapped: 1}},
	} {
		r := newRig(t, Spec{Rx: c.f}, wire.Config{})
		var seen []byte
		r.q.Watch(func(b []byte, swapped [2]int) {
			seen = bytes.Clone(b)
			if x, y := seen[swapped[0]:], seen[swapped[1]:]; swapped != [2]int{} { // they change back
				x[0], x[1], y[0], y[1] = y[0], y[1], x[0], x[1]
			}
		})
		b := r.peerPool.Alloc()
		r.peerPool.Desc(b).Len = uint32(len(frame))
		copy(r.peerPool.Data(b), frame)
		require.Equal(t, 1, r.peer.Tx([]mem.Buf{b}))
		bufs := make([]mem.Buf, 4)
		require.Equal(t, 1, r.q.Rx(bufs))
		require.NotEqual(t, frame, r.pool.Data(bufs[0]))
		require.Equal(t, frame, seen)
		rx, _ := r.q.Faults()
		require.Equal(t, c.want, rx)
	}
}

// A full device is back-pressure, not loss, and looking at it does not change the loss rate.
func TestFullDevice(t *testing.T) {
	r := newRig(t, Spec{Seed: 3, Tx: Faults{Drop: 0.1}}, wire.Config{Slots: 8})
	var got []int
	const total = 4000
	for int(r.next) < total {
		for range 5 { // the device stays full for a few turns
			r.send(min(12, total-int(r.next)))
		}
		got = append(got, r.sent()...)
	}
	got = append(got, r.sent()...)
	_, tx := r.q.Faults()
	require.EqualValues(t, total, tx.Frames)
	require.EqualValues(t, total-len(got), tx.Dropped)
	require.InDelta(t, total/10, tx.Dropped, 80)
	for i := 1; i < len(got); i++ {
		require.Greater(t, got[i], got[i-1])
	}
}

func TestHeldFramesWaitForTheDevice(t *testing.T) {
	r := newRig(t, Spec{Tx: Faults{Delay: 10}}, wire.Config{Slots: 2})
	require.Equal(t, 5, r.send(5))
	r.now = 10
	r.q.Rx(nil)
	require.Equal(t, []int{0, 1}, r.sent())
	require.LessOrEqual(t, r.q.Deadline(), r.now, "more is due")
	r.q.Rx(nil)
	require.Equal(t, []int{2, 3}, r.sent())
	r.q.Tx(nil)
	require.Equal(t, []int{4}, r.sent())
	require.Equal(t, r.pool.Size(), r.pool.Available())
}

// A caller that takes one frame at a time still gets every duplicate, in order.
func TestRxWithLittleRoom(t *testing.T) {
	r := newRig(t, Spec{Rx: Faults{Duplicate: 1}}, wire.Config{})
	r.incoming(3)
	var got []int
	one := make([]mem.Buf, 1)
	for r.q.Rx(one) == 1 {
		got = append(got, numberOf(r.pool.Data(one[0])))
		r.pool.Free(one[0])
	}
	require.Equal(t, []int{0, 0, 1, 1, 2, 2}, got)
	require.Zero(t, r.q.Held())
}

// A frame from shared memory has no checksum yet; damage must not be sealed by a device that
// trusts it.
func TestIncompleteChecksumIsCompleted(t *testing.T) {
	r := newRig(t, Spec{}, wire.Config{ChecksumOffload: true})
	whole := tcpFrame(t, 0, false, 0, []byte("payload"))
	b := r.peerPool.Alloc()
	d := r.peerPool.Desc(b)
	d.Len, d.Flags, d.CsumStart, d.CsumOffset = uint32(len(whole)), mem.TxChecksum, 34, 16
	frame := r.peerPool.Data(b)
	copy(frame, whole)
	pseudo := uint32(0x0a00+0x0001+0x0a00+0x0002) + 6 + uint32(len(whole)-34)
	binary.BigEndian.PutUint16(frame[50:], uint16(pseudo))
	require.NotEqual(t, whole, frame)
	require.Equal(t, 1, r.peer.Tx([]mem.Buf{b}))

	bufs := make([]mem.Buf, 1)
	require.Equal(t, 1, r.q.Rx(bufs))
	require.Equal(t, whole, r.pool.Data(bufs[0]))
	got := r.pool.Desc(bufs[0])
	require.Zero(t, got.Flags)
	require.False(t, pmd.Incomplete(got))
}

func TestUnclaimedOffloadPanics(t *testing.T) {
	r := newRig(t, Spec{}, wire.Config{ChecksumOffload: true})
	b := r.frames(r.pool, 1)
	r.pool.Desc(b[0]).Flags = mem.TxChecksum
	require.Panics(t, func() { r.q.Tx(b) })
}

func TestNoAllocation(t *testing.T) {
	r := newRig(t, Spec{Rx: allFaults, Tx: allFaults}, wire.Config{})
	var q pmd.Queue = r.q
	bufs, in := r.frames(r.pool, 32), make([]mem.Buf, 64)
	peerBufs := r.frames(r.peerPool, 32)
	require.Zero(t, testing.AllocsPerRun(300, func() {
		r.now += 50
		q.Tx(bufs)
		r.peer.Tx(peerBufs)
		r.peerPool.FreeN(in[:r.peer.Rx(in)])
		r.pool.FreeN(in[:q.Rx(in)])
	}))
}

// Of ARP, which has no checksum but that of its link, damage leaves nothing, with tags or without;
// of other frames it leaves what was flipped.
func TestDamagedARPDoesNotArrive(t *testing.T) {
	for name, tt := range map[string]struct {
		front []byte // from the EtherType on
		whole bool
	}{
		"ARP":           {[]byte{0x08, 0x06}, false},
		"tagged ARP":    {[]byte{0x81, 0, 0, 5, 0x08, 0x06}, false},
		"IPv4":          {[]byte{0x08, 0x00}, true},
		"another":       {[]byte{0x88, 0xb5}, true},
		"another, deep": {[]byte{0x88, 0xb5, 0, 0, 0x08, 0x06}, true},
	} {
		r := newRig(t, Spec{Rx: Faults{Corrupt: 1}}, wire.Config{})
		bufs := r.frames(r.peerPool, 1)
		copy(r.peerPool.Data(bufs[0])[12:], tt.front)
		before := bytes.Clone(r.peerPool.Data(bufs[0]))
		require.Equal(t, 1, r.peer.Tx(bufs))
		r.peerPool.FreeN(bufs)
		var got [1]mem.Buf
		require.Equal(t, 1, r.q.Rx(got[:]), name)
		after := r.pool.Data(got[0])
		if tt.whole {
			require.Len(t, after, len(before), name)
			require.NotEqual(t, before, after, name)
		} else {
			require.Equal(t, before[:pmd.EthernetLen], after, name)
		}
		r.pool.FreeN(got[:])
	}
}

// On a cable that copies nothing, what is damaged on its way is not damaged at its sender, which
// may send it again; what is not damaged is not copied.
func TestDamageIsNotTheSendersOnAZeroCopyCable(t *testing.T) {
	for _, f := range []Faults{{}, {Corrupt: 1}, {Swap: 1}} {
		r := newRig(t, Spec{Seed: 3, Rx: f}, wire.Config{ZeroCopy: true})
		bufs := r.frames(r.peerPool, 1)
		segment := tcpFrame(t, 0, false, 0, []byte("some payload of which words differ"))
		r.peerPool.Desc(bufs[0]).Len = uint32(len(segment))
		copy(r.peerPool.Data(bufs[0]), segment)
		before := bytes.Clone(r.peerPool.Data(bufs[0]))
		require.Equal(t, 1, r.peer.Tx(bufs))
		var got [1]mem.Buf
		require.Equal(t, 1, r.q.Rx(got[:]))
		require.Equal(t, f == Faults{}, r.pool.Lent(got[0]))
		require.Equal(t, f == Faults{}, bytes.Equal(before, r.pool.Data(got[0])))
		require.Equal(t, before, r.peerPool.Data(bufs[0]))
	}
	r := newRig(t, Spec{Seed: 3, Rx: Faults{Corrupt: 1}}, wire.Config{ZeroCopy: true})
	all := make([]mem.Buf, 512)
	require.Equal(t, 512, r.pool.AllocN(all))
	r.incoming(1)
	require.Zero(t, r.q.Rx(make([]mem.Buf, 1)), "no Buf for the copy: lost")
	rx, _ := r.q.Faults()
	require.EqualValues(t, 1, rx.NoBuf)
}
