package metrics

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rnicd/rnicd/internal/status"
)

// scrapesMax is how many scrapes are answered at a time; others get status 503.
const scrapesMax = 4

// Collector is a prometheus.Collector of what Status says.
type Collector struct {
	Status func(context.Context) *status.Daemon
}

// Describe implements prometheus.Collector.
func (c Collector) Describe(to chan<- *prometheus.Desc) {
	describe(to, queues, "port", "queue")
	describe(to, pollers, "port", "queue")
	describe(to, ports, "port")
	describe(to, services, "service")
	describe(to, daemons)
}

func (m *metric[T]) desc(labels []string) *prometheus.Desc {
	return prometheus.NewDesc(m.name, m.help, append(labels[:len(labels):len(labels)], m.labels...),
		nil)
}

func (m *metric[T]) kind() prometheus.ValueType {
	if strings.HasSuffix(m.name, "_total") {
		return prometheus.CounterValue
	}
	return prometheus.GaugeValue
}

func describe[T any](to chan<- *prometheus.Desc, table []metric[T], labels ...string) {
	for i := range table {
		to <- table[i].desc(labels)
	}
}

// Collect implements prometheus.Collector.
func (c Collector) Collect(to chan<- prometheus.Metric) {
	s := c.Status(context.Background())
	collect(to, daemons, s, nil)
	for i := range s.Services {
		collect(to, services, &s.Services[i], []string{"service"}, s.Services[i].Name)
	}
	for i := range s.Ports {
		p := &s.Ports[i]
		collect(to, ports, p, []string{"port"}, p.Name)
		for j := range p.Queues {
			q := &p.Queues[j]
			values := []string{p.Name, strconv.Itoa(q.Queue)}
			collect(to, pollers, q, []string{"port", "queue"}, values...)
			if q.Error == "" {
				collect(to, queues, q, []string{"port", "queue"}, values...)
			}
		}
	}
}

func collect[T any](to chan<- prometheus.Metric, table []metric[T], from *T, labels []string,
	values ...string) {
	for i := range table {
		m := &table[i]
		d, k := m.desc(labels), m.kind()
		m.of(from, func(v float64, more ...string) {
			to <- prometheus.MustNewConstMetric(d, k, v,
				append(values[:len(values):len(values)], more...)...)
		})
	}
}

// Handler answers GET /metrics: what a Collector or a SwitchCollector says, and the Go runtime
// and the process.
func Handler(of prometheus.Collector) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(of, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics",
		promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: scrapesMax}))
	return mux
}
