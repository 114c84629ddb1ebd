// Package metrics exports the daemon's counters to Prometheus. For each scrape Collector makes all
// metrics of one status.Daemon, so that they are of one moment. Labels are port, queue, reason, service
// and the like, never a connection: peers must not be able to create series.
//
//	metrics.go     the tables: each metric with its name, help and value
//	collector.go   status.Daemon to metrics
//	reference.go   docs/reference/metrics.md
package metrics
