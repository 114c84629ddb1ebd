package daemon

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/daemon/control"
	"github.com/rnicd/rnicd/daemon/status"
)

const ping = `
[[service]]
name = "ping"
type = "rping"
`

// controlled is a configuration's control socket, and a client that asks on it.
func controlled(t *testing.T) (text string, c *control.Client) {
	path := filepath.Join(t.TempDir(), "control.sock")
	c = control.NewClient(path)
	t.Cleanup(c.Close)
	return fmt.Sprintf("[control]\nsocket = %q\n", path), c
}

// The control socket says what the daemon is, what it serves, and what its Pollers have counted.
func TestStatus(t *testing.T) {
	text, c := controlled(t)
	r := start(t, text+ping)
	require.NoError(t, r.ping(at(7174), 3, nil))
	var s status.Daemon
	require.NoError(t, c.Get(r.ctx, "/v1/status", nil, &s))
	require.Equal(t, status.Serving, s.State)
	require.True(t, s.Healthy)
	require.Len(t, s.Ports, 1)
	p := s.Ports[0]
	require.Equal(t, "cable", p.Name)
	require.Equal(t, []string{"10.9.0.1/24"}, p.Addresses)
	require.Len(t, p.Queues, 1)
	require.Equal(t, -1, p.Queues[0].Core)
	require.NotZero(t, p.Queues[0].Counters.RxFrames)
	require.EqualValues(t, 1, p.Queues[0].Counters.Accepted)
	require.Equal(t, []status.Service{{
		Name: "ping", Type: "rping", Listen: 7174, Ports: []string{"cable"}, ConnectionsMax: 64, Accepted: 1, Connections: s.Services[0].Connections,
	}}, s.Services)
	changes := r.reload(cable + ping)
	require.Equal(t, []string{"control.socket"}, changes.Restart)
}

// A second daemon with the control socket of one that lives says so, and leaves that one alone.
func TestControlSocketInUse(t *testing.T) {
	text, c := controlled(t)
	r := start(t, text+ping)
	_, err := Start(r.ctx, r.parse(cable+text), Options{Log: r.log})
	var used *control.InUseError
	require.ErrorAs(t, err, &used)
	var s status.Daemon
	require.NoError(t, c.Get(r.ctx, "/v1/status", nil, &s))
	require.NoError(t, r.d.Close())
	r.ended = true
	require.ErrorContains(t, c.Get(r.ctx, "/v1/status", nil, &s), "no daemon answers")
}
