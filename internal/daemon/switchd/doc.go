// Package switchd is the process of `rnicd switch`: it opens the switch of a configuration, runs
// a thread for each core, acts on SIGHUP, SIGTERM and SIGUSR1, and logs the programs that attach.
//
//	run.go     the process: signals, log, watchdog
//	server.go  opens and closes uplinks, memory and the switch
//	core.go    the thread of a core, and its idling
//	watchdog.go  threads that do not turn
//	seen.go    control socket and metrics
//	status.go  the state of the switch (internal/status)
//	report.go  counters as text
package switchd
