package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/daemon/metrics"
	"github.com/rnicd/rnicd/internal/lossy"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/port/portfile"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// Options of Start.
type Options struct {
	// Log is written to by one goroutine, which may block without holding anything else up; default
	// os.Stderr.
	Log     io.Writer
	Version string // of the program, as status and metrics tell it
	// Front, if set, may change the port.Config with which a port is opened: for tests.
	Front func(name string, cfg *port.Config)
}

// Daemon is a running daemon. Any goroutine may call its methods; one goroutine Drain and Close.
type Daemon struct {
	opt     Options
	out     *lossy.Writer // to opt.Log
	log     *slog.Logger
	level   *slog.LevelVar
	ports   []*Port
	lost    chan error
	dog     *watchdog
	flights *recorder
	since   time.Time

	control *control.Server // nil: there is none
	looking chan struct{}   // has a place for each that looks at all connections

	metrics *metrics.Server // nil: they are asked for nowhere

	asking sync.RWMutex // read-locked while Pollers are asked; Close waits for that
	closed bool

	loads     Loads
	changing  sync.Mutex // held through Reload, Drain and Close, which alone change what follows
	cfg       *config.Config
	listeners map[place]*listener
	counts    map[string]*counts // by names of Services, also of those taken out
	mu        sync.Mutex         // for those that only look
	services  []*Service
	retiring  sync.WaitGroup // Services that were taken out

	drain  atomic.Int64    // ns
	cut    context.Context // ended by hurry
	hurry  context.CancelFunc
	ending atomic.Bool
	held   atomic.Int64 // Services that have not given back what they hold
}

// Port is an open port of the configuration.
type Port struct {
	*port.Port
	Name    string
	Adapter *rnic.Adapter
	gone    func() error
	cancel  context.CancelFunc
}

// PollerStatus is a Poller, as the watchdog sees it.
type PollerStatus struct {
	Port   string
	Queue  int
	Poller *stack.Poller
	Stalls uint64        // how often it stood still for longer than limits.poller_stall
	Still  time.Duration // it has not turned for so long; 0: it turns, or waits for an interrupt
}

// lookersMax is how many may look at all connections at a time. Others wait.
const lookersMax = 2

// Start opens all ports, waits until their addresses may be used, and listens for all services; on
// an error it closes everything. ctx is for the start only.
func Start(ctx context.Context, cfg *config.Config, opt Options) (*Daemon, error) {
	if opt.Log == nil {
		opt.Log = os.Stderr
	}
	d := &Daemon{opt: opt, cfg: cfg, level: &slog.LevelVar{}, lost: make(chan error, 1),
		listeners: map[place]*listener{}, counts: map[string]*counts{}, since: time.Now(),
		looking: make(chan struct{}, lookersMax)}
	d.loads.Succeeded()
	d.cut, d.hurry = context.WithCancel(context.Background())
	d.out, d.log = NewLogger(opt.Log, cfg.Log.Format, d.level)
	d.settings(cfg)
	d.dog = newWatchdog(d.log)
	d.flights = newRecorder(d.log)
	d.dog.limit.Store(int64(cfg.Limits.PollerStall))
	if err := d.start(ctx); err != nil {
		if ctx.Err() != nil {
			d.log.Info("told to end before it was ready")
		}
		d.ending.Store(true)
		for _, s := range d.services {
			s.cancel()
		}
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// settings takes over what changes at once.
func (d *Daemon) settings(cfg *config.Config) {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.Log.Level)) // validated
	d.level.Set(level)
	d.drain.Store(int64(cfg.Limits.Drain))
}

func (d *Daemon) start(ctx context.Context) error {
	// first: it tells of another daemon with this configuration
	if err := d.listenControl(); err != nil {
		return err
	}
	for i := range d.cfg.Ports {
		if err := d.openPort(&d.cfg.Ports[i]); err != nil {
			return fmt.Errorf("port %q: %w", d.cfg.Ports[i].Name, err)
		}
	}
	var err error
	if d.metrics, err = metrics.Listen(d.cfg.Metrics.Listen); err != nil { // may be at a host_address
		return err
	}
	if err := d.awaitAddrs(ctx); err != nil {
		return err
	}
	d.dog.start()
	plan, _, err := d.plan(d.cfg)
	if err == nil {
		err = d.carryOut(ctx, plan)
	}
	if err == nil {
		d.serveControl()
		if at := d.metrics.Addr(); at != "" {
			d.metrics.Serve(metrics.Handler(metrics.Collector{Status: d.Status}))
			d.log.Info("metrics", "listen", at)
		}
	}
	return err
}

func (d *Daemon) openPort(c *portfile.Port) error {
	open := c.Open
	open.Fell = d.flights.Of(c.Name)
	if d.opt.Front != nil {
		d.opt.Front(c.Name, &open)
	}
	dev, err := port.Open(open)
	if err != nil {
		return err
	}
	p := &Port{Port: dev, Name: c.Name, gone: func() error { return nil }, cancel: func() {}}
	if p.Adapter, err = dev.Adapter(); err != nil {
		return errors.Join(err, dev.Close())
	}
	if err := dev.Start(); err != nil {
		return errors.Join(err, closeAdapter(p.Adapter), dev.Close())
	}
	d.ports = append(d.ports, p)
	attrs := []any{"port", c.Name, "driver", c.Driver, "device", dev.Name(), "addresses", c.Addresses}
	arenas := dev.Arenas()
	if len(arenas) > 0 {
		attrs = append(attrs, "mtu", dev.Config().MTUOr(), "pollers", len(dev.Pollers()))
	}
	for _, a := range arenas {
		attrs = append(attrs, MemoryAttrs(a)...)
	}
	d.log.Info("port opened", attrs...)
	for _, a := range arenas {
		WarnUnlocked(d.log, a)
	}
	WarnChecksums(d.log.With("port", c.Name), &open)
	for i, poller := range dev.Pollers() {
		d.dog.add(c.Name, dev.Name(), i, poller)
	}
	return nil
}

// awaitAddrs waits for all ports at the same time, then watches them.
func (d *Daemon) awaitAddrs(ctx context.Context) error {
	errs := make([]error, len(d.ports))
	var waiting sync.WaitGroup
	for i, p := range d.ports {
		if err := p.WatchLink(); err != nil {
			d.log.Warn("when the device is connected later, our addresses are not announced", "port", p.Name,
				"error", err)
		}
		waiting.Go(func() {
			if err := p.AwaitAddrs(ctx); err != nil {
				errs[i] = fmt.Errorf("port %q: address %w", p.Name, err)
			}
		})
	}
	waiting.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, p := range d.ports {
		watched, cancel := context.WithCancel(context.Background())
		p.cancel = cancel
		var while context.Context
		while, p.gone = p.Watch(watched, conditions{DeviceConditions{d.log.With("port", p.Name)}})
		context.AfterFunc(while, func() {
			if err := p.gone(); err != nil {
				d.fail(fmt.Errorf("port %q: %w", p.Name, err))
			}
		})
	}
	return nil
}

func (d *Daemon) fail(err error) {
	select {
	case d.lost <- err:
	default:
	}
}

var errDrained = errors.New("limits.drain is over")

// draining is the time that connections of a service have which was taken out.
func (d *Daemon) draining() (context.Context, context.CancelFunc) {
	return awake.Timeout(d.cut, time.Duration(d.drain.Load()), errDrained)
}

// Lost has the reason when the daemon cannot go on: a device is gone, or the last address of a
// port.
func (d *Daemon) Lost() <-chan error { return d.lost }

// Log is the daemon's logger.
func (d *Daemon) Log() *slog.Logger { return d.log }

// Ports are those of the configuration, in its order.
func (d *Daemon) Ports() []*Port { return d.ports }

// Pollers are those of all ports.
func (d *Daemon) Pollers() []PollerStatus { return d.dog.status() }

// Services are those that accept connections.
func (d *Daemon) Services() []*Service {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.services)
}

func (d *Daemon) setServices(all []*Service) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.services = all
}

// Connections are those of all serving Services, oldest first.
func (d *Daemon) Connections() (all []Connection) {
	for _, s := range d.Services() {
		all = append(all, s.Connections()...)
	}
	slices.SortFunc(all, func(a, b Connection) int {
		return cmp.Compare(a.Since.UnixNano(), b.Since.UnixNano())
	})
	return all
}

// Drain stops accepting connections, and returns when all connections have ended, limits.drain has
// passed, or ctx ends; remaining connections are then reset. Call Close after it.
func (d *Daemon) Drain(ctx context.Context) {
	d.ending.Store(true)
	d.changing.Lock()
	defer d.changing.Unlock()
	for at, l := range d.listeners {
		l.close()
		delete(d.listeners, at)
	}
	ctx, cancel := awake.Timeout(ctx, time.Duration(d.drain.Load()), errDrained)
	defer cancel()
	defer context.AfterFunc(ctx, d.hurry)() // those that a Reload took out, too
	begin, cut := time.Now(), 0
	var retiring sync.WaitGroup
	var mu sync.Mutex
	for _, s := range d.services {
		retiring.Go(func() {
			n := s.retire(ctx)
			mu.Lock()
			cut += n
			mu.Unlock()
		})
	}
	retiring.Wait()
	d.retiring.Wait()
	d.setServices(nil)
	d.log.Info("drained", "took", time.Since(begin), "reset", cut)
}

// flushTimeout bounds the wait for what closed connections still have to say, stopTimeout that for
// an Adapter.
const (
	flushTimeout = 2 * time.Second
	stopTimeout  = 5 * time.Second
)

// Close ends everything at once, and frees it.
func (d *Daemon) Close() (err error) {
	d.ending.Store(true)
	d.changing.Lock()
	defer d.changing.Unlock()
	at, cancel := context.WithCancel(context.Background())
	cancel()
	for where, l := range d.listeners {
		l.close()
		delete(d.listeners, where)
	}
	for _, s := range d.services {
		s.retire(at)
	}
	d.setServices(nil)
	if d.control != nil {
		err = d.control.Close() // before the Pollers that it asks
	}
	d.metrics.Close()
	d.asking.Lock()
	d.closed = true
	d.asking.Unlock()
	d.hurry()
	d.retiring.Wait()
	d.dog.stop()
	for _, p := range d.ports {
		p.cancel()
		if p.gone() == nil {
			p.Await(context.Background(), flushTimeout, func(k *stack.Counters) bool {
				return k.Conns == k.TimeWait
			})
		}
		err = errors.Join(err, closeAdapter(p.Adapter), p.Port.Close())
	}
	d.ports = nil
	d.flights.Stop()
	d.out.Close(lossy.CloseWithin)
	return err
}

func closeAdapter(dev *rnic.Adapter) error {
	ctx, cancel := awake.Timeout(context.Background(), stopTimeout, nil)
	defer cancel()
	return dev.Close(ctx)
}
