// Package daemon is rnicd as a service: ports and what is served on them, as a configuration says,
// until it is told to end. It starts all or nothing, takes a changed configuration while it runs,
// and lets connections come to their end before it goes.
//
//	daemon.go      Start, Drain, Close; what there is to look at: Ports, Pollers, Services, Connections
//	service.go     a Service: admission, its connections, its end
//	listener.go    TCP ports, which outlive the Services that are changed behind them
//	serve_*.go     the types of service
//	reload.go      what changes at once, and what needs a restart
//	watchdog.go    Pollers that do not turn
//	notify.go      systemd
//	log.go         lines that peers can bring about are bounded
//
// Nothing here is on a packet's way. Whoever shows the daemon to people, or exports its counters,
// begins with the methods of Daemon.
package daemon
