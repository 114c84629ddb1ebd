package daemon

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/report"
	"github.com/rnicd/rnicd/internal/status"
)

// recorder logs connections that have ended with an error, each with its last events.
type recorder struct {
	*report.Recorder
	log   *slog.Logger
	lines Ration
}

func newRecorder(log *slog.Logger) *recorder {
	r := &recorder{log: log}
	r.Recorder = report.NewRecorder(report.FellWaiting, r.tell)
	return r
}

// tell logs a record if its ration allows: peers bring these about.
func (r *recorder) tell(one *report.Fallen) {
	leftOut, ok := r.lines.take(time.Now())
	if !ok {
		return
	}
	f := one.Text()
	attrs := []any{"port", f.Port, "local", f.Local, "remote", f.Remote, "error", f.Error}
	if f.Before > 0 {
		attrs = append(attrs, "events_before", f.Before)
	}
	if n := r.Lost(); n > 0 {
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

// serveEvents answers with flight records: remote, an address with or without a port, of those
// connections that there are, and the last that have ended; without, the last of all that have
// ended.
func (d *Daemon) serveEvents(w http.ResponseWriter, r *http.Request) {
	remote, err := report.Peer(r.FormValue("remote"))
	if err != nil {
		control.Fail(w, http.StatusBadRequest, err)
		return
	}
	all := d.flights.About(remote)
	if remote.IsValid() {
		ctx, cancel := awake.Timeout(r.Context(), report.Within, nil)
		defer cancel()
		for _, p := range d.Ports() {
			there, err := report.OfPollers(ctx, p.Name, p.Pollers(), remote)
			if err != nil {
				control.Fail(w, http.StatusServiceUnavailable, err)
				return
			}
			all = append(all, there...)
		}
	}
	control.Reply(w, status.Flights{Records: all})
}
