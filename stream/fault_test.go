package stream

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/tcp"
)

func heapArena(bufs int) *hugepages.Arena { return hugepages.Heap(bufs*stride + 4096) }

// Connections of all kinds of lives at once, over a network that loses: what is read is what was
// written, and when the Pollers stop in the middle of the last of them every Buf is back (newLab
// looks). A RST that is lost is not sent again: an end that has nothing more to send hears of it by
// its keep-alives.
func TestManyLives(t *testing.T) {
	l := newLab(t, labConfig{
		faults: &fault.Spec{Seed: 21, Tx: fault.Faults{Drop: 0.005, Duplicate: 0.01, Reorder: 0.02}},
		tcp: tcp.Config{RTOMinNs: int64(5 * time.Millisecond), DelayedAckNs: int64(time.Millisecond),
			SentMax: 64},
	})
	alive := net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 9}
	ln := l.listen(Options{FlushTimeout: 100 * time.Millisecond, ReceiveWindowMax: 200_000,
		KeepAlive: alive})
	want := random(7, 400_000)
	var wg sync.WaitGroup
	// ends, by both addresses, that were closed with their writer at work: what it had written is
	// all there is
	var early sync.Map
	end := func(from, to net.Addr) string { return from.String() + " " + to.String() }
	live := func(c *Conn, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 5))
		var halves sync.WaitGroup
		halves.Go(func() {
			for p := want; len(p) > 0; {
				n := min(len(p), 1+rng.IntN(60_000))
				if k, err := c.Write(p[:n]); err != nil || k < n {
					return
				}
				p = p[n:]
			}
			_ = c.CloseWrite()
		})
		stop := int(seed%4) * 100_000 // 0: at the end
		got, buf := 0, make([]byte, 30_000)
		for stop == 0 || got < stop {
			n, err := c.Read(buf)
			if string(buf[:n]) != string(want[got:got+n]) {
				t.Errorf("octets from %d on are wrong", got)
			}
			if got += n; err != nil {
				if _, closed := early.Load(end(c.RemoteAddr(), c.LocalAddr())); err == io.EOF &&
					got != len(want) && !closed {
					t.Errorf("end after %d octets", got)
				}
				break
			}
		}
		if seed%3 == 0 {
			_ = c.SetLinger(0)
		}
		if stop != 0 || seed%3 == 0 {
			early.Store(end(c.LocalAddr(), c.RemoteAddr()), true)
			_ = c.Close() // with octets unread, mostly, and a writer at work
		}
		halves.Wait()
		_ = c.Close()
	}
	wg.Go(func() {
		for seed := uint64(1000); ; seed++ {
			c, err := ln.AcceptStream()
			if err != nil {
				return
			}
			wg.Go(func() { live(c, seed) })
		}
	})
	var dialers sync.WaitGroup
	for worker := range uint64(6) {
		dialers.Go(func() {
			for i := range uint64(6) {
				c, err := Dial(l.ctx, l.hosts[0].mine, ln.Addr().(*net.TCPAddr).AddrPort(),
					Options{FlushTimeout: 100 * time.Millisecond, KeepAlive: alive})
				if err != nil {
					t.Errorf("dial: %v", err)
					return
				}
				live(c, 6*worker+i)
			}
		})
	}
	dialers.Wait()
	require.NoError(t, ln.Close())
	for _, h := range l.hosts {
		h.Stop()
	}
	wg.Wait()
}
