package switchd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/rnicd/rnicd/daemon"
	"github.com/rnicd/rnicd/daemon/config"
	"github.com/rnicd/rnicd/daemon/port"
	"github.com/rnicd/rnicd/vswitch"
)

const (
	lookEvery   = 100 * time.Millisecond // which programs are attached
	coreTimeout = time.Second            // a thread that takes longer between two turns is not healthy
	applyMax    = 10 * time.Second
)

// Run is the switch as a process, until SIGTERM or SIGINT. SIGHUP reads the programs of the file again, SIGUSR1 writes the
// counters. An error before it switches has started nothing.
func Run(file string, drivers port.Drivers, w io.Writer) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1)
	defer signal.Stop(signals)
	cfg, err := config.LoadSwitch(file, drivers)
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	_ = level.UnmarshalText([]byte(cfg.Log.Level)) // it has been checked
	r := &runner{file: file, drivers: drivers, w: w, log: daemon.NewLogger(w, cfg.Log.Format, level), level: level, notify: daemon.NewNotifier()}
	if r.Server, err = Start(cfg); err != nil {
		return err
	}
	for i := range cfg.Vswitch.Programs {
		p := &cfg.Vswitch.Programs[i]
		r.log.Info("program", "name", p.Name, "socket", p.Socket, "id", p.ID, "mac", p.MAC.String(), "addresses", fmt.Sprint(p.Addrs))
	}
	r.log.Info("ready", "config", file, "programs", len(cfg.Programs), "uplinks", len(cfg.Uplinks), "threads", len(cfg.Cores))
	r.notify.Ready(r.status())
	err = r.serve(signals)
	r.notify.Stopping()
	if closing := r.Close(); err == nil {
		err = closing
	}
	return err
}

// runner is a Server that a process has.
type runner struct {
	*Server
	file    string
	drivers port.Drivers
	w       io.Writer
	log     *slog.Logger
	level   *slog.LevelVar
	notify  daemon.Notifier
	peers   map[string]vswitch.PeerStatus
}

func (r *runner) status() string {
	cfg := r.Config()
	return fmt.Sprintf("%d programs, %d uplinks", len(cfg.Programs), len(cfg.Uplinks))
}

func (r *runner) serve(signals <-chan os.Signal) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	var alive <-chan time.Time
	if period := daemon.WatchdogPeriod(); period > 0 {
		tick := time.NewTicker(period)
		defer tick.Stop()
		alive = tick.C
	}
	for {
		select {
		case s := <-signals:
			switch s {
			case syscall.SIGHUP:
				r.reload()
			case syscall.SIGUSR1:
				r.write()
			default:
				r.log.Info("ending", "signal", s.String())
				return nil
			}
		case <-look.C:
			r.look()
			if err := r.Lost(); err != nil {
				return err
			}
		case <-alive:
			if _, err := r.stats(); err == nil {
				r.notify.Alive()
			}
		}
	}
}

func (r *runner) stats() (*vswitch.Stats, error) {
	ctx, cancel := context.WithTimeout(context.Background(), coreTimeout)
	defer cancel()
	return r.Stats(ctx)
}

func (r *runner) write() {
	st, err := r.stats()
	if err != nil {
		r.log.Error("no counters", "error", err)
		return
	}
	Write(r.w, st)
}

// look tells of programs that have come and gone since the last time.
func (r *runner) look() {
	now := map[string]vswitch.PeerStatus{}
	for _, p := range r.sw.Peers() {
		was := r.peers[p.Name]
		if was.Attached && (!p.Attached || p.Peer.PID != was.Peer.PID) {
			r.log.Info("detached", "program", p.Name, "pid", was.Peer.PID, "why", fmt.Sprint(p.Err))
		}
		if p.Attached && (!was.Attached || p.Peer.PID != was.Peer.PID) {
			r.log.Info("attached", "program", p.Name, "pid", p.Peer.PID, "uid", p.Peer.UID, "gid", p.Peer.GID, "client", p.Peer.Name)
		}
		now[p.Name] = p
	}
	r.peers = now
}

// reload reads the file again. Whatever is wrong with it, what is switched goes on.
func (r *runner) reload() {
	r.notify.Reloading()
	defer func() { r.notify.Ready(r.status()) }()
	cfg, err := config.LoadSwitch(r.file, r.drivers)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			r.log.Error("not reloaded", "error", line)
		}
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), applyMax)
	defer cancel()
	ch, restart, err := r.Reload(ctx, cfg)
	if err != nil {
		r.log.Error("not reloaded", "error", err)
		return
	}
	_ = r.level.UnmarshalText([]byte(cfg.Log.Level))
	r.log.Info("reloaded", "added", ch.Added, "removed", ch.Removed, "changed", ch.Changed)
	for _, key := range restart {
		r.log.Warn("needs a restart; it is as it was", "key", key)
	}
}
