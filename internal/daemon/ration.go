package daemon

import (
	"log/slog"
	"sync"
	"time"
)

// Lines of one kind that any peer can bring about: rationMax are written at once, and one more each
// rationEvery. What was not written is counted in the next one that is.
const (
	rationMax   = 64
	rationEvery = time.Second
)

// Ration bounds such lines. The zero value is full. Its methods are for any goroutine.
type Ration struct {
	mu    sync.Mutex
	spare int
	since time.Time // zero: none was written yet
	left  uint64    // out
}

// take says whether a line may be written, and how many were not before it.
func (r *Ration) take(now time.Time) (leftOut uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() {
		r.spare, r.since = rationMax, now
	}
	earned := now.Sub(r.since) / rationEvery
	r.since = r.since.Add(earned * rationEvery)
	if r.spare = int(min(time.Duration(r.spare)+earned, rationMax)); r.spare == 0 {
		r.left++
		return 0, false
	}
	r.spare--
	leftOut, r.left = r.left, 0
	return leftOut, true
}

// Warn writes a line, if one may be written.
func (r *Ration) Warn(log *slog.Logger, text string, attrs ...any) {
	leftOut, ok := r.take(time.Now())
	if !ok {
		return
	}
	if leftOut > 0 {
		attrs = append(attrs, "more_before", leftOut)
	}
	log.Warn(text, attrs...)
}
