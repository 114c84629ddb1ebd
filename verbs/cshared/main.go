// Command cshared is the engine of package verbs as a shared library, librnicd_engine.so, which
// librnicd_verbs.so loads at the program's first call that needs it:
//
//	verbs/cshared/build.sh librnicd_engine.so
//
// rnicd_engine_attach (attach.c) tells where the shared area is, and the engine serves it from
// threads of its own, over the port that the environment describes. Threads of the program run Go
// only in rnicd_engine_turn (turn.c), which they call when they poll in vain.
package main

// #include <sys/auxv.h>
// void *rnicd_engine_area(void);
import "C"

import (
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/internal/lossy"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/port/portfile"
	"github.com/rnicd/rnicd/internal/report"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/engine"
)

func init() {
	go func() { engine.Serve(C.rnicd_engine_area(), open) }()
}

func main() {}

// version is what the linker has been told, as in rnicd.
var version = "unknown"

// adapter is what the program's threads may drive; nil: none.
var adapter atomic.Pointer[rnic.Adapter]

// rnicdEnter does nothing: Go has met the thread.
//
//export rnicdEnter
func rnicdEnter() {}

// rnicdTurn is rnicd_engine_turn's (turn.c).
//
//export rnicdTurn
func rnicdTurn(most C.int) C.int {
	a := adapter.Load()
	for range most {
		if a.Progress() {
			return 1
		}
	}
	return 0
}

// environment returns all that the engine reads of the environment: nothing in a program with other
// rights than its caller, who must not decide what it does with them (secure_getenv(3)). Nobody may
// call os.Setenv, os.Unsetenv or os.Clearenv here: cgo does the same to the program's environment.
func environment() []string {
	if isSecure() {
		return nil
	}
	return os.Environ()
}

// isSecure: the program has other rights than its caller.
func isSecure() bool { return C.getauxval(C.AT_SECURE) != 0 }

// isVerbose: any value will do.
func isVerbose(variable string) bool {
	value, ok := strings.CutPrefix(variable, "RNICD_VERBOSE=")
	return ok && value != ""
}

// open makes the host: the port lasts as long as the process.
func open(bells engine.Doorbells) (h engine.Host, err error) {
	environ := environment()
	cfg, err := portfile.Environment(environ, port.All())
	if err != nil {
		return h, err
	}
	guard, err := portfile.GuardOf(environ)
	if err != nil {
		return h, err
	}
	h.Secret, h.Allow = guard.Secret, guard.Allow
	dir, wanted, err := portfile.ControlDir(environ)
	if err != nil {
		return h, err
	}
	seen := &program{started: time.Now(), looks: portfile.Looks[0],
		flights: report.NewRecorder(fellWaiting, nil)}
	cfg.Fell = seen.flights.Of(deviceName)
	if h.Polled = cfg.Poll(bells.Look, &bells.Bell); h.Polled {
		// the Poller has one even when it sleeps; calls need another
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	} else {
		cfg.OnFirstTurn = bells.Datagrams
	}
	p, err := port.Open(*cfg)
	if err != nil {
		return h, err
	}
	if err := p.Start(); err != nil {
		return h, err
	}
	h.OwnTCP = !cfg.Driver.Sockets
	if h.OwnTCP {
		h.MTU, h.MAC = cfg.MTUOr(), p.Device().MAC()
		h.Poller = p.Pollers()[0]
		h.LinkUp = func() (now, ever bool) { return port.Connected(p.Device()) }
	}
	for _, a := range cfg.Addrs {
		h.Addrs = append(h.Addrs, a.Addr())
	}
	if cfg.HostAt.IsValid() {
		h.Addrs = append(h.Addrs, cfg.HostAt)
	}
	h.PeersAreSiw = slices.Contains(environ, "RNICD_PEER=siw")
	h.NoCRC = slices.Contains(environ, "RNICD_CRC=false")
	h.Errors = engine.NewStandardError()
	var log *lossy.Writer // lines are no reason to hold the program up, or to end it
	if slices.ContainsFunc(environ, isVerbose) {
		log = lossy.New(os.Stderr, nil)
		h.Log = log
	} else {
		log = lossy.New(h.Errors, nil)
		h.Faults = log
	}
	ours := &addresses{port: p, log: log}
	if h.OwnTCP {
		go ours.watch()
	}
	h.Left = func() {
		seen.leave()
		if h.OwnTCP {
			ours.leave()
		}
		leave(p, log, h.Errors)
	}
	h.Adapter, err = p.AdapterWith(engine.Limits())
	adapter.Store(h.Adapter)
	if wanted && !isSecure() {
		seen.port, seen.dev = p, h.Adapter
		h.Serving = func(e *engine.Engine) { seen.serve(e, dir, h.Log) }
	}
	return h, err
}

// leave ends what was written of the program: its log, and the file of --capture.
func leave(p *port.Port, log *lossy.Writer, errs io.Writer) {
	log.Close(lossy.CloseWithin)
	if c := p.Capture(); c != nil {
		if err := c.Close(); err != nil {
			lossy.Line(errs, "rnicd: "+err.Error())
		}
	}
}
