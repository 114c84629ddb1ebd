package metrics

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteReference writes docs/reference/metrics.md.
func WriteReference(w io.Writer) {
	fmt.Fprint(w, "# Metrics\n\n`GET /metrics` where `[metrics] listen` says, in Prometheus' format; "+
		`made of the tables in
`+"`internal/daemon/metrics`"+` by `+"`go test ./internal/daemon/metrics -update`"+`. [The
guide](../guides/monitoring.md) says what to watch. A name that ends in _total only grows while the
daemon runs; others are gauges. The head of a table has the labels, braces further ones. No label
names a connection: `+"`rnicd ss`"+` does. client_golang adds its go_ and process_ metrics.

## Of a daemon
`)
	section(w, daemons)
	section(w, ports, "port")
	section(w, slices.Concat(pollers, queues), "port", "queue")
	section(w, services, "service")
	fmt.Fprint(w, `
## Of a switch

The kind of a port is uplink or program, the queue that of an uplink.
`)
	section(w, switches)
	section(w, switchPorts, switchPortLabels...)
	section(w, switchThreads, "thread")
}

// section writes the metrics with these labels.
func section[T any](w io.Writer, table []metric[T], labels ...string) {
	if len(labels) == 0 {
		fmt.Fprint(w, "\n| without labels | |\n|---|---|\n")
	} else {
		fmt.Fprintf(w, "\n| by %s | |\n|---|---|\n", strings.Join(labels, ", "))
	}
	for _, m := range table {
		name := m.name
		if len(m.labels) > 0 {
			name += "{" + strings.Join(m.labels, ", ") + "}"
		}
		fmt.Fprintf(w, "| `%s` | %s |\n", name, m.help)
	}
}

// Names are those of all metrics of a daemon.
func Names() []string {
	return slices.Concat(namesOf(daemons), namesOf(ports), namesOf(pollers), namesOf(queues),
		namesOf(services))
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
