package daemon

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/report"
	"github.com/rnicd/rnicd/internal/status"
)

// A Poller that stands still has no counters to show, and takes no time from the others: what is
// asked of one later in the order is answered.
func TestOneThatHangsHidesNoOther(t *testing.T) {
	r := start(t, "")
	still, other := r.client.Pollers()[0], r.d.Ports()[0]
	held, goOn := make(chan struct{}), make(chan struct{})
	require.NoError(t, still.Submit(func() { close(held); <-goOn }))
	defer close(goOn)
	<-held
	first, second := report.AskQueue(r.dev, still), report.AskQueue(other.Adapter, other.Pollers()[0])
	seen := make(chan struct{})
	// the answer before it is there
	require.NoError(t, other.Pollers()[0].Submit(func() { close(seen) }))
	<-seen
	ctx, cancel := context.WithTimeout(r.ctx, time.Millisecond)
	defer cancel()
	var a, b status.Queue
	first(ctx, &a)
	second(ctx, &b)
	require.Equal(t, report.ErrNoAnswer.Error(), a.Error)
	require.Empty(t, b.Error)
	require.NotZero(t, b.Counters)
}
