package metrics

import (
	"bytes"
	"context"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/status"
)

var update = flag.Bool("update", false, "write docs/reference/metrics.md again")

// sample is a daemon with two queues; one does not answer.
func sample(context.Context) *status.Daemon {
	q := status.Queue{Queue: 0}
	q.Counters.RxFrames, q.Counters.RxOctets, q.Counters.Conns = 7, 700, 2
	q.Counters.Listener.Reports, q.Counters.Listener.Queries, q.Counters.Listener.Overflows,
		q.Counters.Listener.Older = 4, 3, 2, true
	q.RDMA.Placed.Direct, q.RDMA.CRCErrors = 4096, 1
	return &status.Daemon{
		Version: "v1", Healthy: true, CPU: status.CPU{Throttled: 8},
		Ports: []status.Port{{Name: "rnic0", Regions: 3, XStats: map[string]uint64{"peer_offences": 6},
			Trouble: &status.Trouble{Kind: "moved"}, Capture: &status.Capture{Missing: 9, Error: "full"},
			Queues: []status.Queue{q, {Queue: 1, Error: "the Poller does not answer", Stalls: 2,
				Still: 0.5}}}},
		Services: []status.Service{{Name: "scratch", Accepted: 5, Connections: 1, Refused: 2,
			RefusedBy: map[string]uint64{"allow": 2}}},
	}
}

// linted are the names of a collector's metrics, which promlint finds nothing wrong with.
func linted(t *testing.T, c prometheus.Collector) (names []string) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(c))
	problems, err := testutil.GatherAndLint(r)
	require.NoError(t, err)
	require.Empty(t, problems)
	families, err := r.Gather()
	require.NoError(t, err)
	for _, f := range families {
		names = append(names, f.GetName())
	}
	return names
}

// Names, types and help texts follow Prometheus' conventions, and every metric is there once.
func TestLint(t *testing.T) {
	require.ElementsMatch(t, Names(), linted(t, Collector{sample}))
}

// sampleSwitch is a switch with an uplink and two programs; one is not attached.
func sampleSwitch(context.Context) *status.Switch {
	return &status.Switch{
		Version: "v1", Healthy: true, Refused: 3,
		Threads: []status.SwitchThread{{Turns: 9, Drops: map[string]uint64{"wire-full": 2}}},
		Uplinks: []status.SwitchPort{{Name: "rnic0", Attached: true,
			Trouble: &status.Trouble{Kind: "down"}, Offences: 5, Device: map[string]uint64{"rx errors": 4}}},
		Programs: []status.SwitchPort{
			{Name: "one", Attached: true, Attaches: 2, Sent: 5, Drops: map[string]uint64{"full": 7},
				Rings:   map[string]uint64{"index": 1},
				Program: &status.SwitchProgram{SendRate: 1000, ReceiveFrames: 5}},
			{Name: "two", Program: &status.SwitchProgram{}},
		},
	}
}

// The same of a switch; a thread that does not turn is told of.
func TestSwitch(t *testing.T) {
	require.ElementsMatch(t, SwitchNames(), linted(t, SwitchCollector{sampleSwitch}))

	get := func(of func(context.Context) *status.Switch) string {
		w := httptest.NewRecorder()
		Handler(SwitchCollector{of}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Body.String()
	}
	text := get(sampleSwitch)
	for _, line := range []string{
		`rnicd_switch_attached{kind="uplink",port="rnic0",queue="0"} 1`,
		`rnicd_switch_attached{kind="program",port="two",queue="0"} 0`,
		`rnicd_switch_drops_total{kind="program",port="one",queue="0",reason="full"} 7`,
		`rnicd_switch_drops_total{kind="program",port="two",queue="0",reason="full"} 0`,
		`rnicd_switch_ring_errors_total{error="index",kind="program",port="one",queue="0"} 1`,
		`rnicd_switch_device_drops_total{kind="uplink",port="rnic0",queue="0",reason="rx errors"} 4`,
		`rnicd_switch_rate_limit_bytes{direction="send",kind="program",port="one",queue="0"} 1000`,
		`rnicd_switch_thread_drops_total{reason="wire-full",thread="0"} 2`,
		`rnicd_switch_device_trouble{kind="uplink",port="rnic0",queue="0",trouble="down"} 1`,
		`rnicd_switch_peer_offences_total{kind="uplink",port="rnic0",queue="0"} 5`,
		`rnicd_cpu_throttled_periods_total 0`, `rnicd_switch_refused_total 3`, `rnicd_switch_healthy 1`,
		`rnicd_build_info{version="v1"} 1`, "# TYPE process_cpu_seconds_total counter",
	} {
		require.Contains(t, text, line+"\n")
	}
	require.NotContains(t, text, `rnicd_switch_rate_limit_bytes{direction="receive"`)
	require.NotContains(t, text, `rnicd_switch_attachments_total{kind="uplink"`)
	require.Contains(t, get(func(context.Context) *status.Switch {
		return &status.Switch{Error: "core 0 does not turn"}
	}), "rnicd_switch_healthy 0\n")
}

// What the daemon counted is what is answered, by port and queue; of a Poller that does not answer
// only that.
func TestHandler(t *testing.T) {
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		Handler(Collector{sample}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	code, text := get("/metrics")
	require.Equal(t, 200, code)
	for _, line := range []string{
		`rnicd_receive_bytes_total{port="rnic0",queue="0"} 700`,
		`rnicd_placed_bytes_total{port="rnic0",queue="0",way="direct"} 4096`,
		`rnicd_crc_errors_total{outcome="ended",port="rnic0",queue="0"} 1`,
		`rnicd_drops_total{port="rnic0",queue="0",reason="tcp/no_conn"} 0`,
		`rnicd_poller_up{port="rnic0",queue="1"} 0`,
		`rnicd_poller_still_seconds{port="rnic0",queue="1"} 0.5`,
		`rnicd_service_accepted_total{service="scratch"} 5`,
		`rnicd_service_refused_total{cause="allow",service="scratch"} 2`,
		`rnicd_peer_offences_total{port="rnic0"} 6`,
		`rnicd_device_trouble{port="rnic0",trouble="moved"} 1`,
		`rnicd_device_trouble{port="rnic0",trouble="down"} 0`,
		`rnicd_mld_reports_sent_total{port="rnic0",queue="0"} 4`,
		`rnicd_mld_queries_received_total{port="rnic0",queue="0"} 3`,
		`rnicd_mld_overflows_total{port="rnic0",queue="0"} 2`,
		`rnicd_mld_older{port="rnic0",queue="0"} 1`, `rnicd_cpu_throttled_periods_total 8`,
		`rnicd_capture_ended{port="rnic0"} 1`, `rnicd_capture_frames_missing_total{port="rnic0"} 9`,
		`rnicd_startups_refused_total{cause="backlog",port="rnic0"} 0`,
		`rnicd_build_info{version="v1"} 1`, "# TYPE go_goroutines gauge",
		"# TYPE process_cpu_seconds_total counter",
	} {
		require.Contains(t, text, line+"\n")
	}
	require.NotContains(t, text, `rnicd_receive_bytes_total{port="rnic0",queue="1"}`)
	code, _ = get("/")
	require.Equal(t, 404, code)
}

// The reference is made of the tables.
func TestReference(t *testing.T) {
	const path = "../../../docs/reference/metrics.md"
	var want bytes.Buffer
	WriteReference(&want)
	if *update {
		require.NoError(t, os.WriteFile(path, want.Bytes(), 0o644))
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want.String(), string(have),
		"go test ./internal/daemon/metrics -update writes it again")
}
