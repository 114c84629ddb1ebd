package peer

import (
	"context"
	"sync"
	"time"
)

// looks is how often a peer is looked at within the time that it may be silent. Its last movement
// is found one of them late, and the end may be another one late.
const looks = 16

// Watch returns a context that ends when a peer has been silent for the time limit, with the cause
// silent: when moved, which counts what the peer does, has told the same for so long, and an eighth
// of it longer at the most. An error of moved ends the watch and not the context. stop waits until
// nothing is looked at any more.
func Watch[M comparable](ctx context.Context, limit time.Duration, silent error, moved func(context.Context) (M, error)) (watched context.Context, stop func()) {
	watched, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(max(limit/looks, 1))
		defer tick.Stop()
		var seen M
		var since time.Time
		for {
			now, err := moved(watched)
			switch {
			case err != nil:
				return
			case since.IsZero() || now != seen:
				seen, since = now, time.Now()
			case time.Since(since) >= limit:
				end(silent)
				return
			}
			select {
			case <-tick.C:
			case <-watched.Done():
				return
			}
		}
	})
	return watched, func() {
		end(nil)
		watching.Wait()
	}
}
