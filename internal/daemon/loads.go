package daemon

import (
	"sync"
	"time"
)

// Loads says since when a configuration is in force, and why a later one is not. Any goroutine.
type Loads struct {
	mu  sync.Mutex
	at  time.Time
	err string
}

// Succeeded enters that the file was read, and is in force from now on.
func (l *Loads) Succeeded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at, l.err = time.Now(), ""
}

// Failed enters why a reload has not changed all that it was to change.
func (l *Loads) Failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err.Error()
}

// Last is when a load succeeded last, and the error of one after it, or empty.
func (l *Loads) Last() (at time.Time, err string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at, l.err
}

// StatusLine is line for systemctl, with a word on a reload that failed.
func (l *Loads) StatusLine(line string) string {
	if _, err := l.Last(); err != "" {
		line += "; NOT RELOADED: see the log"
	}
	return line
}
