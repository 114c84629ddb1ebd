// Package measure is what the ends of a goodput comparison have in common: the lines that they
// print, what they count, and when they end. The end that is gVisor's is in a module of its own
// (bench/peers/gvisor) and imports this one.
//
// An end is a process. It prints "ready" when it can be connected to, moves one stream in one
// direction, prints one line
//
//	result {"octets":N,"seconds":S,"cpu":C}
//
// and stays until its standard input ends, so that no host waits for a FIN from one that is gone.
package measure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Port is the one that an end listens on.
const Port = 7174

// ChunkBytes is how many octets an end that uses a socket API moves with one call.
const ChunkBytes = 256 << 10

const resultPrefix = "result "

// Result is what one end says of one transfer.
type Result struct {
	Octets  uint64  `json:"octets"`
	Seconds float64 `json:"seconds"` // from the connection's first moment to the end of the stream
	CPU     float64 `json:"cpu"`     // seconds the whole process spent in them, user and system
}

// Gbps is goodput in 10^9 bits a second; 0 without time.
func (r Result) Gbps() float64 {
	if r.Seconds <= 0 {
		return 0
	}
	return float64(r.Octets) * 8 / r.Seconds / 1e9
}

// CPUPerGiB is seconds of CPU for each GiB; 0 without octets.
func (r Result) CPUPerGiB() float64 {
	if r.Octets == 0 {
		return 0
	}
	return r.CPU / (float64(r.Octets) / (1 << 30))
}

// Line is how an end prints r.
func (r Result) Line() string {
	b, err := json.Marshal(r)
	if err != nil { // a NaN or an infinity: a division that this package guards
		panic(err)
	}
	return resultPrefix + string(b)
}

// Parse reads a Line. ok: the line is a result at all.
func Parse(line string) (r Result, ok bool, err error) {
	text, ok := strings.CutPrefix(line, resultPrefix)
	if !ok {
		return r, false, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, true, fmt.Errorf("result line %q: %w", line, err)
	}
	return r, true, nil
}

// Clock is a start: of time and of the process's CPU time.
type Clock struct {
	at  time.Time
	cpu float64
}

// Start takes the time. Any goroutine.
func Start() Clock { return Clock{time.Now(), CPU()} }

// Stop is the Result of what was moved since.
func (c Clock) Stop(octets uint64) Result {
	return Result{Octets: octets, Seconds: time.Since(c.at).Seconds(), CPU: CPU() - c.cpu}
}

// CPU is what this process has spent, user and system, in seconds.
func CPU() float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err) // the arguments are constant
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// Profile writes a CPU profile to a file until stop is called, which may be twice; with no path it
// does nothing.
func Profile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
	}, nil
}

// Finish prints r and waits until standard input ends.
func Finish(r Result) {
	fmt.Println(r.Line())
	_, _ = io.Copy(io.Discard, os.Stdin)
}
