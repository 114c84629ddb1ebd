package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/rnicd/rnicd/internal/daemon/command"
	"github.com/rnicd/rnicd/internal/lossy"
	"github.com/rnicd/rnicd/internal/printable"
	"github.com/rnicd/rnicd/internal/tools/xfer"
)

// output serialises the daemon's lines, which come from several goroutines, and shows peers' text
// as printable does.
type output struct {
	mu sync.Mutex
	w  io.Writer

	to                 io.Writer     // without printable
	serving            *lossy.Writer // of a server
	failures, refusals lines
}

func newOutput(w io.Writer) *output { return &output{w: printable.New(w), to: w} }

// servingOutput is the output of a server, which goes on whether its lines are read or not; for
// close.
func servingOutput(w io.Writer) *output {
	o := &output{to: w}
	o.serving = lossy.New(w, func(lines uint64) {
		o.do(func(w io.Writer) {
			fmt.Fprintf(w, "lost        %d lines like these: nobody has read them\n", lines)
		})
	})
	o.w = printable.New(o.serving)
	return o
}

// close writes what waits, for a moment.
func (o *output) close() {
	if o.serving != nil {
		o.serving.Close(lossy.CloseWithin)
	}
}

func (o *output) do(fn func(io.Writer)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fn(o.w)
}

// cutShort says what it means for a client when the daemon's own context ends.
func cutShort(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("cut short: the server was told to end")
	}
	return err
}

// served tells of a transfer that was granted and is over.
func (o *output) served(r xfer.Result) {
	if err := cutShort(r.Err); err != nil {
		o.failed(r.Remote, err)
		return
	}
	o.do(func(w io.Writer) { printServed(w, r) })
}

func (o *output) refused(remote netip.AddrPort, why string) {
	o.limited(&o.refusals, fmt.Sprintf("refused     %v: %s", remote, why))
}

// refusedAs is refused for a server whose client has its result with that.
func (o *output) refusedAs(done func(error)) func(netip.AddrPort, string) {
	return func(remote netip.AddrPort, why string) {
		o.refused(remote, why)
		done(fmt.Errorf("%v was refused: %s", remote, why))
	}
}

func (o *output) failed(remote netip.AddrPort, err error) {
	o.failure(remote.String(), command.OneLine(err))
}

func (o *output) failure(remote, why string) {
	o.limited(&o.failures, fmt.Sprintf("failed      %s: %s", remote, why))
}

// lines of one kind, which any peer can bring about: linesMax are printed at once, and one more
// each linesEvery. Others are counted, and told of together, morePeriod after the first of them.
type lines struct {
	spare int       // that may be printed, as of since
	since time.Time // zero: none was printed yet
	more  int       // that were not printed
	last  string    // of those
	tell  *time.Timer
}

const (
	linesMax   = 64
	linesEvery = time.Second
	morePeriod = 10 * time.Second
)

// spend takes one of the lines that may be printed.
func (l *lines) spend(now time.Time) bool {
	if l.since.IsZero() {
		l.spare, l.since = linesMax, now
	}
	earned := now.Sub(l.since) / linesEvery
	l.since = l.since.Add(earned * linesEvery)
	l.spare = int(min(time.Duration(l.spare)+earned, linesMax))
	if l.spare == 0 {
		return false
	}
	l.spare--
	return true
}

// limited prints a line, or counts it.
func (o *output) limited(l *lines, line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l.more == 0 && l.spend(time.Now()) {
		fmt.Fprintln(o.w, line)
		return
	}
	l.more++
	l.last = line
	if l.more == 1 {
		l.tell = time.AfterFunc(morePeriod, func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			l.summary(o.w)
		})
	}
}

// summary tells of what was only counted. It begins as no line of one connection does.
func (l *lines) summary(w io.Writer) {
	if l.more > 0 {
		fmt.Fprintf(w, "            and %d more like it, of which the last: %s\n", l.more, l.last)
		l.more, l.last = 0, ""
		l.tell.Stop()
	}
}

// settle prints what was only counted; for the end of a server.
func (o *output) settle() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failures.summary(o.w)
	o.refusals.summary(o.w)
}
