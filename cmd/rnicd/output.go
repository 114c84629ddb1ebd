package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"

	"github.com/rnicd/rnicd/tools/xfer"
)

// output serialises the daemon's lines, which come from several goroutines.
type output struct {
	mu sync.Mutex
	w  io.Writer
}

func newOutput(w io.Writer) *output { return &output{w: w} }

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
	r.Err = cutShort(r.Err)
	o.do(func(w io.Writer) { printServed(w, r) })
}

func (o *output) refused(remote netip.AddrPort, why string) {
	o.do(func(w io.Writer) { fmt.Fprintf(w, "refused     %v: %s\n", remote, why) })
}

func (o *output) failed(remote netip.AddrPort, err error) {
	o.do(func(w io.Writer) { fmt.Fprintf(w, "failed      %v: %v\n", remote, oneLine(err)) })
}
