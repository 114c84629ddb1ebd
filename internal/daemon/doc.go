// Package daemon is rnicd as a service: the ports of a configuration and the services on them.
// Start opens all of them or none. Reload applies a changed configuration while the daemon runs.
// Drain lets connections finish before the daemon ends.
//
//	daemon.go      Start, Drain, Close; Ports, Pollers, Services, Connections
//	service.go     a Service: admission, its connections, its end
//	listener.go    TCP ports, which stay open while their Services are replaced
//	serve_*.go     the types of service
//	reload.go      what changes at once, and what needs a restart
//	status.go      the state of the daemon (internal/status)
//	connections.go lists of connections, a few in each turn of their Poller
//	control.go     the requests of the control socket
//	capture.go     captures of ports over the control socket
//	flight.go      the last events of connections that have ended with an error
//	watchdog.go    finds Pollers that do not turn
//	notify.go      systemd
//	log.go         the logger, and what becomes of ports
//	journal.go     the levels of lines, to systemd's journal
//	ration.go      limits the log lines that peers can cause
//
// Packets do not pass through this package. Commands that show the daemon, and exporters of its
// counters, begin with Daemon.Status.
//
// # Control socket
//
// Commands query a running daemon by HTTP over a Unix socket (internal/daemon/control). Each
// request has a pattern in serveControl of control.go, such as "GET /v1/status", and a handler
// that answers with control.Reply or control.Fail, or writes a stream until the request's context
// ends. Commands use control.Client. /v1 is stable: fields may be added, none is removed.
package daemon
