package rnic

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/tcp"
)

var (
	liarSeed = flag.Uint64("liar.seed", 0, "first seed of TestPeerThatLies")
	liarRuns = flag.Int("liar.runs", 100, "how many seeds TestPeerThatLies plays")
	liarTime = flag.Duration("liar.time", 0, "play seeds for so long instead")
)

// Peers that segment, repeat, reorder, contradict themselves and lie at every layer, while the
// application posts, rejects, disconnects and aborts. Whatever they do: nothing outside the
// region is written, every posted work request is completed once, every connection ends when it
// is told to, and no Buf and no region is left behind.
//
// Another peer: go test ./rnic -run TestPeerThatLies -liar.seed 7 -liar.runs 1
// Many: -liar.time 10m
func TestPeerThatLies(t *testing.T) {
	runs := *liarRuns
	if testing.Short() {
		runs = min(runs, 30)
	}
	end := time.Now().Add(*liarTime)
	seed := *liarSeed
	for more := true; more; seed++ {
		playSiege(t, seed)
		if more = int(seed-*liarSeed)+1 < runs; *liarTime > 0 {
			more = time.Now().Before(end)
		}
	}
	t.Logf("seeds %d to %d", *liarSeed, seed-1)
}

// playSiege names the seed when it panics.
func playSiege(t *testing.T, seed uint64) {
	defer func() {
		if p := recover(); p != nil {
			t.Logf("seed %d", seed)
			panic(p)
		}
	}()
	s := newSiege(t, seed)
	for range 1 + s.rng.IntN(3) {
		s.connect()
	}
	for range 200 + s.rng.IntN(800) {
		s.attack()
		s.serve()
	}
	s.lift()
}

// siege is one run of TestPeerThatLies.
type siege struct {
	*segmentRig
	what    string // names the run
	style   segmenting
	guarded []byte
	region  *MemoryRegion // peers may write here
	inbox   *MemoryRegion
	source  *MemoryRegion
	cq      *CompletionQueue
	opt     opts
	qps     []*QueuePair
	peers   []*forged
	events  <-chan Event
	posted  uint64
	seen    map[uint64]bool // completed
}

// segmenting is how a peer cuts and orders its stream.
type segmenting int

const (
	ahead      segmenting = iota // up to two segments beyond the left edge
	farAhead                     // anywhere in the window
	overlaps                     // around the left edge
	inOrder                      // mostly one after the other
	markerwise                   // beginning at or near markers
	styles
)

func newSiege(t *testing.T, seed uint64) *siege {
	rng := rand.New(rand.NewPCG(seed, 7))
	cfg := segmentRigConfig{seed: seed, bufs: pick(rng, 1200, 1200, 1200, 200), connsMax: 16}
	if oneIn(rng, 3) {
		cfg.tcp.RangesMax = 200
	}
	s := &siege{
		segmentRig: newSegmentRig(t, cfg), what: fmt.Sprintf("seed %d", seed),
		style: segmenting(rng.IntN(int(styles))),
		seen:  map[uint64]bool{},
	}
	s.rng = rng
	const size = 8192
	s.guarded = slices.Repeat([]byte{canary}, size+2*canaryBytes)
	pd := s.adapter.AllocPD()
	register := func(b []byte, access Access) *MemoryRegion {
		m := must(pd.Register(b, access))
		return m
	}
	s.region = register(s.guarded[canaryBytes:canaryBytes+size], RemoteWrite)
	s.inbox = register(make([]byte, 4096), LocalWrite)
	s.source = register(make([]byte, 1<<18), 0)
	s.cq = must(s.adapter.CreateCQ(4096))
	s.opt = opts{QPOptions: QPOptions{PD: pd, SendCQ: s.cq, RecvCQ: s.cq},
		ConnParam: ConnParam{NoMarkers: oneIn(rng, 4), NoCRC: oneIn(rng, 4), DropBadCRC: oneIn(rng, 4)}}
	s.share(seed)
	return s
}

// connect makes a peer that dials or is dialled, and writes all it will say.
func (s *siege) connect() {
	port := uint16(2000 + len(s.peers))
	frame := mpa.Frame{
		Kind: mpa.Request, Rev: 1, CRC: !oneIn(s.rng, 3), Markers: oneIn(s.rng, 2),
		PrivateData: make([]byte, s.rng.IntN(100)),
	}
	var c *forged
	if oneIn(s.rng, 4) {
		frame.Kind = mpa.Reply
		c = s.answerer(port)
		q := s.newQueuePair()
		require.NoError(s.t, q.StartConnect(s.t.Context(), fmt.Sprintf("10.9.0.2:%d", port),
			s.opt.ConnParam))
		s.turns(6, time.Microsecond)
	} else {
		c = s.open(port, pick[uint16](s.rng, 1460, 1460, 536, 64))
	}
	if oneIn(s.rng, 10) {
		frame.Rev = uint8(s.rng.IntN(4))
	}
	if oneIn(s.rng, 10) {
		frame.Reject, frame.S = oneIn(s.rng, 2), oneIn(s.rng, 2)
	}
	mode := mpa.Mode{Markers: !s.opt.NoMarkers, CRC: frame.CRC || !s.opt.NoCRC}
	l := newLiar(s.rng, mode, s.region.STag(), s.region.Len())
	l.say(20_000 + s.rng.IntN(150_000))
	c.stream = append(frame.Append(nil), l.produced...)
	s.peers = append(s.peers, c)
}

func (s *siege) newQueuePair() *QueuePair {
	q := must(s.adapter.CreateQP(s.opt.QPOptions))
	for range s.rng.IntN(128) {
		s.postRecv(q)
	}
	s.qps = append(s.qps, q)
	return q
}

// attack lets one of the peers send a burst, and time pass.
func (s *siege) attack() {
	i := s.rng.IntN(len(s.peers))
	c := s.peers[i]
	for range 1 + s.rng.IntN(8) {
		s.segmentOf(c)
	}
	if oneIn(s.rng, 20) && c.synced {
		s.tooBig(c, pick[uint16](s.rng, 0, 68, 576, 600, 1000, 1400), c.next-tcp.Seq(s.rng.IntN(3000)))
	}
	if oneIn(s.rng, 300) {
		again := s.open(c.port, 1460)
		again.stream = c.stream
		c, s.peers[i] = again, again
	}
	d := time.Microsecond
	switch s.rng.IntN(30) {
	case 0:
		d = time.Duration(s.rng.IntN(300)) * time.Millisecond
	case 1:
		if oneIn(s.rng, 20) {
			d = time.Duration(s.rng.IntN(20)) * time.Second
		}
	}
	c.ts += uint32(d / time.Millisecond)
	s.turn(d)
}

// span is which octets of c's stream a segment carries.
func (s *siege) span(c *forged, left int) (lo, hi int) {
	switch s.style {
	case ahead:
		lo = left + s.rng.IntN(3000)
	case farAhead:
		lo = left + s.rng.IntN(100_000)
	case overlaps:
		lo = max(0, left-500) + s.rng.IntN(1500)
	case inOrder:
		if lo = c.sent; oneIn(s.rng, 5) {
			lo = left + s.rng.IntN(2000)
		}
	case markerwise:
		lo = left + s.rng.IntN(20)*mpa.MarkerSpacing + s.rng.IntN(3)*20
	}
	n := 1 + s.rng.IntN(1400)
	if oneIn(s.rng, 5) {
		n = 1 + s.rng.IntN(20)
	}
	lo = min(lo, len(c.stream))
	hi = min(lo+n, len(c.stream))
	c.sent = hi
	return lo, hi
}

// segmentOf sends a segment of c, seldom an honest one.
func (s *siege) segmentOf(c *forged) {
	rng := s.rng
	left := c.place()
	if left < 0 || left > len(c.stream) {
		left = 0
	}
	lo, hi := s.span(c, left)
	seq, ack, flags, window := c.seq(lo), c.next, tcp.ACK, uint16(65535)
	o, text := c.options(), c.stream[lo:hi]
	if oneIn(rng, 50) {
		c.lag = pick(rng, 0, 0, 5000, 50_000, 500_000)
	}
	if d := c.next.Sub(c.irs + 1); d > 0 && c.lag > 0 { // late ACKs, some with blocks beyond
		late := rng.IntN(min(d, c.lag) + 1)
		if ack = c.next - tcp.Seq(late); oneIn(rng, 2) {
			s.forgeSACK(&o, ack, late+1, 0, 5000)
			text = text[:min(len(text), 900)]
		}
	}
	if oneIn(rng, 60) { // not what it said before
		text = randomBytes(rng.Uint64(), len(text))
	}
	switch rng.IntN(60) {
	case 0:
		ack = tcp.Seq(rng.Uint32())
	case 1:
		ack = c.next + tcp.Seq(rng.IntN(100)) - 50
	case 2:
		window = uint16(rng.IntN(3))
	case 3:
		c.ts += uint32(rng.IntN(1000))
	case 4:
		o.TSval -= uint32(rng.IntN(1000))
	case 5:
		o = noOptions()
	case 6:
		s.forgeSACK(&o, c.next-2000, 4000, -3000, 4000)
		text = nil
	case 7:
		if oneIn(rng, 10) {
			flags |= tcp.FIN
		}
	case 8:
		if oneIn(rng, 20) {
			flags |= tcp.RST
			seq = c.acked + tcp.Seq(rng.IntN(2))
		}
	case 9:
		flags |= tcp.SYN
	case 10:
		flags |= tcp.URG | tcp.PSH
	case 11:
		seq += tcp.Seq(rng.Uint32() >> rng.IntN(32))
	case 12:
		flags = 0
	case 13:
		ack = c.irs
	}
	if oneIn(rng, 3) { // and something that moves the left edge
		next := c.stream[left:min(left+1+rng.IntN(1400), len(c.stream))]
		s.send(c, c.seq(left), c.next, tcp.ACK, window, o, next[:min(len(next), 1400-32)])
	}
	s.send(c, seq, ack, flags, window, o, text)
}

// forgeSACK makes up blocks that begin in [from, from+width) and are shift to shift+length octets
// long.
func (s *siege) forgeSACK(o *tcp.Options, from tcp.Seq, width, shift, length int) {
	o.SACKCount = 1 + s.rng.IntN(3)
	for i := range o.SACKCount {
		at := from + tcp.Seq(s.rng.IntN(width))
		o.SACK[i] = tcp.SACKBlock{Left: at, Right: at + tcp.Seq(s.rng.IntN(length)+shift)}
	}
}

// serve is the application's turn.
func (s *siege) serve() {
	for req := s.listener.Poll(); req != nil; req = s.listener.Poll() {
		if oneIn(s.rng, 10) {
			_ = req.Reject(s.t.Context(), make([]byte, s.rng.IntN(100))) // the connection may be gone
			continue
		}
		_ = req.Accept(s.t.Context(), s.newQueuePair(), s.opt.ConnParam)
	}
	for _, q := range s.qps {
		for range 4 {
			if oneIn(s.rng, 14) {
				s.postSend(q)
			} else {
				s.postRecv(q)
			}
		}
		if oneIn(s.rng, 400) {
			q.Disconnect()
		}
		if oneIn(s.rng, 1000) {
			q.Abort()
		}
	}
	s.poll()
	for i := range canaryBytes {
		if s.guarded[i] != canary || s.guarded[len(s.guarded)-1-i] != canary {
			s.t.Fatalf("%s: memory outside the region was written", s.what)
		}
	}
}

func (s *siege) postRecv(q *QueuePair) {
	n := s.inbox.Len()
	if oneIn(s.rng, 10) {
		n = s.rng.IntN(2000) // too small for some
	}
	if s.postTo(q, WorkRequest{ID: s.posted, Local: s.inbox.Slice(0, n)}) == nil {
		s.posted++
	}
}

func (s *siege) postSend(q *QueuePair) {
	n := 4096
	if oneIn(s.rng, 3) {
		n = s.rng.IntN(s.source.Len() - 1000)
	}
	if errOf(
		q.PostSend(
			WorkRequest{Op: OpSend, ID: s.posted, Signaled: true,
				Local: s.source.Slice(s.rng.IntN(1000), n)})) == nil {
		s.posted++
	}
}

func (s *siege) poll() {
	var cs [64]Completion
	for _, cq := range []*CompletionQueue{s.cq, s.opt.RecvCQ} { // which may be one
		for n := cq.Poll(cs[:]); n > 0; n = cq.Poll(cs[:]) {
			for _, c := range cs[:n] {
				if s.seen[c.ID] {
					s.t.Fatalf("%s: work request %d completed twice", s.what, c.ID)
				}
				s.seen[c.ID] = true
			}
		}
	}
}

// lift ends everything and counts what is left.
func (s *siege) lift() {
	for _, q := range s.qps {
		q.Abort()
	}
	s.turns(5, time.Microsecond)
	require.NoError(s.t, s.adapter.Close(s.t.Context()), s.what)
	for i, q := range s.qps {
		require.True(s.t, isDone(q), "%s: queue pair %d is %v", s.what, i, q.State())
	}
	s.poller.Stop()
	s.turns(5, time.Microsecond)
	s.poll()
	require.Equal(s.t, int(s.posted), len(s.seen)+s.left(), "%s: posted, completed or left", s.what)
	require.Equal(s.t, s.pool.Size(), s.pool.Available(), "%s: Bufs", s.what)
	require.Equal(s.t, 3, s.adapter.Regions(), "%s: regions", s.what)
}

// share has some sieges' QueuePairs take their receive buffers from one queue, and some of these
// complete in a queue that may overflow. It draws from a generator of its own, so that what else
// a seed plays is the same.
func (s *siege) share(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 8))
	if !oneIn(rng, 3) {
		return
	}
	s.opt.SRQ = must(s.adapter.CreateSRQ(SRQOptions{PD: s.opt.PD, Depth: 256}))
	if oneIn(rng, 2) {
		s.opt.RecvCQ = must(s.adapter.CreateCQ(2))
	}
	s.events = s.adapter.Events()
}

// postTo posts a receive buffer where q takes its own from.
func (s *siege) postTo(q *QueuePair, wr WorkRequest) error {
	if s.opt.SRQ == nil {
		return errOf(q.PostRecv(wr))
	}
	if oneIn(s.rng, 50) {
		require.NoError(s.t, s.opt.SRQ.Arm(s.opt.SRQ.Depth()/2))
		require.NoError(s.t, q.Arm(EventReceiveHigh, 3))
		require.NoError(s.t, q.Arm(EventSlowPath, 10))
	}
	return errOf(s.opt.SRQ.PostRecv(wr))
}

// left is how many buffers nobody has taken.
func (s *siege) left() int {
	if s.opt.SRQ == nil {
		return 0
	}
	return s.opt.SRQ.Left()
}
