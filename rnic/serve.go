package rnic

import (
	"context"
	"sync"
)

// Serve accepts until ctx ends and calls handle for each request, on a goroutine of its own, with
// ctx. It returns when all of them have: with nil when ctx has ended, otherwise with Accept's
// error. It bounds nothing: that is for handle to do, which may Reject. Any application goroutine.
func (l *Listener) Serve(ctx context.Context, handle func(context.Context, *ConnRequest)) error {
	var handling sync.WaitGroup
	defer handling.Wait()
	for {
		req, err := l.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		handling.Go(func() { handle(ctx, req) })
	}
}
