package stream

import (
	"sync"
	"time"
)

// deadline closes a channel when its time has come. After pipeDeadline of the Go standard library's
// net/pipe.go (BSD licence), which has the same semantics: a deadline in the past expires at once,
// a later one revives.
type deadline struct {
	mu     sync.Mutex
	timer  *time.Timer
	cancel chan struct{}
}

func newDeadline() deadline { return deadline{cancel: make(chan struct{})} }

// set moves the deadline; the zero time means none. Those that wait already are told of the change.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.cancel // the timer has fired: wait until it has closed the channel
	}
	d.timer = nil
	expired := isDone(d.cancel)
	if t.IsZero() {
		if expired {
			d.cancel = make(chan struct{})
		}
		return
	}
	if left := time.Until(t); left > 0 {
		if expired {
			d.cancel = make(chan struct{})
		}
		cancel := d.cancel
		d.timer = time.AfterFunc(left, func() { close(cancel) })
		return
	}
	if !expired {
		close(d.cancel)
	}
}

// wait is closed when the deadline has passed.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cancel
}

// stop lets go of the timer.
func (d *deadline) stop() { d.set(time.Time{}) }

func isDone(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
