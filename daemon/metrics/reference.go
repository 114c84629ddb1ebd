package metrics

import (
	"fmt"
	"io"
	"strings"
)

// WriteReference writes docs/reference/metrics.md.
func WriteReference(w io.Writer) {
	fmt.Fprint(w, `# Metrics

`+"`GET /metrics`"+` where `+"`[metrics] listen`"+` says, in Prometheus' format; made of the tables in `+"`daemon/metrics`"+` by `+"`go test ./daemon/metrics -update`"+`.
[The guide](../guides/monitoring.md) says what to watch. A name that ends in _total only grows while the daemon runs; others are
gauges. No label names a connection: `+"`rnicd ss`"+` does. client_golang adds its go_ and process_ metrics.

| metric | labels | |
|---|---|---|
`)
	rows(w, daemons)
	rows(w, ports, "port")
	rows(w, pollers, "port", "queue")
	rows(w, queues, "port", "queue")
	rows(w, services, "service")
}

func rows[T any](w io.Writer, table []metric[T], labels ...string) {
	for _, m := range table {
		fmt.Fprintf(w, "| `%s` | %s | %s |\n", m.name, strings.Join(append(labels[:len(labels):len(labels)], m.labels...), ", "), m.help)
	}
}

// Names are those of all metrics.
func Names() (names []string) {
	for _, m := range daemons {
		names = append(names, m.name)
	}
	for _, m := range ports {
		names = append(names, m.name)
	}
	for _, m := range pollers {
		names = append(names, m.name)
	}
	for _, m := range queues {
		names = append(names, m.name)
	}
	for _, m := range services {
		names = append(names, m.name)
	}
	return names
}
