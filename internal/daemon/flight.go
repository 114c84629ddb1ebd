package daemon

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/daemon/status"
	"github.com/rnicd/rnicd/internal/flight"
	"github.com/rnicd/rnicd/rnic"
)

const (
	fellWaiting = 256 // connections that have ended and are still to be logged
	fellKept    = 64  // the last ones, for those who ask later
)

// recorder logs connections that have ended with an error, each with its last events, and keeps the
// last ones. Pollers give them to it, and do not wait.
type recorder struct {
	log   *slog.Logger
	in    chan fallen
	lost  atomic.Uint64 // there was no room in in
	lines Ration
	over  chan struct{}
	ended sync.WaitGroup

	mu   sync.Mutex
	last []fallen // oldest first
}

// fallen is a connection that has ended with an error, as its Poller gives it.
type fallen struct {
	port  string
	ended time.Time
	rnic.FlightRecord
}

func newRecorder(log *slog.Logger) *recorder {
	r := &recorder{log: log, in: make(chan fallen, fellWaiting), over: make(chan struct{})}
	r.ended.Go(r.run)
	return r
}

// of is rnic.Config.Fell of a port.
func (r *recorder) of(port string) func(rnic.FlightRecord) {
	return func(f rnic.FlightRecord) {
		select {
		case r.in <- fallen{port, time.Now(), f}:
		default:
			r.lost.Add(1)
		}
	}
}

func flightOf(port string, local, remote netip.AddrPort, now int64, before uint64,
	events []flight.Event) status.Flight {
	f := status.Flight{Port: port, Local: local, Remote: remote, Before: before}
	for _, e := range events {
		f.Events = append(f.Events,
			status.FlightEvent{Ago: float64(now-e.At) / 1e9, Kind: e.Kind.String(), A: e.A, B: e.B,
				Text: e.String()})
	}
	return f
}

func (r *recorder) run() {
	for {
		select {
		case f := <-r.in:
			r.take(f)
		case <-r.over:
			for {
				select {
				case f := <-r.in:
					r.take(f)
				default:
					return
				}
			}
		}
	}
}

// text is the record as it is shown.
func (f *fallen) text() status.Flight {
	one := flightOf(f.port, f.Local, f.Remote, f.Now, f.Before, f.Events)
	one.Error, one.Ended = f.Err.Error(), f.ended
	return one
}

// take keeps a record, and logs it if its ration allows: peers bring these about.
func (r *recorder) take(one fallen) {
	r.mu.Lock()
	if len(r.last) == fellKept {
		r.last = slices.Delete(r.last, 0, 1)
	}
	r.last = append(r.last, one)
	r.mu.Unlock()
	leftOut, ok := r.lines.take(time.Now())
	if !ok {
		return
	}
	f := one.text()
	attrs := []any{"port", f.Port, "local", f.Local, "remote", f.Remote, "error", f.Error}
	if f.Before > 0 {
		attrs = append(attrs, "events_before", f.Before)
	}
	if n := r.lost.Swap(0); n > 0 {
		attrs = append(attrs, "not_recorded", n)
	}
	if leftOut > 0 {
		attrs = append(attrs, "more_before", leftOut)
	}
	var events []any
	for i, e := range f.Events {
		events = append(events, fmt.Sprint(i+1), fmt.Sprintf("%.6fs before: %s", e.Ago, e.Text))
	}
	r.log.Warn("a connection has ended with an error",
		append(attrs, slog.Group("events", events...))...)
}

func (r *recorder) stop() {
	close(r.over)
	r.ended.Wait()
}

// about are the records of connections that have ended.
func (r *recorder) about(remote netip.AddrPort) (all []status.Flight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.last {
		f := &r.last[i]
		if !remote.IsValid() || status.SameAddr(f.Remote.Addr(), remote.Addr()) &&
			(remote.Port() == 0 || f.Remote.Port() == remote.Port()) {
			all = append(all, f.text())
		}
	}
	return all
}

// serveEvents answers with flight records: remote, an address with or without a port, of those
// connections that there are, and the last that have ended; without, the last of all that have
// ended.
func (d *Daemon) serveEvents(w http.ResponseWriter, r *http.Request) {
	var remote netip.AddrPort
	if text := r.FormValue("remote"); text != "" {
		a, err := netip.ParseAddr(text)
		remote = netip.AddrPortFrom(a, 0)
		if err != nil {
			remote, err = netip.ParseAddrPort(text)
		}
		if err != nil {
			control.Fail(w, http.StatusBadRequest,
				fmt.Errorf("remote: %q is no address, as 10.9.0.2 or 10.9.0.2:33000", text))
			return
		}
	}
	all := d.flights.about(remote)
	if remote.IsValid() {
		ctx, cancel := awake.Timeout(r.Context(), askTimeout, nil)
		defer cancel()
		for _, p := range d.Ports() {
			for _, poller := range p.Pollers() {
				there, err := poller.FlightRecords(ctx, remote)
				if err != nil {
					control.Fail(w, http.StatusServiceUnavailable, fmt.Errorf("port %q: %w", p.Name, err))
					return
				}
				for _, f := range there {
					all = append(all, flightOf(p.Name, f.Local, f.Remote, f.Now, f.Before, f.Events))
				}
			}
		}
	}
	control.Reply(w, status.Flights{Records: all})
}
