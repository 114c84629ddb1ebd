package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/rnicd/rnicd/stack"
)

// fullness tells of connections that our stack did not answer, for --peer-max: a client that dials
// hears nothing at all.
type fullness struct {
	count uint64 // that was told of
	at    time.Time
}

// fullPeriod is from one line to the next.
const fullPeriod = 10 * time.Second

// look asks the Pollers, and tells of what is new.
func (f *fullness) look(ctx context.Context, pollers []*stack.Poller, out *output) {
	ctx, cancel := context.WithTimeout(ctx, countersTimeout)
	defer cancel()
	var n uint64
	for _, p := range pollers {
		k, err := p.Counters(ctx)
		if err != nil {
			return // it ends, or is asked again
		}
		n += k.Own[stack.DropPeerMax]
	}
	f.tell(n, time.Now(), out)
}

func (f *fullness) tell(n uint64, now time.Time, out *output) {
	if n == f.count || !f.at.IsZero() && now.Sub(f.at) < fullPeriod {
		return
	}
	out.do(func(w io.Writer) {
		fmt.Fprintf(w, "full        %d segments that open a connection were not answered: their address has as many as --peer-max allows\n", n-f.count)
	})
	f.count, f.at = n, now
}
