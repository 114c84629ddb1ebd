package switchd

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/daemon/metrics"
)

// seen is where a switch is asked: the control socket, and the port for Prometheus.
type seen struct {
	control *control.Server // nil: there is none
	metrics *metrics.Server
}

// listenControl opens the first, which tells of another switch with this configuration: before all
// else. Nothing is answered yet.
func (s *seen) listenControl(cfg *config.Switch) (err error) {
	if cfg.Control.Path != "" {
		s.control, err = control.Listen(cfg.Control.Path, cfg.Control.Perm)
	}
	return err
}

// listenMetrics opens the second, which may be at the host_address of an uplink that is open now.
func (s *seen) listenMetrics(cfg *config.Switch) (err error) {
	s.metrics, err = metrics.Listen(cfg.Metrics.Listen)
	return err
}

var errNoDaemon = errors.New("this is a switch: rnicd status --switch shows what it knows; its " +
	"programs have the connections")

// serve answers of a switch: status.Switch to GET /v1/status.
func (s seen) serve(r *runner) {
	if c := s.control; c != nil {
		c.HandleFunc("GET /v1/status", func(w http.ResponseWriter, q *http.Request) {
			control.Reply(w, r.Status(q.Context()))
		})
		c.HandleFunc("/v1/", func(w http.ResponseWriter, _ *http.Request) {
			control.Fail(w, http.StatusNotFound, errNoDaemon)
		})
		c.Serve()
		r.log.Info("control socket", "path", c.Path(), "mode",
			fmt.Sprintf("%#o", r.Config().Control.Perm))
	}
	if at := s.metrics.Addr(); at != "" {
		s.metrics.Serve(metrics.Handler(metrics.SwitchCollector{Status: r.Status}))
		r.log.Info("metrics", "listen", at)
	}
}

func (s seen) close() (err error) {
	if s.control != nil {
		err = s.control.Close()
	}
	s.metrics.Close()
	return err
}
