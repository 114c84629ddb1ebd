package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
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

// untold are connections of which the program has yet to be told something: of those that it has
// accepted, whether they were established (a listener's accepting); of all, that they have ended
// (endings).
type untold struct {
	mu  sync.Mutex
	all map[*rnic.QueuePair]chan struct{} // closed when it was
}

// await is for the caller that tells of r: it calls told then.
func (u *untold) await(r *rnic.QueuePair) (told func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all == nil {
		u.all = map[*rnic.QueuePair]chan struct{}{}
	}
	done := make(chan struct{})
	u.all[r] = done
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.all, r)
		close(done)
	}
}

// settle returns when the program was told of all connections for which it is time, or ctx ends.
func (u *untold) settle(ctx context.Context, isTime func(*rnic.QueuePair) bool) {
	u.mu.Lock()
	all := maps.Clone(u.all)
	u.mu.Unlock()
	for r, told := range all {
		if !isTime(r) {
			continue
		}
		select {
		case <-told:
		case <-ctx.Done():
			return
		}
	}
}

// hasLeft says that r has left service: the program may know already.
func hasLeft(r *rnic.QueuePair) bool {
	switch r.State() {
	case rnic.Terminating, rnic.Error, rnic.Closed:
		return true
	}
	return false
}

// isThere says that r, which was accepted, is in service, and that its client may know. It waits
// for no client: one that owes its first message delays nobody else's request.
func isThere(r *rnic.QueuePair) bool {
	return r.StartupOver(past) == nil || r.State() == rnic.RTS && !owesWord(r)
}

// past has ended.
var past = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
