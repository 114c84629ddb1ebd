package bench

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/rnic"
)

// Sizes of the small-message benchmarks.
const (
	smallLen   = 64   // octets of a Send
	smallRecvs = 1024 // receive buffers that stay posted
	smallSends = 256  // work requests that may be posted and not yet carried out
	// different messages: 1024 is no multiple of it, so that a receive buffer gets another one each
	// time
	smallTexts  = 61
	creditEvery = 256 // messages for which the receiver gives credit at once
	creditSlots = 16  // credits that may wait to be sent: each has octets of its own
	creditLen   = 8
	postBurst   = 64 // requests that an application posts, and completions that it takes, in one go
)

// smallSender sends n messages as fast as it may: not more than the receiver, which writes how far
// it is into our memory, has buffers for. It runs to completion on its Poller
// (stack.Config.OnTurn), or in a loop of its own.
type smallSender struct {
	*end
	n      uint64
	every  uint64 // every so manieth Send is signaled
	posted uint64
	done   uint64 // completions polled
	failed error
	list   bool // requests are posted together
	cs     [postBurst]rnic.Completion
	wrs    [postBurst]rnic.WorkRequest
}

// step posts what may be posted, one burst at most, and takes completions.
func (s *smallSender) step() int {
	work := s.cq.Poll(s.cs[:])
	for i := range s.cs[:work] {
		if s.cs[i].Status != rnic.Success {
			s.failed = fmt.Errorf("%v", s.cs[i])
		}
	}
	s.done += uint64(work)
	may := min(s.n, smallRecvs+credit(s.region).Load(), s.posted+postBurst)
	if s.list {
		return work + s.postList(int(may-s.posted))
	}
	for s.posted < may {
		if _, err := s.qp.PostSend(s.request(s.posted)); err != nil { // the queue is full
			break
		}
		s.posted++
		work++
	}
	return work
}

func (s *smallSender) request(i uint64) rnic.WorkRequest {
	return rnic.WorkRequest{ID: i, Op: rnic.OpSend, Local: s.region.Slice(textAt(i), smallLen),
		Signaled: (i+1)%s.every == 0}
}

// textAt is where the i-th message stands in the sender's region, which is not written to while
// messages are sent.
func textAt(i uint64) int { return textsAt + int(i%smallTexts)*smallLen }

const (
	textsAt     = 64 // after the credit
	smallRegion = creditAt + creditSlots*creditLen
)

func (s *smallSender) postList(n int) int {
	// what differs from request to request: a literal of all would be copied each time
	for i := range s.wrs[:n] {
		wr, k := &s.wrs[i], s.posted+uint64(i)
		wr.ID, wr.Op, wr.Signaled = k, rnic.OpSend, (k+1)%s.every == 0
		wr.Local.STag, wr.Local.Length, wr.Local.Offset = s.region.STag(), smallLen,
			s.region.Base()+uint64(textAt(k))
	}
	n, _ = s.qp.PostSend(s.wrs[:n]...) // the rest when there is room
	s.posted += uint64(n)
	return n
}

// credit is how many messages the receiver has taken, as it writes it into the sender's memory.
func credit(m *rnic.MemoryRegion) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(m.Bytes())))
}

// smallReceiver keeps receive buffers posted, compares what came with what was sent, and tells the
// sender.
type smallReceiver struct {
	*end
	to     *rnic.MemoryRegion // of the sender's: for credit, and to compare with
	n      uint64
	got    uint64
	told   uint64
	wrong  int // messages that are not what was sent
	failed error
	list   bool // buffers are posted again together
	cs     [postBurst]rnic.Completion
	wrs    [postBurst]rnic.WorkRequest
}

const creditAt = smallRecvs * smallLen // in the receiver's region: credits to be sent

func (r *smallReceiver) buffer(slot uint64) rnic.WorkRequest {
	return rnic.WorkRequest{ID: slot, Local: r.region.Slice(int(slot)*smallLen, smallLen)}
}

func (r *smallReceiver) step() int {
	work := r.cq.Poll(r.cs[:])
	for i := range r.cs[:work] {
		c := &r.cs[i]
		if c.Status != rnic.Success || c.Op != rnic.OpRecv {
			r.failed = fmt.Errorf("%v", c)
			continue
		}
		got, sent := r.region.Bytes()[c.ID*smallLen:], r.to.Bytes()[textAt(r.got):]
		if *(*[smallLen]byte)(got) != *(*[smallLen]byte)(sent) || c.Len != smallLen {
			r.wrong++
		}
		if r.list {
			wr := &r.wrs[i]
			wr.ID = c.ID
			wr.Local.STag, wr.Local.Length, wr.Local.Offset = r.region.STag(), smallLen,
				r.region.Base()+c.ID*smallLen
		} else if _, err := r.qp.PostRecv(r.buffer(c.ID)); err != nil {
			r.failed = err
		}
		r.got++
	}
	if r.list {
		if _, err := r.qp.PostRecv(r.wrs[:work]...); err != nil {
			r.failed = err
		}
	}
	if r.got-r.told >= creditEvery {
		r.tell()
	}
	return work
}

// tell writes how many messages were taken into the sender's memory.
func (r *smallReceiver) tell() {
	at := creditAt + int(r.got/creditEvery%creditSlots)*creditLen
	binary.NativeEndian.PutUint64(r.region.Bytes()[at:], r.got)
	_, err := r.qp.PostSend(rnic.WorkRequest{Op: rnic.OpWrite, Local: r.region.Slice(at, creditLen),
		RemoteSTag: r.to.STag(), RemoteOffset: r.to.Base()})
	if err != nil {
		return // the next step tries again
	}
	r.told = r.got
}

// smallWay is how the Sends are posted.
type smallWay struct {
	packing rnic.Packing
	every   uint64 // so manieth is signaled
	list    bool   // Sends, and receive buffers, are posted several at a time
}

func (w smallWay) String() string {
	name := "now"
	if w.packing == rnic.PackFull {
		name = "full"
	}
	posts := "single"
	if w.list {
		posts = "list"
	}
	return fmt.Sprintf("pack=%s/signaled=1in%d/post=%s", name, w.every, posts)
}

func (w smallWay) options() opts {
	return opts{rnic.QPOptions{SendDepth: smallSends, RecvDepth: smallRecvs},
		rnic.ConnParam{NoMarkers: true, Packing: w.packing}}
}

var smallWays = []smallWay{
	{rnic.PackNow, 1, false}, {rnic.PackNow, 32, false}, {rnic.PackNow, 1, true},
	{rnic.PackNow, 32, true},
	{rnic.PackFull, 1, false}, {rnic.PackFull, 32, false}, {rnic.PackFull, 32, true},
}

// smallPair is a connection, with receive buffers posted, between two hosts that somebody turns.
func smallPair(t testing.TB, server, client *host, w smallWay,
	n uint64) (*smallSender, *smallReceiver) {
	t.Helper()
	s, c := connect(t, server, client, smallRegion, w.options())
	newNoise(t).fill(c.region.Bytes()[textsAt:])
	send := &smallSender{end: c, n: n, every: w.every, list: w.list}
	recv := &smallReceiver{end: s, list: w.list, to: c.region, n: n}
	for i := range uint64(smallRecvs) {
		require.NoError(t, errOf(recv.qp.PostRecv(recv.buffer(i))))
	}
	return send, recv
}

// together turns two hosts on one goroutine, the test's, while no other turns them.
type together struct {
	between        func() int // what stands between the hosts is turned with them; nil: nothing
	server, client *host
	stop, stopped  chan struct{}
	lent           bool
	clock          clock
	span           int // cable.span
}

// clock stands still while the hosts are not turned, so that their timers do not expire: a parked
// peer is no silent one.
type clock struct {
	paused  atomic.Int64 // nanoseconds in all
	stopped int64        // when it was stopped; 0: it runs
}

// now is the time in nanoseconds. Any goroutine.
func (c *clock) now() int64 { return time.Now().UnixNano() - c.paused.Load() }

func (c *clock) pause() {
	if c.stopped == 0 {
		c.stopped = time.Now().UnixNano()
	}
}

func (c *clock) resume() {
	if c.stopped != 0 {
		c.paused.Add(time.Now().UnixNano() - c.stopped)
		c.stopped = 0
	}
}

// newTogether is two hosts on a wire. Until own, and from the end of the test on, a goroutine turns
// them.
func newTogether(t testing.TB) *together {
	link := newLink(t, wire.Config{MTU: 1500, ChecksumOffload: true})
	g := &together{server: quietHost(t, link.Port(0), "10.9.0.1/24", 1500),
		client: quietHost(t, link.Port(1), "10.9.0.2/24", 1500)}
	t.Cleanup(g.own) // the last thing
	g.lend()
	return g
}

func (g *together) turn() int {
	if g.client == nil { // somebody else's
		return g.server.poller.Turn()
	}
	n := g.client.poller.Turn()
	if g.between != nil {
		n += g.between()
	}
	return n + g.server.poller.Turn()
}

// lend has a goroutine turn the hosts, own ends that; both do nothing when it is so already.
func (g *together) lend() {
	if g.lent {
		return
	}
	g.lent = true
	g.clock.resume()
	g.stop, g.stopped = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(g.stopped)
		for {
			select {
			case <-g.stop:
				return
			default:
			}
			if g.turn() == 0 {
				runtime.Gosched()
			}
		}
	}()
}

func (g *together) own() {
	if !g.lent {
		return
	}
	g.lent = false
	close(g.stop)
	<-g.stopped
	g.clock.pause()
}

// BenchmarkSend64 is Sends of 64 octets over pmd/wire at MTU 1500, CRC32C on, no markers, checksum
// offload; each received into a buffer that the application compares with what was sent, all 64
// octets, and posts again; that is timed. No two messages that a buffer gets one after the other
// are alike. The mark: 2 million a second and core.
//
//   - one-core: both ends' Pollers and applications on one goroutine: what a message costs
//     altogether.
//   - threads: Pollers and applications on four goroutines, whatever cores there are.
func BenchmarkSend64(b *testing.B) {
	var once sync.Once
	refused := func(b *testing.B) { once.Do(func() { requireCRC(b, 1500, smallWays[0].options()) }) }
	for _, w := range smallWays {
		b.Run("one-core/"+w.String(), func(b *testing.B) { refused(b); sendOneCore(b, w) })
	}
	b.Run("threads/"+smallWays[1].String(), func(b *testing.B) {
		refused(b)
		sendThreads(b, smallWays[1])
	})
}

// stretch is how many messages are timed together; of the stretches the tenth percentile is told:
// what a message costs on a quiet machine.
const stretch = 2048

func sendOneCore(b *testing.B, w smallWay) {
	g := newTogether(b)
	send, recv := smallPair(b, g.server, g.client, w, uint64(b.N))
	g.own()
	b.Cleanup(g.lend) // the ends are closed by something that waits
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g.client.app, g.server.app = send.step, recv.step
	late := lateness(b)
	b.ReportAllocs()
	b.ResetTimer()
	cpu := threadNs(b)
	began, from := time.Now(), recv.got
	stretches := make([]float64, 0, b.N/stretch+1)
	for recv.got < recv.n && send.failed == nil && recv.failed == nil && !late.Load() {
		g.turn()
		if n := recv.got - from; n >= stretch {
			now := time.Now()
			stretches = append(stretches, float64(now.Sub(began).Nanoseconds())/float64(n))
			began, from = now, recv.got
		}
	}
	cpu = threadNs(b) - cpu
	b.StopTimer()
	if slices.Sort(stretches); len(stretches) > 0 {
		b.ReportMetric(stretches[len(stretches)/10], "quiet-ns/op")
	}
	g.client.app, g.server.app = nil, nil
	reportSends(b, send, recv, 1)
	b.ReportMetric(float64(cpu)/float64(b.N), "cpu-ns/op")
}

func sendThreads(b *testing.B, w smallWay) {
	server, client := rig(b, 1500, true)
	send, recv := smallPair(b, server, client, w, uint64(b.N))
	loop := func(step func() int, until func() bool) chan struct{} {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for !until() {
				if step() == 0 {
					runtime.Gosched()
				}
			}
		}()
		return ended
	}
	late := lateness(b)
	b.ResetTimer()
	r := loop(recv.step, func() bool {
		return recv.got == recv.n || recv.failed != nil || late.Load()
	})
	s := loop(send.step, func() bool {
		return send.posted == send.n || send.failed != nil || late.Load()
	})
	<-s
	<-r
	b.StopTimer()
	reportSends(b, send, recv, 2)
}

// reportSends says how fast it was, by how many cores, and that all came.
func reportSends(b *testing.B, send *smallSender, recv *smallReceiver, cores int) {
	require.NoError(b, send.failed)
	require.NoError(b, recv.failed)
	require.Zero(b, recv.wrong)
	require.Equal(b, recv.n, recv.got)
	rate := float64(b.N) / b.Elapsed().Seconds() / 1e6
	b.ReportMetric(rate, "MSends/s")
	b.ReportMetric(rate/float64(cores), "MSends/s/core")
}

// threadNs is the processor time of this thread.
func threadNs(t testing.TB) int64 {
	var ts unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts))
	return ts.Nano()
}

// Small messages cost no allocation, however they are packed and signaled, at either end.
func TestSmallMessagesAllocateNothing(t *testing.T) {
	for _, w := range smallWays {
		t.Run(w.String(), func(t *testing.T) {
			g := newTogether(t)
			send, recv := smallPair(t, g.server, g.client, w, 1<<40)
			g.own()
			t.Cleanup(g.lend)
			g.client.app, g.server.app = send.step, recv.step
			sends := uint64(0)
			allocs := testing.AllocsPerRun(10, func() {
				sends += 2000
				for recv.got < sends && send.failed == nil && recv.failed == nil {
					g.turn()
				}
			})
			g.client.app, g.server.app = nil, nil
			require.NoError(t, send.failed)
			require.NoError(t, recv.failed)
			require.Zero(t, recv.wrong)
			require.GreaterOrEqual(t, send.done, (sends-smallRecvs)/w.every)
			require.Zero(t, allocs)
		})
	}
}
