package tcp

import (
	"math/bits"

	"github.com/rnicd/rnicd/internal/flight"
)

// Memory is what the Conns of one Poller share: the records of their sent segments and the spans
// of what they received out of order. A Conn holds a run of records only while something of it is
// sent and not released, and a run of spans only while there is a gap; an idle Conn holds
// neither. What is needed only then lies beside the run (inFlight, ranges), and what is told of
// marks by the next segments is lent as well (ceRuns). All is allocated by NewMemory. One
// goroutine, that of its Conns.
//
// The last quarter of each is kept for Conns that hold nothing yet: a few that send much cannot
// shut out the others. A Conn that finds nothing has Room 0 and says so in WaitsForMemory; a
// segment out of order that finds nothing is dropped as DropNoMemory, and comes again. Nothing that
// is in flight ever needs more than its Conn has.
type Memory struct {
	cfg     Config
	records pool[record]
	spans   pool[span]
	flights []inFlight // by the run of records it goes with
	none    inFlight   // of all Conns that have no run of records
	gaps    []ranges   // by the run of spans
	noGap   ranges     // of all Conns that have no run of spans
	marks   []*ceRuns  // those that are free

	sackSteps uint64
	totals    Totals

	// Flight records what happens to the Conns; nil: nothing does. Its Now is the caller's.
	Flight *flight.Recorder
}

// Totals count what all Conns of a Memory have met: what is lost on the path, or said to be.
type Totals struct {
	Retransmits      uint64 // segments sent again
	FastRetransmits  uint64 // episodes of fast recovery
	Timeouts         uint64 // of the retransmission timer
	LossProbes       uint64 // tail loss probes
	Undone           uint64 // episodes found to have been reordering
	WindowProbes     uint64 // of a window that the peer keeps closed
	BlackHoles       uint64 // times a path was found to swallow large segments
	OutOfOrder       uint64 // segments received beyond a gap
	CongestionMarked uint64 // segments received with CE
}

// RecordsRun is how many records a Conn with something in flight has at least.
const RecordsRun = 8

// Runs begin with this many and grow fourfold.
const (
	recordsMin = RecordsRun
	spansMin   = 4
	growth     = 4
)

// MemoryStats say how much is in use, in records and spans, and how often there was too little.
type MemoryStats struct {
	Records, RecordsFree int
	Spans, SpansFree     int
	// a Conn wanted records and got none: nothing was pulled from it meanwhile, or it could not grow
	RecordsShort uint64
	SpansShort   uint64 // segments dropped as DropNoMemory
	// records looked at because of SACK options, or to undo: work that peers can ask for
	SACKSteps uint64
	Totals    Totals // of all Conns
}

// NewMemory makes the memory of up to conns Conns with one Config. Config.RecordsMax and
// Config.SpansMax, where zero, become enough for 64 Conns with all they may have in flight, and
// more beyond 64 Ki Conns; of spans, up to 4096 Conns, so many that no crowd of them can take
// another's first run. It panics on a Config that cannot work.
func NewMemory(cfg Config, conns int) *Memory {
	cfg = withDefaults(cfg)
	const full = 64
	if cfg.RecordsMax == 0 {
		cfg.RecordsMax = min(2*conns*cfg.SentMax, max(full*cfg.SentMax, conns))
	}
	if cfg.SpansMax == 0 {
		// a first run for every Conn in the last quarter, whatever the others hold
		firsts := min(4*spansMin*conns, 1<<16)
		cfg.SpansMax = min(2*conns*powerOfTwo(cfg.RangesMax), max(full*cfg.RangesMax, conns/4, firsts))
	}
	m := &Memory{cfg: cfg}
	m.records.init(max(cfg.RecordsMax, 2*recordsMin), recordsMin)
	m.flights, m.none = make([]inFlight, m.records.buddy.units), nothing()
	m.spans.init(max(cfg.SpansMax, 2*spansMin), spansMin)
	m.gaps = make([]ranges, m.spans.buddy.units)
	m.marks = newMarks(min(conns, marksMax))
	return m
}

func powerOfTwo(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }

// Config is that of all its Conns, with its defaults filled in. It must not be changed.
func (m *Memory) Config() *Config { return &m.cfg }

// RunsFree is how many Conns that wait for memory (WaitsForMemory) could be served now.
func (m *Memory) RunsFree() int { return m.records.buddy.free }

// RecordsShort is MemoryStats.RecordsShort, for a caller that asks often.
func (m *Memory) RecordsShort() uint64 { return m.records.short }

// Stats of the memory.
func (m *Memory) Stats() MemoryStats {
	return MemoryStats{
		Records: len(m.records.items), RecordsFree: m.records.buddy.free * recordsMin,
		RecordsShort: m.records.short,
		Spans:        len(m.spans.items), SpansFree: m.spans.buddy.free * spansMin,
		SpansShort: m.spans.short,
		SACKSteps:  m.sackSteps, Totals: m.totals,
	}
}

// pool is one kind of item, handed out in runs of a power of two of units.
type pool[T any] struct {
	items []T
	unit  int // a power of two
	buddy buddy
	short uint64 // takes that failed
}

func (p *pool[T]) init(n, unit int) {
	units := (n + unit - 1) / unit
	p.items, p.unit = make([]T, units*unit), unit
	p.buddy.init(units)
}

// take is a run of n items, a power of two and at least unit, for a Conn that has one already: the
// last quarter is not for it. nil when there is none. at names the run.
func (p *pool[T]) take(n int) (run []T, at uint32) {
	order := p.order(n)
	if p.buddy.free-1<<order < p.buddy.units/4 {
		return nil, 0
	}
	at, ok := p.buddy.take(order)
	if !ok {
		return nil, 0
	}
	from := int(at) * p.unit
	return p.items[from : from+n : from+n], at
}

// first is the run a Conn begins with.
func (p *pool[T]) first() (run []T, at uint32) {
	at, ok := p.buddy.take(0)
	if !ok {
		p.short++
		return nil, 0
	}
	from := int(at) * p.unit
	return p.items[from : from+p.unit : from+p.unit], at
}

// grow is a run in the place of one of n items, at most limit: as large as can be had, nil when
// none is larger.
func (p *pool[T]) grow(n, limit int) (run []T, at uint32) {
	for want := min(growth*n, limit); want > n; want /= 2 {
		if run, at = p.take(want); run != nil {
			return run, at
		}
	}
	if n < limit {
		p.short++
	}
	return nil, 0
}

func (p *pool[T]) give(at uint32, n int) {
	p.buddy.give(at, p.order(n))
}

// order is that of a run of n items: both n and unit are powers of two.
func (p *pool[T]) order(n int) int {
	return bits.TrailingZeros(uint(n)) - bits.TrailingZeros(uint(p.unit))
}

// buddy is the binary buddy system (K. C. Knowlton, "A fast storage allocator", 1965; D. E. Knuth,
// TAOCP 2.5) over numbered units: a run of 2^order units begins at a multiple of its length, and
// merges with its other half when both are free. Merging is put off for a few runs of each order
// (T. P. Lee, R. E. Barkley, "A watermark-based lazy buddy system", 1989): what was given last is
// taken first, without splitting, and is still in the cache.
type buddy struct {
	units, free int
	state       []uint8 // by unit: order+1 of a free run that begins there, else 0
	next, prev  []uint32
	head        [ordersOfBuddy]uint32 // lists of merged free runs
	kept        [ordersOfBuddy][keptMax]uint32
	keptLen     [ordersOfBuddy]uint8
}

const (
	ordersOfBuddy = 24
	keptMax       = 16
	noUnit        = ^uint32(0)
)

func (b *buddy) init(units int) {
	*b = buddy{units: units, free: units, state: make([]uint8, units), next: make([]uint32, units),
		prev: make([]uint32, units)}
	for i := range b.head {
		b.head[i] = noUnit
	}
	for at := 0; at < units; {
		order := min(bits.Len(uint(units-at))-1, ordersOfBuddy-1)
		if at > 0 {
			order = min(order, bits.TrailingZeros(uint(at)))
		}
		b.link(uint32(at), order)
		at += 1 << order
	}
}

// take is a run of 2^order units, false when none is left.
func (b *buddy) take(order int) (at uint32, ok bool) {
	if order >= ordersOfBuddy || b.free < 1<<order {
		return 0, false
	}
	if n := b.keptLen[order]; n > 0 {
		b.keptLen[order] = n - 1
		b.free -= 1 << order
		return b.kept[order][n-1], true
	}
	if at, ok = b.split(order); !ok {
		b.mergeKept()
		at, ok = b.split(order)
	}
	if ok {
		b.free -= 1 << order
	}
	return at, ok
}

// split takes the smallest merged run that will do and gives back what is beyond order.
func (b *buddy) split(order int) (at uint32, ok bool) {
	from := order
	for from < ordersOfBuddy && b.head[from] == noUnit {
		from++
	}
	if from == ordersOfBuddy {
		return 0, false
	}
	at = b.head[from]
	b.unlink(at, from)
	for from > order {
		from--
		b.link(at+1<<from, from)
	}
	return at, true
}

func (b *buddy) give(at uint32, order int) {
	b.free += 1 << order
	if n := b.keptLen[order]; n < keptMax {
		b.kept[order][n] = at
		b.keptLen[order] = n + 1
		return
	}
	b.merge(at, order)
}

// mergeKept gives up the runs whose merging was put off: at most keptMax of each order.
func (b *buddy) mergeKept() {
	for order := range b.kept {
		for _, at := range b.kept[order][:b.keptLen[order]] {
			b.merge(at, order)
		}
		b.keptLen[order] = 0
	}
}

// merge frees a run, together with its other half as long as that is free.
func (b *buddy) merge(at uint32, order int) {
	for order < ordersOfBuddy-1 {
		other := at ^ 1<<order
		if int(other)+1<<order > b.units || b.state[other] != uint8(order+1) {
			break
		}
		b.unlink(other, order)
		at &^= 1 << order
		order++
	}
	b.link(at, order)
}

func (b *buddy) link(at uint32, order int) {
	b.state[at] = uint8(order + 1)
	first := b.head[order]
	b.next[at], b.prev[at] = first, noUnit
	if first != noUnit {
		b.prev[first] = at
	}
	b.head[order] = at
}

func (b *buddy) unlink(at uint32, order int) {
	b.state[at] = 0
	if b.prev[at] == noUnit {
		b.head[order] = b.next[at]
	} else {
		b.next[b.prev[at]] = b.next[at]
	}
	if b.next[at] != noUnit {
		b.prev[b.next[at]] = b.prev[at]
	}
}
