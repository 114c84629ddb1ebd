package metrics

import (
	"fmt"
	"io"
	"slices"
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
	fmt.Fprint(w, `
## Of a switch

The kind of a port is uplink or program, the queue that of an uplink.

| metric | labels | |
|---|---|---|
`)
	rows(w, switches)
	rows(w, switchPorts, switchPortLabels...)
	rows(w, switchThreads, "thread")
}

func rows[T any](w io.Writer, table []metric[T], labels ...string) {
	for _, m := range table {
		fmt.Fprintf(w, "| `%s` | %s | %s |\n", m.name, strings.Join(append(labels[:len(labels):len(labels)], m.labels...), ", "), m.help)
	}
}

// Names are those of all metrics of a daemon.
func Names() []string {
	return slices.Concat(namesOf(daemons), namesOf(ports), namesOf(pollers), namesOf(queues), namesOf(services))
}

// SwitchNames are those of all metrics of a switch.
func SwitchNames() []string {
	return slices.Concat(namesOf(switches), namesOf(switchPorts), namesOf(switchThreads))
}

func namesOf[T any](table []metric[T]) (names []string) {
	for _, m := range table {
		names = append(names, m.name)
	}
	return names
}
