// Package ccmodel predicts the goodput of a bulk transfer from the specifications of the
// congestion controls only. It does not use package cc or tcp; windows are floating-point numbers
// of segments. It is for tests, and for the choice of an algorithm.
//
// Closed forms are inaccurate: random losses, unlike the periodic ones of the response functions,
// change the constant; a window of few segments is a whole number; a queue changes the sawtooth;
// the steady state may take minutes to reach. So the window is simulated, segment by segment,
// with independent losses and ideal loss recovery. docs/results/congestion.md lists what the
// model leaves out.
package ccmodel

import (
	"fmt"
	"math/rand/v2"
)

// Path is a bottleneck of one sender. Rates count Overhead, goodput does not.
type Path struct {
	BitsPerSecond float64
	RTT           float64 // seconds, with empty queues and a segment of no length
	Loss          float64 // probability that a data segment is lost, each by itself
	SMSS          int     // octets of payload in a segment
	Overhead      int     // octets of headers, framing and gap around them
	// octets that wait at the bottleneck at most; what exceeds them is dropped. 0: no queue at all
	QueueMax      int
	MarkAt        int     // octets that wait from which on segments are marked; 0: never
	WindowMax     int     // octets: the peer's window, or what the sender can hold; 0: no limit
	InitialWindow int     // segments, default 10
	RTOMin        float64 // seconds, default 0.2
}

// Result of one simulated transfer.
type Result struct {
	Goodput     float64 // payload bits a second
	Sent, Lost  int     // segments, retransmissions included
	Reductions  int
	Timeouts    int
	SlowStartMs float64 // until the first slow start ended, by a reduction or by delay; 0: it did not
}

// Goodput is the mean over so many seeds, where chance has a part.
const seeds = 8

// Goodput is the payload, in bits a second, of a transfer through p that lasts seconds, its slow
// start included, under the algorithm of that name: "reno", "cubic" or "dctcp". With Loss it is the
// mean of eight fixed seeds. It panics on a name it does not know.
func Goodput(name string, p Path, seconds float64) float64 {
	if p.Loss == 0 {
		return Transfer(name, p, seconds, 0).Goodput
	}
	sum := 0.0
	for seed := range uint64(seeds) {
		sum += Transfer(name, p, seconds, seed).Goodput
	}
	return sum / seeds
}

// Transfer is one transfer, the same one for the same seed.
func Transfer(name string, p Path, seconds float64, seed uint64) Result {
	if p.InitialWindow == 0 {
		p.InitialWindow = 10
	}
	if p.RTOMin == 0 {
		p.RTOMin = 0.2
	}
	law := newLaw(name)
	law.start(float64(p.InitialWindow))
	return run(p, law, seconds, seed)
}

func newLaw(name string) law {
	switch name {
	case "reno":
		return &reno{hystart: true}
	case "cubic":
		return &cubic{}
	case "dctcp":
		return &dctcp{alpha: 1}
	}
	panic(fmt.Sprintf("model: no congestion control %q", name))
}

// law is a congestion control. Segments and seconds.
type law interface {
	start(iw float64)
	window() float64
	slowStart() bool
	acked(a ack)
	reduce(now, flight float64, mark bool)
	timeout(now, flight float64)
}

// ack of one segment.
type ack struct {
	now, rtt, srtt float64
	una, nxt       int // in the order of sending
	marked         bool
	limited        bool
	recovering     bool
}

// segment in flight.
type segment struct {
	sent, back float64 // back: when its acknowledgment is, or would be, here
	octets     int     // its place in the stream
	lost       bool
	marked     bool
}

// transfer is the state of one.
type transfer struct {
	Path
	law      law
	rng      *rand.Rand
	now      float64
	linkFree float64
	srtt     float64

	flight      queue[segment]
	good        int // of flight, not lost
	owed        queue[int]
	una, nxt    int // stream, in segments
	have        []bool
	order       int // of sending
	reducedAt   int // order at the latest reduction: losses sent before it belong to it
	growFrom    int // order from which acknowledgments grow the window again
	markedAt    int
	result      Result
	segmentsMax int // of the stream, beyond una
}

// haveMax bounds how far a segment may be acknowledged ahead of the left edge.
const haveMax = 1 << 21

func run(p Path, l law, seconds float64, seed uint64) Result {
	t := &transfer{Path: p, law: l, rng: rand.New(rand.NewPCG(seed, 0)), have: make([]bool, haveMax),
		segmentsMax: haveMax - 1}
	if p.WindowMax > 0 {
		t.segmentsMax = min(t.segmentsMax, p.WindowMax/p.SMSS)
	}
	slow := true
	delivered := 0
	for {
		for t.admits() {
			t.send()
		}
		s := t.flight.pop()
		if s.back > seconds {
			break
		}
		t.now = s.back
		if s.lost {
			t.lose(s)
		} else {
			delivered++
			t.good--
			t.deliver(s)
		}
		if slow && !l.slowStart() {
			slow = false
			t.result.SlowStartMs = t.now * 1000
		}
	}
	t.result.Goodput = float64(delivered) * float64(p.SMSS) * 8 / seconds
	return t.result
}

// admits says whether one further segment may be sent: whole segments only, retransmissions first.
func (t *transfer) admits() bool {
	return float64(t.flight.len()+1) <= t.law.window() &&
		(t.owed.len() > 0 || t.nxt-t.una < t.segmentsMax)
}

func (t *transfer) send() {
	var s segment
	if t.owed.len() > 0 {
		s.octets = t.owed.pop()
	} else {
		s.octets = t.nxt
		t.nxt++
	}
	octets := float64(t.SMSS + t.Overhead)
	perSecond := t.BitsPerSecond / 8
	begin := max(t.now, t.linkFree)
	waiting := (begin - t.now) * perSecond
	s.sent, s.back = t.now, begin+octets/perSecond+t.RTT
	s.marked = t.MarkAt > 0 && waiting > float64(t.MarkAt)
	s.lost = t.Loss > 0 && t.rng.Float64() < t.Loss
	if waiting > float64(t.QueueMax) {
		s.lost = true
	} else {
		t.linkFree = begin + octets/perSecond
	}
	t.order++
	t.result.Sent++
	if !s.lost {
		t.good++
	}
	t.flight.push(s)
}

// sentBefore is the order in which the segment was sent that has just left flight.
func (t *transfer) sentBefore() int { return t.order - t.flight.len() - 1 }

func (t *transfer) deliver(s segment) {
	t.have[s.octets%haveMax] = true
	for t.una < t.nxt && t.have[t.una%haveMax] {
		t.have[t.una%haveMax] = false
		t.una++
	}
	rtt := t.now - s.sent
	if t.srtt == 0 {
		t.srtt = rtt
	}
	t.srtt += (rtt - t.srtt) / 8
	if t.owed.len() > 0 {
		t.growFrom = t.order
	}
	at := t.sentBefore()
	w := t.law.window()
	if s.marked && at >= t.markedAt && at >= t.reducedAt {
		t.result.Reductions++
		t.law.reduce(t.now, w, true)
		t.markedAt = t.order
		t.growFrom = t.order // CWR is a recovery without a retransmission
	}
	t.law.acked(ack{
		now: t.now, rtt: rtt, srtt: t.srtt, una: at + 1, nxt: t.order, marked: s.marked,
		limited: w <= float64(t.segmentsMax), recovering: at < t.growFrom,
	})
}

// lose is a loss found out: what was sent after the segment has arrived. When nothing after it
// will, a probe (RFC 8985 section 7) finds out instead, and when that is lost too, a timeout.
func (t *transfer) lose(s segment) {
	t.result.Lost++
	t.owed.push(s.octets)
	at := t.sentBefore()
	if t.good == 0 {
		t.probe(s.sent)
		return
	}
	if at >= t.reducedAt {
		t.result.Reductions++
		t.law.reduce(t.now, float64(t.flight.len()+1), false)
		t.reducedAt = t.order
	}
	t.growFrom = t.order
}

// probe: all that is in flight is lost.
func (t *transfer) probe(sent float64) {
	flight := float64(t.flight.len() + 1)
	for t.flight.len() > 0 {
		s := t.flight.pop()
		sent = s.sent
		t.owed.push(s.octets)
		t.result.Lost++
	}
	t.now = max(t.now, sent+2*t.srtt)
	rto := max(t.RTOMin, 2*t.srtt)
	timedOut := false
	for t.rng.Float64() < t.Loss {
		t.now += rto
		rto *= 2
		if !timedOut {
			t.result.Timeouts++
			t.law.timeout(t.now, flight)
		}
		timedOut = true
	}
	if !timedOut {
		t.result.Reductions++
		t.law.reduce(t.now, flight, false)
	}
	t.now += t.RTT
	t.reducedAt, t.growFrom = t.order, t.order
}

// queue is first in, first out.
type queue[T any] struct {
	ring    []T
	in, out int
}

func (q *queue[T]) len() int { return q.in - q.out }

func (q *queue[T]) push(v T) {
	if q.in-q.out == len(q.ring) {
		grown := make([]T, max(1024, 2*len(q.ring)))
		n := 0
		for i := q.out; i < q.in; i++ {
			grown[n] = q.ring[i&(len(q.ring)-1)]
			n++
		}
		q.ring, q.in, q.out = grown, n, 0
	}
	q.ring[q.in&(len(q.ring)-1)] = v
	q.in++
}

func (q *queue[T]) pop() T {
	v := q.ring[q.out&(len(q.ring)-1)]
	q.out++
	return v
}
