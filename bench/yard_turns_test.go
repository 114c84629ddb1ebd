package bench

import (
	"fmt"
	"runtime/metrics"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/bench/yard"
)

// longTurn is from when on a Turn of a ping-pong is asked for its cause: none has more to do than
// one frame.
const longTurn = 10 * time.Microsecond

// causes of a long Turn, as far as a thread can see them, the first that holds.
var causes = [...]string{
	"the collector ran", "the thread gave its core up", "the kernel gave the core to another thread",
	"a page fault",
	"none of these: an interrupt, or the host",
}

// turnTimes are the times of one thread's Turns, and what else happened in the long ones.
type turnTimes struct {
	all    yard.Histogram
	long   [len(causes)]yard.Histogram
	before happened
	turns  int
	sample []metrics.Sample
}

// happened are counters of what can make a Turn long.
type happened struct {
	cycles           uint64 // of the collector
	own, other, page int64
}

func (t *turnTimes) look() (h happened) {
	if t.sample == nil {
		t.sample = []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	}
	metrics.Read(t.sample)
	h.cycles = t.sample[0].Value.Uint64()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		panic(err) // the arguments are constant
	}
	h.own, h.other, h.page = u.Nvcsw, u.Nivcsw, u.Minflt+u.Majflt
	return h
}

// fresh is how many Turns may pass before the counters are looked at again.
const fresh = 4096

// turn times one Turn. Its thread is always the same one.
func (t *turnTimes) turn(turn func() int) int {
	if t.turns++; t.turns%fresh == 1 {
		t.before = t.look()
	}
	began := time.Now()
	work := turn()
	ns := int64(time.Since(began))
	t.all.Add(ns)
	if ns < int64(longTurn) {
		return work
	}
	now := t.look()
	t.long[t.cause(&now)].Add(ns)
	t.before = now
	return work
}

// cause is an index of causes.
func (t *turnTimes) cause(now *happened) int {
	switch was := &t.before; {
	case now.cycles != was.cycles:
		return 0
	case now.own != was.own:
		return 1
	case now.other != was.other:
		return 2
	case now.page != was.page:
		return 3
	}
	return 4
}

// turnsPart is how long the Turns of a ping-pong take, and why some take long: the tail of what
// latencyPart measures.
func turnsPart(y *yardstick) {
	g := newCable(y, cable{mtu: 1500})
	ask, answer := pingPair(y, g.server, g.client, false, 8<<20)
	park(y, g)
	var left, right turnTimes
	// turns: others had the core
	y.pings("Turns of a ping-pong", g, ask, answer,
		func() { left.turns = 0 }, func() { right.turns = 0 },
		func() int { return left.turn(g.client.poller.Turn) },
		func() int { return right.turn(g.server.poller.Turn) })
	require.NotZero(y, left.all.N(), "no Turn was timed")
	require.NotZero(y, right.all.N(), "no Turn was timed")
	all := &left.all
	all.Merge(&right.all)
	one := func(name, unit string, v float64, note string) {
		y.row(name, unit, yard.Goal{}, exactly(v, int(all.N())), note)
	}
	for _, q := range []float64{0.5, 0.99, 0.999, 0.9999} {
		one(fmt.Sprintf("a Turn of the ping-pong, p%v", 100*q), "ns", float64(all.Quantile(q)),
			"both ends, empty Turns too")
	}
	one("a Turn of the ping-pong, the longest", "us", float64(all.Max())*usPerNs, "")
	for i, name := range causes {
		h := &left.long[i]
		h.Merge(&right.long[i])
		if h.N() == 0 {
			continue
		}
		one("Turns beyond 10 us: "+name, "a million", float64(h.N())*1e6/float64(all.N()),
			fmt.Sprintf("half of them beyond %.0f us, the longest %.0f us", float64(h.Quantile(0.5))*usPerNs,
				float64(h.Max())*usPerNs))
	}
}
