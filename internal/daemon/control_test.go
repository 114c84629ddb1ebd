package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/status"
	"github.com/rnicd/rnicd/stream"
)

const measure = `
[[service]]
name = "measure"
type = "perf"
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
	r := start(t, text+measure)
	require.NoError(t, r.measure(at(7175), 3))
	var s status.Daemon
	require.NoError(t, c.Get(r.ctx, "/v1/status", nil, &s))
	require.Equal(t, status.Serving, s.State)
	require.True(t, s.Healthy)
	require.Len(t, s.Ports, 1)
	p := s.Ports[0]
	require.Equal(t, "cable", p.Name)
	require.EqualValues(t, []string{"10.9.0.1/24"}, p.Addresses)
	require.Len(t, p.Queues, 1)
	require.Equal(t, -1, p.Queues[0].Core)
	require.NotZero(t, p.Queues[0].Counters.RxFrames)
	require.EqualValues(t, 1, p.Queues[0].Counters.Accepted)
	require.EqualValues(t, []status.Service{{
		Name: "measure", Type: "perf", Listen: 7175, Ports: []string{"cable"}, ConnectionsMax: 64,
		Accepted: 1, Connections: s.Services[0].Connections,
	}}, s.Services)
	require.EqualValues(t, 4, p.Queues[0].RDMA.FPDUsIn, "three Read Requests and a Send at the end")
	changes := r.reload(cable + measure)
	require.Equal(t, []string{"control.socket"}, changes.Restart)
}

// A second daemon with the control socket of one that lives says so, and leaves that one alone.
func TestControlSocketInUse(t *testing.T) {
	text, c := controlled(t)
	r := start(t, text+measure)
	_, err := Start(r.ctx, r.parse(cable+text), Options{Log: r.log})
	var used *control.InUseError
	require.ErrorAs(t, err, &used)
	var s status.Daemon
	require.NoError(t, c.Get(r.ctx, "/v1/status", nil, &s))
	require.NoError(t, r.d.Close())
	r.ended = true
	require.ErrorContains(t, c.Get(r.ctx, "/v1/status", nil, &s), "no daemon answers")
}

// Every connection is told of, with what its transport and what is above it know; a filter chooses,
// and a filter that cannot be is an error.
func TestConnections(t *testing.T) {
	text, c := controlled(t)
	r := start(t, text+measure+"[[service]]\nname = \"echo\"\ntype = \"stream\"\nmode = \"echo\"\n")
	ask := func(words ...string) (all []status.Connection) {
		body := must(c.Stream(r.ctx, "/v1/connections", url.Values{"filter": words}))(t)
		defer body.Close()
		for in := json.NewDecoder(body); ; {
			var one status.Connection
			err := in.Decode(&one)
			if err == io.EOF {
				return all
			}
			require.NoError(t, err)
			all = append(all, one)
		}
	}
	conn, err := stream.Dial(r.ctx, r.client.Pollers(), netip.MustParseAddrPort(at(5201)),
		stream.Options{})
	require.NoError(t, err)
	defer conn.Close()
	must(conn.Write([]byte("hello")))(t)
	must(io.ReadFull(conn, make([]byte, 5)))(t)
	_, end := r.measuring(at(7175))
	var one status.Connection
	require.Eventually(t, func() bool {
		all := ask("service=measure", "10.9.0.0/24", "port=cable", "state=established")
		if len(all) == 1 {
			one = all[0]
		}
		return len(all) == 1 && one.RDMA.Stats.Receive.FPDUs > 0
	}, patience, time.Millisecond)
	require.Equal(t, status.RDMA, one.Kind)
	require.Equal(t, "rts", one.RDMA.State)
	require.True(t, one.RDMA.CRC)
	require.Equal(t, "10.9.0.1:7175", one.Conn.Local.String())
	require.NotZero(t, one.Conn.TCP.Cwnd)
	require.NotNil(t, one.Since)
	require.Len(t, ask(), 2)
	end()
	all := ask("kind=stream", "local=10.9.0.1:5201", "remote=10.9.0.2")
	require.Len(t, all, 1)
	require.Equal(t, "echo", all[0].Service)
	require.EqualValues(t, 5, all[0].Conn.TCP.BytesIn)
	require.EqualValues(t, 5, all[0].Stream.Acked+all[0].Stream.Unacked)
	require.Empty(t, ask("10.8.0.0/16"))
	_, err = c.Stream(r.ctx, "/v1/connections", url.Values{"filter": {"stat=x"}})
	require.EqualError(t, err,
		`"stat=x": want port, queue, kind, service, state, pid, qp, local or remote before the =`)
	for _, word := range []string{"pid=1", "qp=1"} { // a daemon's have neither
		require.Empty(t, ask(word))
	}
	_, err = c.Stream(r.ctx, "/v1/connections", url.Values{"filter": {"qp=x"}})
	require.EqualError(t, err, `"qp=x": want the number of a queue pair, as 0x1234`)
	_, err = c.Stream(r.ctx, "/v1/connections", url.Values{"filter": {"remote=here"}})
	require.EqualError(t, err, `"remote=here": want an address, an address and port, or a network`)
}

// Prometheus finds what the daemon has counted where [metrics] says, until the daemon ends.
func TestMetrics(t *testing.T) {
	r := start(t, "[metrics]\nlisten = \"127.0.0.1:0\"\n"+measure)
	require.NoError(t, r.measure(at(7175), 1))
	url := "http://" + r.d.metrics.Addr() + "/metrics"
	resp := must(http.Get(url))(t)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Contains(t, string(text), "rnicd_service_accepted_total{service=\"measure\"} 1\n")
	require.Contains(t, string(text), "rnicd_fpdus_received_total{port=\"cable\",queue=\"0\"} 2\n")
	require.NoError(t, r.d.Close())
	r.ended = true
	_, err = http.Get(url)
	require.Error(t, err)
}
