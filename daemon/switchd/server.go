package switchd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"

	"github.com/rnicd/rnicd/daemon/config"
	"github.com/rnicd/rnicd/daemon/port"
	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/vswitch"
)

// Server is a switch with its uplinks, its memory and its threads.
type Server struct {
	cfg    *config.Switch
	arena  *hugepages.Arena
	ports  []pmd.Port // uplinks
	sw     *vswitch.Switch
	over   chan struct{}
	ended  sync.WaitGroup
	change sync.Mutex // cfg
}

// Start opens what a configuration says, all or nothing, and switches until Close.
func Start(cfg *config.Switch) (s *Server, err error) {
	s = &Server{cfg: cfg, over: make(chan struct{})}
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
	s.arena, err = hugepages.New(hugepages.Config{Bytes: v.MemoryBytes(mtu), Page: page, Node: node(cfg)})
	if err != nil {
		return s, err
	}
	v.Arena = s.arena
	v.Uplinks = append([]vswitch.Uplink(nil), v.Uplinks...)
	for i := range cfg.Uplinks {
		u := &cfg.Uplinks[i]
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
	if cfg.Switch.Node != hugepages.AnyNode || len(cfg.Uplinks) == 0 || cfg.Uplinks[0].Open.Driver.Node == nil {
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
				turn(c, s.cfg.Switch.Idle == "spin", s.over)
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

// Switch is what is switched with.
func (s *Server) Switch() *vswitch.Switch { return s.sw }

// Config is what was started or reloaded last.
func (s *Server) Config() *config.Switch {
	s.change.Lock()
	defer s.change.Unlock()
	return s.cfg
}

// Reload goes over to the programs of another configuration; restart are the tables that it cannot change.
func (s *Server) Reload(ctx context.Context, cfg *config.Switch) (ch vswitch.Changes, restart []string, err error) {
	s.change.Lock()
	defer s.change.Unlock()
	if cfg.Switch != s.cfg.Switch {
		restart = append(restart, "switch")
	}
	if !sameUplinks(cfg.Uplinks, s.cfg.Uplinks) {
		return ch, restart, errors.New("uplinks have changed: restart")
	}
	if ch, err = s.sw.Apply(ctx, cfg.Vswitch.Programs); err != nil {
		return ch, restart, err
	}
	old := s.cfg
	s.cfg = cfg
	s.cfg.Switch, s.cfg.Cores = old.Switch, old.Cores
	return ch, restart, nil
}

// sameUplinks looks at what stands in the file.
func sameUplinks(a, b []config.Uplink) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i], b[i]
		x.Open, y.Open = port.Config{}, port.Config{}
		if !reflect.DeepEqual(x, y) {
			return false
		}
	}
	return true
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
	return err
}
