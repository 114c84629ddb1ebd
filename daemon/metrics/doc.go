// Package metrics gives Prometheus what the daemon has counted: Collector makes metrics of one
// status.Daemon per scrape, so that all of one answer are of one moment. Labels are port, queue,
// reason, service and the like, never a connection: peers must not be able to make series.
//
//	metrics.go     the tables: each metric with its name, help and value
//	collector.go   status.Daemon to metrics
//	reference.go   docs/reference/metrics.md
package metrics
