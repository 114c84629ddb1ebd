package connect

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/wq"
)

// late is a transport whose connection ends before it carries out what it was given.
type late struct {
	*abortable
	over func()
}

func (l *late) Submit(fn func()) error {
	l.over()
	fn()
	return nil
}

// What is asked of a connection in service, and comes to it when it is over, is answered by its
// end.
func TestAskedTooLate(t *testing.T) {
	c, tr := inService(t)
	e := c.endpoint
	require.NoError(t, e.join(c))
	e.engine.Move(wq.Connecting, wq.RTS)
	final := Counters{}
	over := func() {
		final.Engine = e.engine.Stats()
		c.over(nil)
	}
	c.Transport = &late{tr, over}
	_, err := e.MULPDU(t.Context())
	require.ErrorIs(t, err, ErrState)
	n, err := e.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, final, n)

	c, tr = inService(t)
	require.NoError(t, c.endpoint.join(c))
	c.Transport = &late{tr, func() { c.over(nil) }}
	_, err = c.endpoint.Stats(t.Context())
	require.NoError(t, err)
}

// deaf is a transport that takes what it is to run, and never does.
type deaf struct{ *abortable }

func (deaf) Submit(func()) error { return nil }

// Who asks a connection whose goroutine does not answer waits as long as the context lasts.
func TestAskedInVain(t *testing.T) {
	c, tr := inService(t)
	e := c.endpoint
	require.NoError(t, e.join(c))
	e.engine.Move(wq.Connecting, wq.RTS)
	c.Transport = deaf{tr}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := e.MULPDU(ctx)
	require.ErrorIs(t, err, context.Canceled)
	_, err = e.Stats(ctx)
	require.ErrorIs(t, err, context.Canceled)
}
