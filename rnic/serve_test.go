package rnic

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Requests are handled side by side; the end of the context is the end of Serve once all handlers
// have returned, and no error.
func TestListenerServe(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		host := map[bool]string{true: "127.0.0.1", false: ""}[r.kind == sockets]
		l, err := r.server.Listen(r.ctx, host+":0", ListenOptions{})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(r.ctx)
		defer stop()
		entered, leave, served := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			served <- l.Serve(ctx, func(got context.Context, req *ConnRequest) {
				entered <- struct{}{}
				<-leave
				if got == ctx {
					_ = req.Reject(r.ctx, []byte("handled"))
				}
			})
		}()
		ends := []*end{r.newEnd(r.client, opts{}), r.newEnd(r.client, opts{})}
		for _, c := range ends {
			require.NoError(t, c.qp.StartConnect(r.ctx, l.Addr().String(), c.conn))
			<-entered // the second one while the first is being handled
		}
		stop()
		select {
		case err := <-served:
			require.FailNow(t, "Serve left its handlers alone", "%v", err)
		default:
		}
		close(leave)
		for _, c := range ends {
			c.awaitClosed()
			var rejected *RejectedError
			require.ErrorAs(t, c.qp.Err(), &rejected)
			require.Equal(t, "handled", string(rejected.PrivateData))
		}
		require.NoError(t, <-served)
	})
}

// A Listener that is closed is an error.
func TestListenerServeClosed(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		host := map[bool]string{true: "127.0.0.1", false: ""}[r.kind == sockets]
		l, err := r.server.Listen(r.ctx, host+":0", ListenOptions{})
		require.NoError(t, err)
		served := make(chan error, 1)
		go func() { served <- l.Serve(r.ctx, func(context.Context, *ConnRequest) {}) }()
		l.Close()
		require.ErrorIs(t, <-served, ErrClosed)
	})
}
