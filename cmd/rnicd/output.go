package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/rnicd/rnicd/cmd/rnicd/xfer"
)

// output serialises the daemon's lines, which come from several goroutines, and tells of a failed connection once: one
// that dies just when its request is being answered is reported by the listener and by the transfer, in any order.
type output struct {
	mu   sync.Mutex
	w    io.Writer
	now  func() time.Time
	told map[netip.AddrPort]time.Time // when a failure of that peer was printed; bounded by toldMax
}

const (
	toldFor = 2 * time.Second
	toldMax = 1024
)

func newOutput(w io.Writer) *output {
	return &output{w: w, now: time.Now, told: map[netip.AddrPort]time.Time{}}
}

func (o *output) do(fn func(io.Writer)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fn(o.w)
}

// served tells of a transfer that was granted and is over.
func (o *output) served(r xfer.Result) {
	if errors.Is(r.Err, context.Canceled) {
		r.Err = errors.New("cut short: the server was told to end")
	}
	if r.Err != nil {
		o.once(r.Remote, func(w io.Writer) { printServed(w, r) })
		return
	}
	o.do(func(w io.Writer) { printServed(w, r) })
}

func (o *output) refused(remote netip.AddrPort, why string) {
	o.once(remote, func(w io.Writer) { fmt.Fprintf(w, "refused     %v: %s\n", remote, why) })
}

func (o *output) failed(remote netip.AddrPort, err error) {
	o.once(remote, func(w io.Writer) { fmt.Fprintf(w, "failed      %v: %v\n", remote, oneLine(err)) })
}

// once prints a failure of remote's connection, unless one was printed just now.
func (o *output) once(remote netip.AddrPort, print func(io.Writer)) {
	o.do(func(w io.Writer) {
		now := o.now()
		if at, ok := o.told[remote]; ok && now.Sub(at) < toldFor {
			return
		}
		if len(o.told) >= toldMax {
			maps.DeleteFunc(o.told, func(_ netip.AddrPort, at time.Time) bool { return now.Sub(at) >= toldFor })
		}
		if len(o.told) < toldMax {
			o.told[remote] = now
		}
		print(w)
	})
}
