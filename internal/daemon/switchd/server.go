package switchd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/conf"
	"github.com/rnicd/rnicd/internal/daemon"
	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/vswitch"
	"github.com/rnicd/rnicd/pmd"
)

// Server is a switch with its uplinks, its memory and its threads.
type Server struct {
	version string
	logLost func() uint64 // lines of the log; nil: there is none
	since   time.Time
	loads   daemon.Loads
	hung    atomic.Pointer[string] // which thread does not turn; nil: all turn
	cfg     *config.Switch
	arena   *hugepages.Arena
	claims  []port.Claims // on the devices of uplinks
	ports   []pmd.Port    // uplinks
	sw      *vswitch.Switch
	over    chan struct{}
	ended   sync.WaitGroup
	change  sync.Mutex // cfg
}

// Start opens what a configuration says, all or nothing, and switches until Close.
func Start(cfg *config.Switch) (s *Server, err error) {
	s = &Server{cfg: cfg, over: make(chan struct{}), since: time.Now()}
	s.loads.Succeeded()
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
			s = nil
		}
	}()
	v := cfg.Vswitch
	mtu := 0
	for i := range cfg.Uplinks {
		mtu = max(mtu, cfg.Uplinks[i].MTU)
	}
	page, err := port.ParsePage(cfg.Switch.Page)
	if err != nil {
		return s, err
	}
	s.arena, err = hugepages.New(
		hugepages.Config{Bytes: v.MemoryBytes(mtu), Page: page, Node: hugepages.OnNode(node(cfg))})
	if err != nil {
		return s, err
	}
	v.Arena = s.arena
	v.Uplinks = append([]vswitch.Uplink(nil), v.Uplinks...)
	for i := range cfg.Uplinks {
		u := &cfg.Uplinks[i]
		claims, err := port.Claim(&u.Open)
		if err != nil {
			return s, fmt.Errorf("uplink %s: %w", u.Name, err)
		}
		s.claims = append(s.claims, claims)
		p, err := u.Open.Driver.Open(&u.Open, s.arena)
		if err != nil {
			return s, fmt.Errorf("uplink %s: %w", u.Name, err)
		}
		s.ports = append(s.ports, p)
		v.Uplinks[i].Port = named{p, u.Name}
	}
	if s.sw, err = vswitch.New(v); err != nil {
		return s, err
	}
	return s, s.run()
}

// named is a port under the name that the file has for it.
type named struct {
	pmd.Port
	name string
}

func (n named) Name() string { return n.name }

func node(cfg *config.Switch) int {
	if cfg.Switch.Node != hugepages.AnyNode || len(cfg.Uplinks) == 0 ||
		cfg.Uplinks[0].Open.Driver.Node == nil {
		return cfg.Switch.Node
	}
	return cfg.Uplinks[0].Open.Driver.Node(&cfg.Uplinks[0].Open)
}

// run gives each core its thread.
func (s *Server) run() error {
	pinned := make(chan error)
	for i, c := range s.sw.Cores() {
		s.ended.Go(func() {
			runtime.LockOSThread() // for good: it ends with the goroutine
			err := pin(s.cfg.Cores[i])
			pinned <- err
			if err == nil {
				labelled(i, func() { turn(c, s.cfg.Switch.Idle == "spin", s.over) })
			}
		})
	}
	var err error
	for range s.sw.Cores() {
		err = cmp.Or(err, <-pinned)
	}
	return err
}

// Stats is a snapshot of all counters. Any goroutine.
func (s *Server) Stats(ctx context.Context) (*vswitch.Stats, error) { return s.sw.Stats(ctx) }

// Config is what was started or reloaded last.
func (s *Server) Config() *config.Switch {
	s.change.Lock()
	defer s.change.Unlock()
	return s.cfg
}

// Reload goes over to the programs of another configuration, and its log's level; restart are the
// keys that it cannot change. An error has changed nothing, unless it is a *vswitch.PartialError.
func (s *Server) Reload(ctx context.Context,
	cfg *config.Switch) (ch vswitch.Changes, restart []string, err error) {
	s.change.Lock()
	defer s.change.Unlock()
	if keys := changedUplinks(s.cfg.Uplinks, cfg.Uplinks); len(keys) > 0 {
		return ch, nil, fmt.Errorf("%s: uplinks change at a restart only", strings.Join(keys, ", "))
	}
	if cfg.Log.Format != s.cfg.Log.Format {
		restart = append(restart, "log.format")
	}
	restart = append(restart, conf.Differing("control", s.cfg.Control, cfg.Control)...)
	restart = append(restart, conf.Differing("metrics", s.cfg.Metrics, cfg.Metrics)...)
	restart = append(restart, conf.Differing("switch", s.cfg.Switch, cfg.Switch)...)
	ch, err = s.sw.Apply(ctx, cfg.Vswitch.Programs)
	if err != nil && !errors.As(err, new(*vswitch.PartialError)) {
		return ch, nil, err
	}
	old := s.cfg
	s.cfg = cfg
	s.cfg.Switch, s.cfg.Cores, s.cfg.Control, s.cfg.Metrics, s.cfg.Log.Format = old.Switch, old.Cores,
		old.Control, old.Metrics, old.Log.Format
	return ch, restart, err
}

// changedUplinks are the keys in which the uplinks of two files differ.
func changedUplinks(was, is []config.Uplink) (keys []string) {
	named := func(all []config.Uplink, name string) *config.Uplink {
		for i := range all {
			if all[i].Name == name {
				return &all[i]
			}
		}
		return nil
	}
	for i := range is {
		name := "uplink." + is[i].Name
		switch old := named(was, is[i].Name); {
		case old == nil:
			keys = append(keys, name)
		default:
			keys = append(keys, conf.Differing(name, *old, is[i])...)
		}
	}
	for i := range was {
		if named(is, was[i].Name) == nil {
			keys = append(keys, "uplink."+was[i].Name)
		}
	}
	if len(keys) == 0 && !slices.EqualFunc(was, is, func(a, b config.Uplink) bool {
		return a.Name == b.Name
	}) {
		keys = append(keys, "uplink") // in another order
	}
	return keys
}

// Lost says why an uplink is gone, or nil.
func (s *Server) Lost() error {
	for i, p := range s.ports {
		if d, ok := p.(interface{ Lost() error }); ok {
			if err := d.Lost(); err != nil {
				return fmt.Errorf("uplink %s: %w", s.cfg.Uplinks[i].Name, err)
			}
		}
	}
	return nil
}

// Close stops the threads and gives everything back. Programs find that their server has gone.
func (s *Server) Close() (err error) {
	close(s.over)
	s.ended.Wait()
	if s.sw != nil {
		err = s.sw.Close()
	}
	for _, p := range s.ports {
		err = errors.Join(err, p.Close())
	}
	if s.arena != nil {
		err = errors.Join(err, s.arena.Close())
	}
	for i := range s.claims {
		s.claims[i].Release()
	}
	return err
}
