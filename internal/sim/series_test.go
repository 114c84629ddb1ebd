package sim

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// series plays seeds one after another, on all cores, and goes on after one that failed.
type series struct {
	first, count  uint64
	failuresMax   int
	progressEvery uint64
	play          func(Workload) (Outcome, error)
	log, fail     func(format string, args ...any)

	mu                     sync.Mutex
	next, played, failures uint64
	coverage               Coverage
	octets                 uint64
	virtual                time.Duration
	begin                  time.Time
}

// run plays the whole series, up to failuresMax failures, and logs where it began, how far it is,
// and what it covered.
func (s *series) run() {
	s.begin = time.Now()
	s.log("%d seeds from %d, until %d have failed; again: make sim SEEDS=%d FIRST=%d",
		s.count, s.first, s.failuresMax, s.count, s.first)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed, ok := s.take(); ok; seed, ok = s.take() {
				wl := Draw(seed)
				out, err := s.play(wl)
				s.took(wl, &out, err)
			}
		})
	}
	workers.Wait()
	s.log("%d of %d seeds from %d: %d failed; %d MiB in %v, %v of the hosts' time\n%v",
		s.played, s.count, s.first, s.failures,
		s.octets>>20, time.Since(s.begin).Round(time.Second), s.virtual.Round(time.Second), &s.coverage)
	if s.played < s.count {
		s.fail("%d seeds were not played, because %d had failed", s.count-s.played, s.failures)
	}
}

func (s *series) take() (seed uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == s.count || s.failures >= uint64(s.failuresMax) {
		return 0, false
	}
	s.next++
	return s.first + s.next - 1, true
}

// took notes what became of a Workload.
func (s *series) took(wl Workload, out *Outcome, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.played++
	if err != nil {
		s.failures++
		s.fail("%v\nof\n%v\nto play it again: make sim SEEDS=1 FIRST=%d\n"+
			"to keep it: a file in internal/sim/testdata/found\n%s", err, wl, wl.Seed, kept(wl))
	} else {
		s.coverage.Add(*out)
		s.octets += out.Octets
		s.virtual += out.Virtual
	}
	if s.played%s.progressEvery == 0 && s.played < s.count {
		s.log("%d of %d seeds from %d played, %d failed, %v",
			s.played, s.count, s.first, s.failures, time.Since(s.begin).Round(time.Second))
	}
}

// kept is the file that keeps the Workload for TestFound.
func kept(wl Workload) string {
	text, err := wl.Text()
	if err != nil {
		return err.Error()
	}
	return "# what was the cause\n" + text
}

// A series goes on after failures up to its bound and says of each how to play and to keep it,
// where it began, and how far it is.
func TestSeries(t *testing.T) {
	var mu sync.Mutex
	var logged, failed []string
	into := func(lines *[]string) func(string, ...any) {
		return func(format string, args ...any) { *lines = append(*lines, fmt.Sprintf(format, args...)) }
	}
	played := map[uint64]int{}
	odd := func(wl Workload) (Outcome, error) {
		mu.Lock()
		defer mu.Unlock()
		played[wl.Seed]++
		if wl.Seed%2 == 1 {
			return Outcome{}, errors.New("odd")
		}
		return Outcome{Octets: 1 << 20}, nil
	}
	s := series{
		first: 1000, count: 40, failuresMax: 100, progressEvery: 15,
		play: odd, log: into(&logged), fail: into(&failed),
	}
	s.run()
	require.Len(t, failed, 20)
	require.Len(t, played, 40)
	require.Equal(t, uint64(40), s.played)
	require.Len(t, logged, 1+2+1, "begin, progress, end")
	require.Equal(t, "40 seeds from 1000, until 100 have failed; again: make sim SEEDS=40 FIRST=1000",
		logged[0])
	require.Contains(t, logged[2], "30 of 40 seeds from 1000 played")
	require.Contains(t, logged[3], "40 of 40 seeds from 1000: 20 failed; 20 MiB")
	for _, f := range failed {
		wl, err := ParseWorkload(f[strings.Index(f, "# what was the cause"):])
		require.NoError(t, err, f)
		require.Equal(t, Draw(wl.Seed), wl)
		require.Contains(t, f, fmt.Sprintf("make sim SEEDS=1 FIRST=%d\n", wl.Seed))
	}

	logged, failed, played = nil, nil, map[uint64]int{}
	s = series{
		first: 1000, count: 1 << 20, failuresMax: 5, progressEvery: 1 << 20,
		play: odd, log: into(&logged), fail: into(&failed),
	}
	s.run()
	require.GreaterOrEqual(t, s.failures, uint64(5))
	require.Less(t, s.played, uint64(5+3*runtime.GOMAXPROCS(0)+10), "those that had begun before")
	require.Contains(t, failed[len(failed)-1],
		fmt.Sprintf("%d seeds were not played, because %d had failed", s.count-s.played, s.failures))
}
