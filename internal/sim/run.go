package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// Outcome is what a run counted.
type Outcome struct {
	Stats   [2]rnic.Stats // of the first connection's ends
	Virtual time.Duration
	Octets  uint64 // written and sent
	Had     map[Dimension]bool
}

// app polls the completion queues of one host.
type app struct {
	cqs  []*rnic.CompletionQueue
	pool *recvPool // of the host's connections, when they share one
	byQP map[uint32]*peer
}

// run is a Workload in its World.
type run struct {
	*World
	wl       *Workload
	apps     [2]app
	sessions []*session
	path     int // of wl.Paths, the next to come
	isOpen   bool
}

// Run plays the Workload in a World of its own and checks the outcome. The error says what the
// oracle found.
func (wl Workload) Run() (Outcome, error) {
	r, err := wl.start()
	if err != nil {
		return Outcome{}, err
	}
	begin := r.Now()
	for _, stage := range r.stages() {
		if err := stage.do(); err != nil {
			return Outcome{}, fmt.Errorf("%s: %w", stage.name, err)
		}
	}
	out := Outcome{Virtual: time.Duration(r.Now() - begin)}
	for _, s := range r.sessions {
		for _, p := range s.peers {
			out.Octets += p.octets
			if p.stats, err = p.qp.Stats(context.Background()); err != nil {
				return out, err
			}
		}
	}
	if err := r.timely(); err != nil {
		return out, err
	}
	out.Stats = [2]rnic.Stats{r.sessions[0].peers[0].stats, r.sessions[0].peers[1].stats}
	out.Had = r.had()
	return out, nil
}

// start makes the Workload's World.
func (wl Workload) start() (*run, error) {
	if wl.Limit == 0 {
		wl.Limit = 20 * time.Minute
	}
	calm := wl.Config
	calm.Faults = wl.duringStartUp()
	w, err := New(calm)
	return &run{World: w, wl: &wl}, err
}

type stage struct {
	name string
	do   func() error
}

func (r *run) stages() []stage {
	return []stage{
		{"start-up", r.connect}, {"exchange", r.exchange}, {"close", r.close}, {"check", r.check},
		{"leaks", r.leaks},
	}
}

// connect makes all connections, one after the other, and lets the faults begin.
func (r *run) connect() error {
	var listeners, frameless [2]*rnic.Listener
	for i, h := range r.Hosts {
		var err error
		if listeners[i], err = h.Adapter.Listen(context.Background(), ":"+listenPort,
			rnic.ListenOptions{}); err != nil {
			return err
		}
		// offered before the peer has said anything
		alone := rnic.ListenOptions{Dialects: []rnic.Dialect{rnic.Culley02}}
		if frameless[i], err = h.Adapter.Listen(context.Background(), ":"+framelessPort,
			alone); err != nil {
			return err
		}
		r.apps[i].byQP = map[uint32]*peer{}
	}
	for i := range r.wl.Conns {
		s := &session{wl: r.wl, c: &r.wl.Conns[i], ending: Ending{Host: i % 2}}
		if i == 0 || r.wl.Ending.Kind == Vanish {
			s.ending = r.wl.Ending
		}
		if err := r.open(s, i); err != nil {
			return err
		}
		l := listeners[1-s.c.Dialer]
		if s.c.Dialect == rnic.Culley02 {
			l = frameless[1-s.c.Dialer]
		}
		if err := s.connect(r.World, l); err != nil {
			return err
		}
	}
	return r.SetFaults(r.wl.untilOpen())
}

// allOpen has all faults begin once each Responder has heard its Initiator.
func (r *run) allOpen() error {
	if r.isOpen || r.cut || !r.all((*session).open) {
		return nil
	}
	r.isOpen = true
	return r.SetFaults(r.wl.Faults)
}

// open makes the peers of a session.
func (r *run) open(s *session, index int) (err error) {
	for k, h := range r.Hosts {
		if s.peers[k], err = newPeer(r.wl, h, s.c, k, index); err != nil {
			return err
		}
	}
	s.peers[0].remote, s.peers[1].remote = s.peers[1], s.peers[0]
	for k, p := range s.peers {
		a := &r.apps[k]
		if len(a.cqs) == 0 || !r.wl.SharedCQ {
			cq, err := p.host.Adapter.CreateCQ((depth + recvDepth) * len(r.wl.Conns))
			if err != nil {
				return err
			}
			a.cqs = append(a.cqs, cq)
		}
		if r.wl.SharedRecv[k] && a.pool == nil {
			if a.pool, err = poolOf(p.host.Adapter, r.wl); err != nil {
				return err
			}
		}
		if err := p.open(s.c, k, a.cqs[len(a.cqs)-1], a.pool); err != nil {
			return err
		}
		a.byQP[p.qp.Number()] = p
	}
	r.sessions = append(r.sessions, s)
	return nil
}

// poll takes what has completed.
func (a *app) poll() error {
	var cs [32]rnic.Completion
	for _, cq := range a.cqs {
		for n := cq.Poll(cs[:]); n > 0; n = cq.Poll(cs[:]) {
			for i := range cs[:n] {
				p := a.byQP[cs[i].QP]
				if p == nil {
					return fmt.Errorf("completion %+v of no queue pair of this host", cs[i])
				}
				if err := p.complete(&cs[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// limitsMax is how many Limits a stage may take in all: a day, by default.
const limitsMax = 72

// play steps the World, and both applications with it, until done says so. It fails when no segment
// has arrived for the Workload's Limit, and after limitsMax of them.
func (r *run) play(done func() bool) error {
	before := uint64(0)
	for n := 1; ; n++ {
		err := r.playFor(r.wl.Limit, done)
		if n == limitsMax || !errors.Is(err, errLimit) {
			return err
		}
		arrived := uint64(0)
		for _, s := range r.sessions {
			arrived += s.arrivals()
		}
		if arrived == before {
			return err
		}
		before = arrived
	}
}

// playFor is play, for no longer than limit.
func (r *run) playFor(limit time.Duration, done func() bool) error {
	var failed error
	err := r.World.Run(limit, func() bool {
		failed = errors.Join(r.apps[0].poll(), r.apps[1].poll())
		for _, s := range r.sessions {
			if failed == nil {
				failed = s.turn(r.World)
			}
		}
		return failed != nil || done()
	})
	return errors.Join(failed, err)
}

func (r *run) all(is func(*session) bool) bool {
	for _, s := range r.sessions {
		if !is(s) {
			return false
		}
	}
	return true
}

// exchange lets everybody say everything.
func (r *run) exchange() error {
	var failed error
	err := r.play(func() bool {
		failed = errors.Join(r.changePath(), r.allOpen())
		return failed != nil || r.all((*session).settled)
	})
	return errors.Join(failed, err, r.unsettled(err))
}

// unsettled says which end was still waiting when time was up.
func (r *run) unsettled(err error) error {
	if err == nil {
		return nil
	}
	var all error
	for _, s := range r.sessions {
		for _, p := range s.peers {
			all = errors.Join(all, fmt.Errorf("%s: %v, %d to post, %d posted and not completed, %d Sends "+
				"not received (%v)",
				p.name, p.qp.State(), p.left, len(p.pending), len(p.sends), p.qp.Err()))
		}
	}
	return all
}

// changePath makes the changes of the path that are due.
func (r *run) changePath() error {
	for r.path < len(r.wl.Paths) {
		c := &r.wl.Paths[r.path]
		share := 0.0
		for _, s := range r.sessions {
			share += s.share() / float64(len(r.sessions))
		}
		if share < c.At {
			return nil
		}
		r.path++
		for i := range r.Hosts {
			if c.From == 2 || c.From == i {
				if err := r.SetPath(i, c.MTU, c.Silent); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// close ends every session that still stands, and waits for the end of all.
func (r *run) close() error {
	for _, s := range r.sessions {
		if !s.done() {
			s.close()
		}
	}
	return r.play(func() bool { return r.all((*session).done) })
}

// check judges everything once it is over.
func (r *run) check() error {
	err := errors.Join(r.apps[0].poll(), r.apps[1].poll())
	for _, s := range r.sessions {
		err = errors.Join(err, s.check())
	}
	for _, a := range r.apps {
		if a.pool != nil {
			err = errors.Join(err, a.pool.check())
		}
	}
	return err
}

// leaks waits until the cable is empty, TIME-WAIT is over and every Buf is back, and looks for what
// is left.
func (r *run) leaks() error {
	if err := r.SetFaults(fault.Faults{}); err != nil {
		return err
	}
	err := r.World.Run(10*time.Minute, func() bool {
		return r.Hosts[0].Leaked()+r.Hosts[1].Leaked() == 0 && r.Hosts[0].conns()+r.Hosts[1].conns() == 0
	})
	if err != nil {
		return fmt.Errorf("%d and %d Bufs leaked, %d and %d connections left: %w",
			r.Hosts[0].Leaked(), r.Hosts[1].Leaked(), r.Hosts[0].conns(), r.Hosts[1].conns(), err)
	}
	for _, s := range r.sessions {
		for _, p := range s.peers {
			p.region.Deregister()
			p.source.Deregister()
			p.inbox.region.Deregister()
			p.closeAsks()
		}
	}
	for _, h := range r.Hosts {
		if n := h.Adapter.Regions(); n != 0 {
			err = errors.Join(
				err, fmt.Errorf("host %v: %d regions are registered without an owner", h.Addr, n))
		}
	}
	return err
}

// conns is how many connections the host's Poller has, those in TIME-WAIT included.
func (h *Host) conns() int { return h.counters().Conns }

func (h *Host) counters() (n stack.Counters) {
	h.Poller.Snapshot(&n)
	return n
}
