package main

import (
	"os"
	"runtime"
)

// oneThread has a command that measures run on as many threads as it has Pollers, so that what it
// waits for and its own polling take turns on one: a switch within Go is a tenth of one between
// threads, and where there are no more cores than programs that poll, a second thread would keep
// the peer waiting. Called before the device is opened: a Poller that keeps a thread to itself
// (--cores, --idle spin, DPDK) adds one for the rest. GOMAXPROCS in the environment has precedence.
func (o *nicOptions) oneThread() {
	if o.pmd != "kernel" && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(o.queueCount(), runtime.GOMAXPROCS(0)))
	}
}
