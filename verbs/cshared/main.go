// Command cshared is the engine of package verbs as a shared library, librnicd_engine.so, which
// librnicd_verbs.so loads at the program's first call that needs it:
//
//	go build -buildmode=c-shared -o librnicd_engine.so ./verbs/cshared
//
// The program's threads never run Go: rnicd_engine_attach (attach.c) tells where the shared area
// is, and the engine serves it from threads of its own, over the port that the environment
// describes.
package main

// #include <sys/auxv.h>
// void *rnicd_engine_area(void);
import "C"

import (
	"os"
	"runtime"

	"github.com/rnicd/rnicd/daemon/config"
	"github.com/rnicd/rnicd/daemon/port"
	"github.com/rnicd/rnicd/lossy"
	"github.com/rnicd/rnicd/verbs/engine"
)

func init() {
	go func() { engine.Serve(C.rnicd_engine_area(), open) }()
}

func main() {}

// open makes the host: the port lasts as long as the process.
func open(bells engine.Doorbells) (h engine.Host, err error) {
	if C.getauxval(C.AT_SECURE) != 0 {
		// The program has other rights than its caller, whose environment must not decide what it does with
		// them (secure_getenv(3)).
		os.Clearenv()
	}
	cfg, err := config.Environment(os.Environ(), port.All())
	if err != nil {
		return h, err
	}
	if h.Polled = cfg.Poll(bells.Look, &bells.Bell); h.Polled {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1) // the Poller has one even when it sleeps; calls need another
	}
	p, err := port.Open(*cfg)
	if err != nil {
		return h, err
	}
	if err := p.Start(); err != nil {
		return h, err
	}
	h.OwnTCP = !cfg.Driver.Sockets
	h.PeersAreSiw = os.Getenv("RNICD_PEER") == "siw"
	if os.Getenv("RNICD_VERBOSE") != "" {
		h.Log = lossy.New(os.Stderr, nil) // lines are no reason to hold the program up, or to end it
	}
	h.Adapter, err = p.AdapterWith(engine.Limits())
	return h, err
}
