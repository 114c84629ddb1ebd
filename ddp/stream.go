package ddp

import (
	"math"

	"github.com/rnicd/rnicd/mem"
)

// StreamConfig says what a Stream may reach.
type StreamConfig struct {
	Table      *mem.Table
	Domain     mem.ProtectionDomain
	Stream     mem.StreamID
	Version    uint8    // DV of every segment of the stream
	Queues     []*Queue // by QN; nil entry: that QN is invalid
	PendingMax int      // messages complete in placement that wait for delivery; at least 1
	// Pending is where room for those ahead of a gap comes from, of its PendingMax at most. nil: all
	// of it is made by Init, for this Stream alone.
	Pending *PendingMemory
	Peer    uint64 // whose Stream this is: peers share Pending
	// Targets is where a segment's octets go in a buffer that is a list: as many as the longest list
	// has ranges. Streams of one goroutine may share it. nil: Init makes it.
	Targets [][]byte
}

// Stats counts what a Stream did. Plain numbers of the Stream's goroutine.
type Stats struct {
	Segments uint64 // placed, those without payload included
	Octets   uint64 // payload placed
	// dropped: a segment below the left edge, or a message's last segment seen before
	Duplicates uint64
	AfterError uint64 // dropped silently after an error, section 9.1, or after Disable
}

// Stream is the Data Sink of one DDP stream.
//
//	open ──error in Begin, Place or Deliver──► failed: Err set, later segments dropped, no Delivery past the gap
//	  └──────────────Disable───────────────► disabled: the same without Err, and nothing more is Delivered
//
// DDP never tears the stream down by itself (section 8.2): the ULP does, after it has sent its
// Terminate. Every method is for the goroutine that owns the connection.
type Stream struct {
	table   *mem.Table
	domain  mem.ProtectionDomain
	id      mem.StreamID
	version uint8
	closed  bool // failed or disabled: nothing more is placed
	queues  []*Queue

	header  Header            // of the segment in hand
	scratch [UntaggedLen]byte // a header that pieces cut apart

	pending    pendingList
	pendingMax int
	edge       uint64   // highest edge Delivered up to
	targets    [][]byte // of the segment in hand, in a buffer that is a list
	// nothing ends after it that is delivered: the first octet that was not placed for an error
	cut uint64

	err   *Error // nil: there was none
	stats Stats
}

// Init readies the Stream; it allocates all that the Stream will ever need, except for its Error.
// It panics on a config without Table or PendingMax, or with one beyond its Pending's. Call Close
// when it is over.
func (s *Stream) Init(cfg StreamConfig) {
	if cfg.Table == nil || cfg.PendingMax < 1 || int64(cfg.PendingMax) > 1<<30 {
		panic("ddp: Stream.Init wants a Table and a PendingMax of 1 to 2^30")
	}
	if cfg.Pending != nil && cfg.PendingMax > cfg.Pending.pendingMax {
		panic("ddp: Stream.Init wants a PendingMax of what its Pending has at most")
	}
	*s = Stream{} // then field by field: a literal would be built elsewhere and copied
	s.table, s.domain, s.id, s.version = cfg.Table, cfg.Domain, cfg.Stream, cfg.Version&controlVersion
	s.queues, s.pendingMax = cfg.Queues, cfg.PendingMax
	s.cut = math.MaxUint64
	s.pending.init(cfg.Pending, cfg.Peer, cfg.PendingMax+1)
	s.initScatter(cfg.Targets)
}

// Err is the first error of the stream, nil while there is none (RFC 5040 section 7.1: the first is
// reported). It is not the Stream's: another Init leaves it as it is.
func (s *Stream) Err() *Error { return s.err }

// Disable ends reception for an error that is not DDP's own: RDMAP found one, or a Terminate came.
// Later segments are dropped silently and nothing more is Delivered (RFC 5040 section 7: the stream
// carries no further data). Err stays as it is.
func (s *Stream) Disable() { s.closed, s.cut = true, 0 }

// Close gives back what the Stream has of StreamConfig.Pending. Nothing is placed or Delivered any
// more; Err and Stats stay.
func (s *Stream) Close() {
	s.Disable()
	s.pending.close()
}

// Stats returns the counters.
func (s *Stream) Stats() Stats { return s.stats }

// Unreachable ends the stream because memory could not be touched while the segment that Begin has
// just returned the header of was placed: a local catastrophic error. Place has not returned: some
// octets of the segment may have been written. start and n as for Place.
func (s *Stream) Unreachable(start uint64, n int) *Error {
	return s.fail(start, TypeLocalCatastrophic, 0, &s.header, n)
}

// fail records the stream's first error. start is where the segment that is not placed begins. h
// nil: the segment had no whole header.
func (s *Stream) fail(start uint64, errType, code uint8, h *Header, segmentLen int) *Error {
	s.closed = true
	s.cut = min(s.cut, start)
	s.err = &Error{Type: errType, Code: code, SegmentLen: segmentLen, Truncated: h == nil}
	if h != nil {
		s.err.Header = *h
	}
	return s.err
}
