package engine

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/sim"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// Simulated worlds of queue pairs that are connected by number: two hosts of package sim, on each a
// program with an engine, all in the virtual time of testing/synctest. The engines are the real
// ones, with all their goroutines; so are the Pollers below them.
//
//	sim_draw_test.go   what a seed draws
//	sim_world_test.go  both hosts and their programs
//	sim_end_test.go    a queue pair, and what its program does with it
//	sim_judge_test.go  what must have come of that
//	sim_seeds_test.go  TestNumberedSeeds, and what it has covered
//
// A seed determines what is drawn. Goroutines that run at the same moment do so in the scheduler's
// order.

// numbered is a world. Its fields that are not locked are the bubble's first goroutine's.
type numbered struct {
	*sim.World
	t     *testing.T
	wl    *numberedWorkload
	hosts [2]*process
	pairs []*couple
	ended chan struct{} // closed when the Pollers need to turn no more
	idle  atomic.Int64  // the longest that they do not turn

	mu     sync.Mutex
	failed error
	moved  chan struct{} // closed and made anew when there was something to do
	had    map[string]bool
}

// process is a host's program.
type process struct {
	*udProgram
	gid       gid
	adapter   *rnic.Adapter
	addr      netip.Addr
	log       telling
	listening *stream.Listener // of the connections within
	used      int              // octets of its memory
	gone      bool
}

// telling is a log.
type telling struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *telling) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *telling) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// The longest that the Pollers do not turn: they do not hear when something is left for them. It
// doubles while they find nothing, in a world's life and when nothing is left but to look at what
// remains.
const (
	idleFirst = 20 * time.Microsecond
	idleMost  = 20 * time.Millisecond
	idleLast  = time.Second
)

// newNumberedWorld makes a world, whose Pollers turn.
func newNumberedWorld(t *testing.T, wl *numberedWorkload) *numbered {
	n := &numbered{t: t, wl: wl, ended: make(chan struct{}), moved: make(chan struct{}),
		had: map[string]bool{}}
	n.idle.Store(int64(idleMost))
	begin := time.Now()
	cfg := wl.Config
	cfg.Loopback = true
	cfg.Clock = func() int64 { return int64(time.Second + time.Since(begin)) }
	for i := range n.hosts {
		p := unstarted(t)
		p.direct = true
		cfg.OnTurn[i] = p.engine.onTurn
		n.hosts[i] = &process{udProgram: &udProgram{program: p}}
	}
	n.World = must(sim.New(cfg))(t)
	for i, p := range n.hosts {
		p.start(n.Hosts[i], wl.Secret)
	}
	go n.drive()
	for i, p := range n.hosts {
		p.listening = must(stream.Listen(n.Hosts[i].Loop[1:], 1, stream.Options{}))(t)
		p.open()
	}
	return n
}

// drive turns the Pollers until the world is over.
func (n *numbered) drive() {
	for idle := idleFirst; ; {
		now := n.Now()
		next := n.Turn()
		if idle = min(2*idle, time.Duration(n.idle.Load())); next <= now+int64(time.Microsecond) {
			idle = idleFirst
			n.mu.Lock()
			close(n.moved)
			n.moved = make(chan struct{})
			n.mu.Unlock()
		}
		select {
		case <-time.After(min(time.Duration(next-now), idle)):
		case <-n.ended:
			return
		}
	}
}

// start starts the program's engine, which nobody turns yet.
func (p *process) start(h *sim.Host, secret string) {
	p.adapter, p.addr, p.gid = h.Adapter, h.Addr, h.Addr.As16()
	e := p.engine
	e.start(Host{Adapter: h.Adapter, Poller: h.Poller, OwnTCP: true, Polled: true, RoCE: true,
		Log: &p.log, Errors: &p.log, Addrs: []netip.Addr{h.Addr}, MTU: 1500})
	if secret != "" {
		e.secret = []byte(secret)
	}
	e.loop = func(ctx context.Context) (mine, theirs net.Conn, err error) {
		to := netip.AddrPortFrom(netip.MustParseAddr(h.Loop[1].Name()), 1)
		if mine, err = stream.Dial(ctx, h.Loop[:1], to, stream.Options{}); err == nil {
			theirs, err = p.listening.Accept()
		}
		return mine, theirs, err
	}
}

// end ends what is left of the program.
func (p *process) end() {
	if !p.gone {
		p.do(ring.Leave)
	}
	p.gone = true
	if p.adapter == nil {
		return
	}
	_ = p.listening.Close() // it was open
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(p.t, p.adapter.Close(ctx))
	p.adapter = nil
}

// free closes what the kernel has given.
func (p *process) free() {
	_ = p.engine.wake.Close()
	_ = p.engine.bell.Close()
	_ = unix.Munmap(p.memory)
}

// fail ends the world, which is wrong.
func (n *numbered) fail(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failed == nil {
		n.failed = fmt.Errorf("at %v: %w", time.Duration(n.Now()), fmt.Errorf(format, args...))
	}
}

func (n *numbered) err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failed
}

// mark notes what a world had.
func (n *numbered) mark(what string, yes bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.had[what] = n.had[what] || yes
}

// until returns when cond holds, at a moment, or when the world has failed; true: cond holds.
func (n *numbered) until(at int64, cond func() bool) bool {
	for {
		n.mu.Lock()
		moved, failed := n.moved, n.failed
		n.mu.Unlock()
		switch left := time.Duration(at - n.Now()); {
		case cond():
			return true
		case left <= 0 || failed != nil:
			return false
		default:
			select {
			case <-moved:
			case <-time.After(min(left, time.Second)):
			}
		}
	}
}

// leaks says what is left when all queue pairs are destroyed and all programs have ended.
func (n *numbered) leaks() {
	n.idle.Store(int64(idleLast))
	for i, h := range n.Hosts {
		e := n.hosts[i].engine
		var c stack.Counters
		// the last segments and TIME-WAIT; and a neighbour who does not answer holds what is sent
		var bufs int
		for range 600 {
			e.whenQuiet(func() {
				h.Poller.Snapshot(&c)
				bufs = h.Leaked()
			})
			if c.Conns+c.HalfOpen+bufs == 0 {
				break
			}
			time.Sleep(time.Second)
		}
		if c.Conns+c.HalfOpen+bufs > 0 {
			n.fail("host %d: %d connections, %d half open, %d buffers are left", i, c.Conns, c.HalfOpen,
				bufs)
		}
		if r := h.Adapter.Regions(); r != 1 {
			n.fail("host %d: %d regions", i, r)
		}
		if e.slot != nil && len(e.slot.all) > 0 {
			n.fail("host %d: %d numbers are taken", i, len(e.slot.all))
		}
		if len(e.endings.all) > 0 {
			n.fail("host %d: the program was not told of %d ends", i, len(e.endings.all))
		}
		for bit := range e.qps {
			if e.qps[bit].Load() != nil {
				n.fail("host %d: doorbell %d is taken", i, bit)
			}
		}
	}
}

// String are the last lines of both logs.
func (p *process) String() string {
	lines := strings.Split(p.log.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n  ")
}
