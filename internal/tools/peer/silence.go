package peer

import (
	"context"
	"sync"
	"time"
)

// looks is how many times in a row a peer is looked at, and has not moved, until it is silent.
// Its last movement is found one of them late, and the end may be another one late. Looks are
// counted, and not the time between them: a process that was stopped for longer than the limit
// looks once more, after its Poller has taken the frames that wait, before it believes that the
// peer is silent.
const looks = 16

// Watch returns a context that ends when a peer has been silent for the time limit, with the
// cause silent: when moved, which counts what the peer does, has told the same for so long, and
// an eighth of it longer at the most. Time in which this process does not run does not count. An
// error of moved ends the watch and not the context. stop waits until nothing is looked at any
// more.
func Watch[M comparable](ctx context.Context, limit time.Duration, silent error,
	moved func(context.Context) (M, error)) (watched context.Context, stop func()) {
	watched, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(max(limit/looks, 1))
		defer tick.Stop()
		var seen M
		for still := 0; ; {
			now, err := moved(watched)
			switch {
			case err != nil:
				return
			case still == 0 || now != seen:
				seen, still = now, 1
			case still > looks:
				end(silent)
				return
			default:
				still++
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
