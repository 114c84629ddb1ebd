package engine

import (
	"flag"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/sample"
)

// make sim gives them, as to package sim.
var (
	seeds = flag.Int("seeds", 100, "how many seeds TestSeeds plays")
	first = flag.Uint64("first", uint64(time.Now().UnixMicro()),
		"the first of them; the clock's by default")
	failuresMax = flag.Int("failures", 100, "after so many failures the rest is not played")
)

const (
	seedsPerWorld = 8
	coverageFrom  = 250 // so many worlds must have had every dimension
)

// numberedDimensions are what a large number of seeds must have covered.
var numberedDimensions = []string{
	"connected", "connected in its second life", "the request waited", "the request came again",
	"both ends at once", "no answer", "a stranger refused", "a replay refused",
	string(coupleApart), string(coupleWithin), string(coupleItself),
	string(roundGone), string(roundLeft), string(roundCut), string(roundErr),
}

// Whenever the two ends of a connection by number begin, and whatever becomes of one of them, both
// are connected to each other once, and what they send arrives once, in order; or each is told in
// the time that it has said. Nothing is left over.
func TestSeeds(t *testing.T) {
	require.Positive(t, *seeds, "SEEDS: want 1 or more")
	// A world takes much longer here than in package sim, so that a part of the seeds is played.
	count := uint64(sample.Count(min(20, *seeds), *seeds)+seedsPerWorld-1) / seedsPerWorld
	t.Logf("%d seeds from %d, until %d have failed; again: make sim SEEDS=%d FIRST=%d", count, *first,
		*failuresMax, *seeds, *first)
	had := map[string]int{}
	var mu sync.Mutex
	next, failed := uint64(0), 0
	take := func() (seed uint64, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return *first + next - 1, next <= count && failed < *failuresMax
	}
	begin := time.Now()
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed, ok := take(); ok; seed, ok = take() {
				n := playNumbered(t, drawNumbered(seed))
				mu.Lock()
				for what, yes := range n.had {
					if yes {
						had[what]++
					}
				}
				if err := n.err(); err != nil {
					failed++
					t.Errorf("%v\nof\n%v\nto play it again: make sim SEEDS=1 FIRST=%d\nlogs:\n  %v\n  %v",
						err, n.wl, seed, n.hosts[0], n.hosts[1])
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	t.Logf("%d of %d failed, in %v", failed, count, time.Since(begin).Round(time.Second))
	for _, what := range slices.Sorted(maps.Keys(had)) {
		t.Logf("%6d %s", had[what], what)
	}
	for _, what := range numberedDimensions {
		require.True(t, count < coverageFrom || failed > 0 || had[what] > 0, "no seed had: %s", what)
	}
}

// playNumbered plays a workload in a world of its own.
func playNumbered(t *testing.T, wl *numberedWorkload) (n *numbered) {
	synctest.Test(t, func(t *testing.T) {
		n = newNumberedWorld(t, wl)
		n.play()
		close(n.ended)
	})
	return n
}

// play plays all rounds, ends all, and looks for what is left.
func (n *numbered) play() {
	for i := range n.wl.Couples {
		n.pairs = append(n.pairs, n.newCouple(i))
	}
	inAll := func(do func(*couple)) {
		var all sync.WaitGroup
		for _, c := range n.pairs {
			all.Go(func() { do(c) })
		}
		all.Wait()
	}
	inAll(func(c *couple) { c.run(0, len(c.Rounds)-c.common()) })
	n.endAll()
	inAll(func(c *couple) { c.run(len(c.Rounds)-c.common(), len(c.Rounds)) })
	n.noneWaits()
	inAll(func(c *couple) {
		for _, e := range c.ends {
			e.destroy()
		}
	})
	for _, p := range n.hosts {
		p.end()
	}
	n.leaks()
	for _, p := range n.hosts {
		p.free()
	}
}

// noneWaits fails the world if a Request still waits when it may no longer.
func (n *numbered) noneWaits() {
	n.until(n.Now()+int64(requestWait+slack), func() bool { return false })
	for _, c := range n.pairs {
		for _, e := range c.ends {
			w := &e.q.way
			w.mu.Lock()
			left := len(w.waiting)
			w.mu.Unlock()
			if left > 0 {
				n.fail("%v: %d Requests wait, and nobody asks", e, left)
			}
		}
	}
}

// common is how many last rounds the couple has that all begin together.
func (c *couple) common() int {
	if k := c.Rounds[len(c.Rounds)-1].Kind; k == roundCut || k == roundLeft {
		return 1
	}
	return 0
}

// endAll does what ends all couples' last rounds, in its time.
func (n *numbered) endAll() {
	for _, c := range n.pairs {
		if c.common() == 0 {
			continue
		}
		d := &c.Rounds[len(c.Rounds)-1]
		time.AfterFunc(d.At, func() {
			if d.Kind == roundCut {
				n.hosts[0].engine.whenQuiet(func() { // on the goroutine that turns
					if err := n.Cut(); err != nil {
						n.fail("to cut the cable: %v", err)
					}
				})
				return
			}
			c.ends[d.Who].host.end()
		})
		return
	}
}
