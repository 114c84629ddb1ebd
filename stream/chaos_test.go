package stream

import (
	"context"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/stack"
)

// passing is an Upper that takes a connection over and wants nothing of it.
type passing struct{ testhost.Upper }

func (u *passing) PeerClosed() { u.Conn.Abort() }

// meddle makes one call of c, chosen by chance.
func meddle(ctx context.Context, c *Conn, rng *rand.Rand, buf []byte) {
	soon := func() time.Time {
		return time.Now().Add(time.Duration(rng.IntN(3000)) * time.Microsecond)
	}
	n := rng.IntN(24)
	if n >= 19 && rng.IntN(8) > 0 { // what ends a connection or half of it: not at once
		n = 0
	}
	switch n {
	case 0, 1, 2, 3, 4:
		_, _ = c.Read(buf[:1+rng.IntN(len(buf))])
	case 5, 6, 7, 8, 9:
		_, _ = c.Write(buf[:rng.IntN(len(buf))])
	case 10:
		_, _ = c.ReadFrom(strings.NewReader(string(buf[:rng.IntN(len(buf))])))
	case 11, 12:
		_ = c.SetReadDeadline(soon())
	case 13, 14:
		_ = c.SetWriteDeadline(soon())
	case 15:
		_ = c.SetDeadline(time.Time{})
	case 16:
		_ = c.SetNoDelay(rng.IntN(2) == 0)
	case 17:
		_ = c.SetKeepAlive(rng.IntN(2) == 0)
	case 18:
		_, _ = c.Info(ctx)
	case 19:
		_ = c.CloseWrite()
	case 20:
		_ = c.CloseRead()
	case 21:
		_ = c.SetLinger(rng.IntN(2) - 1)
	case 22:
		short, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(2000))*time.Microsecond)
		_ = c.Detach(short, func(h Handover) stack.Upper {
			if rng.IntN(2) == 0 {
				return nil
			}
			h.Conn.Abort()
			return &passing{testhost.Upper{Conn: h.Conn}}
		})
		cancel()
	case 23:
		_ = c.Close()
	}
}

// Many goroutines make any call of a connection at once, at both ends, while others open and
// cancel: no call blocks for good, no goroutine and no Buf is left (the lab checks the Bufs).
func TestChaos(t *testing.T) {
	before := runtime.NumGoroutine()
	l := newLab(t, labConfig{})
	rounds := sample.Count(5, 20)
	ln := l.listen(Options{})
	target := ln.Addr().(*net.TCPAddr).AddrPort()
	for round := range rounds {
		c := l.dial(ln, Options{SendBuffer: 16 << 10})
		s := must(ln.AcceptStream())(t)
		var wg sync.WaitGroup
		for k := range 8 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(round), uint64(k)))
				x := []*Conn{c, s}[k%2]
				buf := make([]byte, 40_000)
				for range 30 {
					meddle(l.ctx, x, rng, buf)
				}
			})
		}
		wg.Go(func() { // a Dial that ends at any stage
			rng := rand.New(rand.NewPCG(uint64(round), 99))
			for range 4 {
				ctx, cancel := context.WithTimeout(l.ctx, time.Duration(rng.IntN(400))*time.Microsecond)
				if d, err := Dial(ctx, l.hosts[0].mine, target, Options{}); err == nil {
					_ = abort(d)
				}
				cancel()
			}
		})
		stuck := time.AfterFunc(2*time.Second, func() { // for a reader of octets that are not sent
			for _, x := range []*Conn{c, s} {
				_ = abort(x)
			}
		})
		wg.Wait()
		stuck.Stop()
		for _, x := range []*Conn{c, s} {
			_ = abort(x)
		}
		drained := true
		for drained {
			select {
			case d := <-ln.queue:
				_ = abort(d)
			default:
				drained = false
			}
		}
	}
	require.NoError(t, ln.Close())
	l.until("all connections gone", func() bool {
		return l.conns(l.hosts[0])+l.conns(l.hosts[1]) == 0
	})
	l.until("all goroutines gone", func() bool { return runtime.NumGoroutine() <= before+4 })
}
