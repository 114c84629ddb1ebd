package mpa

import "github.com/rnicd/rnicd/mem"

// A segment's way through the Receiver:
//
//  1. It begins where the first FPDU not yet passed begins (the fast path): its whole FPDUs are
//     verified and passed straight from the segment (direct.go); what remains is the front of an
//     FPDU.
//  2. Anything else is put into the list of held octets and the run it belongs to is looked at
//     (run.go): where an FPDU begins is known from the end of one that was passed, or located by
//     a marker, or not known yet.
//  3. Every FPDU that is whole now is verified and passed (pass.go). Bufs that are no longer
//     needed are freed; if the segment's own Buf is one of them the Verdict is Done, else Kept
//     (held.go).
//
// All that could make it refuse the segment is decided before the first FPDU is passed.

// ULPDU is one validated ULPDU. Valid until the next call of the Receiver.
type ULPDU struct {
	Start, End uint64 // FPDU's place in the MPA stream: the order
	Len        int
	Pieces     [][]byte // its octets; markers and segment ends cut them
	Direct     bool     // straight from one received segment, nothing was held
	InOrder    bool     // all earlier octets have been passed
}

// Verdict of Input on a Buf.
type Verdict uint8

const (
	Done Verdict = iota // the Buf is no longer needed
	// the Receiver holds the Buf and frees it to its Pool later; its slot is the Receiver's to change
	Kept
	Refused // nothing was taken: do not commit
)

// ReceiverConfig sizes a Receiver.
type ReceiverConfig struct {
	Mode    Mode
	Pool    *mem.Pool
	BufsMax int // reassembly budget in Bufs, at least BufsMin(Pool.Stride())

	// DropBadCRC refuses a segment with a bad CRC, so that the peer sends it again, instead of
	// reporting it (RFC 5044 section 8, DECISIONS 30). That works only for octets that were not
	// taken before they were verified. So octets beyond a gap are taken only when every one of them
	// lies in a verified FPDU; and a segment in order that ends inside an FPDU is refused until it
	// is sent again as it was (Sent), when the peer has kept its segments whole until then: a
	// damaged ULPDU_Length looks like that, unless less than the shortest FPDU remains (ULPDUMin).
	DropBadCRC bool

	// ULPDUMin is the length of the shortest ULPDU that the peer may send. DropBadCRC tells by it a
	// segment that was cut: no damage makes one shorter.
	ULPDUMin int

	// InOrder has nothing passed beyond a gap until PassAhead: octets there wait, as they do
	// without markers, and within the same bounds.
	InOrder bool

	// Reserve is what Receivers of one Pool leave free for everybody else: with less left, a
	// segment is refused unless nothing of it would be held. So peers that never finish their
	// frames cannot make the others' Poller deaf. Nil: nothing.
	Reserve *Reserve

	// Scratch backs ULPDU.Pieces: at least PiecesMax(BufsMax) long. Receivers of one goroutine may
	// share it. Nil: own.
	Scratch [][]byte

	// Room is where it notes what it holds, made for as large a BufsMax. After Close another
	// Receiver may have it. Nil: own.
	Room *Room
}

// Room is a Receiver's notes of what it holds.
type Room struct {
	runs     []run
	heldBufs []heldBuf
}

// NewRoom makes the Room of a Receiver that holds up to bufsMax Bufs.
func NewRoom(bufsMax int) *Room {
	return &Room{
		runs:     make([]run, 0, RunsMax+1),     // one more for in-order octets
		heldBufs: make([]heldBuf, 0, bufsMax+1), // one more while a segment is looked at
	}
}

// ReceiverStats counts since Init.
type ReceiverStats struct {
	FPDUs, Direct, Reassembled, OutOfOrder            uint64 // FPDUs
	BytesDirect, BytesReassembled, BytesOutOfOrder    uint64 // ULPDU octets
	HeldBufs, HeldBufsPeak, RefusedBudget, RefusedCRC uint64
	RefusedRuns                                       uint64 // segments beyond RunsMax
	// DropBadCRC: segments with octets that could not be verified
	RefusedUnverified uint64
	// segments refused for ReceiverConfig.Reserve
	RefusedSpare uint64
	// markers looked at to find where an FPDU begins
	MarkersSought uint64
	// held runs of octets copied into a neighbour's Buf
	Coalesced, BytesCoalesced uint64
}

// Receiver finds FPDUs in stream octets that may come in any order, each octet once. It belongs to
// one goroutine and allocates nothing after Init, except for its Error.
type Receiver struct {
	mode    Mode
	drop    bool // a bad CRC refuses the segment
	inOrder bool // ReceiverConfig.InOrder, and no PassAhead yet
	stopped bool // failed or closed: swallows everything
	short   bool // what Short says
	pool    *mem.Pool
	stride  int
	oooMax  int // Bufs that octets beyond a gap may hold
	reserve *Reserve
	partial int // Bufs that count as that in reserve

	ulpduMin int // ReceiverConfig.ULPDUMin

	// DropBadCRC: the peer's segments have been whole so far, and the last one that was refused
	// because it was not.
	aligned bool
	suspect uint64 // its offset + 1,
	doubts  int    // and how many that begin there have been refused in a row
	cutAt   uint64 // offset + 1 of the FPDU that it ended inside of,
	cutLen  int    // and that one's ULPDU_Length as it stood there

	// The timestamp of the segment that Input is given, if it has one, and of the suspect.
	stamp, cutStamp uint32
	stamped         bool

	next     uint64    // where the first FPDU that has not been passed begins
	runs     []run     // received octets at or beyond next
	heldBufs []heldBuf // Bufs with octets of runs that have not been passed
	cur      offered   // the octets insert is working on

	// Of Input, until Verdict.
	stage     stage
	verdict   Verdict
	dropAgain bool   // drop is to be set again
	rest      []byte // stageDirect: octets from next on, in restBuf
	restBuf   mem.Buf
	copied    mem.Buf // what octets of a lent Buf were copied to
	fill      filling // stageFill

	pieces [][]byte
	word   [MarkerLen]byte // a field that two Bufs share
	u      ULPDU
	err    error
	stats  ReceiverStats
}

// PiecesMax is the largest number of pieces a ULPDU may come in.
func PiecesMax(bufsMax int) int { return fpduMax/MarkerSpacing + 2 + bufsMax }

// Init starts a half-connection at offset 0. All memory is made here. A BufsMax below BufsMin is
// the caller's fault and panics.
func (r *Receiver) Init(cfg ReceiverConfig) {
	stride := cfg.Pool.Stride()
	if cfg.BufsMax < BufsMin(stride) {
		panic("mpa: BufsMax below BufsMin: in-order octets of one largest FPDU might not fit")
	}
	pieces := cfg.Scratch
	if pieces == nil {
		pieces = make([][]byte, PiecesMax(cfg.BufsMax))
	}
	if len(pieces) < PiecesMax(cfg.BufsMax) {
		panic("mpa: Scratch shorter than PiecesMax")
	}
	room := cfg.Room
	if room == nil {
		room = NewRoom(cfg.BufsMax)
	}
	if cap(room.heldBufs) <= cfg.BufsMax {
		panic("mpa: Room for fewer Bufs than BufsMax")
	}
	*r = Receiver{} // then field by field: a literal would be built elsewhere and copied
	r.copied = mem.NoBuf
	r.mode, r.drop, r.inOrder = cfg.Mode, cfg.DropBadCRC && cfg.Mode.CRC, cfg.InOrder
	r.pool, r.stride, r.oooMax, r.reserve = cfg.Pool, stride, cfg.BufsMax-BufsMin(stride), cfg.Reserve
	r.aligned, r.ulpduMin = true, cfg.ULPDUMin
	r.runs, r.heldBufs, r.pieces = room.runs[:0], room.heldBufs[:0:cfg.BufsMax+1], pieces[:0]
}

// stage says where Next goes on.
type stage uint8

const (
	stageDone   stage = iota
	stageDirect       // the fast path: whole FPDUs at the front of rest
	stageFill         // FPDUs that have become whole in a gap
)

// Input offers data (octets within Buf b's slot) at MPA stream offset off. Each octet of the stream
// is offered once until it is taken; octets offered twice are the caller's fault and panic. After
// Input the caller takes the ULPDUs that have become whole, and then the Verdict on b:
//
//	r.Input(off, b, data)
//	for u := r.Next(); u != nil; u = r.Next() {
//		place(u)
//	}
//	v := r.Verdict()
//
// b belongs to the caller again unless the Verdict is Kept. Nothing blocks. After an error or Close
// everything is swallowed: Done, and Err says why.
func (r *Receiver) Input(off uint64, b mem.Buf, data []byte) {
	r.stage, r.verdict = stageDone, Done
	if r.stopped || len(data) == 0 {
		return
	}
	r.short = r.refuses(off, data) || r.pool.Lent(b) && r.pool.Available() == 0 &&
		r.wouldHold(off, data)
	if r.short {
		r.stats.RefusedSpare++
		r.refusals().Spare++
		r.verdict = Refused
		return
	}
	r.begin(off, b, data)
}

// InputCommitted is Input of octets that continue the in-order stream and that TCP has acknowledged
// already: it refuses none, and a bad CRC among them is an error whatever DropBadCRC says (RFC 5044
// section 8 allows the drop where the sending TCP will retry). b is no lent Buf.
func (r *Receiver) InputCommitted(off uint64, b mem.Buf, data []byte) {
	if r.pool.Lent(b) {
		panic("mpa: octets that cannot be refused are in a lent Buf")
	}
	r.stage, r.verdict = stageDone, Done
	if r.stopped || len(data) == 0 {
		return
	}
	r.dropAgain, r.drop = r.drop, false
	r.begin(off, b, data)
}

// begin is Input of what the Pool has room for.
func (r *Receiver) begin(off uint64, b mem.Buf, data []byte) {
	switch {
	case off != r.next:
		r.insert(off, b, data)
	case r.drop && r.doubtful(data):
		r.verdict = Refused
	default:
		r.stage, r.rest, r.restBuf = stageDirect, data, b
	}
}

// Next returns the next ULPDU of those that have become whole, nil when there is none (any more).
func (r *Receiver) Next() *ULPDU {
	if r.stage == stageDirect {
		if u := r.nextDirect(); u != nil {
			return u
		}
	}
	if r.stage == stageFill {
		return r.nextHeld()
	}
	return nil
}

// Verdict is what becomes of the Buf that Input was given. Call it when Next has returned nil.
func (r *Receiver) Verdict() Verdict {
	if len(r.heldBufs)|r.partial != 0 {
		r.account()
	}
	if r.dropAgain {
		r.dropAgain, r.drop = false, true
	}
	if r.copied != mem.NoBuf {
		r.settleCopy()
	}
	return r.verdict
}

// PassAhead ends ReceiverConfig.InOrder. What waits beyond a gap is passed in order, or when more
// comes that continues it.
func (r *Receiver) PassAhead() { r.inOrder = false }

// Sent tells the timestamp (RFC 7323's TSval) of the segment that Input is given next. DropBadCRC
// tells by it what the peer sends again from copies that the network made; without it every segment
// is taken for one that was sent again.
func (r *Receiver) Sent(stamp uint32) { r.stamp, r.stamped = stamp, true }

// wouldHold says whether data may end up held: all but a segment that continues the in-order stream
// and, with what is held before it and after it, makes whole every frame that it has octets of.
func (r *Receiver) wouldHold(off uint64, data []byte) bool {
	end := off + uint64(len(data))
	i := 0 // the run after
	if off != r.next {
		if len(r.runs) == 0 || r.runs[0].lo != r.next || r.runs[0].hi != off {
			return true
		}
		i = 1
	}
	g := gap{hi: end}
	if i < len(r.runs) && r.runs[i].lo == end {
		g.meet(&r.runs[i])
	}
	for at := r.next; at < end; {
		head := r.mode.headOf(at)
		if head+HeaderLen > g.hi {
			return !g.land // a frame across one that was passed ends the stream
		}
		n := r.lengthAt(head, off, data)
		if n > mulpduMax {
			return false // so does this
		}
		if at = r.mode.frameOf(at, n).end; at > g.hi {
			return !g.land
		}
	}
	return false
}

// lengthAt is the ULPDU_Length at head: its octets are in data, which begins at off, or held.
func (r *Receiver) lengthAt(head, off uint64, data []byte) int {
	n := 0
	for at := head; at < head+HeaderLen; at++ {
		octet := byte(0)
		if at >= off && at-off < uint64(len(data)) {
			octet = data[at-off]
		} else {
			octet = r.field(at, 1)[0]
		}
		n = n<<8 | int(octet)
	}
	return n
}

// Edge tells the stream's left edge: TCP has committed all octets before it. The result is the
// Delivery edge: every FPDU that ends at or before it has been passed. It never moves back; after
// an error it stands still. Call it after the Commit of what Input took. Input passes everything
// that has become whole, so nothing is left to pass here.
func (r *Receiver) Edge(left uint64) uint64 { return min(left, r.next) }

// Short says, after the Verdict Refused, that the Pool was too short for what Input was given
// (ReceiverConfig.Reserve).
func (r *Receiver) Short() bool { return r.short }

// Err is the *Error that stopped the Receiver, or nil. It is not the Receiver's: another Init
// leaves it as it is.
func (r *Receiver) Err() error { return r.err }

func (r *Receiver) Stats() ReceiverStats {
	s := r.stats
	s.FPDUs = s.Direct + s.Reassembled
	s.HeldBufs = uint64(len(r.heldBufs))
	return s
}

// Close frees all held Bufs. What comes later is swallowed. It may be called twice.
func (r *Receiver) Close() {
	r.stopped = true
	r.freeHeld()
	r.account()
}

// fail reports an MPA error. Nothing more is passed (RFC 5044 section 8), so nothing need be held.
func (r *Receiver) fail(code ErrorCode, off uint64, what string) {
	r.err = &Error{Code: code, Offset: off, What: what}
	r.stage, r.verdict = stageDone, Done
	r.Close()
}
