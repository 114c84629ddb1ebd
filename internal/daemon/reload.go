package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/rnicd/rnicd/internal/conf"
	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/port/portfile"
)

// Changes are the names of what a Reload has changed, and of what it has not.
type Changes struct {
	Added, Removed, Changed []string // services
	Limits                  []string // services whose limits alone changed: their connections stay
	// keys that need a restart, as port.one.mtu; they are as they were
	Restart []string
}

func (c Changes) String() string {
	var parts []string
	for _, p := range []struct {
		what  string
		names []string
	}{{"added", c.Added}, {"removed", c.Removed}, {"changed", c.Changed}, {"limits", c.Limits},
		{"needs a restart", c.Restart}} {
		if len(p.names) > 0 {
			parts = append(parts, p.what+": "+strings.Join(p.names, ", "))
		}
	}
	if len(parts) == 0 {
		return "nothing has changed"
	}
	return strings.Join(parts, "; ")
}

// ErrEnding: the daemon drains or is closed.
var ErrEnding = errors.New("the daemon is about to end")

// Reload applies what can be changed of a configuration while the daemon runs; with an error,
// nothing is applied. Keys that need a restart are named and not applied. Connections of removed or
// changed services go on for limits.drain.
func (d *Daemon) Reload(ctx context.Context, cfg *config.Config) (Changes, error) {
	d.changing.Lock()
	defer d.changing.Unlock()
	if d.ending.Load() {
		return Changes{}, ErrEnding
	}
	restart := d.needsRestart(cfg)
	plan, changes, err := d.plan(cfg)
	if err != nil {
		return Changes{}, err
	}
	if err := d.carryOut(ctx, plan); err != nil {
		return Changes{}, err
	}
	d.settings(cfg)
	d.dog.limit.Store(int64(cfg.Limits.PollerStall))
	changes.Restart = append(restart, changes.Restart...)
	return changes, nil
}

// needsRestart are the keys in which a configuration differs from that of the start and that are
// decided there.
func (d *Daemon) needsRestart(cfg *config.Config) (keys []string) {
	if cfg.Log.Format != d.cfg.Log.Format {
		keys = append(keys, "log.format")
	}
	keys = append(keys, conf.Differing("control", d.cfg.Control, cfg.Control)...)
	keys = append(keys, conf.Differing("metrics", d.cfg.Metrics, cfg.Metrics)...)
	for i := range cfg.Ports {
		p := cfg.Ports[i]
		if p.Open.Driver.Sockets {
			p.TCP = portfile.TCP{} // not ours
		}
		if j := d.portNamed(p.Name); j < 0 {
			keys = append(keys, "port."+p.Name)
		} else {
			was := d.cfg.Ports[j]
			if was.Open.Driver.Sockets {
				was.TCP = portfile.TCP{}
			}
			keys = append(keys, conf.Differing("port."+p.Name, was, p)...)
		}
	}
	for i := range d.cfg.Ports {
		if name := d.cfg.Ports[i].Name; !inFile(cfg, name) {
			keys = append(keys, "port."+name)
		}
	}
	return keys
}

// inFile says whether a configuration has a port.
func inFile(cfg *config.Config, port string) bool {
	return slices.ContainsFunc(cfg.Ports, func(p portfile.Port) bool { return p.Name == port })
}

func (d *Daemon) portNamed(name string) int {
	return slices.IndexFunc(d.ports, func(p *Port) bool { return p.Name == name })
}

// plan is what is to become of services.
type plan struct {
	after  []*Service                  // all that there will be
	made   []*Service                  // of them, those that are new
	limits map[*Service]config.Service // of them, those that get other limits
	places map[place]*Service          // where each listens
}

// plan finds out what a configuration asks for, and makes what can fail without anybody noticing:
// services with their memory. carryOut gives them back when it fails.
func (d *Daemon) plan(cfg *config.Config) (p plan, changes Changes, err error) {
	p.limits, p.places = map[*Service]config.Service{}, map[place]*Service{}
	defer func() {
		if err != nil {
			d.discard(p.made)
		}
	}()
	var kept []*Service // as they were
	for _, c := range cfg.Services {
		var missing []string
		c, missing = d.onRunning(cfg, c)
		for _, name := range missing {
			changes.Restart = append(changes.Restart, fmt.Sprintf("service.%s on port %s", c.Name, name))
		}
		s := d.serviceNamed(c.Name)
		if len(c.On) == 0 {
			if s != nil {
				kept = append(kept, s)
			}
			continue
		}
		switch same, limits := s.same(&c); {
		case same:
		case limits:
			p.limits[s] = c
			changes.Limits = append(changes.Limits, c.Name)
		default:
			verb := &changes.Added
			if s != nil {
				verb = &changes.Changed
			}
			if s, err = d.newService(c); err != nil {
				return p, changes, err
			}
			p.made = append(p.made, s)
			*verb = append(*verb, c.Name)
		}
		p.after = append(p.after, s)
		for _, on := range c.On {
			p.places[place{on, c.Listen}] = s
		}
	}
	p.after = append(p.after, kept...)
	for _, s := range kept {
		c := s.Config()
		for _, on := range c.On {
			if at := (place{on, c.Listen}); p.places[at] == nil {
				p.places[at] = s
			}
		}
	}
	for _, s := range d.services {
		if !slices.ContainsFunc(p.after, func(t *Service) bool { return t.Name() == s.Name() }) {
			changes.Removed = append(changes.Removed, s.Name())
		}
	}
	return p, changes, nil
}

// onRunning gives a service the numbers of the ports that run, and says which of its ports do not.
// Ports that the file no longer has run until the restart: a service on all ports stays there, and
// so does one that the file moves to a port that does not run yet, as a renamed one.
func (d *Daemon) onRunning(cfg *config.Config, c config.Service) (config.Service, []string) {
	on := map[int]bool{}
	var missing []string
	for _, i := range c.On {
		if j := d.portNamed(cfg.Ports[i].Name); j >= 0 {
			on[j] = true
		} else {
			missing = append(missing, cfg.Ports[i].Name)
		}
	}
	if len(c.Ports) == 0 {
		for i := range d.ports {
			on[i] = true
		}
	} else if s := d.serviceNamed(c.Name); s != nil && len(missing) > 0 {
		was := s.Config()
		for _, j := range was.On {
			// where it listens elsewhere from now on, another service may have its place
			if was.Listen == c.Listen && !inFile(cfg, d.ports[j].Name) {
				on[j] = true
			}
		}
	}
	c.On = slices.Sorted(maps.Keys(on))
	return c, missing
}

func (d *Daemon) serviceNamed(name string) *Service {
	for _, s := range d.services {
		if s.Name() == name {
			return s
		}
	}
	return nil
}

// same says whether a Service serves what a configuration says, or would with other limits.
func (s *Service) same(c *config.Service) (same, limits bool) {
	if s == nil {
		return false, false
	}
	have, want := s.Config(), *c
	have.Ports, want.Ports = nil, nil // On has them
	if stamp, err := stampOf(c); err != nil || stamp != s.stamp {
		return false, false
	}
	if reflect.DeepEqual(have, want) {
		return true, false
	}
	have.Allow, have.Networks, have.Connections, have.PeerConnections = want.Allow, want.Networks,
		want.Connections, want.PeerConnections
	return false, reflect.DeepEqual(have, want)
}

func (d *Daemon) discard(made []*Service) {
	at, cancel := context.WithCancel(context.Background())
	cancel()
	for _, s := range made {
		s.retire(at)
	}
}

// carryOut makes a plan true: new places first, which can fail; then what cannot fail.
func (d *Daemon) carryOut(ctx context.Context, p plan) error {
	opened, err := d.openPlaces(ctx, p.places)
	if err != nil {
		d.discard(p.made)
		return err
	}
	for at, l := range d.listeners {
		switch s := p.places[at]; {
		case opened[at] != nil: // l is closed
		case s == nil:
			l.close()
			delete(d.listeners, at)
		default:
			l.service.Store(s)
		}
	}
	for at, l := range opened {
		d.listeners[at] = l
		c := l.service.Load().Config()
		d.log.Info("serving", "service", c.Name, "type", c.Type, "port", l.on.Name, "listen", at.tcp)
	}
	for s, c := range p.limits {
		s.limits(c)
	}
	for _, s := range p.made {
		if s.server.begin != nil {
			s.server.begin()
		}
	}
	before := d.services
	d.setServices(p.after)
	for _, s := range before {
		if !slices.Contains(p.after, s) {
			d.retiring.Go(func() { d.letGo(s) })
		}
	}
	return nil
}

// openPlaces listens at the places that have no listener of their service's kind. It closes those
// of another kind first; if it fails, they listen again.
func (d *Daemon) openPlaces(ctx context.Context,
	places map[place]*Service) (map[place]*listener, error) {
	opened := map[place]*listener{}
	var closed []place
	for at, s := range places {
		c := s.Config()
		if l := d.listeners[at]; l != nil {
			if l.kind == kindOf(&c) {
				continue
			}
			l.close()
			closed = append(closed, at)
		}
		l, err := d.listen(ctx, d.ports[at.port], s)
		if err != nil {
			for _, l := range opened {
				l.close()
			}
			d.listenAgain(context.WithoutCancel(ctx), closed)
			return nil, err
		}
		opened[at] = l
	}
	return opened, nil
}

// listenAgain opens closed places for the services that they had.
func (d *Daemon) listenAgain(ctx context.Context, closed []place) {
	for _, at := range closed {
		l, err := d.listen(ctx, d.ports[at.port], d.listeners[at].service.Load())
		if err != nil {
			d.fail(fmt.Errorf("reload: %w", err))
			delete(d.listeners, at)
			continue
		}
		d.listeners[at] = l
	}
}

// letGo retires a service that was taken out while the daemon goes on.
func (d *Daemon) letGo(s *Service) {
	ctx, cancel := d.draining()
	defer cancel()
	n := s.retire(ctx)
	s.log.Info("taken out", "reset", n)
}
