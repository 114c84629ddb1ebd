package waiting

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// schedule is which threads share a core.
type schedule struct {
	cores          int
	e0, p0, e1, p1 int // where engines and programs run
	computing      []int
	policy         Policy
	await          string // looks, waits, polls; "": a goroutine on the engine's thread
	pauseNs        int64  // of the program between two exchanges
	n              numbers
}

const (
	rounds  = 60
	warm    = 10 // of these, which do not count
	enough  = 100e6
	forever = 1e9 // us: it has not come so far
)

// exchange returns how long one takes, there and back, in us.
func (s *schedule) exchange() float64 {
	m := newMachine(s.cores)
	defer m.end()
	for _, c := range s.computing {
		m.start(c, func(t *thread) {
			for {
				t.run(50_000)
			}
		})
	}
	var began, over int64
	done := 0
	did := func() {
		if done++; done == warm {
			began = m.now
		}
		over = m.now
	}
	var ends [2]*end
	for i := range ends {
		ends[i] = &end{m: m, poller: NewPoller(s.policy, s.await == "", s.await != "")}
		ends[i].poller.n = &s.n
	}
	ends[0].peer, ends[1].peer = ends[1], ends[0]
	for i, e := range ends {
		e.engine = m.start([]int{s.e0, s.e1}[i], e.run)
		if s.await == "" {
			e.app = e.goroutine(i == 0, did)
			continue
		}
		w := map[string]await{"looks": looks, "waits": waits, "polls": new(givesWay).polls}[s.await]
		e.prog = m.start([]int{s.p0, s.p1}[i], func(t *thread) {
			for {
				if i == 1 {
					w(e, t)
				}
				e.post(t)
				if i == 1 {
					continue
				}
				w(e, t)
				if did(); s.pauseNs > 0 {
					t.sleep(s.pauseNs)
				}
			}
		})
	}
	m.until(enough, func() bool { return done >= rounds })
	if done <= warm {
		return forever
	}
	return float64(over-began) / float64(done-warm) / 1000
}

// goroutine is a program on the engine's thread.
func (e *end) goroutine(asks bool, did func()) func(t *thread) bool {
	first := asks
	return func(t *thread) bool {
		if !first && e.here == e.taken {
			return false
		}
		t.run(400)
		if !first {
			e.taken++
		}
		if asks && !first {
			did()
		}
		first = false
		e.posted++
		return true
	}
}

// Where threads run.
var (
	own       = schedule{cores: 4, e0: 0, p0: 1, e1: 2, p1: 3} // each with a core of its own
	two       = schedule{cores: 2, e0: 0, p0: 0, e1: 1, p1: 1} // each engine with its program
	crossed   = schedule{cores: 2, e0: 0, p0: 1, e1: 1, p1: 0} // with the other's program
	together  = schedule{cores: 2, e0: 0, p0: 1, e1: 0, p1: 1} // both engines, both programs
	single    = schedule{cores: 1}
	beside    = schedule{cores: 2, e0: 0, p0: 0, e1: 1, p1: 1, computing: []int{0, 1}}
	ownBeside = schedule{cores: 4, e0: 0, p0: 1, e1: 2, p1: 3, computing: []int{0, 2}}
)

func (s schedule) with(p Policy, await string) *schedule {
	s.policy, s.await, s.n = p, await, standard
	return &s
}

// What an exchange takes at most, us there and back, wherever the threads run. A rule that gets it
// wrong costs a tick, 4,000 us, or a sleep where none was needed.
func TestSchedules(t *testing.T) {
	for name, tc := range map[string]struct {
		s    *schedule
		most float64
	}{
		"own, looks":                {own.with(Interrupt, "looks"), 4.2},
		"own, polls":                {own.with(Interrupt, "polls"), 4.2},
		"own, waits":                {own.with(Interrupt, "waits"), 37},
		"own, adaptive":             {own.with(Adaptive, "polls"), 4.2},
		"own, sleep":                {own.with(Sleep, "polls"), 4.2},
		"two, looks":                {two.with(Interrupt, "looks"), 14},
		"two, polls":                {two.with(Interrupt, "polls"), 25},
		"two, waits":                {two.with(Interrupt, "waits"), 14},
		"two, adaptive":             {two.with(Adaptive, "polls"), 25},
		"crossed, looks":            {crossed.with(Interrupt, "looks"), 100},
		"crossed, polls":            {crossed.with(Interrupt, "polls"), 80},
		"together, polls":           {together.with(Interrupt, "polls"), 60},
		"single, polls":             {single.with(Interrupt, "polls"), 70},
		"single, waits":             {single.with(Interrupt, "waits"), 60},
		"beside, waits":             {beside.with(Interrupt, "waits"), 14},
		"beside, polls":             {beside.with(Interrupt, "polls"), 40},
		"own, beside, waits":        {ownBeside.with(Interrupt, "waits"), 100},
		"goroutines":                {two.with(Adaptive, ""), 6.2},
		"goroutines on one core":    {single.with(Adaptive, ""), 10},
		"goroutines beside":         {beside.with(Adaptive, ""), 6.2},
		"goroutines, sleep":         {two.with(Sleep, ""), 6.2},
		"goroutines beside, dozing": {beside.with(Interrupt, ""), 6.2},
	} {
		t.Run(name, func(t *testing.T) {
			require.LessOrEqual(t, tc.s.exchange(), tc.most)
		})
	}
}

// Each number is worth 10 % somewhere: another one, or none, costs as much.
func TestNumbers(t *testing.T) {
	seldom := own
	seldom.pauseNs = 100_000
	for name, tc := range map[string]struct {
		s   *schedule
		set func(n *numbers)
	}{
		"spins keep the program from its core": {two.with(Interrupt, "looks"),
			func(n *numbers) { n.spinTurns = 256 }},
		"no spins let others run too soon": {single.with(Adaptive, ""),
			func(n *numbers) { n.spinTurns = 0 }},
		"no yields": {two.with(Adaptive, "polls"), func(n *numbers) { n.yieldTurns = 0 }},
		"few yields": {seldom.with(Interrupt, "waits"),
			func(n *numbers) { n.yieldTurns = 200 }},
		"yields that take long": {beside.with(Interrupt, "waits"), func(n *numbers) { n.longShare = 0 }},
		"no spinning beside":    {beside.with(Adaptive, ""), func(n *numbers) { n.besideNs = 0 }},
		"long sleeps at once": {beside.with(Adaptive, "waits"),
			func(n *numbers) { n.napMinNs = n.napMaxNs }},
		"goroutines seldom": {two.with(Adaptive, ""), func(n *numbers) { n.letEvery = 32 }},
		"goroutines always": {single.with(Adaptive, ""), func(n *numbers) { n.letEvery = 1 }},
		"no answer is polled for": {two.with(Interrupt, "looks"),
			func(n *numbers) { n.replyMaxNs = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			with := tc.s.exchange()
			tc.set(&tc.s.n)
			require.Greater(t, tc.s.exchange(), 1.1*with)
		})
	}
}
