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
	"github.com/rnicd/rnicd/internal/tcp"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// Poller drives one queue. All its methods but Submit, Stop and Counters are for the goroutine that
// turns it.
type Poller struct {
	cfg       Config
	queue     pmd.Queue
	pool      *mem.Pool
	clock     func() int64
	now       int64
	away      int64 // the time since the Turn before this one
	backAt    int64 // until when it was to sleep
	mac       inet.MAC
	host      *iphost.Host
	link      hostLink
	l2        int                   // octets of the Ethernet headers we send
	waiters   []func() (again bool) // of UntilChecked
	secret    secret
	listeners map[uint16]*listener // the first of each port
	held      map[uint16]int       // by Hold, how often
	nextPort  uint32
	rst       inet.Bucket

	slab         slab
	table        lookup
	timers       timers
	syns         synCache
	peers        peers
	templateConn tcp.Conn // makes the SYN,ACKs of syns
	memory       *tcp.Memory
	flight       *flight.Recorder // nil: there is none
	// connections that wait for a first run of it, or for Bufs, longest first (pressure_waiting.go)
	waiting    list
	unproven   list   // of them, those whose peer has never acknowledged anything
	placesSeen uint32 // Group.placesWanted, as far as it was heeded
	silent     list   // connections whose peer has said nothing yet (conn_peers.go)
	pressure   pressureState
	budget     Budget
	leaving    []leaving // connections that are over, and whose frames have not left
	loans      loans
	promised   int // Bufs that connections have given back and may take again, all together

	active     []connIndex // touched, to be served by output
	serving    []connIndex // the list output walks; swapped with active
	rx         []mem.Buf
	rxAt       int // the one of rx[:rxEnd] that is being handled
	rxEnd      int
	bufs       []mem.Buf   // the frames that seg stands for (segment, coalesce)
	data       [][]byte    // and their octets
	moreFrames bool        // the device has more frames than this Turn took
	waited     int         // Turns in a row for which timers have waited
	burstConns []connIndex // of a burst, for prefetchBurst
	prefetched byte        // what prefetch read: not used
	dead       []mem.Buf   // to be freed in bulk
	seg        tcp.Segment
	neighbours *inet.Neighbours[mem.Buf]
	overheard  bool // the frame in hand came to another member of the Group, which answers
	learned    bool // Learn was called: frames may have become ready
	tx         transmitter
	sched      schedule

	n         Counters
	arrivals  uint64 // segments, or runs of them, whose octets an Upper was offered
	asked     uint64 // segments, or runs of them, that were sent with octets
	control   *mem.MPSC[func()]
	doorbells doorbells
	rouser    rouser

	stopping atomic.Bool
	running  atomic.Bool
	stopped  bool          // the Poller's goroutine knows
	last     Counters      // written before done is closed
	ended    atomic.Bool   // no goroutine turns the Poller any more: Submit runs what it pushes
	late     sync.Mutex    // held by the goroutine that does
	done     chan struct{} // closed when it has stopped
	locals   sync.Map      // of the packages above
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
		cfg: cfg, queue: cfg.Queue, pool: cfg.Pool, clock: cfg.Clock, mac: cfg.MAC,
		secret:     secret,
		listeners:  make(map[uint16]*listener),
		held:       make(map[uint16]int),
		active:     make([]connIndex, 0, cfg.ConnsMax),
		serving:    make([]connIndex, 0, cfg.ConnsMax),
		rx:         make([]mem.Buf, receiveBurst(&cfg)),
		burstConns: make([]connIndex, cfg.BurstMax),
		dead:       make([]mem.Buf, 0, cfg.BurstMax),
		bufs:       make([]mem.Buf, 0, receiveBurst(&cfg)),
		data:       make([][]byte, 0, receiveBurst(&cfg)),
		leaving:    make([]leaving, 0, leavingMax),
		neighbours: inet.NewNeighbours[mem.Buf](cfg.Neighbours),
		control:    mem.NewMPSC(make([]mem.MPSCSlot[func()], controlRingEntries)),
		done:       make(chan struct{}),
		waiting:    emptyList,
		unproven:   emptyList,
		silent:     emptyList,
	}
	p.rouser.asleep = &p.rouser.own
	if cfg.Bell != nil {
		p.rouser.asleep = cfg.Bell.Asleep
	}
	if cfg.Group != nil {
		cfg.Group.addMember(cfg.Member, frameMaxOf(cfg.MTU), &p.rouser)
	}
	p.now = p.clock()
	p.rst = inet.NewBucket(p.now, cfg.RSTPerSec)
	p.host = p.newHost()
	p.l2 = p.host.LinkLen()
	p.memory = tcp.NewMemory(cfg.TCP, cfg.ConnsMax)
	if cfg.FlightRings > 0 {
		p.flight = flight.New(cfg.FlightRings)
		p.flight.Now = p.now
	}
	p.memory.Flight = p.flight
	p.slab = newSlab(p, cfg.ConnsMax, p.memory)
	p.templateConn.Init(p.memory)
	p.templateConn.Mute()
	p.syns = newSynCache(cfg.SynMax, p.now)
	p.peers = newPeers(&cfg, &p.secret)
	p.table = newLookup(cfg.ConnsMax, &p.secret, p.slab.conns)
	p.timers = newTimers(cfg.ConnsMax, p.now)
	p.tx = newTransmitter(&cfg)
	p.sched = newSchedule(cfg.ConnsMax)
	p.budget = newBudget(cfg.Pool.Share(), cfg.BurstMax)
	p.loans = newLoans(cfg.Pool.Share(), &p.budget)
	return p, nil
}

// receiveBurst is how many frames are taken from the device at once.
func receiveBurst(cfg *Config) int {
	return min(cfg.BurstMax, max(burstMin, receivedOctetsMax/cfg.MTU))
}

// Turn does one round and returns the amount of work found: what came, was due or was sent; 0 if
// nothing was. For Run, simulations and tests; all calls of one Poller come from one goroutine.
// After Stop the next Turn ends all connections; later ones do nothing.
func (p *Poller) Turn() int {
	if p.stopped {
		return 0
	}
	p.arrive()
	p.tx.blocked = false
	work, sent := 0, p.n.TxFrames
	if p.control.Waits() {
		work += p.drainControl()
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
	if p.waiting.n+p.unproven.n > 0 {
		p.retryWaiting()
	}
	if p.pressure.demanded() || p.pressure.short != p.memory.RecordsShort() {
		p.reclaim()
	}
	work += p.output()
	p.flush()
	if len(p.leaving) > 0 {
		p.tellLeft(false)
	}
	p.n.Turns++
	if work == 0 { // frames that had waited for the device are work too
		work = int(p.n.TxFrames - sent)
	}
	if work == 0 {
		p.n.EmptyTurns++
	}
	if p.stopping.Load() {
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
	at := min(p.timers.first(), p.neighbours.Deadline(), p.hostDeadline())
	if p.syns.n > 0 {
		at = min(at, p.syns.timers.first())
	}
	if p.crossingsWait() || p.placeNews() {
		return p.now
	}
	if p.waiting.n+p.unproven.n > 0 {
		next := p.now + retryNs
		if waiting, unproven := p.retriable(); waiting+unproven == 0 {
			next = max(next, p.pressure.lookAt)
		}
		at = min(at, next)
	}
	if p.pressure.demanded() {
		at = min(at, p.pressure.lookAt)
	}
	if len(p.active) > 0 || p.tx.n > 0 || p.sched.waiting() > 0 {
		at = min(at, p.now+retryNs)
	}
	return at
}

// Stop asks the Poller to end. Any goroutine; does not wait.
func (p *Poller) Stop() {
	p.stopping.Store(true)
	p.rouser.rouse()
}

// Done is closed when the Poller has stopped and all Uppers have been told. Any goroutine.
func (p *Poller) Done() <-chan struct{} { return p.done }

// Now is the time of this Turn.
func (p *Poller) Now() int64 { return p.now }

// Pool is where Kept Bufs are freed to.
func (p *Poller) Pool() *mem.Pool { return p.pool }

// Reserve is how many Bufs of the Pool sending leaves free for reception.
func (p *Poller) Reserve() int { return p.budget.Reserve }

// Addr is our address.
func (p *Poller) Addr() netip.Addr { return p.cfg.Addr.Addr() }

// Name is Config.Name.
func (p *Poller) Name() string { return p.cfg.Name }

// Locals holds what packages above keep per Poller, each under a key type of its own. Any
// goroutine.
func (p *Poller) Locals() *sync.Map { return &p.locals }
