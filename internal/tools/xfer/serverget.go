package xfer

import (
	"context"

	"github.com/rnicd/rnicd/rnic"
)

// readDepth is how many Reads a server serves, and a client has under way, at a time.
const readDepth = rnic.ReadDepthDefault

// depth is the transfer's IRD: a client that is to write may not ask for a Read at all.
func (t *transfer) depth() int {
	if t.want.op == OpGet {
		return readDepth
	}
	return 0
}

// progress is what shows that a client is at work. Not segments: a peer that only keeps TCP alive
// must not keep its part of the memory.
type progress struct {
	placed rnic.Placed
	reads  uint64
	sent   uint64 // octets of answers to Reads
}

func (t *transfer) moved(ctx context.Context) (progress, error) {
	st, err := t.qp.Stats(ctx)
	return progress{st.Placed, st.ReadsServed, st.PayloadSent}, err
}

// sender is what the server counted of a file that was read. A connection that is ending has its
// last figures.
func (t *transfer) sender(ctx context.Context) SenderCounters {
	st, err := t.qp.Stats(ctx)
	if err != nil {
		return SenderCounters{}
	}
	return sentOf(st)
}
