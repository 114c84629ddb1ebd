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

	"github.com/rnicd/rnicd/daemon/status"
)

var update = flag.Bool("update", false, "write docs/reference/metrics.md again")

// sample is a daemon with two queues, of which one does not answer.
func sample(context.Context) *status.Daemon {
	q := status.Queue{Queue: 0}
	q.Counters.RxFrames, q.Counters.RxOctets, q.Counters.Conns = 7, 700, 2
	q.RDMA.Placed.Direct, q.RDMA.CRCErrors = 4096, 1
	return &status.Daemon{
		Version: "v1", Healthy: true,
		Ports:    []status.Port{{Name: "rnic0", Regions: 3, Queues: []status.Queue{q, {Queue: 1, Error: "the Poller does not answer", Stalls: 2, Still: 0.5}}}},
		Services: []status.Service{{Name: "scratch", Accepted: 5, Connections: 1}},
	}
}

// Names, types and help texts follow Prometheus' conventions, and every metric is there once.
func TestLint(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(Collector{sample}))
	problems, err := testutil.GatherAndLint(r)
	require.NoError(t, err)
	require.Empty(t, problems)
	families, err := r.Gather()
	require.NoError(t, err)
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	require.ElementsMatch(t, Names(), names)
}

// What the daemon counted is what is answered, by port and queue; of a Poller that does not answer
// only that.
func TestHandler(t *testing.T) {
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		Handler(sample).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	code, text := get("/metrics")
	require.Equal(t, 200, code)
	for _, line := range []string{
		`rnicd_receive_bytes_total{port="rnic0",queue="0"} 700`, `rnicd_placed_bytes_total{port="rnic0",queue="0",way="direct"} 4096`,
		`rnicd_crc_errors_total{outcome="ended",port="rnic0",queue="0"} 1`, `rnicd_drops_total{port="rnic0",queue="0",reason="tcp/no_conn"} 0`,
		`rnicd_poller_up{port="rnic0",queue="1"} 0`, `rnicd_poller_still_seconds{port="rnic0",queue="1"} 0.5`,
		`rnicd_service_accepted_total{service="scratch"} 5`, `rnicd_build_info{version="v1"} 1`, "# TYPE go_goroutines gauge", "# TYPE process_cpu_seconds_total counter",
	} {
		require.Contains(t, text, line+"\n")
	}
	require.NotContains(t, text, `rnicd_receive_bytes_total{port="rnic0",queue="1"}`)
	code, _ = get("/")
	require.Equal(t, 404, code)
}

// The reference is made of the tables.
func TestReference(t *testing.T) {
	const path = "../../docs/reference/metrics.md"
	var want bytes.Buffer
	WriteReference(&want)
	if *update {
		require.NoError(t, os.WriteFile(path, want.Bytes(), 0o644))
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want.String(), string(have), "go test ./daemon/metrics -update writes it again")
}
