// Package daemon is rnicd as a service: ports and what is served on them, as a configuration says,
// until it is told to end. It starts all or nothing, takes a changed configuration while it runs,
// and lets connections come to their end before it goes.
//
//	daemon.go      Start, Drain, Close; what there is to look at: Ports, Pollers, Services, Connections
//	service.go     a Service: admission, its connections, its end
//	listener.go    TCP ports, which stay open while the Services that they lead to are changed
//	serve_*.go     the types of service
//	reload.go      what changes at once, and what needs a restart
//	status.go      what there is to see of all this (daemon/status)
//	connections.go each connection, looked at some in each turn of its Poller
//	control.go     what can be asked over the control socket
//	capture.go     frames of ports, over it
//	flight.go      the last events of connections that have ended with an error
//	watchdog.go    Pollers that do not turn
//	notify.go      systemd
//	log.go         the logger, and what becomes of ports
//	journal.go     the levels of lines, to systemd's journal
//	ration.go      lines that peers can bring about are bounded
//
// Nothing here is on a packet's way. Commands that show the daemon, and exporters of its counters, begin
// with Daemon.Status.
//
// # Control socket
//
// Commands ask a daemon that runs by HTTP over a Unix socket (daemon/control). Whatever is to be
// asked gets a pattern in serveControl of control.go, as "GET /v1/status", and a handler there that
// answers with control.Reply or control.Fail, or writes a stream until the request's context ends; a
// command asks with control.Client. /v1 stays as it is: fields are added, none is taken away.
package daemon
