// Package metrics exports the counters of the daemon, or of a switch, to Prometheus. For each
// scrape Collector makes all metrics of one status.Daemon, so that they are of one moment. Labels
// are port, queue, reason, service and the like, never a connection: peers must not be able to
// create series.
//
//	metrics.go     the tables: each metric with its name, help and value
//	collector.go   status.Daemon to metrics
//	switch.go      the same of rnicd switch
//	server.go      the port that Prometheus asks
//	reference.go   docs/reference/metrics.md
package metrics
