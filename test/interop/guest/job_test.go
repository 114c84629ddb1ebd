package guest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newTestGuest() *Guest {
	return &Guest{jobs: map[string]*Job{}, exited: make(chan struct{}), ready: make(chan struct{}),
		in: &strings.Builder{}}
}

// Jobs get the lines that are theirs, and their status.
func TestJobs(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	g := newTestGuest()
	a, err := g.Start("echo a")
	require.NoError(t, err)
	b, err := g.Start("echo b")
	require.NoError(t, err)
	require.Equal(t, "job1 ZWNobyBh\njob2 ZWNobyBi\n", g.in.(*strings.Builder).String())
	g.read(strings.NewReader("agent ready\r\njob2 | b 1\njob1 | a\njob2 = 3\nnoise\n"))
	<-g.ready
	m, err := b.Expect(ctx, "^b ([0-9])$")
	require.NoError(t, err)
	require.Equal(t, []string{"b 1", "1"}, m)
	status, err := b.Wait(ctx)
	require.NoError(t, err)
	require.Equal(t, 3, status)
	_, err = b.Expect(ctx, "c")
	require.ErrorContains(t, err, `"echo b" ended without a line "c"`)
	short, stop := context.WithTimeout(ctx, time.Millisecond)
	defer stop()
	_, err = a.Wait(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = a.Expect(short, "c")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	g.over()
	_, err = a.Wait(ctx)
	require.ErrorIs(t, err, ErrGone)
	require.Equal(t, "a", a.String())
	_, err = g.Start(strings.Repeat("x", scriptMax+1))
	require.Error(t, err)
}
