// Package metrics gives Prometheus what the daemon, or a switch, has counted: Collector makes metrics of one
// status.Daemon per scrape, so that all of one answer are of one moment. Labels are port, queue,
// reason, service and the like, never a connection: peers must not be able to make series.
//
//	metrics.go     the tables: each metric with its name, help and value
//	collector.go   status.Daemon to metrics
//	switch.go      the same of rnicd switch
//	server.go      the port that Prometheus asks
//	reference.go   docs/reference/metrics.md
package metrics
