package engine

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/rnicd/rnicd/internal/lossy"
	"github.com/rnicd/rnicd/internal/printable"
	"github.com/rnicd/rnicd/rnic"
)

// tellLog writes a line for an operator who looks at what the program does.
func (e *Engine) tellLog(format string, args ...any) {
	if e.log != nil {
		fmt.Fprint(e.log, line(format, args...))
	}
}

// tellError is tellLog for what ends a queue pair: an operator hears it in any case, even if the
// program ends then.
func (e *Engine) tellError(format string, args ...any) {
	to := e.standard // not what a program has put in its place
	if to == nil {
		to = os.Stderr
	}
	lossy.Line(to, "rnicd: "+printable.Text(fmt.Sprintf(format, args...)))
}

func line(format string, args ...any) string {
	return "rnicd: " + printable.Text(fmt.Sprintf(format, args...)) + "\n"
}

// why is a connection's error in a line about its end.
func why(err error) string {
	if err == nil {
		return "in order"
	}
	return err.Error()
}

// faults are lines for users who have not asked for any: of connections that a Terminate has ended,
// which is the program's mistake or its peer's.
type faults struct {
	to io.Writer // nil: nowhere
	mu sync.Mutex
	n  int
}

// faultsMax is how many lines a program gets that has not asked for them.
const faultsMax = 16

// tellEnd writes a line about a connection that has ended.
func (e *Engine) tellEnd(err error, format string, args ...any) {
	if e.log != nil {
		e.tellLog(format, args...)
		return
	}
	var end *rnic.TerminateError
	f := &e.faults
	if f.to == nil || !errors.As(err, &end) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n++; f.n <= faultsMax {
		fmt.Fprint(f.to, line(format, args...))
	}
	if f.n == faultsMax {
		fmt.Fprint(f.to, line("more connections that end so are told of with --verbose only"))
	}
}

// endings are the connections of whose end has to be told.
type endings struct {
	mu  sync.Mutex
	all map[*rnic.QueuePair]chan struct{} // closed when it was
}

// await is for the caller that tells of the end of r: it calls told then.
func (n *endings) await(r *rnic.QueuePair) (told func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[*rnic.QueuePair]chan struct{}{}
	}
	done := make(chan struct{})
	n.all[r] = done
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.all, r)
		close(done)
	}
}

// settle returns when it was told of all connections that had left service when it was called: of
// each the program may know already.
func (n *endings) settle() {
	n.mu.Lock()
	all := maps.Clone(n.all)
	n.mu.Unlock()
	for _, r := range slices.Collect(maps.Keys(all)) {
		switch r.State() {
		case rnic.Terminating, rnic.Error, rnic.Closed:
			<-all[r]
		}
	}
}
