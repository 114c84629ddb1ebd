package switchd

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/daemon"
	"github.com/rnicd/rnicd/internal/vswitch"
)

const (
	watchEvery = time.Second // the pause between two questions to the threads
	hungAfter  = 2 * askTimeout
)

// watch asks the threads, again and again, whether they turn, until ctx ends. One that has not
// answered for hungAfter is reported, with where it stands, and again when it turns.
func (s *Server) watch(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		begun := time.Now()
		err := s.ask(ctx)
		was := s.hung.Load()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			why := err.Error()
			s.hung.Store(&why)
			if was == nil {
				log.Error("a thread has not turned", "for", time.Since(begun), "error", err)
				if stuck := (*vswitch.StuckError)(nil); errors.As(err, &stuck) {
					log.Error("where the thread stands", "thread", stuck.Core, "stack",
						daemon.StackOf(labelOf(stuck.Core)))
				}
			}
		case was != nil:
			s.hung.Store(nil)
			log.Warn("all threads turn again")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) ask(ctx context.Context) error {
	ctx, cancel := awake.Timeout(ctx, hungAfter, nil)
	defer cancel()
	_, err := s.sw.Stats(ctx)
	return err
}

// Healthy says that all threads turn, as far as the watchdog knows. Any goroutine.
func (s *Server) Healthy() bool { return s.hung.Load() == nil }
