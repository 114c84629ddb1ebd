package rnic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
)

// Config of an Adapter.
type Config struct {
	// Pollers carry the connections. None: the kernel's sockets do. The embedder runs them
	// (stack.Poller.Run) and stops them after Close.
	Pollers []*stack.Poller
	// RegionsMax bounds the STag table: regions, windows and one entry of each connection's own
	// (default 4096, at most 2^20).
	RegionsMax int
	// ConnsMax bounds the connections over kernel sockets (default 1024); a Poller has a bound of
	// its own.
	ConnsMax int
	// PeerMax is how many connections over kernel sockets one address (of IPv6, one /64) may open
	// to us; 0: no limit but ConnsMax. A Poller has its own, stack.Config.PeerMax. At either limit
	// a new connection replaces the oldest one that has not sent its start-up frame: one of the
	// same address at PeerMax.
	PeerMax int
	// OnTurn, if set, is called in each Turn over the kernel's sockets, with how much work it found as
	// its result: for doorbells of threads that run no Go. It must not block. Such threads wake the
	// Adapter by Bell, which goes with it (stack.Bell). A Poller has both of its own.
	OnTurn func() int
	Bell   *stack.Bell
	// Arena, if set, is the memory of the queues' rings; rings that it cannot hold are on the heap.
	// It must stay mapped as long as any QueuePair or CompletionQueue of the Adapter is used, after
	// Close too, and no other user may carve from it.
	Arena *hugepages.Arena
	// EventsMax bounds the asynchronous events that wait to be read from Events (default 256).
	EventsMax int
	// Manual, if set, is called whenever a call of this package needs the Pollers to turn before it
	// can return: for simulations that turn them on the calling goroutine instead of running them.
	Manual func()
	// DrawSTag, if set, returns new STags instead of a random source, for simulations that can be
	// repeated. Any goroutine may call it. Peers that can predict it can guess STags.
	DrawSTag func() uint32
	// Fell, if set, is called for each connection that ends with an error, also during start-up,
	// unless this end asked for its end. It gets the error and the last events. The goroutine that
	// drives the connection calls it, which may be a Poller's: it must not block or call this
	// package.
	Fell func(FlightRecord)
}

// Adapter is a software RNIC.
type Adapter struct {
	table *mem.Table
	host  connect.Host
	loop  *transport.Loop // of the kernel's sockets, which callers may drive; nil: over Pollers
	nums  atomic.Uint64   // QueuePair numbers and stream ids
	cfg   Config
	rings ringStore

	events eventQueue

	mu        sync.Mutex
	listeners map[*Listener]struct{}
}

// Open makes an Adapter. The error names the invalid field of cfg. Any goroutine.
func Open(cfg Config) (*Adapter, error) {
	if cfg.RegionsMax == 0 {
		cfg.RegionsMax = RegionsMaxDefault
	}
	if cfg.ConnsMax == 0 {
		cfg.ConnsMax = connsMaxDefault
	}
	if cfg.EventsMax == 0 {
		cfg.EventsMax = eventsDefault
	}
	switch {
	case (cfg.OnTurn != nil || cfg.Bell != nil) && len(cfg.Pollers) > 0:
		return nil, errors.New("rnic: OnTurn and Bell are for the kernel's sockets: give them to the " +
			"Poller")
	case cfg.OnTurn != nil && cfg.Bell == nil:
		return nil, errors.New("rnic: OnTurn needs a Bell, by which the Adapter is woken")
	case cfg.EventsMax < 0:
		return nil, fmt.Errorf("rnic: EventsMax %d must be positive", cfg.EventsMax)
	case cfg.RegionsMax < 0 || cfg.ConnsMax < 0:
		return nil, fmt.Errorf("rnic: RegionsMax %d and ConnsMax %d must be positive", cfg.RegionsMax,
			cfg.ConnsMax)
	case cfg.PeerMax < 0 || cfg.PeerMax > cfg.ConnsMax:
		return nil, fmt.Errorf("rnic: PeerMax %d, 1 to ConnsMax (%d) possible, or 0 for no limit",
			cfg.PeerMax, cfg.ConnsMax)
	case cfg.RegionsMax > mem.EntriesMax:
		return nil, fmt.Errorf("rnic: RegionsMax %d, %d at most", cfg.RegionsMax, mem.EntriesMax)
	}
	for i, p := range cfg.Pollers {
		switch {
		case p == nil:
			return nil, fmt.Errorf("rnic: Config.Pollers[%d] is nil", i)
		case slices.Contains(cfg.Pollers[:i], p):
			return nil, fmt.Errorf("rnic: Config.Pollers[%d], %q, is named twice", i, p.Name())
		}
	}
	a := &Adapter{table: mem.NewTable(cfg.RegionsMax), cfg: cfg}
	if cfg.DrawSTag != nil {
		a.table.DrawFrom(cfg.DrawSTag)
	}
	a.events.size = cfg.EventsMax
	a.listeners = map[*Listener]struct{}{}
	a.rings = ringStore{arena: cfg.Arena, free: map[int][][]byte{}}
	var pollers []*connect.PollerState
	for _, p := range cfg.Pollers {
		pollers = append(pollers, connect.NewPollerState(p, a.table.NewReader()))
	}
	loop, err := transport.NewLoop(transport.LoopConfig{Start: time.Now(), OnTurn: cfg.OnTurn,
		Bell: cfg.Bell})
	if err != nil {
		return nil, fmt.Errorf("rnic: what the kernel's sockets are polled with: %w", err)
	}
	if len(cfg.Pollers) == 0 {
		a.loop = loop
	}
	a.host.Init(connect.HostConfig{
		Pollers: pollers, Slots: transport.NewSlots(cfg.ConnsMax, cfg.PeerMax),
		Loop: loop, Reader: a.table.NewReader(),
		Manual: cfg.Manual, Public: publicError, Fell: fell(cfg.Fell),
	})
	return a, nil
}

// Regions is the number of entries of Config.RegionsMax in use, by regions, windows and
// connections. Any goroutine.
func (a *Adapter) Regions() int { return a.table.Len() }

// StartupCounters of an Adapter.
type StartupCounters struct {
	Fallbacks uint64 // connections tried again in an older dialect
	UnaskedS  uint64 // Replies with an S bit that their Request had not: the bit counts as zero
	WakeUps   uint64 // RDMA Writes of no octets for Quirks.WakeUp
	Refused   StartupRefusals
}

// StartupRefusals are start-ups that peers began and this end did not go on with, by cause. Over
// Pollers a limit of connections is met before start-up: stack.DropConnMax, stack.DropPeerMax. A
// peer that gives up, and one that Close ends, are not among them.
type StartupRefusals struct {
	Backlog uint64 // ListenOptions.Backlog Requests waited to be accepted
	Dialect uint64 // the dialect, or revision, is not served
	// longer than ListenOptions.PrivateDataMax, or than a Request of Rev 1 can have
	PrivateData     uint64
	Malformed       uint64 // what came was no Request
	Timeout         uint64 // the Request did not come in time
	Undecided       uint64 // neither Accept nor Reject in time
	GaveWay         uint64 // it had said nothing yet, and another one needed its place
	Connections     uint64 // over kernel sockets: Config.ConnsMax
	PeerConnections uint64 // over kernel sockets: Config.PeerMax
	ReadDepth       uint64 // the Initiator's IRD is less than ConnParam.ORDMin
	System          uint64 // the kernel had no descriptor, or refused an option of the socket
	Rejected        uint64 // ConnRequest.Reject, RejectStream, ListenOptions.Allow
}

// Each yields all of them with the names of docs/reference/limits.md. Any goroutine.
func (r *StartupRefusals) Each(yield func(cause string, n uint64)) {
	yield("backlog", r.Backlog)
	yield("dialect", r.Dialect)
	yield("private data", r.PrivateData)
	yield("malformed", r.Malformed)
	yield("timeout", r.Timeout)
	yield("undecided", r.Undecided)
	yield("gave way", r.GaveWay)
	yield("connections", r.Connections)
	yield("peer connections", r.PeerConnections)
	yield("read depth", r.ReadDepth)
	yield("system", r.System)
	yield("rejected", r.Rejected)
}

// StartupCounters returns what happened in start-up so far. Any goroutine.
func (a *Adapter) StartupCounters() StartupCounters {
	s := &a.host.Startup
	n := func(r connect.Refusal) uint64 { return s.Refused[r].Load() }
	return StartupCounters{
		Fallbacks: s.Fallbacks.Load(), UnaskedS: s.UnaskedS.Load(), WakeUps: s.WakeUps.Load(),
		Refused: StartupRefusals{
			Backlog: n(connect.RefusedBacklog), Dialect: n(connect.RefusedDialect),
			PrivateData: n(connect.RefusedPrivateData),
			Malformed:   n(connect.RefusedMalformed), Timeout: n(connect.RefusedTimeout),
			Undecided: n(connect.RefusedUndecided),
			GaveWay:   n(connect.RefusedGaveWay), Connections: n(connect.RefusedConnections),
			PeerConnections: n(connect.RefusedPeerConnections),
			ReadDepth:       n(connect.RefusedReadDepth), System: n(connect.RefusedSystem),
			Rejected: n(connect.RefusedULP),
		},
	}
}

// Valid says whether s names a region or a window of this Adapter that is valid. Any goroutine.
func (a *Adapter) Valid(s STag) bool {
	_, verdict := a.table.Check(0, mem.AnyStream, s, 0, 1, mem.RemoteRead)
	return verdict != mem.CheckInvalidSTag
}

// Writers returns the STags, of regions and windows, through which a peer may write an octet of b
// at this moment. Any goroutine; it looks at the whole STag table and allocates.
//
// A server whose clients do not trust each other calls it before it grants memory to a client that
// another client may have: with two STags of one buffer a client can change what the other wrote
// (RFC 5042 section 6.3.6).
func (a *Adapter) Writers(b []byte) []STag { return a.table.Writers(b) }

// AllocPD makes a ProtectionDomain. It need not be closed, but its regions and windows must be. Any
// goroutine.
func (a *Adapter) AllocPD() *ProtectionDomain {
	return &ProtectionDomain{adapter: a, id: a.table.AllocDomain()}
}

// Dial makes a QueuePair, connects it to host:port and returns when it is in service (RTS), was
// refused, or ctx ends. Errors are CreateQP's and Connect's. Any application goroutine.
func (a *Adapter) Dial(ctx context.Context, addr string, opt QPOptions,
	conn ConnParam) (*QueuePair, error) {
	qp, err := a.CreateQP(opt)
	if err != nil {
		return nil, err
	}
	if err := qp.Connect(ctx, addr, conn); err != nil {
		return nil, err
	}
	return qp, nil
}

// Close closes every Listener, aborts every connection and waits, until ctx ends, for their end.
// From then on Listen, Dial, CreateQP and Accept are ErrClosed. Regions stay registered. The error
// is ctx's: not all connections have ended, and Close may be called again. Close does not wait for
// a running OnFailure; Listener.Close does. Any application goroutine.
func (a *Adapter) Close(ctx context.Context) error {
	a.host.Shut() // before the Listeners end, which takes time: nothing begins meanwhile
	a.mu.Lock()
	listeners := slices.Collect(maps.Keys(a.listeners))
	a.mu.Unlock()
	for _, l := range listeners {
		l.end(ctx)
	}
	connections := a.host.Close(ctx)
	for _, l := range connections {
		if err := a.host.Wait(ctx, l.Gone.C()); err != nil {
			return fmt.Errorf("rnic: %d connections to end: %w", len(connections), err)
		}
	}
	for _, ln := range a.host.Pollers {
		ln.Reader.Close()
	}
	a.host.Reader.Close()
	a.events.close()
	return nil
}

// Progress drives the connections over the kernel's sockets for one Turn, unless another goroutine
// is in one, and says whether it found work. CompletionQueue.Poll does so by itself where it finds
// nothing; for programs that wait for something else, as memory that a peer writes. Without a call
// a goroutine of the Adapter's does it. Over Pollers there is nothing to do. Any goroutine.
func (a *Adapter) Progress() bool { return a.loop != nil && a.loop.Drive() }

// StopProgress says that who has called Progress, or polled, does so no more before something has
// completed: the Adapter's goroutine takes over at once. CompletionQueue.Arm and Wait do so by
// themselves. Any goroutine.
func (a *Adapter) StopProgress() {
	if a.loop != nil {
		a.loop.Attend()
	}
}

// addListener is false once Close was called.
func (a *Adapter) addListener(l *Listener) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.host.IsClosed() {
		return false
	}
	a.listeners[l] = struct{}{}
	return true
}

func (a *Adapter) dropListener(l *Listener) {
	a.mu.Lock()
	delete(a.listeners, l)
	a.mu.Unlock()
}
