package stack

import (
	"cmp"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/rnicd/rnicd/internal/flight"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/iphost"
	"github.com/rnicd/rnicd/internal/rouse"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// Poller drives one queue. All its methods but Submit, Stop and Counters are for the goroutine that
// turns it.
//
// Its parts own their methods and know nothing of the Poller: each has pointers to the parts that
// it works with, and most get the time as an argument. What an Upper is called from, and what
// concerns several parts, is the Poller's own: the Turn, the connection of a segment, the life of a
// connection and its service.
type Poller struct {
	cfg    Config
	clock  // now
	pool   *mem.Pool
	n      Counters
	secret secret
	dead   dead // Bufs to be freed

	// what is on the link
	host        *iphost.Host
	link        hostLink
	neighbours  *inet.Neighbours[mem.Buf]
	lost        lostHops
	resolved    uint32 // Resolved
	learned     bool   // a neighbour was: frames may have become ready
	addrWaiters addrWaiters
	member      groupMember

	// connections
	slab    slab
	table   lookup
	timers  timers
	waited  int // Turns in a row for which timers have waited
	ports   ports
	syns    synCache
	peers   peers
	paths   paths
	leavers leavers
	ahead   prefetcher
	memory  *tcp.Memory
	flight  *flight.Recorder // nil: there is none

	// frames in, and out
	rx       receiver
	active   active // connections to be served at the end of the Turn
	sched    schedule
	sender   sender
	pressure pressure
	tx       transmitter

	// other goroutines
	control   *control
	doorbells doorbells
	rouser    rouse.Rouser
	running   atomic.Bool
	stopped   bool          // the Poller's goroutine knows
	last      Counters      // written before done is closed
	done      chan struct{} // closed when it has stopped
	locals    sync.Map      // of the packages above
}

// New makes a Poller and all memory it will use. The Poller owns cfg.Queue and allocates from
// cfg.Pool from now on.
func New(cfg Config) (*Poller, error) {
	if err := complete(&cfg); err != nil {
		return nil, err
	}
	secret := newSecret(cfg.Secret)
	cfg.Neighbours.Seed = cmp.Or(cfg.Neighbours.Seed, secret.prf(useNeighbours, nil))
	p := &Poller{
		cfg: cfg, pool: cfg.Pool, clock: clock{source: cfg.Clock},
		secret:     secret,
		ports:      newPorts(&cfg),
		active:     newActive(cfg.ConnsMax),
		dead:       newDead(&cfg),
		neighbours: inet.NewNeighbours[mem.Buf](cfg.Neighbours),
		control:    newControl(),
		done:       make(chan struct{}),
	}
	p.rouser.Init(cfg.Bell)
	if cfg.Group != nil {
		cfg.Group.addMember(cfg.Member, frameMaxOf(cfg.MTU), &p.rouser)
	}
	p.clock.read()
	p.host = p.newHost()
	p.memory = tcp.NewMemory(cfg.TCP, cfg.ConnsMax)
	if cfg.FlightRings > 0 {
		p.flight = flight.New(cfg.FlightRings)
		p.flight.Now = p.now
	}
	p.memory.Flight = p.flight
	p.slab = newSlab(p, cfg.ConnsMax, p.memory)
	p.peers = newPeers(&cfg, &p.secret, p.slab.conns)
	p.table = newLookup(cfg.ConnsMax, &p.secret, p.slab.conns)
	p.syns = newSynCache(p)
	p.timers = newTimers(cfg.ConnsMax, p.now)
	p.tx = newTransmitter(p)
	p.member = groupMember{group: cfg.Group, index: cfg.Member, secret: &p.secret, pool: p.pool,
		tx: &p.tx, counters: &p.n}
	p.ahead = prefetcher{slab: p.slab.conns, timers: &p.timers}
	p.rx = newReceiver(p)
	p.leavers = newLeavers(p)
	p.paths = paths{host: p.host, neighbours: p.neighbours, active: &p.active, counters: &p.n}
	p.sender = newSender(p)
	p.sched = newSchedule(cfg.ConnsMax)
	p.pressure = newPressure(&p.cfg, p.memory, p.slab.conns, &p.n)
	return p, nil
}

// Turn does one round and returns the amount of work found: what came, was due or was sent; 0 if
// nothing was. For Run, simulations and tests; all calls of one Poller come from one goroutine.
// After Stop the next Turn ends all connections; later ones do nothing.
func (p *Poller) Turn() int {
	if p.stopped {
		return 0
	}
	p.clock.read()
	if p.flight != nil {
		p.flight.Now = p.now
	}
	p.tx.blocked = false
	work, sent := 0, p.n.TxFrames
	if p.control.waits() {
		work += p.control.drain()
	}
	if p.doorbells.rang() {
		work += p.drainDoorbells()
	}
	if p.cfg.Group != nil {
		work += p.host.Heed(p.now) + p.makePlaces() + p.drainCrossings()
	}
	work += p.receive()
	work += p.expireTimers()
	work += p.resolve()
	if p.cfg.OnTurn != nil {
		work += p.onTurn()
	}
	if p.pressure.waits() {
		p.pressure.retry(p.n.Turns, &p.active)
	}
	if p.pressure.reclaimable() {
		if worst := p.pressure.reclaim(p.now); worst != nil {
			worst.abort(whyHoarding)
		}
	}
	work += p.output()
	p.tx.flush(p.now)
	if len(p.leavers.all) > 0 {
		p.leavers.tellLeft(p.now, false)
	}
	p.n.Turns++
	if work == 0 { // frames that had waited for the device are work too
		work = int(p.n.TxFrames - sent)
	}
	if work == 0 {
		p.n.EmptyTurns++
	}
	if p.control.stopping.Load() {
		p.shutdown()
		work++ // so that Run ends, and does not sleep first
	}
	return work
}

// onTurn runs the embedder's part of a Turn (Config.OnTurn): what arrived has been delivered,
// nothing has been sent yet. What it posts rings a doorbell, which is heard at once, so that it
// leaves in this Turn and not in the next one.
func (p *Poller) onTurn() int {
	work := p.cfg.OnTurn()
	return work + p.drainDoorbells()
}

// Deadline is when the next timer is due (math.MaxInt64: none). Poller goroutine.
// While connections or frames wait for the device or for Bufs it is a few microseconds away.
// Until then the next Turn is not late: a caller that asks may sleep.
func (p *Poller) Deadline() int64 {
	at := p.deadline()
	p.sleeps(at)
	return at
}

func (p *Poller) deadline() int64 {
	if p.stopped {
		return math.MaxInt64
	}
	at := min(p.timers.first(), p.neighbours.Deadline(), p.hostDeadline(), p.syns.deadline())
	if p.member.crossingsWait() || p.peers.placeNews() {
		return p.now
	}
	at = min(at, p.pressure.deadline(p.now, p.n.Turns))
	if len(p.active.next) > 0 || p.tx.n > 0 || p.sched.waiting() > 0 {
		at = min(at, p.now+retryNs)
	}
	return at
}

// Stop asks the Poller to end. Any goroutine; does not wait.
func (p *Poller) Stop() {
	p.control.stopping.Store(true)
	p.rouser.Rouse()
}

// Done is closed when the Poller has stopped and all Uppers have been told. Any goroutine.
func (p *Poller) Done() <-chan struct{} { return p.done }

// Now is the time of this Turn.
func (p *Poller) Now() int64 { return p.now }

// Pool is where Kept Bufs are freed to.
func (p *Poller) Pool() *mem.Pool { return p.pool }

// Reserve is how many Bufs of the Pool sending leaves free for reception.
func (p *Poller) Reserve() int { return p.pressure.budget.Reserve }

// Addr is our address.
func (p *Poller) Addr() netip.Addr { return p.cfg.Addr.Addr() }

// Name is Config.Name.
func (p *Poller) Name() string { return p.cfg.Name }

// Locals holds what packages above keep per Poller, each under a key type of its own. Any
// goroutine.
func (p *Poller) Locals() *sync.Map { return &p.locals }
