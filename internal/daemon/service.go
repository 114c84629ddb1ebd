package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/tools/peer"
	"github.com/rnicd/rnicd/rnic"
)

// server is one type of service, made of its configuration. Exactly one of request and conn is set.
type server struct {
	request func(ctx context.Context, on *Port, req *rnic.ConnRequest) // to its end
	// to its end; the caller closes it
	conn func(ctx context.Context, c net.Conn)
	// if set: when it is served, which cannot fail any more
	begin func()
	// when no client is served any more
	release func() error
}

// Service takes connections of one [[service]] on all of its ports.
//
//	serving ── retire ──► retiring: no new connections ── the last one has ended ──► released
//	                          └─ the time is over: ctx ends, which resets what is left ──┘
type Service struct {
	d      *Daemon
	log    *slog.Logger
	server server
	ctx    context.Context // of its connections
	cancel context.CancelFunc
	stamp  string // of the file that it has

	*counts          // of all Services that have had this name
	memory  *holding // nil: it has none

	refusals, failures Ration

	mu      sync.Mutex
	cfg     config.Service
	active  map[*Connection]struct{}
	peers   map[netip.Prefix]int
	retired bool
	idle    chan struct{} // closed when retired and without connections
	vacated chan struct{} // closed, and another one made, when a connection has ended
	waiting int           // clients that wait for that
}

// counts of the Services of one name, one after the other: they only grow, whatever a reload
// changes.
type counts struct {
	Accepted, Refused, Failed atomic.Uint64

	refusedBy struct{ allow, connections, peers, request atomic.Uint64 } // Refused is their sum
}

// Connection is one client of a Service.
type Connection struct {
	Service string
	Port    string
	Remote  netip.AddrPort
	Since   time.Time
}

// newService makes a Service, with its memory, that nothing leads to yet.
func (d *Daemon) newService(c config.Service) (*Service, error) {
	s := &Service{
		d: d, cfg: c, log: d.log.With("service", c.Name), active: map[*Connection]struct{}{},
		peers: map[netip.Prefix]int{}, idle: make(chan struct{}),
		vacated: make(chan struct{}), counts: d.counts[c.Name],
	}
	if s.counts == nil {
		s.counts = &counts{}
		d.counts[c.Name] = s.counts
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	var err error
	if s.stamp, err = stampOf(&c); err == nil {
		s.server, err = newServer(s, &c)
	}
	if err != nil {
		s.cancel()
		return nil, fmt.Errorf("service %q: %w", c.Name, err)
	}
	d.held.Add(1)
	return s, nil
}

// Name of the service.
func (s *Service) Name() string { return s.Config().Name }

// Config is its present configuration.
func (s *Service) Config() config.Service {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg
}

// Connections are its present connections.
func (s *Service) Connections() (all []Connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.active {
		all = append(all, *c)
	}
	return all
}

// limits takes over those of a changed configuration. Connections that there are stay.
func (s *Service) limits(c config.Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.Allow, s.cfg.Networks, s.cfg.Connections, s.cfg.PeerConnections = c.Allow, c.Networks,
		c.Connections, c.PeerConnections
}

// allows says why an address is not served; empty: it is.
func allows(c *config.Service, a netip.Addr) string {
	a = a.Unmap()
	unzoned := a.WithZone("")
	if len(c.Networks) > 0 && !slices.ContainsFunc(c.Networks, func(n netip.Prefix) bool {
		return n.Contains(unzoned)
	}) {
		return fmt.Sprintf("%v is in none of the networks that are served", a)
	}
	return ""
}

// refusal is what stands in a client's way: a cause that is counted, and a text.
type refusal struct {
	cause *atomic.Uint64
	text  string
}

// begin takes a place for a client, or says why there is none. current is false of a Service that
// was taken out: another one may have its listener.
func (s *Service) begin(on *Port,
	remote netip.AddrPort) (c *Connection, why refusal, current bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	who := peer.Network(remote.Addr())
	switch {
	case s.retired:
		return nil, refusal{}, false
	case allows(&s.cfg, remote.Addr()) != "":
		return nil, refusal{&s.refusedBy.allow, allows(&s.cfg, remote.Addr())}, true
	case len(s.active) >= s.cfg.Connections:
		return nil, refusal{&s.refusedBy.connections, fmt.Sprintf("%d other clients are being served, "+
			"and no more at a time"+peer.Later, len(s.active))}, true
	case s.cfg.PeerConnections > 0 && s.peers[who] >= s.cfg.PeerConnections:
		return nil, refusal{&s.refusedBy.peers, fmt.Sprintf("%d clients at your address are being "+
			"served, and no more of one at a time"+peer.Later, s.peers[who])}, true
	}
	c = &Connection{Service: s.cfg.Name, Port: on.Name, Remote: remote, Since: time.Now()}
	s.active[c] = struct{}{}
	s.peers[who]++
	s.Accepted.Add(1)
	return c, refusal{}, true
}

func (s *Service) end(c *Connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.active, c)
	close(s.vacated)
	s.vacated = make(chan struct{})
	who := peer.Network(c.Remote.Addr())
	if s.peers[who]--; s.peers[who] == 0 {
		delete(s.peers, who)
	}
	if s.retired && len(s.active) == 0 {
		close(s.idle)
	}
}

// placeWait is how long a client waits for another one's place. One that comes again as soon as it
// has closed its connection, as a test of all sizes does, finds its own place still taken.
const placeWait = time.Second

// waitingMax is how many clients may wait for a place of a Service: each that becomes free wakes
// all of them. Others are told at once that there is none.
const waitingMax = 64

// await is begin that waits a moment for a place.
func (s *Service) await(on *Port,
	remote netip.AddrPort) (c *Connection, why refusal, current bool) {
	c, why, current = s.begin(on, remote)
	if !strings.HasSuffix(why.text, peer.Later) || !s.mayWait(1) {
		return c, why, current
	}
	defer s.mayWait(-1)
	late, stop := awake.After(placeWait)
	defer stop()
	for {
		s.mu.Lock()
		vacated := s.vacated
		s.mu.Unlock()
		c, why, current = s.begin(on, remote)
		if !strings.HasSuffix(why.text, peer.Later) {
			return c, why, current
		}
		select {
		case <-vacated:
		case <-late:
			return c, why, current
		case <-s.ctx.Done():
			return c, why, current
		}
	}
}

// mayWait counts a client that waits for a place, by 1, or does so no more, by -1. False: it may
// not.
func (s *Service) mayWait(by int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting+by > waitingMax {
		return false
	}
	s.waiting += by
	return true
}

// retire takes no more connections, waits for those that there are, resets what is left when ctx
// ends, and gives the memory back. It returns how many were reset.
func (s *Service) retire(ctx context.Context) (reset int) {
	s.mu.Lock()
	s.retired = true
	if len(s.active) == 0 {
		close(s.idle)
	}
	s.mu.Unlock()
	select {
	case <-s.idle:
	case <-ctx.Done():
		s.mu.Lock()
		reset = len(s.active)
		s.mu.Unlock()
	}
	s.cancel()
	<-s.idle
	if s.server.release != nil {
		if err := s.server.release(); err != nil {
			s.log.Error("memory was not given back", "error", err)
		}
	}
	s.d.held.Add(-1)
	return reset
}

// refused tells of a client that the service's server did not want.
func (s *Service) refused(remote netip.AddrPort, why string) {
	s.refusedFor(&s.refusedBy.request, remote, why)
}

// refusedFor tells of a client that was not served.
func (s *Service) refusedFor(cause *atomic.Uint64, remote netip.AddrPort, why string) {
	cause.Add(1)
	s.Refused.Add(1)
	s.refusals.Warn(s.log, "refused", "remote", remote, "why", why)
}

// failed tells of a connection that did not end well. One that was left when the time to drain was
// over has not failed: we have reset it.
func (s *Service) failed(remote netip.AddrPort, err error) {
	if s.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		s.log.Info("reset at the end of the drain", "remote", remote)
		return
	}
	s.Failed.Add(1)
	s.failures.Warn(s.log, "failed", "remote", remote, "error", err)
}

// over tells of a client that is gone.
func (s *Service) over(remote netip.AddrPort, err error, attrs ...any) {
	if err != nil {
		s.failed(remote, err)
		return
	}
	s.log.Info("served", append([]any{"remote", remote}, attrs...)...)
}
