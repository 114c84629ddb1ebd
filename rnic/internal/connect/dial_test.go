package connect

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Names are looked up, also over a Poller.
func TestResolve(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ap, err := resolve(ctx, "10.9.0.1:80")
	require.NoError(t, err)
	require.Equal(t, "10.9.0.1:80", ap.String())
	ap, err = resolve(ctx, "localhost:http")
	require.NoError(t, err)
	require.True(t, ap.Addr().IsLoopback())
	require.Equal(t, uint16(80), ap.Port())
	for _, bad := range []string{"", "host", "10.9.0.1:no-such-service"} {
		_, err := resolve(ctx, bad)
		require.Error(t, err)
	}
}
