//go:build dpdk

package dpdk

import (
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
)

func TestRingPairCarriesFramesBothWays(t *testing.T) {
	a, b := ringSides(t, "both", 1024, 2048, 2048)
	bothWays(t, a, b, func(r *rand.Rand) int { return 14 + r.IntN(1501) })
	s := b.queue.Stats()
	require.Equal(t, s.RxFrames, s.Copied, "net_ring passes on the sender's mbufs")
	require.Equal(t, a.queue.Stats().TxFrames, s.RxFrames)
	require.Equal(t, a.queue.Stats().TxOctets, s.RxOctets)
	require.Zero(t, s.RxNoBuf+s.RxTooLong+s.TxFull+s.TxErrors)
}

func TestRingDeviceHoldsBufUntilPeerHasRead(t *testing.T) {
	a, b := ringSides(t, "hold", 64, 512, 2048)
	buf := a.buf(t, frame(newRand(t), 100))
	require.Equal(t, 1, a.queue.Tx([]mem.Buf{buf}))
	require.True(t, a.pool.InDevice(buf))
	a.queue.Rx(make([]mem.Buf, 8))
	require.True(t, a.pool.InDevice(buf), "the peer has not read it yet")
	require.Panics(t, func() {
		a.queue.Tx([]mem.Buf{buf})
	}, "a Buf in the device cannot be sent again")
	b.receive(t, 1, nil)
	require.True(t, eventually(func() bool {
		a.queue.Rx(make([]mem.Buf, 8))
		return !a.pool.InDevice(buf)
	}))
	require.Equal(t, 1, a.queue.Tx([]mem.Buf{buf}), "and now it can")
	a.pool.Free(buf)
	b.receive(t, 1, nil)
	a.settled(t)
}

// Between the ends of a pair nothing is damaged: TCP's checksum is left out, and the receiver is
// told where it belongs. An end without offload claims and asks for nothing.
func TestRingPairLeavesChecksumsOut(t *testing.T) {
	a, b := ringSides(t, "sums", 64, 512, 2048)
	for _, s := range []*side{a, b} {
		require.True(t, s.port.Caps().TxChecksum && s.port.Caps().RxChecksum && !s.port.Caps().TxSegment)
	}
	const tcpAt = 14 + 20
	f := frame(newRand(t), 200)
	f[12], f[13], f[14] = 0x08, 0x00, 0x45
	buf := a.buf(t, f)
	d := a.pool.Desc(buf)
	d.Flags, d.CsumStart, d.CsumOffset = mem.TxChecksum, tcpAt, 16
	require.Equal(t, 1, a.queue.Tx([]mem.Buf{buf}))
	a.send(t, f)
	var got []mem.Desc
	for _, octets := range b.receive(t, 2, func(_ []byte, d mem.Desc) bool {
		got = append(got, d)
		return true
	}) {
		require.Equal(t, f, octets)
	}
	require.Equal(t, mem.RxChecksumGood, got[0].Flags)
	require.Equal(t, [2]uint16{tcpAt, 16}, [2]uint16{got[0].CsumStart, got[0].CsumOffset})
	require.Zero(t, got[1].Flags, "one that was sent with its checksum is the stack's to verify")
	require.Zero(t, got[1].CsumStart+got[1].CsumOffset)
	a.pool.Free(buf)
	a.settled(t)

	na, _, err := RingPair("nosums", 64)
	require.NoError(t, err)
	c := openSide(t, Config{Vdev: na, NoOffload: true}, 512, 2048)
	require.False(t, c.port.Caps().TxChecksum || c.port.Caps().RxChecksum)
}

func TestRingFullTakesPrefix(t *testing.T) {
	a, b := ringSides(t, "full", 64, 1024, 2048)
	r := newRand(t)
	var bufs []mem.Buf
	for range 200 {
		bufs = append(bufs, a.buf(t, frame(r, 60)))
	}
	n := a.queue.Tx(bufs)
	require.Equal(t, 63, n, "a DPDK ring of 64 holds 63")
	for i, buf := range bufs {
		require.Equal(t, i < n, a.pool.InDevice(buf), "Buf %d of the burst", i)
	}
	require.EqualValues(t, 200-63, a.queue.Counters().TxFull)
	a.pool.FreeN(bufs)
	require.Len(t, b.receive(t, 63, nil), 63)
	a.settled(t)
}

func TestRingPoolEmptyIsCounted(t *testing.T) {
	a, b := ringSides(t, "empty", 256, 256, 2048)
	r := newRand(t)
	rx := b.pool.Size() - b.idle
	bufs := make([]mem.Buf, 32)
	var kept []mem.Buf
	for range rx + 10 {
		a.send(t, frame(r, 60))
		kept = append(kept, bufs[:b.queue.Rx(bufs)]...)
	}
	require.Len(t, kept, rx)
	require.EqualValues(t, 10, b.queue.Counters().RxNoBuf)
	b.pool.FreeN(kept)
	want := frame(r, 60)
	a.send(t, want)
	require.Equal(t, [][]byte{want}, b.receive(t, 1, nil), "freed Bufs are received into again")
}

func TestRingTooLongIsCounted(t *testing.T) {
	start(t)
	na, nb, err := RingPair("long", 64)
	require.NoError(t, err)
	a, b := openSide(t, Config{Vdev: na}, 512, 4096), openSide(t, Config{Vdev: nb}, 512, 2048)
	r := newRand(t)
	fits := frame(r, 2048-mem.Headroom)
	a.send(t, fits, frame(r, 2048-mem.Headroom+1), frame(r, 60))
	require.Equal(t, fits, b.receive(t, 2, nil)[0])
	require.EqualValues(t, 1, b.queue.Counters().RxTooLong)
}

func TestRingReceivedBufIsSentBack(t *testing.T) {
	a, b := ringSides(t, "echo", 256, 512, 2048)
	r := newRand(t)
	bufs := make([]mem.Buf, 32)
	for range 2000 {
		want := frame(r, 14+r.IntN(1000))
		a.send(t, want)
		n := b.queue.Rx(bufs)
		require.Equal(t, 1, n)
		require.Equal(t, 1, b.queue.Tx(bufs[:n]))
		b.pool.FreeN(bufs[:n])
		require.Equal(t, [][]byte{want}, a.receive(t, 1, nil))
	}
	a.settled(t)
	b.settled(t)
}

// Each end on a thread of its own: the receiver frees the sender's mbufs.
func TestRingTwoThreads(t *testing.T) {
	const frames = 100_000
	a, b := ringSides(t, "threads", 512, 2048, 2048)
	var wg sync.WaitGroup
	var received atomic.Int64
	wg.Go(func() {
		runtime.LockOSThread()
		bufs := make([]mem.Buf, 32)
		next := uint32(0)
		eventually(func() bool {
			n := b.queue.Rx(bufs)
			for _, buf := range bufs[:n] {
				d := b.pool.Data(buf)
				if got := uint32(d[14]) | uint32(d[15])<<8 | uint32(d[16])<<16; got != next {
					t.Errorf("frame %d arrived where %d was due", got, next)
					next = got
				}
				next++
			}
			b.pool.FreeN(bufs[:n])
			return received.Add(int64(n)) >= frames || t.Failed()
		})
	})
	f := frame(newRand(t), 60)
	bufs := make([]mem.Buf, 32)
	scratch := make([]mem.Buf, 32)
	for sent := 0; sent < frames; {
		n := a.pool.AllocN(bufs[:min(32, frames-sent)])
		for i, buf := range bufs[:n] {
			k := sent + i
			f[14], f[15], f[16] = byte(k), byte(k>>8), byte(k>>16)
			a.pool.Desc(buf).Len = uint32(len(f))
			copy(a.pool.Data(buf), f)
		}
		took := a.queue.Tx(bufs[:n])
		a.pool.FreeN(bufs[:n])
		a.pool.FreeN(scratch[:a.queue.Rx(scratch)])
		sent += took
		if took == 0 && t.Failed() {
			break
		}
		if took == 0 {
			runtime.Gosched()
		}
	}
	wg.Wait()
	require.EqualValues(t, frames, received.Load())
	a.settled(t)
	b.settled(t)
}

// A slot across two pages is one piece for the device only if the pages are neighbours in physical
// memory.
func TestRingSlotsAcrossPages(t *testing.T) {
	a, b := ringSides(t, "across", 1024, 4096, 2304)
	r := newRand(t)
	pa := a.port.memory.pa()
	split := 0
	for i := range a.pool.Size() {
		if !a.port.memory.contiguous(a.pool.Slot(mem.Buf(i))) {
			split++
		}
	}
	if !pa {
		require.Zero(t, split)
	}
	for range 8 {
		var bufs []mem.Buf
		var want [][]byte
		for range 1000 {
			f := frame(r, 1500)
			want = append(want, f)
			bufs = append(bufs, a.buf(t, f))
		}
		require.Equal(t, len(bufs), a.queue.Tx(bufs))
		require.Equal(t, want, b.receive(t, len(want), nil))
		for range 100 {
			a.queue.Rx(make([]mem.Buf, 4))
		}
		// Those come out last next time: every slot gets its turn.
		a.pool.FreeN(bufs)
	}
	t.Logf("physical addresses: %v; %d of %d slots in two pieces, %d frames bounced, %d of %d "+
		"receive Bufs usable", pa, split, a.pool.Size(), a.queue.Stats().Bounced, a.queue.rxUsable(),
		a.pool.Size()-a.idle)
	if split > 100 {
		require.NotZero(t, a.queue.Stats().Bounced)
	}
	if os.Getenv(pageVar) != "" && pa {
		require.NotZero(t, split, "normal pages are scattered in physical memory")
	}
	a.settled(t)
	b.settled(t)
}

func TestRingCloseGivesBufsBack(t *testing.T) {
	start(t)
	na, nb, err := RingPair("close", 256)
	require.NoError(t, err)
	a, b := openSide(t, Config{Vdev: na}, 512, 2048), openSide(t, Config{Vdev: nb}, 512, 2048)
	r := newRand(t)
	for range 100 {
		a.send(t, frame(r, 60))
		b.send(t, frame(r, 60))
	}
	require.NoError(t, a.port.Close())
	require.Equal(t, a.idle, a.pool.Available(), "frames that were not read come back")
	require.EqualValues(t, 100, a.queue.Counters().TxFrames, "counters outlive the queue")
	require.Zero(t, a.queue.Tx([]mem.Buf{a.buf(t, frame(r, 60))}))
	require.Zero(t, a.queue.Rx(make([]mem.Buf, 4)))
	require.NoError(t, a.port.Close(), "a second Close does nothing")
	b.settled(t)
	require.NoError(t, b.port.Close())
	_, _, err = RingPair("close", 256)
	require.NoError(t, err, "the name is free again")
	a, b = openSide(t, Config{Vdev: na}, 512, 2048), openSide(t, Config{Vdev: nb}, 512, 2048)
	want := frame(r, 60)
	a.send(t, want)
	require.Equal(t, [][]byte{want}, b.receive(t, 1, nil))
}

func TestRingNoAllocation(t *testing.T) {
	a, b := ringSides(t, "allocs", 256, 1024, 2048)
	bufs := make([]mem.Buf, 32)
	got := make([]mem.Buf, 32)
	f := frame(newRand(t), 60)
	var frames int
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		n := a.pool.AllocN(bufs)
		for _, buf := range bufs[:n] {
			a.pool.Desc(buf).Len = uint32(len(f))
			copy(a.pool.Data(buf), f)
		}
		a.queue.Tx(bufs[:n])
		a.pool.FreeN(bufs[:n])
		n = b.queue.Rx(got)
		frames += n
		b.pool.FreeN(got[:n])
		a.queue.Rx(got)
	}))
	require.NotZero(t, frames)
}

// What one end of a RingPair sends, the other end's core reads: its Bufs are used in turn.
func TestRingPairCirculates(t *testing.T) {
	a, b := ringSides(t, "turns", 64, 256, 2304)
	for _, s := range []*side{a, b} {
		first := s.pool.Alloc()
		s.pool.Free(first)
		next := s.pool.Alloc()
		require.NotEqual(t, first, next)
		s.pool.Free(next)
	}
}
