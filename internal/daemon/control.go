package daemon

import (
	"fmt"
	"net/http"

	"github.com/rnicd/rnicd/internal/daemon/control"
)

// listenControl makes the control socket. Until serveControl nothing is answered on it.
func (d *Daemon) listenControl() (err error) {
	c := &d.cfg.Control
	if c.Path == "" {
		return nil
	}
	d.control, err = control.Listen(c.Path, c.Perm)
	return err
}

// serveControl is where what can be asked over the control socket is named:
//
//	GET /v1/status        status.Daemon
//	GET /v1/events        status.Flights (flight.go)
//	GET /v1/capture       a pcapng stream (capture.go)
//	POST /v1/capture/end  ends one
//	GET /v1/connections   a status.Connection a line; filter=, a word of status.ParseFilter, any number of times; limit=
func (d *Daemon) serveControl() {
	if d.control == nil {
		return
	}
	d.control.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		control.Reply(w, d.Status(r.Context()))
	})
	d.control.HandleFunc("GET /v1/events", d.serveEvents)
	d.serveCapture()
	d.control.HandleFunc("GET /v1/connections", d.answerConnections)
	d.control.Serve()
	d.log.Info("control socket", "path", d.control.Path(), "mode",
		fmt.Sprintf("%#o", d.cfg.Control.Perm))
}
