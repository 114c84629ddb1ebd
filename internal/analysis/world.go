package analysis

import (
	"math"
	"math/rand/v2"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/cc"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/tcp"
)

// Setup of a world: Conns senders on one link, each with as much to send as it may, to one
// receiving host.
//
//	senders ─► queue ─► BitsPerSecond ─► loss ─► RTTNs/2 ─► receiving host, which looks every PollNs
//	   ◄──────────────────────────────────────── RTTNs/2 ◄──┘
//
// The queue has no end: what is lost is lost by Loss. ACKs are never lost.
type Setup struct {
	Conns         int
	BitsPerSecond int64
	RTTNs, PollNs int64
	Loss          float64 // probability for each segment
	EMSS          int
	ULPDU         int // octets of each; 0: MULPDU
	WindowBytes   int // each connection has so much in flight, and holds it there
	Seed          uint64

	Unaligned bool // segments are cut at EMSS wherever FPDUs end, the first at a random place
	Markers   bool
	Buffered  bool // the receiver is a TCP without MPA
	NoBuffer  bool // the receiver refuses what it cannot place at once

	Halved     bool         // a middlebox makes two segments of each
	Congestion cc.Algorithm // nil: the window is held
	Lose       func(n uint64) bool
	Octets     int // of each connection's stream; 0: enough for the time
}

// Usage of memory at the receiving host, all connections together.
type Usage struct {
	Bufs int // most packet buffers in use at once: held, or just received and not looked at yet
	Hand int // of these, just received: most at once
	Held int // most octets held: neither placed nor read
	Mean int // octets held, average over the time
}

// Result of a run.
type Result struct {
	Usage
	Segments, Lost uint64
	Resent         uint64 // octets sent again
	LostOctets     uint64
	Placed, Direct uint64 // FPDUs; Direct: straight from one segment
	Refused        uint64 // segments
	Delivered      uint64 // octets in order
}

const (
	// octets around a segment's payload: Ethernet with its gap 38, IPv4 20, TCP with timestamps 32
	overhead = 90
	stride   = 2048 // of a packet buffer
	never    = math.MaxInt64
	tcpOpts  = 12 // of every segment: timestamps

	// Above the longest queue, that of 10,000 windows. The handshake did not see it, so that a
	// shorter timeout would find lost what only waits.
	timeoutMin = 1_000_000_000
)

// packet under way.
type packet struct {
	at   int64
	conn int32
	seg  tcp.Segment
}

// conn is one connection, both ends.
type conn struct {
	from, to *tcp.Conn
	recv     receiver
	first    int // octets of the first segment of an unaligned sender
	fpdu     int // the next to send
	timer    [2]int64
	touched  bool
}

// world is the state of a run.
type world struct {
	Setup
	ulpdu   int
	st      *stream
	rng     *rand.Rand
	conns   []conn
	pool    *mem.Pool
	now     int64
	freePs  int64 // when the link has sent all that it has
	octetPs int64
	mtu     int // payload octets that still pass; 0: all
	ahead   ring[packet]
	back    ring[packet]
	timers  timerHeap
	out     tcp.Transmit
	hand    []mem.Buf
	touched []int32

	held           int
	placed, direct uint64
	heldNs         float64 // octets times nanoseconds
	began, sampled int64
	limited        int // segments that TCP had no room to remember
	res            Result
}

// Run runs s for ns of virtual time. It panics when a limit of tcp or mpa was what decided: the
// numbers would mean nothing.
func Run(s Setup, ns int64) Result {
	w := newWorld(s, ns)
	end := w.now + ns
	for w.step(end) {
	}
	return w.result(end)
}

func newWorld(s Setup, ns int64) *world {
	mode := mpa.Mode{Markers: s.Markers, CRC: true}
	w := &world{Setup: s, ulpdu: s.ULPDU, rng: rand.New(rand.NewPCG(s.Seed, 1)),
		octetPs: 8_000_000_000_000 / s.BitsPerSecond}
	if w.ulpdu == 0 {
		w.ulpdu = mode.MULPDU(s.EMSS)
	}
	size := s.Octets
	if size == 0 {
		share := float64(s.BitsPerSecond) / 8e9 * float64(ns) / float64(s.Conns)
		size = int(1.5*share) + 16*s.WindowBytes
	}
	w.st = newStream(mode, w.ulpdu, size)
	segments := s.WindowBytes/s.EMSS + 4 // in flight, per connection
	bufs := 3*s.Conns*segments + 1024
	var err error
	w.pool, err = mem.NewPool(hugepages.Heap(bufs*stride+bufs*64+1<<16),
		mem.PoolConfig{Bufs: bufs, Stride: stride})
	if err != nil {
		panic(err)
	}
	w.connect(segments)
	return w
}

// connect makes the connections, handshakes done.
func (w *world) connect(segments int) {
	cfg := tcp.Config{MSS: w.EMSS + tcpOpts, ReceiveWindow: 2 * w.WindowBytes, NoDelay: true,
		NoIdleRestart: true,
		Congestion:    w.Congestion, SentMax: 16, RangesMax: mpa.RunsMax, SpansMax: w.Conns * 128,
		RTOMinNs: timeoutMin, PTOMinNs: timeoutMin}
	if w.Congestion == nil {
		cfg.Congestion = steady{w.WindowBytes}
	}
	for cfg.SentMax < 3*segments {
		cfg.SentMax *= 2
	}
	cfg.RecordsMax = 2 * w.Conns * cfg.SentMax
	from, to := tcp.NewMemory(cfg, w.Conns), tcp.NewMemory(cfg, w.Conns)
	bufsMax := mpa.BufsMin(stride) + 3*segments
	scratch := make([][]byte, mpa.PiecesMax(bufsMax))
	w.conns = make([]conn, w.Conns)
	begin := int64(1_000_000_000)
	for i := range w.conns {
		c := &w.conns[i]
		*c = conn{from: new(tcp.Conn), to: new(tcp.Conn), first: 1 + w.rng.IntN(w.EMSS-1),
			timer: [2]int64{never, never}}
		c.from.Init(from)
		c.to.Init(to)
		w.now = begin
		w.handshake(c)
		if w.Buffered {
			c.recv = &buffered{w: w}
			continue
		}
		p := &placing{w: w}
		var reserve mpa.Reserve
		if w.NoBuffer {
			reserve.Spare = w.pool.Size() + 1
		}
		p.recv.Init(mpa.ReceiverConfig{Mode: w.st.mode, Pool: w.pool, BufsMax: bufsMax, Reserve: &reserve,
			Scratch: scratch})
		c.recv = p
	}
	w.began, w.sampled = w.now, w.now
	for i := range w.conns {
		w.turnFrom(int32(i))
		w.turnTo(int32(i))
	}
}

// handshake exchanges the SYNs, which take the round trip but no place on the link.
func (w *world) handshake(c *conn) {
	var seg tcp.Segment
	pass := func(x *tcp.Conn) {
		if !x.Next(w.now, 1, &w.out) {
			panic("analysis: no SYN, or no answer to one")
		}
		put(&seg, &w.out)
		w.now += w.RTTNs / 2
	}
	c.from.Connect(w.now, tcp.ID{LocalPort: 1, RemotePort: 2}, tcp.Seq(w.rng.Uint32()), w.rng.Uint32())
	pass(c.from)
	c.to.Accept(w.now, tcp.ID{LocalPort: 2, RemotePort: 1}, tcp.Seq(w.rng.Uint32()),
		w.rng.Uint32(), &seg)
	pass(c.to)
	a := c.from.Input(w.now, &seg)
	c.from.Commit(w.now, &a, false)
	pass(c.from)
	a = c.to.Input(w.now, &seg)
	c.to.Commit(w.now, &a, false)
	if c.from.State() != tcp.Established || c.to.State() != tcp.Established ||
		c.from.EMSS() != w.EMSS {
		panic("analysis: no connection")
	}
}

// put makes s the segment that t says. Ports stay out of it: packet.conn says whose it is.
func put(s *tcp.Segment, t *tcp.Transmit) {
	s.Seq, s.Ack, s.Flags, s.Window, s.TOS, s.Len, s.Options = t.Seq, t.Ack, t.Flags, t.Window, t.TOS,
		t.Len, t.Options
}

// step runs until the next thing happens; false when that lies beyond end.
func (w *world) step(end int64) bool {
	arrive := int64(never)
	if w.ahead.len() > 0 {
		arrive = (w.ahead.first().at + w.PollNs - 1) / w.PollNs * w.PollNs
	}
	next := min(arrive, w.timers.next())
	if w.back.len() > 0 {
		next = min(next, w.back.first().at)
	}
	if next > end {
		return false
	}
	w.now = max(w.now, next)
	if arrive <= w.now {
		w.poll()
	}
	for w.back.len() > 0 && w.back.first().at <= w.now {
		p := w.back.first()
		c := w.conns[p.conn].from
		a := c.Input(w.now, &p.seg)
		c.Commit(w.now, &a, false)
		i := p.conn
		w.back.pop()
		w.turnFrom(i)
	}
	for w.timers.next() <= w.now {
		w.expire(w.timers.pop())
	}
	return true
}

// poll is a turn of the receiving host: it takes all that has come into its hands, and then looks
// at one by one.
func (w *world) poll() {
	w.heldNs += float64(w.held) * float64(w.now-w.sampled)
	w.sampled = w.now
	w.hand = w.hand[:0]
	for i := 0; i < w.ahead.len() && w.ahead.at(i).at <= w.now; i++ {
		b := w.pool.Alloc()
		if b == mem.NoBuf {
			panic("analysis: the pool is too small")
		}
		w.hand = append(w.hand, b)
	}
	w.res.Hand = max(w.res.Hand, len(w.hand))
	w.res.Bufs = max(w.res.Bufs, w.pool.Size()-w.pool.Available())
	for _, b := range w.hand {
		w.arrive(w.ahead.first(), b)
		w.ahead.pop()
	}
	w.res.Held = max(w.res.Held, w.held)
	for _, i := range w.touched {
		w.conns[i].touched = false
		w.turnTo(i)
	}
	w.touched = w.touched[:0]
}

// arrive is what stack does with a segment and its Buf.
func (w *world) arrive(p *packet, b mem.Buf) {
	c := &w.conns[p.conn]
	if !c.touched {
		c.touched = true
		w.touched = append(w.touched, p.conn)
	}
	a := c.to.Input(w.now, &p.seg)
	if a.Drop == tcp.DropRangesFull || a.Drop == tcp.DropNoMemory {
		w.limited++
	}
	kept, refused := false, false
	if a.Len > 0 {
		slot := w.pool.Slot(b)[mem.Headroom:]
		data := slot[:copy(slot[:a.Len], w.st.octets[a.Offset:])]
		kept, refused = c.recv.take(a.Offset, b, data)
	}
	c.to.Commit(w.now, &a, refused)
	if refused {
		w.res.Refused++
	}
	if !kept {
		w.pool.Free(b)
	}
	c.recv.edge(c.to.Edge())
}

// turnTo is the receiver's: what it owes goes back.
func (w *world) turnTo(i int32) {
	c := &w.conns[i]
	for c.to.Next(w.now, 1, &w.out) {
		p := w.back.push()
		p.at, p.conn = w.now+w.RTTNs/2, i
		put(&p.seg, &w.out)
	}
	w.schedule(i, 1)
}

// turnFrom is the sender's: it is asked for segments while there is room.
func (w *world) turnFrom(i int32) {
	c := &w.conns[i]
	c.from.TakeEvents()
	for {
		if _, ok := c.from.Release(); !ok {
			break
		}
	}
	for {
		for c.from.Next(w.now, 1, &w.out) {
			w.send(i)
		}
		_, room := c.from.Room(w.now, 1)
		if c.from.WaitsForMemory() {
			panic("analysis: no memory for what is sent")
		}
		n := w.cut(c, min(room, c.from.EMSS()))
		if n == 0 {
			break
		}
		c.from.Push(w.now, []tcp.Piece{{Handle: 1, Len: int32(n)}})
	}
	w.schedule(i, 0)
}

// cut is how long the next segment is that has room for so many octets: one FPDU; or, unaligned,
// what fits.
func (w *world) cut(c *conn, room int) int {
	at := c.from.PushedOffset()
	if at == w.st.end() {
		if w.Octets == 0 {
			panic("analysis: a connection has sent all it had")
		}
		return 0
	}
	if w.Unaligned {
		if at == 0 {
			room = min(room, c.first)
		}
		return min(room, int(w.st.end()-at))
	}
	for w.st.bounds[c.fpdu] <= at {
		c.fpdu++
	}
	return min(room, int(w.st.bounds[c.fpdu]-at)) // less than the FPDU only after EMSS has shrunk
}

// send puts what a sender has given on the link.
func (w *world) send(i int32) {
	w.res.Segments++
	if w.out.Retransmit {
		w.res.Resent += uint64(w.out.Len)
	}
	w.freePs = max(w.freePs, w.now*1000) + int64(w.out.Len+overhead)*w.octetPs
	var seg tcp.Segment
	put(&seg, &w.out)
	if !w.Halved || seg.Len < 2 {
		w.deliver(i, &seg)
		return
	}
	rest := seg
	seg.Len /= 2
	rest.Seq += tcp.Seq(seg.Len)
	rest.Len -= seg.Len
	w.deliver(i, &seg)
	w.deliver(i, &rest)
}

func (w *world) deliver(i int32, seg *tcp.Segment) {
	lost := w.Loss > 0 && w.rng.Float64() < w.Loss || w.Lose != nil && w.Lose(w.res.Segments) ||
		w.mtu > 0 && seg.Len > w.mtu
	if lost {
		w.res.Lost++
		w.res.LostOctets += uint64(seg.Len)
		return
	}
	p := w.ahead.push()
	p.at, p.conn, p.seg = (w.freePs+999)/1000+w.RTTNs/2, i, *seg
}

// schedule sees to it that the end (0: sender, 1: receiver) hears of its deadline.
func (w *world) schedule(i int32, end int) {
	c := &w.conns[i]
	x := c.from
	if end == 1 {
		x = c.to
	}
	if x.State() != tcp.Established {
		panic("analysis: a connection did not last")
	}
	if at := x.Deadline(); at < c.timer[end] {
		c.timer[end] = at
		w.timers.push(timer{at, i, end})
	}
}

// expire is called with a timer that is due, unless its deadline has moved meanwhile.
func (w *world) expire(t timer) {
	c := &w.conns[t.conn]
	if c.timer[t.end] != t.at {
		return // an earlier one was made after it
	}
	c.timer[t.end] = never
	x, turn := c.from, w.turnFrom
	if t.end == 1 {
		x, turn = c.to, w.turnTo
	}
	if x.Deadline() > w.now {
		w.schedule(t.conn, t.end)
		return
	}
	x.Expire(w.now)
	turn(t.conn)
}

// result sums up at the end.
func (w *world) result(end int64) Result {
	r := w.res
	r.Mean = int(w.heldNs / float64(end-w.began))
	r.Placed, r.Direct = w.placed, w.direct
	if w.limited > 0 {
		panic("analysis: TCP's limits decide")
	}
	for i := range w.conns {
		r.Delivered += w.conns[i].to.Edge()
		if p, ok := w.conns[i].recv.(*placing); ok {
			s := p.recv.Stats()
			if s.RefusedBudget+s.RefusedRuns > 0 {
				panic("analysis: MPA's limits decide")
			}
		}
	}
	return r
}
