// Package switchd is the process of `rnicd switch`: what a file says, opened; a thread for each core of the switch; SIGHUP,
// SIGTERM, SIGUSR1; a log of who attaches.
//
//	run.go     the process: signals, log, watchdog
//	server.go  uplinks, memory and the switch, opened and closed
//	core.go    the thread of a core, and what it does without work
//	watchdog.go  whether threads turn
//	seen.go    where it is asked: control socket, metrics
//	status.go  what it answers
//	report.go  counters as text
package switchd
