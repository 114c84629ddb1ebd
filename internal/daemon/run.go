package daemon

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/rnicd/rnicd/internal/conf"
	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/port"
)

// Run is the daemon as a process: it starts the configuration of a file and serves until SIGTERM
// or SIGINT, which drains; a second signal ends it at once, a third kills. SIGHUP reloads the
// file, after the start if it comes before. If the start fails, nothing is left running. One that
// is told to end while it starts ends as one that serves.
func Run(file string, drivers port.Drivers, opt Options) error {
	orders := TakeOrders(false)
	defer orders.Stop()
	cfg, err := config.Load(file, drivers)
	if err != nil {
		return err
	}
	starting, cancel := until(orders.End)
	d, err := Start(starting, cfg, opt)
	told := starting.Err() != nil
	cancel()
	if told && errors.Is(err, context.Canceled) { // by an order to end, and nothing else is wrong
		return nil
	}
	if err != nil {
		return err
	}
	n := NewNotifier()
	n.Ready(statusLine(d))
	d.log.Info("ready", "config", file, "services", len(d.Services()), "ports", len(d.Ports()))
	r := runner{Daemon: d, file: file, drivers: drivers, notify: n, orders: orders}
	defer r.alive()()
	err = r.serve()
	n.Stopping("draining")
	if err == nil { // a port that is gone has no connections to drain
		d.log.Info("draining", "signal", orders.Last().String(), "at_most", time.Duration(d.drain.Load()))
		ctx, cancel := until(orders.Cut)
		d.Drain(ctx)
		cancel()
	}
	if closing := d.Close(); err == nil {
		err = closing
	}
	return err
}

// until is a context that ends when a channel is closed.
func until(over <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-over:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// runner is a Daemon that serves.
type runner struct {
	*Daemon
	file    string
	drivers port.Drivers
	notify  Notifier
	orders  *Orders
}

// serve returns nil when it is told to end, or the reason that the daemon cannot go on.
func (r *runner) serve() error {
	for {
		select {
		case <-r.orders.End:
			return nil
		case <-r.orders.Reload:
			r.reload()
		case err := <-r.lost:
			return err
		}
	}
}

// alive tells systemd that the daemon is, while its Pollers turn, until the function that it
// returns is called: in a reload, which may have to read a large file, and in a drain too.
func (r *runner) alive() (end func()) {
	period := WatchdogPeriod()
	if period == 0 {
		return func() {}
	}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if r.Healthy() {
					r.notify.Alive()
				}
			case <-over:
				return
			}
		}
	}()
	return func() {
		close(over)
		<-ended
	}
}

// reload reads the file again. Whatever is wrong with it, what is served goes on.
func (r *runner) reload() {
	r.notify.Reloading()
	defer func() { r.notify.Ready(statusLine(r.Daemon)) }()
	cfg, err := config.Load(r.file, r.drivers)
	if err != nil {
		r.loads.Failed(err)
		for line := range strings.SplitSeq(err.Error(), "\n") {
			r.log.Error("not reloaded", "error", line)
		}
		return
	}
	changes, err := r.Reload(context.Background(), cfg)
	if err != nil {
		r.loads.Failed(err)
		r.log.Error("not reloaded", "error", err)
		return
	}
	r.loads.Succeeded()
	r.log.Info("reloaded", "added", changes.Added, "removed", changes.Removed, "changed",
		changes.Changed, "limits", changes.Limits)
	for _, key := range changes.Restart {
		r.log.Warn("needs a restart; it is as it was", "key", key)
	}
}

// statusLine is for systemctl.
func statusLine(d *Daemon) string {
	return d.loads.StatusLine(
		conf.Count(len(d.Services()), "service") + " on " + conf.Count(len(d.Ports()), "port"))
}
