package daemon

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/stack"
)

const (
	looksMin     = 4 // in a limit
	lookEveryMax = 25 * time.Millisecond
	reportEvery  = 10 * time.Second // of one Poller
)

// watchdog looks whether Pollers turn: their counts of Turns stand still only while they hang, or
// wait for an interrupt of the device. A Poller that hangs is reported once, with where its
// goroutine stands.
type watchdog struct {
	log   *slog.Logger
	limit atomic.Int64 // ns
	over  chan struct{}
	ended sync.WaitGroup

	mu      sync.Mutex
	pollers []*watched
	looked  time.Time
}

// watched is a Poller.
type watched struct {
	port, label string
	queue       int
	poller      turner
	turns       uint64
	since       time.Time // it was seen to turn
	stalled     bool
	stalls      uint64
	told        time.Time
}

// turner is a *stack.Poller.
type turner interface {
	Turns() uint64
	Asleep() bool
}

func newWatchdog(log *slog.Logger) *watchdog {
	return &watchdog{log: log, over: make(chan struct{})}
}

func (d *watchdog) add(portName, device string, queue int, p turner) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pollers = append(d.pollers, &watched{port: portName, label: port.LabelOf(device, queue),
		queue: queue, poller: p})
}

func (d *watchdog) start() {
	d.ended.Go(func() {
		every := d.lookEvery()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				d.look(time.Now(), func(w *watched) { d.ended.Go(func() { d.stack(w) }) })
				if now := d.lookEvery(); now != every {
					every = now
					tick.Reset(every)
				}
			case <-d.over:
				return
			}
		}
	})
}

func (d *watchdog) stop() {
	close(d.over)
	d.ended.Wait()
}

// lookEvery is the time from one look to the next. Several fit into a limit, so that one which
// comes a little late is not taken for one that had no core.
func (d *watchdog) lookEvery() time.Duration {
	return min(time.Duration(d.limit.Load())/looksMin, lookEveryMax)
}

// look is called each lookEvery. The time before a look that comes more than half a limit after the
// one before it is left out: neither we nor the Pollers had a core.
func (d *watchdog) look(now time.Time, report func(*watched)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	limit := time.Duration(d.limit.Load())
	passed := now.Sub(d.looked)
	d.looked = now
	for _, w := range d.pollers {
		turns := w.poller.Turns()
		if turns != w.turns || w.since.IsZero() || w.poller.Asleep() {
			if w.stalled {
				d.log.Warn("the Poller turns again", "port", w.port, "queue", w.queue, "stood_still",
					now.Sub(w.since))
			}
			w.turns, w.since, w.stalled = turns, now, false
			continue
		}
		if passed > limit/2 && !w.stalled {
			w.since = w.since.Add(passed)
		}
		if still := now.Sub(w.since); still > limit && !w.stalled {
			w.stalled = true
			w.stalls++
			if w.told.IsZero() || now.Sub(w.told) >= reportEvery {
				w.told = now
				d.log.Error("the Poller has not turned", "port", w.port, "queue", w.queue, "for", still)
				report(w)
			}
		}
	}
}

// stack writes where a Poller's goroutine stands. It waits for all goroutines to stop for a moment,
// so it has a goroutine of its own.
func (d *watchdog) stack(w *watched) {
	d.log.Error("where the Poller stands", "port", w.port, "queue", w.queue, "stack", StackOf(w.label))
}

// StackOf is where the goroutine stands that has a label, port.PollerLabel. Any goroutine; all
// others stop for a moment, so it waits for those that do not let themselves be stopped.
func StackOf(label string) string {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1) // into memory
	return stackOf(b.String(), label)
}

// stackOf finds the goroutine of a Poller in a profile: paragraphs, each with its labels.
func stackOf(profile, label string) string {
	want := fmt.Sprintf("%q:%q", port.PollerLabel, label)
	for paragraph := range strings.SplitSeq(profile, "\n\n") {
		if !strings.Contains(paragraph, want) {
			continue
		}
		var at []string
		for line := range strings.Lines(paragraph) {
			if f := strings.Fields(line); len(f) >= 4 && f[0] == "#" && strings.HasPrefix(f[1], "0x") {
				at = append(at, f[2]+" "+f[3])
			}
		}
		return strings.Join(at, "; ")
	}
	return "its goroutine is not there"
}

// healthy says that no Poller stands still.
func (d *watchdog) healthy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.pollers {
		if w.stalled {
			return false
		}
	}
	return true
}

func (d *watchdog) status() (all []PollerStatus) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.pollers {
		s := PollerStatus{Port: w.port, Queue: w.queue, Stalls: w.stalls}
		s.Poller, _ = w.poller.(*stack.Poller)
		if w.stalled {
			s.Still = time.Since(w.since)
		}
		all = append(all, s)
	}
	return all
}

// Healthy says that every Poller turns.
func (d *Daemon) Healthy() bool { return d.dog.healthy() }
