package vswitch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/memif"
	"github.com/rnicd/rnicd/pmd/wire"
)

// Switch is made by New. The caller turns its cores; the other methods are for any goroutine,
// while cores are turned.
type Switch struct {
	cfg   Config
	cores []*Core

	change   sync.Mutex // one Apply, Stats or Close at a time
	closed   bool
	links    []*wire.Link
	uplinks  [][]*port
	programs []*port               // in the order of the configuration
	counted  map[string]*PortStats // by names of programs: by ports that are closed
	slots    []*port               // nil: free
	serial   uint32
	mtu      int // that packet buffers were made for

	refused atomic.Uint64

	lock    sync.Mutex // of what attaching programs look at
	sockets map[string]*socket
}

// socket is a Listener and who may attach to it.
type socket struct {
	path     string
	listener *memif.Listener
	allowed  map[uint32]*Program // by ID
}

// ErrClosed is the error of a closed Switch.
var ErrClosed = errors.New("vswitch: closed")

// New opens sockets, and queues of uplinks. After that, the caller turns the cores, and programs
// may attach. On an error everything is closed.
func New(cfg Config) (_ *Switch, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Switch{cfg: cfg, sockets: map[string]*socket{}, counted: map[string]*PortStats{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	for id := range cfg.Cores {
		pool, err := mem.NewPool(cfg.Arena, cfg.pool())
		if err != nil {
			return nil, err
		}
		c := &Core{id: id, pool: pool, wires: make([]*port, cfg.Cores),
			next: make([]mem.Buf, pool.Size())}
		c.fragments.draw()
		s.cores = append(s.cores, c)
	}
	if err := s.openUplinks(); err != nil {
		return nil, err
	}
	for _, c := range s.cores {
		c.kept = c.pool.Size() - c.pool.Available()
	}
	if err := s.room(&cfg); err != nil {
		return nil, err
	}
	s.mtu = cfg.mtu()
	if err := s.openWires(); err != nil {
		return nil, err
	}
	for i := range cfg.Programs {
		m, err := s.bind(&cfg.Programs[i])
		if err != nil {
			return nil, err
		}
		s.programs = append(s.programs, m)
	}
	plan := s.plan()
	for _, c := range s.cores {
		c.adopt(plan, s.portsOf(c.id))
	}
	return s, nil
}

// room checks the buffers that a configuration asks for against those that devices have left.
func (s *Switch) room(cfg *Config) error {
	for _, c := range s.cores {
		if err := cfg.room(c.id, c.kept); err != nil {
			return err
		}
	}
	return nil
}

func (s *Switch) openUplinks() error {
	for i := range s.cfg.Uplinks {
		u := &s.cfg.Uplinks[i]
		var queues []*port
		for q := range u.Queues {
			queue, err := u.Port.Open(q, s.cores[q].pool)
			if err != nil {
				return fmt.Errorf("vswitch: uplink %s: %w", u.Port.Name(), err)
			}
			m := &port{name: u.Port.Name(), kind: kindUplink, uplink: i, queue: q, core: q,
				mtu: u.Port.Caps().MTU, buffers: u.Buffers}
			m.open(queue)
			s.enter(m)
			queues = append(queues, m)
		}
		s.uplinks = append(s.uplinks, queues)
	}
	return nil
}

// openWires joins each core to each other.
func (s *Switch) openWires() error {
	for i, a := range s.cores {
		for _, b := range s.cores[i+1:] {
			link, err := wire.New(wire.Config{MTU: s.cfg.mtu() + wireHeader, Slots: wireBuffers})
			if err != nil {
				return err
			}
			s.links = append(s.links, link)
			for end, c := range []*Core{a, b} {
				other := []*Core{b, a}[end].id
				queue, err := link.Port(end).Open(0, c.pool)
				if err != nil {
					return err
				}
				w := &port{kind: kindWire, queue: other, core: c.id, mtu: s.cfg.mtu() + wireHeader,
					buffers: wireBuffers}
				w.open(queue)
				c.wires[other] = w
			}
		}
	}
	return nil
}

func (m *port) open(queues ...pmd.Queue) {
	m.queues = queues
	m.prepare()
}

// prepare is for a port that has its queues.
func (m *port) prepare() {
	for range m.queues {
		m.out = append(m.out, newOutgoing())
	}
}

// enter gives a port a slot and a number.
func (s *Switch) enter(m *port) {
	at := slices.Index(s.slots, nil)
	if at < 0 {
		at = len(s.slots)
		s.slots = append(s.slots, nil)
	}
	s.serial++
	s.slots[at], m.slot, m.serial = m, uint16(at), s.serial
	for i := range m.copies {
		m.copies[i] = newBucket(s.cfg.Multicast, burst)
	}
}

// bind makes the port of a program.
func (s *Switch) bind(p *Program) (*port, error) {
	sock, err := s.socket(p.Socket)
	if err != nil {
		return nil, err
	}
	shm, err := sock.listener.Bind(memif.BindConfig{ID: p.ID, Secret: p.Secret, Name: p.Name,
		MTU: p.MTU, Queues: p.Queues, MAC: p.MAC})
	if err != nil {
		s.unused(sock)
		return nil, err
	}
	m := &port{name: p.Name, kind: kindProgram, core: p.Core, memif: shm, socket: sock, cfg: *p}
	m.limit(p)
	for i := range p.Queues {
		q, err := shm.Open(i, s.cores[p.Core].pool)
		if err != nil {
			err = errors.Join(err, shm.Close())
			s.unused(sock)
			return nil, err
		}
		m.queues = append(m.queues, q)
	}
	m.prepare()
	s.enter(m)
	s.allow(m)
	return m, nil
}

func (s *Switch) allow(m *port) {
	s.lock.Lock()
	defer s.lock.Unlock()
	p := m.cfg
	m.socket.allowed[p.ID] = &p
}

// socket is that of a path, opened if it is not.
func (s *Switch) socket(path string) (*socket, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if sock := s.sockets[path]; sock != nil {
		return sock, nil
	}
	sock := &socket{path: path, allowed: map[uint32]*Program{}}
	l, err := memif.Listen(memif.ListenConfig{
		Socket: path, Mode: s.cfg.Sockets.Mode, Name: "rnicd switch", ClientsMax: ProgramsMax,
		RegionBytesMax: s.cfg.Sockets.MemoryMax,
		RingLog2Max:    s.cfg.Sockets.RingLog2Max, Unsealed: s.cfg.Sockets.Unsealed,
		Refused: func(peer memif.Peer, err error) {
			s.refused.Add(1)
			if s.cfg.Sockets.Refused != nil {
				s.cfg.Sockets.Refused(path, peer, err)
			}
		},
		Admit: func(peer memif.Peer) error {
			s.lock.Lock()
			defer s.lock.Unlock()
			return sock.allowed[peer.ID].admits(peer)
		},
	})
	if err != nil {
		return nil, err
	}
	sock.listener = l
	s.sockets[path] = sock
	return sock, nil
}

// admits says whether a process may attach as this program.
func (p *Program) admits(peer memif.Peer) error {
	switch {
	case p == nil:
		return fmt.Errorf("ID not found: no program has interface %d", peer.ID)
	case len(p.UIDs) == 0 && len(p.GIDs) == 0:
		return nil
	case slices.Contains(p.UIDs, peer.UID) || slices.Contains(p.GIDs, peer.GID):
		return nil
	}
	return fmt.Errorf("user %d and group %d may not attach as %s", peer.UID, peer.GID, p.Name)
}

// unused closes a socket without programs.
func (s *Switch) unused(sock *socket) {
	s.lock.Lock()
	idle := len(sock.allowed) == 0
	if idle {
		delete(s.sockets, sock.path)
	}
	s.lock.Unlock()
	if idle {
		_ = sock.listener.Close()
	}
}

// plan is that of the ports that there are.
func (s *Switch) plan() *plan { return newPlan(s.uplinks, s.programs, len(s.slots)) }

// portsOf are those that a core polls.
func (s *Switch) portsOf(core int) (all []*port) {
	for _, m := range s.slots {
		if m != nil && m.core == core {
			all = append(all, m)
		}
	}
	return all
}

// Cores are those to be turned.
func (s *Switch) Cores() []*Core { return s.cores }

// adopt goes over to a plan. What is not in it any more lets go of its Bufs. On the core.
func (c *Core) adopt(p *plan, ports []*port) {
	for _, m := range c.ports {
		if !slices.Contains(ports, m) {
			m.discard(c)
		}
	}
	c.dirty = c.dirty[:0]
	c.run.valid = false
	c.plan, c.ports = p, ports
	for _, m := range ports {
		m.station, m.member = m.next.station, m.next.member
	}
	for _, m := range slices.Concat(ports, c.wires) {
		if m != nil {
			for i := range m.out {
				m.out[i].sources(len(p.ports))
			}
			if m.dirty = m.waiting > 0; m.dirty {
				c.dirty = append(c.dirty, m)
			}
		}
	}
	c.dirty = slices.Grow(c.dirty, len(ports)+len(c.wires))
}

// StuckError: a core has not turned in time.
type StuckError struct {
	Core int
	Err  error // of the context
}

func (e *StuckError) Error() string {
	return fmt.Sprintf("vswitch: core %d does not turn: %v: give its thread a CPU of its own",
		e.Core, e.Err)
}

// Unwrap is for errors.Is.
func (e *StuckError) Unwrap() error { return e.Err }

// each has every core do something between two turns, and waits for all of them.
func (s *Switch) each(ctx context.Context, do func(*Core)) error {
	cmds := make([]*command, len(s.cores))
	for i, c := range s.cores {
		cmds[i] = &command{do: do, done: make(chan struct{})}
		c.command.Store(cmds[i])
	}
	for i, cmd := range cmds {
		select {
		case <-cmd.done:
		case <-ctx.Done():
			// A core that does not turn must not do this later, when no caller waits for it.
			late := -1
			for j := i; j < len(cmds); j++ {
				if !s.cores[j].command.CompareAndSwap(cmds[j], nil) {
					<-cmds[j].done
				} else if late < 0 {
					late = j
				}
			}
			if late >= 0 {
				return &StuckError{late, ctx.Err()}
			}
			return nil
		}
	}
	return nil
}

// Close closes sockets and detaches all programs. Cores must no longer be turned. The owner
// closes the uplinks.
func (s *Switch) Close() error {
	s.change.Lock()
	defer s.change.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.release()
}

func (s *Switch) release() (err error) {
	for _, m := range s.programs {
		err = cmp.Or(err, m.memif.Close())
	}
	for _, sock := range s.sockets {
		err = cmp.Or(err, sock.listener.Close())
	}
	for _, link := range s.links {
		for i := range 2 {
			_ = link.Port(i).Close()
		}
	}
	for _, c := range s.cores {
		for _, m := range slices.Concat(c.ports, c.wires) {
			if m != nil {
				m.discard(c)
			}
		}
	}
	return err
}

// PeerStatus says whether a program is attached, and which process it is or was.
type PeerStatus struct {
	Name     string
	Attached bool
	Times    uint64 // that a program has attached, of this configuration's
	Peer     memif.Peer
	Err      error // why it is not
}

// Peers are those of the programs, in the order of the configuration. Cores need not be turned.
func (s *Switch) Peers() (all []PeerStatus) {
	s.change.Lock()
	defer s.change.Unlock()
	for _, m := range s.programs {
		p := PeerStatus{Name: m.name}
		for again := true; again; { // all of one moment
			p.Times = m.memif.LinkUps()
			p.Peer, p.Attached = m.memif.Peer()
			p.Err = m.memif.Err()
			_, still := m.memif.Peer()
			again = p.Times != m.memif.LinkUps() || p.Attached != still
		}
		all = append(all, p)
	}
	return all
}
