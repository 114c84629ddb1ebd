package memif

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// Port is one end of an interface: a client's (Dial), or a server's for one interface id
// (Listener.Bind) or for one connection (Listener.Accept). Its link is up while there is a peer.
//
//	down ──CONNECTED──► up ──the peer has gone──► down ──► ... ──Close──► closed
type Port struct {
	name   string
	mac    [6]byte
	mtu    int
	queues []*Queue
	arena  *hugepages.Arena // zero copy: where pools must lie

	current  atomic.Pointer[session] // nil: the link is down
	offences atomic.Uint64

	lock    sync.Mutex
	closed  bool
	kick    func(why string) // ends the connection that there is
	changed chan struct{}    // closed and made again whenever the link changes
	err     error            // why it is down
	peer    Peer
	ups     uint64
	watch   func()

	closing chan struct{}
	over    chan struct{} // Gone
	giveUp  func()        // of a server's id
	// of the last client of a server's interface; the side that serves it has it
	rung     *bells
	running  sync.WaitGroup
	unmapped sync.WaitGroup // sessions that are not yet
}

var _ pmd.LinkWatcher = (*Port)(nil)
var _ pmd.Queue = (*Queue)(nil)

// Peer is the other end of a connection.
type Peer struct {
	ID        uint32 // of the interface
	Name      string // of the program, as it says
	Interface string // that the interface has there, as it says
	// Of the process, at the time when it connected (SO_PEERCRED): the kernel's word.
	PID      int32
	UID, GID uint32

	// Secret is what a client gave, without the zeros after it. Listeners only.
	Secret string
}

// ErrClosed is what comes of waiting for a port, or a listener, that is closed.
var ErrClosed = errors.New("memif: closed")

// Bounds of an MTU: what IPv4 asks every link to carry (RFC 791 section 3.2), and a frame with
// its two tags of 64 KiB.
const (
	MTUMin = 68
	MTUMax = 65535 - pmd.FrameOverhead
)

const (
	mtuDefault = 1500
	queuesMax  = 64
	ringLog2   = 9 // 512 descriptors
	regionsMax = 64
)

func newPort(name string, mac [6]byte, mtu, queues int) (*Port, error) {
	switch {
	case !isLittleEndian():
		return nil, errors.New("memif: rings are laid out for little-endian processors only")
	case mtu < MTUMin || mtu > MTUMax:
		return nil, fmt.Errorf("memif: %s: MTU %d; want %d to %d", name, mtu, MTUMin, MTUMax)
	case queues < 1 || queues > queuesMax:
		return nil, fmt.Errorf("memif: %s: %d queues; want 1 to %d", name, queues, queuesMax)
	case len(name) >= nameLen:
		return nil, fmt.Errorf("memif: name %q; want up to %d octets", name, nameLen-1)
	case mac[0]&1 != 0:
		return nil, fmt.Errorf("memif: %s: MAC %s is a group address; clear the low bit of its "+
			"first octet", name, net.HardwareAddr(mac[:]))
	}
	if mac == ([6]byte{}) {
		_, _ = rand.Read(mac[:])
		mac[0] = mac[0]&^1 | 2
	}
	return &Port{
		name: name, mac: mac, mtu: mtu, queues: make([]*Queue, queues),
		changed: make(chan struct{}), closing: make(chan struct{}), over: make(chan struct{}),
		err: errors.New("no peer yet"),
	}, nil
}

func (p *Port) Name() string   { return p.name }
func (p *Port) MAC() [6]byte   { return p.mac }
func (p *Port) Caps() pmd.Caps { return pmd.Caps{MTU: p.mtu, Queues: len(p.queues)} }

// Open gives queue i. It may be used before there is a peer. Errors: no such queue, opened
// before, Bufs too small for the MTU, or not in the arena of a port without copies.
func (p *Port) Open(i int, pool *mem.Pool) (pmd.Queue, error) {
	if i < 0 || i >= len(p.queues) {
		return nil, fmt.Errorf("memif: %s: no queue %d; the port has %d", p.name, i, len(p.queues))
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.closed {
		return nil, fmt.Errorf("memif: %s: %w", p.name, ErrClosed)
	}
	if p.queues[i] != nil {
		return nil, fmt.Errorf("memif: %s: queue %d is open already; a queue is opened once", p.name, i)
	}
	frameMax := p.mtu + pmd.FrameOverhead
	if room := pool.Stride() - pool.Headroom(); room < frameMax {
		return nil, fmt.Errorf("memif: %s: Bufs of stride %d hold frames of %d octets; MTU %d needs "+
			"%d: use a larger stride or a smaller MTU",
			p.name, pool.Stride(), room, p.mtu, frameMax)
	}
	if p.arena != nil {
		if _, ok := poolAt(p.arena.Bytes(), pool); !ok {
			return nil, fmt.Errorf("memif: %s: the pool is not in the arena that the peer is given: carve "+
				"it from that, or leave Config.Arena out", p.name)
		}
	}
	q := &Queue{port: p, index: i, pool: pool, frameMax: frameMax}
	if err := q.interrupt.open(); err != nil {
		return nil, fmt.Errorf("memif: %s: %w", p.name, err)
	}
	p.queues[i] = q
	if s := p.current.Load(); s != nil && s.wakers != nil {
		q.interrupt.watch(s.wakers[i])
	}
	return q, nil
}

// LinkUp says whether there is a peer. Any goroutine.
func (p *Port) LinkUp() bool { return p.current.Load() != nil }

// Peer is the other end; false: there is none. Any goroutine.
func (p *Port) Peer() (Peer, bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.peer, p.current.Load() != nil
}

// LinkUps is how often the link has come up. Any goroutine.
func (p *Port) LinkUps() uint64 {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.ups
}

// Offences is how often a connection ended because the peer's memory went away, or was slow
// (Drops.Fault, Drops.Slow). Any goroutine.
func (p *Port) Offences() uint64 { return p.offences.Load() }

// Err says why the link is down; nil: it is up. Any goroutine.
func (p *Port) Err() error {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.err
}

// AwaitLink returns when the link is up, or is down: the first, or the second, as want says. Its
// error is ErrClosed or that of ctx, with the reason why there is no peer. Any goroutine.
func (p *Port) AwaitLink(ctx context.Context, want bool) error {
	for {
		p.lock.Lock()
		up, changed, closed, err := p.current.Load() != nil, p.changed, p.closed, p.err
		p.lock.Unlock()
		switch {
		case up == want:
			return nil
		case closed:
			return fmt.Errorf("memif: %s: %w", p.name, ErrClosed)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if err != nil {
				return fmt.Errorf("memif: %s: no link: %w (%w)", p.name, err, ctx.Err())
			}
			return fmt.Errorf("memif: %s: %w", p.name, ctx.Err())
		}
	}
}

// WatchLink implements pmd.LinkWatcher.
func (p *Port) WatchLink(up func()) error {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.watch != nil {
		return fmt.Errorf("memif: %s: the link is watched already", p.name)
	}
	p.watch = up
	return nil
}

// setKick says how Close ends the connection. False: the port is closed.
func (p *Port) setKick(kick func(why string)) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.kick = kick
	return !p.closed
}

// linkUp makes s current; linkDown follows. False: the port is closed, and nothing was done.
func (p *Port) linkUp(s *session, peer Peer) bool {
	p.lock.Lock()
	if p.closed {
		p.lock.Unlock()
		return false
	}
	p.running.Add(1)
	p.peer, p.err = peer, nil
	p.ups++
	p.eachWaker(s, (*interrupt).watch)
	p.current.Store(s)
	p.signal()
	watch := p.watch
	p.lock.Unlock()
	if watch != nil {
		watch()
	}
	return true
}

// linkDown lets go of the session, whose memory goes when its queues have left it.
func (p *Port) linkDown(s *session, err error, unmap func()) {
	defer p.running.Done()
	p.lock.Lock()
	p.unmapped.Add(1) // before anybody sees that the link is down, and waits
	p.current.Store(nil)
	p.err = err
	p.signal()
	p.lock.Unlock()
	s.bells.stop()
	s.leave()
	go func() {
		defer p.unmapped.Done()
		<-s.unused
		p.release(s)
		s.regions, s.rings = nil, nil // nothing may look like a pointer into memory that is gone
		unmap()
	}()
}

// release lets go of the eventfds that wake queues, none of which is in the session any more.
func (p *Port) release(s *session) {
	p.lock.Lock()
	p.eachWaker(s, (*interrupt).unwatch)
	p.lock.Unlock()
	closeAll(s.wakers)
}

// eachWaker is for the eventfd of each queue that is open.
func (p *Port) eachWaker(s *session, do func(in *interrupt, waker int)) {
	for i, q := range p.queues {
		if q != nil && s.wakers != nil {
			do(&q.interrupt, s.wakers[i])
		}
	}
}

// note keeps why an attempt failed.
func (p *Port) note(err error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.err = err
}

func (p *Port) signal() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Disconnect ends the connection that there is, and tells the peer why, in up to 95 octets; another
// one may follow. Any goroutine; it does not wait.
func (p *Port) Disconnect(why string) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.kick != nil {
		p.kick(why)
	}
}

// Close ends the connection and the port, and gives back what lies in the rings. The goroutines
// of the queues must have ended, as their pools must still be there.
func (p *Port) Close() error {
	p.lock.Lock()
	if p.closed {
		p.lock.Unlock()
		return nil
	}
	p.closed = true
	close(p.closing)
	kick := p.kick
	p.signal()
	p.lock.Unlock()
	if p.arena == nil {
		p.detach()
	}
	if kick != nil {
		kick("Interface closed")
	}
	if p.giveUp != nil {
		p.giveUp()
	}
	p.running.Wait()
	p.detach() // Bufs that the peer could reach, once it cannot
	p.unmapped.Wait()
	for _, q := range p.queues {
		if q != nil {
			q.interrupt.close()
		}
	}
	return nil
}

func (p *Port) detach() {
	for _, q := range p.queues {
		if q != nil {
			q.detach()
		}
	}
}

// gone marks a port whose only client has.
func (p *Port) gone() { close(p.over) }

// Gone is closed when the link of a port of Accept's has gone down for good; of others it never is.
func (p *Port) Gone() <-chan struct{} { return p.over }
