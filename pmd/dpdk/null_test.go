//go:build dpdk

package dpdk

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
)

// net_null receives zeroed frames of 64 octets without end and swallows what is sent.
func TestNullReceivesAndSwallows(t *testing.T) {
	s := openSide(t, Config{Vdev: "net_null0"}, 1024, 2048)
	frames := s.receive(t, 5000, nil)
	for _, f := range frames {
		require.Len(t, f, 64)
	}
	require.Zero(t, s.queue.Stats().Copied, "the device filled our own mbufs")
	r := newRand(t)
	for range 5000 {
		s.send(t, frame(r, 14+r.IntN(1500)))
	}
	c := s.queue.Counters()
	require.EqualValues(t, 5000, c.TxFrames)
	require.Zero(t, c.TxFull+c.TxErrors+c.RxNoBuf)
	s.settled(t)
}

func TestNullReceiveWithoutFreeEnds(t *testing.T) {
	s := openSide(t, Config{Vdev: "net_null0", RxBufs: 200, RxDesc: 64}, 512, 2048)
	var kept []mem.Buf
	bufs := make([]mem.Buf, 32)
	for range 50 {
		kept = append(kept, bufs[:s.queue.Rx(bufs)]...)
	}
	require.LessOrEqual(t, len(kept), 200)
	require.Greater(t, len(kept), 200-32, "net_null wants a whole burst's mbufs or none")
	seen := map[mem.Buf]bool{}
	for _, b := range kept {
		require.False(t, seen[b], "Buf %d received twice", b)
		seen[b] = true
	}
	s.pool.FreeN(kept)
	s.receive(t, 1000, nil)
}

// A queue whose goroutine wanders over more threads than the EAL has lcore ids loses no receive Buf
// to their caches.
func TestNullQueueWandersOverThreads(t *testing.T) {
	s := openSide(t, Config{Vdev: "net_null0", RxBufs: 512, RxDesc: 64}, 2048, 2048)
	for range 200 {
		received := make(chan int)
		go func() {
			runtime.LockOSThread() // and never unlock: the thread ends here
			var kept []mem.Buf
			bufs := make([]mem.Buf, 32)
			for range 20 {
				kept = append(kept, bufs[:s.queue.Rx(bufs)]...)
			}
			s.pool.FreeN(kept)
			received <- len(kept)
		}()
		require.Equal(t, 512, <-received)
	}
}

func TestNullSeveralQueuesReportTheirKey(t *testing.T) {
	start(t)
	a := newArena(t, 2*1024*2048+1<<16)
	p := must(open(Config{Vdev: "net_null1", Arena: a, Queues: 2}))(t)
	defer func() { require.NoError(t, p.Close()) }()
	pools := []*mem.Pool{newPool(t, a, 1024, 2048), newPool(t, a, 1024, 2048)}
	require.Nil(t, p.Caps().RSSTable, "not known before the device has started")
	q0 := must(p.Open(0, pools[0]))(t)
	require.Zero(t, q0.Counters().RxFrames)
	_, err := p.Open(1, pools[0])
	require.ErrorContains(t, err, "already serves a DPDK queue")
	_, err = p.Open(0, pools[1])
	require.ErrorContains(t, err, "queue 0 is already open")
	require.ErrorContains(t, errOf(p.Open(2, pools[1])), "there is no queue 2")
	q1 := must(p.Open(1, pools[1]))(t)
	c := p.Caps()
	require.Equal(t, 2, c.Queues)
	require.Equal(t, rssKey[:40], c.RSSKey)
	require.Len(t, c.RSSTable, 128)
	for i, q := range c.RSSTable {
		require.EqualValues(t, i/64, q, "entry %d: each queue has a run of the table", i)
	}
	bufs := make([]mem.Buf, 32)
	for i, q := range []interface{ Rx([]mem.Buf) int }{q0, q1} {
		n := q.Rx(bufs)
		require.Equal(t, 32, n)
		pools[i].FreeN(bufs[:n])
	}
}

func TestTxOfFrameOutsideItsBufPanics(t *testing.T) {
	s := openSide(t, Config{Vdev: "net_null0"}, 256, 2048)
	for _, d := range []mem.Desc{{Off: 128, Len: 1921}, {Off: 2049, Len: 1}, {Off: ^uint32(0), Len: 2},
		{Off: 128}} {
		b := s.pool.Alloc()
		s.pool.Desc(b).Off, s.pool.Desc(b).Len = d.Off, d.Len
		require.Panics(t, func() { s.queue.Tx([]mem.Buf{b}) }, "%+v", d)
		require.False(t, s.pool.InDevice(b))
		s.pool.Free(b)
	}
}

// An offload the port does not have is the caller's error; the frame is taken, dropped and counted.
func TestTxOffloadThatPortLacksIsDropped(t *testing.T) {
	s := openSide(t, Config{Vdev: "net_null0", NoOffload: true}, 256, 2048)
	require.False(t, s.port.Caps().TxChecksum)
	good, bad := s.buf(t, frame(newRand(t), 60)), s.buf(t, udpFrame([]byte("x")))
	d := s.pool.Desc(bad)
	d.Flags, d.CsumStart, d.CsumOffset = mem.TxChecksum, 34, 6
	require.Equal(t, 3, s.queue.Tx([]mem.Buf{bad, good, s.buf(t, frame(newRand(t), 60))}))
	c := s.queue.Counters()
	require.EqualValues(t, 1, c.TxErrors)
	require.EqualValues(t, 2, c.TxFrames)
	require.EqualValues(t, 120, c.TxOctets)
	require.False(t, s.pool.InDevice(bad))
}
