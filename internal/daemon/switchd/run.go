package switchd

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/conf"
	"github.com/rnicd/rnicd/internal/daemon"
	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/lossy"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/vswitch"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/memif"
)

const (
	lookEvery   = 100 * time.Millisecond // which programs are attached
	healthEvery = time.Second            // how devices of uplinks are
	applyMax    = 10 * time.Second
)

// Run is the switch as a process, until SIGTERM or SIGINT. SIGHUP reads the programs of the file
// again, SIGUSR1 writes the counters. An error before it switches has started nothing.
func Run(file string, drivers port.Drivers, version string, w io.Writer) error {
	orders := daemon.TakeOrders(true)
	defer orders.Stop()
	cfg, err := config.LoadSwitch(file, drivers)
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	_ = level.UnmarshalText([]byte(cfg.Log.Level)) // it has been checked
	out, log := daemon.NewLogger(w, cfg.Log.Format, level)
	defer out.Close(lossy.CloseWithin)
	r := &runner{file: file, drivers: drivers, out: out, log: log, level: level,
		notify: daemon.NewNotifier(), orders: orders}
	cfg.Vswitch.Sockets.Refused = r.refused
	var asked seen
	if err := asked.listenControl(cfg); err != nil {
		return err
	}
	if r.Server, err = Start(cfg); err != nil {
		return errors.Join(err, asked.close())
	}
	if err := asked.listenMetrics(cfg); err != nil {
		return errors.Join(err, asked.close(), r.Close())
	}
	r.version, r.logLost = version, out.Lost
	for i := range cfg.Uplinks {
		r.log.Info("uplink opened", "uplink", cfg.Uplinks[i].Name, "driver", cfg.Uplinks[i].Driver,
			"device", r.ports[i].Name(), "mtu", cfg.Uplinks[i].MTU)
		daemon.WarnChecksums(r.log.With("uplink", cfg.Uplinks[i].Name), &cfg.Uplinks[i].Open)
	}
	r.watchLinks()
	for i := range cfg.Vswitch.Programs {
		p := &cfg.Vswitch.Programs[i]
		r.log.Info("program", "name", p.Name, "socket", p.Socket, "id", p.ID, "mac", p.MAC.String(),
			"addresses", cfg.Programs[i].Addresses)
	}
	r.log.Info("memory mapped", daemon.MemoryAttrs(r.arena)...)
	daemon.WarnUnlocked(r.log, r.arena)
	asked.serve(r)
	watching, cancel := context.WithCancel(context.Background())
	var watched sync.WaitGroup
	watched.Go(func() { r.watch(watching, r.log) })
	r.log.Info("ready", "config", file, "programs", len(cfg.Programs), "uplinks", len(cfg.Uplinks),
		"threads", len(cfg.Cores))
	r.notify.Ready(r.status())
	err = r.serve()
	r.notify.Stopping("ending")
	if closing := asked.close(); err == nil { // before the switch that it asks
		err = closing
	}
	cancel()
	watched.Wait()
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
	out     *lossy.Writer
	log     *slog.Logger
	level   *slog.LevelVar
	notify  daemon.Notifier
	orders  *daemon.Orders
	peers   map[string]vswitch.PeerStatus
	health  []*port.Health // of uplinks

	refusals    daemon.Ration
	refusing    sync.Mutex
	lastRefused refusal
}

// refusal is a client that cannot attach, and asks again and again.
type refusal struct {
	socket, why string
	id          uint32
	pid         int32
}

func (r *runner) status() string {
	cfg := r.Config()
	return r.loads.StatusLine(
		conf.Count(len(cfg.Programs), "program") + ", " + conf.Count(len(cfg.Uplinks), "uplink"))
}

func (r *runner) serve() error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	health := time.NewTicker(healthEvery)
	defer health.Stop()
	var alive <-chan time.Time
	if period := daemon.WatchdogPeriod(); period > 0 {
		tick := time.NewTicker(period)
		defer tick.Stop()
		alive = tick.C
	}
	for {
		select {
		case <-r.orders.End:
			r.log.Info("ending", "signal", r.orders.Last().String())
			return nil
		case <-r.orders.Reload:
			r.reload()
		case <-r.orders.Show:
			r.write()
		case <-look.C:
			r.look()
			if err := r.Lost(); err != nil {
				return err
			}
		case now := <-health.C:
			for i, h := range r.health {
				h.Look(now, daemon.DeviceConditions{Log: r.log.With("uplink", r.cfg.Uplinks[i].Name)})
			}
		case <-alive:
			if r.Healthy() {
				r.notify.Alive()
			}
		}
	}
}

// watchLinks has devices find out of what bridge they are a part, and begins to look at their
// health.
func (r *runner) watchLinks() {
	for i, p := range r.ports {
		if w, ok := p.(pmd.LinkWatcher); ok {
			if err := w.WatchLink(func() {}); err != nil {
				r.log.Warn("whether the device is in a bridge is not known", "uplink", r.cfg.Uplinks[i].Name,
					"error", err)
			}
		}
		r.health = append(r.health, port.NewHealth(p))
	}
}

func (r *runner) write() {
	ctx, cancel := awake.Timeout(context.Background(), askTimeout, nil)
	defer cancel()
	st, err := r.Stats(ctx)
	if err != nil {
		r.log.Error("no counters", "error", err)
		return
	}
	Write(r.out, st)
}

// refused tells of a client that cannot attach; of one that asks again and again for the same,
// once. Any goroutine.
func (r *runner) refused(socket string, peer memif.Peer, err error) {
	now := refusal{socket, err.Error(), peer.ID, peer.PID}
	r.refusing.Lock()
	again := now == r.lastRefused
	r.lastRefused = now
	r.refusing.Unlock()
	if again {
		return
	}
	r.refusals.Warn(r.log, "refused", "socket", socket, "id", peer.ID, "pid", peer.PID, "uid",
		peer.UID, "gid", peer.GID, "why", err.Error())
}

// look tells of programs that have come and gone since the last time.
func (r *runner) look() {
	now := map[string]vswitch.PeerStatus{}
	for _, p := range r.sw.Peers() {
		tellVisits(r.log.With("program", p.Name), r.peers[p.Name], p)
		now[p.Name] = p
	}
	r.peers = now
}

// tellVisits tells of the process that was a program, and of the one that is, or has been since.
// Of several that have come and gone since, only the last is known.
func tellVisits(log *slog.Logger, was, is vswitch.PeerStatus) {
	if is.Times < was.Times { // the configuration is another
		was.Times = 0
	}
	came := is.Times > was.Times
	if was.Attached && (came || !is.Attached) {
		log.Info("detached", "pid", was.Peer.PID, "why", whyGone(is.Err))
	}
	if !came {
		return
	}
	attrs := []any{"pid", is.Peer.PID, "uid", is.Peer.UID, "gid", is.Peer.GID, "client", is.Peer.Name}
	if others := is.Times - was.Times - 1; others > 0 {
		attrs = append(attrs, "others_before", others)
	}
	log.Info("attached", attrs...)
	if !is.Attached {
		log.Info("detached", "pid", is.Peer.PID, "why", whyGone(is.Err))
	}
}

// whyGone is why a program is not attached any more.
func whyGone(err error) string {
	if err == nil {
		return "in order"
	}
	return err.Error()
}

// reload reads the file again. Whatever is wrong with it, what is switched goes on.
func (r *runner) reload() {
	r.notify.Reloading()
	defer func() { r.notify.Ready(r.status()) }()
	cfg, err := config.LoadSwitch(r.file, r.drivers)
	if err != nil {
		r.loads.Failed(err)
		for line := range strings.SplitSeq(err.Error(), "\n") {
			r.log.Error("not reloaded", "error", line)
		}
		return
	}
	ctx, cancel := awake.Timeout(context.Background(), applyMax, nil)
	defer cancel()
	ch, restart, err := r.Reload(ctx, cfg)
	switch {
	case err == nil:
		r.loads.Succeeded()
	case errors.As(err, new(*vswitch.PartialError)):
		r.loads.Failed(err)
		r.log.Error("reloaded, but not all of it", "error", err)
	default:
		r.loads.Failed(err)
		r.log.Error("not reloaded", "error", err)
		return
	}
	_ = r.level.UnmarshalText([]byte(cfg.Log.Level))
	r.log.Info("reloaded", "added", ch.Added, "removed", ch.Removed, "changed", ch.Changed)
	for _, key := range restart {
		r.log.Warn("needs a restart; it is as it was", "key", key)
	}
}
