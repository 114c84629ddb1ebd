package bench

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic"
)

// foreign is a ring of requests whose producer cannot call package rnic, and the count of
// their completions. It carries one request, again and again.
type foreign struct {
	wr         rnic.WorkRequest
	tail, head uint32 // atomic; the one who takes
	done       atomic.Uint32
	qp         *rnic.QueuePair
	rouse      chan struct{}
}

func (f *foreign) SendsWait() bool { return atomic.LoadUint32(&f.tail) != f.head }

func (f *foreign) Sends(feed rnic.Feed) {
	for f.SendsWait() && feed.Send(&f.wr) == nil {
		f.head++
	}
}

func (f *foreign) Recvs(rnic.Feed) {}
func (f *foreign) Written()        {}

// pump carries requests and completions between the ring and the QueuePair, on two goroutines.
func (f *foreign) pump(ctx context.Context, b *testing.B, cq *rnic.CompletionQueue) {
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-f.rouse:
			}
			for f.SendsWait() {
				if n, _ := f.qp.PostSend(f.wr); n == 0 {
					runtime.Gosched() // the queue is full
					continue
				}
				f.head++
			}
		}
	}()
	go func() {
		var cs [64]rnic.Completion
		for {
			if n := cq.Poll(cs[:]); n > 0 {
				f.done.Add(uint32(n))
			} else if cq.Wait(ctx) != nil {
				return
			}
		}
	}()
}

// BenchmarkForeignRing is Writes of 64 octets over the kernel's sockets, depth at a time, that wait
// in a ring of somebody else's: taken by the QueuePair (QPOptions.Source, CreateCQSink), or carried
// by goroutines in between. docs/adr/0020-work-from-a-source.md has the result.
func BenchmarkForeignRing(b *testing.B) {
	for _, way := range []string{"source", "pump"} {
		for _, depth := range []uint32{1, 16} {
			b.Run(way+map[uint32]string{1: "/one", 16: "/sixteen"}[depth], func(b *testing.B) {
				foreignRing(b, way, depth)
			})
		}
	}
}

func foreignRing(b *testing.B, way string, depth uint32) {
	dev, err := rnic.Open(rnic.Config{})
	require.NoError(b, err)
	h := &host{dev: dev}
	f := &foreign{rouse: make(chan struct{}, 1)}
	opt := opts{QPOptions: rnic.QPOptions{SendDepth: 64}}
	s := newEnd(b, h, 1<<12, opt)
	if way == "source" {
		opt.Source = f
		opt.SendCQ = dev.CreateCQSink(func(rnic.Completion) { f.done.Add(1) })
	}
	c := newEnd(b, h, 1<<12, opt)
	f.qp = c.qp
	join(b, h, s, func(ctx context.Context) error {
		return c.qp.Connect(ctx, "127.0.0.1:7174", c.conn)
	})
	f.wr = rnic.WorkRequest{Op: rnic.OpWrite, Local: c.region.Slice(0, 64),
		RemoteSTag: s.region.STag(), RemoteOffset: s.region.Base(), Signaled: true}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if way == "pump" {
		f.pump(ctx, b, c.cq)
	}
	b.ResetTimer()
	for posted := uint32(0); posted < uint32(b.N); {
		if posted-f.done.Load() == depth {
			runtime.Gosched()
			continue
		}
		posted++
		atomic.StoreUint32(&f.tail, posted)
		if way == "source" {
			c.qp.Doorbell()
			continue
		}
		select {
		case f.rouse <- struct{}{}:
		default:
		}
	}
	for f.done.Load() < uint32(b.N) {
		runtime.Gosched()
	}
}
