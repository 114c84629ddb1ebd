package vswitch

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Changes are names of programs.
type Changes struct{ Added, Removed, Changed []string }

// Apply replaces the programs. A program that keeps its socket, ID, core, secret, MAC, MTU and
// queues keeps its connection, unless its process's user and group may not attach any more; others
// are detached, and may attach again if they are still configured. With an error nothing has
// changed, unless it is a *PartialError.
func (s *Switch) Apply(ctx context.Context, programs []Program) (ch Changes, err error) {
	s.change.Lock()
	defer s.change.Unlock()
	if s.closed {
		return ch, ErrClosed
	}
	next, err := s.proposed(programs)
	if err != nil {
		return ch, err
	}
	keep, fresh := s.compare(next.Programs)
	if err := s.open(fresh); err != nil {
		return ch, err
	}
	settings := map[*port]Program{} // as they were
	kept := make([]*port, len(next.Programs))
	for i, m := range keep {
		if m == nil {
			continue
		}
		if !m.cfg.equal(&next.Programs[i]) {
			ch.Changed = append(ch.Changed, m.name)
			settings[m] = m.cfg
			m.cfg = next.Programs[i]
		}
		kept[i] = m
	}
	// What goes and what stays, then what comes: an ID on a socket may go from one to the other.
	was := s.programs
	s.programs = slices.DeleteFunc(slices.Clone(kept), func(m *port) bool { return m == nil })
	var gone []*port
	for _, m := range was {
		if !slices.Contains(kept, m) {
			gone = append(gone, m)
			s.slots[m.slot] = nil
		}
	}
	if err := s.settle(ctx); err != nil {
		s.programs = was
		for _, m := range gone {
			s.slots[m.slot] = m
		}
		for m, p := range settings {
			m.cfg = p
		}
		return Changes{}, err
	}
	for _, m := range gone {
		ch.Removed = append(ch.Removed, m.name)
		s.unbind(m, next.Programs)
	}
	ch.Added, err = s.adopt(next.Programs, kept)
	for m := range settings {
		m.expel()
	}
	if err = errors.Join(err, s.settle(ctx)); err != nil {
		err = &PartialError{err}
	}
	return ch, err
}

// expel ends the connection of a process that may not attach any more.
func (m *port) expel() {
	if peer, attached := m.memif.Peer(); attached {
		if err := m.cfg.admits(peer); err != nil {
			m.memif.Disconnect(err.Error())
		}
	}
}

// PartialError: what Apply was given is the configuration now, but not all of it works.
type PartialError struct{ Err error }

func (e *PartialError) Error() string { return "applied in part: " + e.Err.Error() }

// Unwrap is for errors.Is and errors.As.
func (e *PartialError) Unwrap() error { return e.Err }

// proposed is the configuration with these programs, if it can be applied.
func (s *Switch) proposed(programs []Program) (next Config, err error) {
	next = s.cfg
	next.Programs = programs
	next = next.withDefaults()
	if err := next.check(); err != nil {
		return next, err
	}
	if err := s.room(&next); err != nil {
		return next, err
	}
	if next.mtu() > s.mtu {
		return next, fmt.Errorf("vswitch: a program has MTU %d, packet buffers were made for %d: restart",
			next.mtu(), s.mtu)
	}
	return next, nil
}

// adopt makes programs those of the switch: the ones that are kept, and new ones, which it binds.
func (s *Switch) adopt(programs []Program, kept []*port) (added []string, err error) {
	s.programs = s.programs[:0]
	var errs []error
	for i := range programs {
		m := kept[i]
		if m == nil {
			if m, err = s.bind(&programs[i]); err != nil {
				errs = append(errs, err)
				continue
			}
			added = append(added, m.name)
		}
		s.allow(m)
		s.programs = append(s.programs, m)
	}
	s.cfg.Programs = programs
	return added, errors.Join(errs...)
}

// compare finds for each of programs the port that it keeps, or nil; those are fresh.
func (s *Switch) compare(programs []Program) (keep []*port, fresh []*Program) {
	keep = make([]*port, len(programs))
	for i := range programs {
		for _, m := range s.programs {
			if m.cfg.sameBinding(&programs[i]) {
				keep[i] = m
			}
		}
		if keep[i] == nil {
			fresh = append(fresh, &programs[i])
		}
	}
	return keep, fresh
}

// open tries the sockets of programs that come: what is most likely to fail, before anything is
// changed.
func (s *Switch) open(fresh []*Program) error {
	var opened []*socket
	for _, p := range fresh {
		sock, err := s.socket(p.Socket)
		if err != nil {
			for _, o := range opened {
				s.unused(o)
			}
			return err
		}
		opened = append(opened, sock)
	}
	return nil
}

func (p *Program) sameBinding(o *Program) bool {
	return p.Name == o.Name && p.Socket == o.Socket && p.ID == o.ID && p.Secret == o.Secret &&
		p.MAC == o.MAC && p.MTU == o.MTU &&
		p.Queues == o.Queues && p.Core == o.Core && p.Uplink == o.Uplink && p.VLAN == o.VLAN
}

func (p *Program) equal(o *Program) bool {
	return p.sameBinding(o) && slices.Equal(p.Addrs, o.Addrs) && slices.Equal(p.Ports, o.Ports) &&
		slices.Equal(p.UIDs, o.UIDs) &&
		slices.Equal(p.GIDs, o.GIDs) && p.Buffers == o.Buffers && p.Send == o.Send &&
		p.Receive == o.Receive
}

// settle has all cores go over to a plan of the ports that there are, and to what the configuration
// says of them.
func (s *Switch) settle(ctx context.Context) error {
	// next of each port is written here and read by its core, which is waited for.
	plan := s.plan()
	ports := make([][]*port, len(s.cores))
	for i := range s.cores {
		ports[i] = s.portsOf(i)
	}
	return s.each(ctx, func(c *Core) {
		for _, m := range ports[c.id] {
			if m.kind == kindProgram && !m.program.equal(&m.cfg) {
				m.limit(&m.cfg)
			}
		}
		c.adopt(plan, ports[c.id])
	})
}

// unbind closes the port of a program, which no core has any more. Its socket stays where another
// wants it.
func (s *Switch) unbind(m *port, next []Program) {
	_ = m.memif.Close()
	s.outlived(m)
	s.lock.Lock()
	delete(m.socket.allowed, m.cfg.ID)
	s.lock.Unlock()
	if !slices.ContainsFunc(next, func(p Program) bool { return p.Socket == m.socket.path }) {
		s.unused(m.socket)
	}
}
