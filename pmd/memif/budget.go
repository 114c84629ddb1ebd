package memif

import (
	"time"

	"golang.org/x/sys/unix"
)

// budget bounds the time that a queue loses to page faults in memory that cannot be guarded
// (guard.go). A call that takes long makes the queue suspect: for some time, each time for longer,
// it reads the page faults of its thread before and after a call. A long call with faults is
// charged; one without was only preempted. Who has nothing left loses its connection.
type budget struct {
	left       time.Duration
	at         time.Duration // when it was
	until      time.Duration // the queue is suspect
	suspectFor time.Duration
}

const (
	budgetMax   = 2 * time.Millisecond // at once
	budgetShare = 100                  // of the time, one part in so many comes back
	// for one call: it may have been a pause of the process or the machine
	chargeMax  = budgetMax * 3 / 4
	slowCall   = 50 * time.Microsecond
	suspectMin = time.Second
	suspectMax = time.Minute
)

var epoch = time.Now()

func newBudget() budget {
	return budget{left: budgetMax, at: time.Since(epoch), suspectFor: suspectMin}
}

// stopwatch is one call.
type stopwatch struct {
	began   time.Duration
	suspect bool
	faults  int64
}

func (b *budget) begin() (w stopwatch) {
	w.began = time.Since(epoch)
	if w.suspect = w.began < b.until; w.suspect {
		w.faults = faultsOfThread()
	}
	return w
}

// end says whether the budget lasts.
func (b *budget) end(w stopwatch) bool {
	now := time.Since(epoch)
	if now-w.began < slowCall {
		return true
	}
	b.until = now + b.suspectFor
	b.suspectFor = min(2*b.suspectFor, suspectMax)
	if !w.suspect || faultsOfThread() == w.faults {
		return true
	}
	b.left = min(b.left+(now-b.at)/budgetShare, budgetMax) - min(now-w.began, chargeMax)
	b.at = now
	return b.left >= 0
}

func faultsOfThread() int64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &u)
	return u.Minflt + u.Majflt
}
