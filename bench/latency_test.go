package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic"
)

const (
	pingLen  = 8
	pingWarm = 2000 // exchanges that do not count
)

// pinger is one end of a ping-pong of 8-octet Writes, or Sends: it answers number n with number n,
// the asking end with n+1. A Write is seen by looking at memory, a Send in the CompletionQueue.
//
// The region's first word is where the peer writes, the words after it are what is sent; each is
// used again when as many others have been answered.
type pinger struct {
	*end
	peer    *rnic.MemoryRegion
	sends   bool
	asks    bool
	seen    uint64
	rounds  uint64
	started bool
	resumed bool // the next sample does not count: others had the cores meanwhile
	began   time.Time
	samples []int64 // ns there and back; the asking end's
	failed  error
	done    atomic.Bool
	late    *atomic.Bool // of both ends: patience has run out, or one of them failed
	cs      [4]rnic.Completion
}

const pingSlots = 64

// slot is where number n is sent from.
func slot(n uint64) int { return pingLen * int(1+n%pingSlots) }

func (p *pinger) say(n uint64) {
	at := slot(n)
	binary.NativeEndian.PutUint64(p.region.Bytes()[at:], n)
	wr := rnic.WorkRequest{ID: n, Op: rnic.OpWrite, Local: p.region.Slice(at, pingLen),
		RemoteSTag: p.peer.STag(), RemoteOffset: p.peer.Base()}
	if p.sends {
		wr.Op = rnic.OpSend
	}
	if _, err := p.qp.PostSend(wr); err != nil {
		p.failed = err
	}
}

// heard is the highest number of the peer's, which is the one that is due or the one before it.
func (p *pinger) heard() uint64 {
	word := (*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(p.region.Bytes())))
	if !p.sends {
		return word.Load()
	}
	n := p.cq.Poll(p.cs[:])
	for i := range p.cs[:n] {
		if p.cs[i].Status != rnic.Success {
			p.failed = fmt.Errorf("%v", p.cs[i])
		}
		if word.Load() != p.seen+1 {
			p.failed = fmt.Errorf("received number %d, %d was due", word.Load(), p.seen+1)
		}
		p.listen()
	}
	return p.seen + uint64(n)
}

func (p *pinger) listen() {
	if _, err := p.qp.PostRecv(rnic.WorkRequest{Local: p.region.Slice(0, pingLen)}); err != nil {
		p.failed = err
	}
}

// step is what the application does in each round.
func (p *pinger) step() int {
	if p.done.Load() {
		return 0
	}
	now := p.heard()
	if now == p.seen && p.failed == nil && (!p.asks || p.started) {
		return 0
	}
	if now > p.seen+1 {
		p.failed = fmt.Errorf("number %d is there, %d was due", now, p.seen+1)
	}
	p.started = true
	if p.asks {
		t := time.Now()
		if now > pingWarm && !p.resumed && len(p.samples) < cap(p.samples) {
			p.samples = append(p.samples, int64(t.Sub(p.began)))
		}
		p.resumed = false
		p.began = t
	}
	p.seen = now
	if p.asks {
		now++
	}
	if p.failed != nil {
		p.late.Store(true) // the other end need not wait
	}
	if p.failed != nil || now > p.rounds {
		p.done.Store(true)
		return 1
	}
	p.say(now)
	if !p.asks && now == p.rounds {
		p.done.Store(true)
	}
	return 1
}

// pingPair is a connection and its two ends' programs.
func pingPair(t testing.TB, server, client *host, sends bool, n int) (ask, answer *pinger) {
	s, c := connect(t, server, client, 4096, opts{ConnParam: rnic.ConnParam{NoMarkers: true}})
	rounds := uint64(n + pingWarm)
	late := lateness(t)
	ask = &pinger{
		end: c, peer: s.region, sends: sends, asks: true, rounds: rounds, samples: touched(n), late: late,
	}
	answer = &pinger{end: s, peer: c.region, sends: sends, rounds: rounds, late: late}
	if sends {
		for range 8 {
			ask.listen()
			answer.listen()
		}
	}
	return ask, answer
}

// touched is room for n samples that has been written to: a page that is touched for the first time
// while the clock runs takes 10 to 20 us, and stood in the tail of what was measured.
func touched(n int) []int64 {
	room := make([]int64, n)
	for i := range room {
		room[i] = -1
	}
	return room[:0]
}

// BenchmarkLatency8 is half of the time that 8 octets take there and back over pmd/wire at MTU
// 1500, CRC32C on, no markers, checksum offload: from the posting call to where the other
// application sees them. They are a number, which must be the next one; looking at it is timed. The
// mark: 2 us, median, for a Write between two cores that poll.
//
//   - one-core: the applications run to completion on their Pollers (stack.Config.OnTurn), both
//     ends on one core in turns: what the way costs without what passes between cores, which is
//     the yardstick "latency"
//   - threads: each application on a goroutine beside its Poller's: four that poll, whatever
//     cores there are
//   - waits (Sends): likewise, but the applications wait for completions (CompletionQueue.Wait)
func BenchmarkLatency8(b *testing.B) {
	requireCRC(b, 1500, opts{ConnParam: rnic.ConnParam{NoMarkers: true}})
	for _, sends := range []bool{false, true} {
		name := "write"
		if sends {
			name = "send"
		}
		b.Run(name+"/one-core", func(b *testing.B) { pingOneCore(b, sends) })
		b.Run(name+"/threads", func(b *testing.B) { pingBeside(b, sends, gosched) })
	}
	b.Run("send/waits", func(b *testing.B) { pingBeside(b, true, (*pinger).wait) })
}

func pingOneCore(b *testing.B, sends bool) {
	g := newTogether(b)
	ask, answer := pingPair(b, g.server, g.client, sends, b.N)
	g.own()
	b.Cleanup(g.lend)
	g.client.app, g.server.app = ask.step, answer.step
	b.ReportAllocs()
	b.ResetTimer()
	for !ask.done.Load() && answer.failed == nil && !ask.late.Load() {
		g.turn()
	}
	b.StopTimer()
	g.client.app, g.server.app = nil, nil
	reportLatency(b, ask, answer)
}

// pingBeside has each application on a goroutine of its own; idle is what it does when it has seen
// nothing new.
func pingBeside(b *testing.B, sends bool, idle func(*pinger, context.Context)) {
	server, client := rig(b, 1500, true)
	ask, answer := pingPair(b, server, client, sends, b.N)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	b.ResetTimer()
	ended := make(chan struct{})
	for _, p := range []*pinger{ask, answer} {
		go func() {
			for !p.done.Load() && !p.late.Load() {
				if p.step() == 0 {
					idle(p, ctx)
				}
			}
			ended <- struct{}{}
		}()
	}
	<-ended
	<-ended
	b.StopTimer()
	reportLatency(b, ask, answer)
}

func gosched(*pinger, context.Context) { runtime.Gosched() }

// wait returns when there is a completion. The last one of the asking end is not waited for.
func (p *pinger) wait(ctx context.Context) {
	if !p.done.Load() && p.cq.Wait(ctx) != nil {
		p.late.Store(true)
	}
}

// reportLatency gives half round trips.
func reportLatency(b *testing.B, ask, answer *pinger) {
	for _, p := range []*pinger{ask, answer} {
		require.NoError(b, p.failed)
	}
	require.False(b, ask.late.Load(), "a number did not arrive")
	require.Len(b, ask.samples, b.N)
	slices.Sort(ask.samples)
	for _, q := range []struct {
		name string
		part float64
	}{{"min-ns", 0}, {"p10-ns", 0.1}, {"median-ns", 0.5}, {"p99-ns", 0.99}, {"p99.9-ns", 0.999}} {
		b.ReportMetric(float64(ask.samples[int(q.part*float64(b.N-1))])/2, q.name)
	}
}
