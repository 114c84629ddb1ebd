package yard

import (
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Contender does one kind of work on one core or two, whenever it has a slice.
type Contender struct {
	Name string
	Unit string // of what Slice.Did counts
	// Left and Right run on a core each until the Slice is Over, and then return: what they began
	// may stay begun until the next one. Right may be nil. One of them calls Slice.Did.
	Left, Right func(*Slice)
	// Resume and Pause, if set, are called before each slice and after it, while neither side runs.
	Resume, Pause func()
	Sleeps        bool // it waits in the kernel: a slice in which it did is not one that lost the core
	// Check says whether the work of all slices was done, and right. Called once, after the last.
	Check func() error
}

// Slice is one turn of a Contender.
type Slice struct {
	over        atomic.Bool
	warm        time.Time // what is done before does not count: caches are another's
	first, last time.Time
	work        float64
	busy        time.Duration
	until       float64
}

// Until is a slice that is over when so much has been done: for tests.
func Until(work float64) *Slice { return &Slice{until: work} }

// Over tells both sides to return. Any goroutine.
func (s *Slice) Over() bool { return s.over.Load() }

// End has it over.
func (s *Slice) End() { s.over.Store(true) }

// Did says that so much more has been done. It reads the clock: call it for some microseconds of
// work. One side only.
func (s *Slice) Did(work float64) {
	now := time.Now()
	switch {
	case now.Before(s.warm):
	case s.first.IsZero():
		s.first = now
	default:
		s.work += work
		s.last = now
	}
	if s.until > 0 && s.work >= s.until {
		s.End()
	}
}

// Spent is Did of work that took so much time, which is counted instead of what passed: for a side
// that waits in between.
func (s *Slice) Spent(work float64, busy time.Duration) {
	if time.Now().Before(s.warm) {
		return
	}
	s.work += work
	s.busy += busy
}

// rate is work a second, 0 if there was none.
func (s *Slice) rate() float64 {
	if s.work == 0 {
		return 0
	}
	if s.busy > 0 {
		return s.work / s.busy.Seconds()
	}
	return s.work / s.last.Sub(s.first).Seconds()
}

// lostPart: a slice in which a thread had its core for less lost it to somebody.
const lostPart = 0.02

// SideLabel is the label of a CPU profile's samples that says whose they are: left or right.
const SideLabel = "side"

// worker is a thread on a core of its own. It sleeps while it has nothing to do.
type worker struct {
	jobs chan func()
	lost chan bool
}

func newWorker(core int, side string) (*worker, error) {
	w := &worker{jobs: make(chan func()), lost: make(chan bool)}
	pinned := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: it ends with the goroutine
		pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(SideLabel, side)))
		var set unix.CPUSet
		set.Set(core)
		err := unix.SchedSetaffinity(0, &set)
		pinned <- err
		if err != nil {
			return
		}
		for job := range w.jobs {
			from, cpu := time.Now(), threadTime()
			job()
			wall := time.Since(from)
			w.lost <- wall-(threadTime()-cpu) > time.Duration(float64(wall)*lostPart)
		}
	}()
	if err := <-pinned; err != nil {
		return nil, fmt.Errorf("yard: pinning a thread to CPU %d: %w", core, err)
	}
	return w, nil
}

func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic(err) // the arguments are constant
	}
	return time.Duration(ts.Nano())
}

// Crew is two pinned threads that Contenders take turns on.
type Crew struct{ left, right *worker }

// NewCrew pins threads to the first two CPUs that this process may use.
func NewCrew() (*Crew, error) {
	cores, err := usable()
	if err != nil {
		return nil, err
	}
	if len(cores) < 2 {
		return nil, fmt.Errorf("yard: %d CPU may be used; two are needed, one for each end", len(cores))
	}
	c := &Crew{}
	if c.left, err = newWorker(cores[0], "left"); err != nil {
		return nil, err
	}
	if c.right, err = newWorker(cores[1], "right"); err != nil {
		c.left.end()
		return nil, err
	}
	return c, nil
}

// usable are the CPUs that this process may use.
func usable() (cores []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			cores = append(cores, i)
		}
	}
	return cores, nil
}

func (w *worker) end() { close(w.jobs) }

// Close ends the threads.
func (c *Crew) Close() {
	c.left.end()
	c.right.end()
}

// run gives c one slice of so long. lost: a thread lost its core in it.
func (c *Crew) run(k *Contender, length time.Duration) (rate float64, lost bool) {
	s := &Slice{warm: time.Now().Add(length / 10)}
	if k.Resume != nil {
		k.Resume()
	}
	if k.Pause != nil {
		defer k.Pause()
	}
	timer := time.AfterFunc(length, s.End)
	defer timer.Stop()
	c.left.jobs <- func() { k.Left(s) }
	if k.Right != nil {
		c.right.jobs <- func() { k.Right(s) }
		lost = <-c.right.lost
	}
	lost = <-c.left.lost || lost
	return s.rate(), lost && !k.Sleeps
}

// Take gives each of contenders so many slices, in turns, and checks what they did. It runs no
// other goroutine meanwhile: the maker of the Contenders left none that polls.
func (c *Crew) Take(turns int, length time.Duration, contenders ...*Contender) ([]*Series, error) {
	all := make([]*Series, len(contenders))
	for i, k := range contenders {
		all[i] = &Series{Name: k.Name, Unit: k.Unit}
		c.run(k, length) // the first fills caches and windows
	}
	runtime.GC() // not in somebody's slice
	for turn := range turns {
		for i := range contenders {
			if turn%2 == 1 { // each goes after the other as often
				i = len(contenders) - 1 - i
			}
			if contenders[i].Right != nil {
				all[i].Apart = append(all[i].Apart, c.Apart())
			}
			rate, lost := c.run(contenders[i], length)
			all[i].Rates = append(all[i].Rates, rate)
			if lost {
				all[i].Lost++
			}
		}
	}
	for _, k := range contenders {
		if k.Check == nil {
			continue
		}
		if err := k.Check(); err != nil {
			return nil, fmt.Errorf("%s: %w", k.Name, err)
		}
	}
	return all, nil
}
