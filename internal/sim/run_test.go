package sim

import (
	"testing"
	"time"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/rnic"
	"github.com/stretchr/testify/require"
)

// A stage that is slow goes on as long as something happens within the Limit; one that is stuck
// fails.
func TestLimit(t *testing.T) {
	wl := Workload{
		Config:   Config{Seed: 1, Faults: fault.Faults{Delay: int64(500 * time.Millisecond)}},
		Conns:    []Conn{{Dialect: rnic.RFC5044}},
		Messages: 60, WriteMax: 64 << 10, SendMax: 2048, Limit: 4 * time.Second,
	}
	const timeWait = time.Minute // of another stage
	out, err := wl.Run()
	require.NoError(t, err)
	require.Greater(t, out.Virtual, timeWait+2*wl.Limit, "longer than the Limit in some stage")

	wl.Faults.Drop = 1
	_, err = wl.Run()
	require.ErrorIs(t, err, errLimit)
}
