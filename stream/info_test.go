package stream

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInfo(t *testing.T) {
	l := newLab(t, labConfig{})
	a, b := l.pair(Options{}, Options{})
	_, err := a.Write(make([]byte, 5000))
	require.NoError(t, err)
	_, err = io.ReadFull(b, make([]byte, 5000))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	info := func() Info {
		i, err := a.Info(ctx)
		require.NoError(t, err)
		return i
	}
	l.until("all is acknowledged", func() bool { return info().Acked == 5000 })
	canceled, stop := context.WithCancel(ctx)
	stop()
	_, err = a.Info(canceled)
	require.Error(t, err)
	alive := info()
	require.Zero(t, alive.Unacked)
	require.Greater(t, alive.EMSS, 1000)
	require.GreaterOrEqual(t, alive.TCP.BytesOut, uint64(5000))
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	l.until("over", func() bool { return a.u.state.Load()&stateDead != 0 })
	require.Equal(t, uint64(5000), info().Acked, "after the end")
}
