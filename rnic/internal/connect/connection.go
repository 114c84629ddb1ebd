package connect

import (
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
)

// Connection is a connection of MPA from its first octet: start-up, then octets for a queue pair's
// engine. It is the transport's Upper.
type Connection struct {
	Host      *Host
	Transport transport.Conn
	transport.Memory
	shared    *qp.Shared // with other connections; nil: its memory is its own
	phase     phase
	initiator bool
	dialect   mpa.Dialect // Initiator: of the Request
	Responder *Responder  // of a Responder
	engine    *qp.Engine  // engine and endpoint: nil at a Responder before the Request is accepted
	endpoint  *Endpoint
	own       mpa.Frame // the start-up frame that this end has sent or is going to send

	older []mpa.Dialect // Initiator: to be tried next
	again func()        // Initiator: tries them; nil: nothing can be tried
	// Initiator: tries another Poller, for our end may be its; nil: there is none
	elsewhere   func()
	privateMax  int  // the longest private data taken in a frame of Rev 0
	firstMarker bool // culley-02: the peer's first octets are still to be looked at
	awaitsRtr   bool // Responder: a Ready-to-Receive frame comes before FPDUs
	awaitsReady bool // Responder: the Initiator owes that frame or an RTR message
	// Param.DropBadCRC has an effect: a kernel socket has acknowledged everything
	dropBadCRC bool
	packFull   bool // Param.PackFull

	wakeUpPlanned bool // Initiator: the timer is wakeup.go's
	wakeUpLate    bool // start-up's message had not left when that came

	repliedAt int64 // Responder: when the Reply was made
	// Responder: when it may send first (sendfirst.go), no later than the timer; 0: never by time
	sendFirstAt int64

	claim  atomic.Uint32 // what came first: the ULP took the Request, or the connection ended
	shut   bool          // our half is to be closed when everything was pulled
	closed bool          // Transport.CloseSend was called
	told   bool          // EventTerminated was told
	// start-up octets received that are not yet a frame, of one that comes in pieces
	in           []byte
	out          []byte          // start-up octets not yet pulled
	room         [frameRoom]byte // of out, for a frame that is short and alone
	early        *earlyData      // delayed start-up: octets that came before MPA did
	rxNext       uint64          // stream offset of the next start-up octet
	rxBase       uint64          // stream offset of MPA's first octet
	keptTo       uint64          // end of the octets that MPA ever kept, in its stream
	owed         stack.PeerClock // since when the peer owes what would make those whole
	progressSeen uint64          // Transport.Progress when the linger timer was set
	Err          error           // the first reason
	badCRC       uint64          // FPDUs with a bad CRC that are in the flight record
	self, Peer   netip.AddrPort  // once established
	at           int             // in Host.connections, under its mutex
	Gone         Signal          // the connection is over
	Returned     net.Conn        // before Gone: the stream that the connection is again
}

func newConnection(h *Host) *Connection {
	c := new(Connection)
	c.init(h)
	return c
}

func (c *Connection) init(h *Host) {
	c.Host, c.privateMax = h, mpa.PrivateDataMax
}

// newPollerConnection makes a connection over our TCP.
func newPollerConnection(h *Host, p *PollerState) (*Connection, *transport.PollerConn) {
	both := &struct { // of one life: made at once
		Connection
		transport.PollerConn
	}{}
	c, u := &both.Connection, &both.PollerConn
	c.init(h)
	u.Init(p.Poller, p.Reader, c)
	c.Transport, c.Memory, c.shared = u, u.Memory(), p.shared
	return c, u
}

// newKernelConnection makes a connection over nc, in a slot that it gives back at its end. If it
// returns an error, nc and the slot are still the caller's.
func newKernelConnection(h *Host, nc *net.TCPConn,
	at *transport.Slot) (*Connection, *transport.KernelConn, error) {
	c := newConnection(h)
	s, err := transport.NewKernelConn(c, nc, at, h.NewReader(), h.Start)
	if err != nil {
		return nil, nil, err
	}
	c.Transport, c.Memory = s, s.Memory()
	if !h.addConnection(c) {
		c.Reader.Close()
		return nil, nil, ErrClosed
	}
	return c, s, nil
}

// initiate makes c an Initiator's connection, for the first of the dialects.
func (c *Connection) initiate(e *Endpoint, tries []mpa.Dialect) {
	c.initiator, c.engine, c.endpoint = true, e.engine, e
	c.dialect, c.older = tries[0], tries[1:]
	c.privateMax = e.param.PrivateDataMax
}

// respondFor makes c a Responder's connection.
func (c *Connection) respondFor(r *Responder) { c.Responder, c.privateMax = r, r.PrivateMax }

// Established to Closed, in several files, implement stack.Upper, and Connection implements
// transport.Upper.
var _ transport.Upper = (*Connection)(nil)

// Arrive implements stack.Upper.
func (c *Connection) Arrive(off uint64, bufs []mem.Buf, data [][]byte) (n int, v stack.Verdict) {
	if c.phase == phaseFull && !c.awaitsRtr && c.early == nil && off >= c.rxBase && !c.firstMarker &&
		bufs[0] != mem.NoBuf {
		return c.arriveFull(off, bufs, data)
	}
	if c.early != nil {
		// of earlydata.go, which comes before in a connection's life
		return 1, c.arriveEarly(off, bufs[0], data[0])
	}
	return 1, c.arriveNew(off, bufs[0], data[0])
}

// arriveFull takes segments in full operation.
func (c *Connection) arriveFull(off uint64, bufs []mem.Buf,
	data [][]byte) (n int, v stack.Verdict) {
	// what is refused for a bad CRC comes again: it is told apart by its segment's stamp
	if c.dropBadCRC {
		data = data[:1]
		if ts, ok := c.Transport.Stamp(); ok {
			c.engine.Stamp(ts)
		}
	}
	at := off - c.rxBase
	n, verdict := c.engine.Arrive(at, bufs, data)
	switch v = stack.Verdict(verdict); {
	case v == stack.Kept:
		for _, octets := range data[:n] {
			at += uint64(len(octets))
		}
		c.keeps(at)
	case v == stack.Refused && c.dropBadCRC:
		c.recordBadCRC(off)
	}
	c.heed()
	return n, v
}

// arriveNew takes octets of one segment at a stream offset while the connection is not simply in
// full operation. During start-up only octets in order are taken; the peer's TCP sends the others
// again.
func (c *Connection) arriveNew(off uint64, b mem.Buf, data []byte) stack.Verdict {
	if c.startingUp() {
		if off < c.rxNext { // of a segment whose rest was refused
			skip := min(c.rxNext-off, uint64(len(data)))
			if off, data = off+skip, data[skip:]; len(data) == 0 {
				return stack.Taken
			}
		}
		if off != c.rxNext {
			return stack.Refused
		}
		if used := c.startup(data); used < len(data) {
			return c.arriveNew(off, b, data)
		}
		return stack.Taken
	}
	switch c.phase {
	case phaseToStream: // they are the stream's, when the connection is one again
		return stack.Refused
	case phaseDecide:
		// The peer spoke before we answered. Nothing after the Request is taken until the ULP has
		// decided.
		if off+uint64(len(data)) <= c.rxBase {
			return stack.Taken
		}
		return stack.Refused
	case phaseFull:
		if off < c.rxBase { // a refused segment that began with the start-up frame comes again
			skip := c.rxBase - off
			if skip >= uint64(len(data)) {
				return stack.Taken
			}
			off, data = c.rxBase, data[skip:]
		}
		if b == mem.NoBuf {
			return stack.Refused // they will come again in a Buf
		}
		if c.firstMarker && off == c.rxBase && !c.opensCulley02(data) {
			return stack.Taken
		}
		_, v := c.arriveFull(off, []mem.Buf{b}, [][]byte{data})
		return v
	}
	return stack.Taken // rejecting or over: swallowed
}

// Engine.Arrive returns MPA's verdicts, whose values are the stack's. An index other than 0 does
// not compile.
var (
	_ = [1]struct{}{}[stack.Verdict(mpa.Done)-stack.Taken]
	_ = [1]struct{}{}[stack.Verdict(mpa.Kept)-stack.Kept]
	_ = [1]struct{}{}[stack.Verdict(mpa.Refused)-stack.Refused]
)

// startingUp says whether a frame of the peer's is due.
func (c *Connection) startingUp() bool {
	return c.phase == phaseRequest || c.phase == phaseReply || c.phase == phaseFull && c.awaitsRtr
}

// keeps notes that MPA keeps octets that end at to.
func (c *Connection) keeps(to uint64) {
	c.keptTo = max(c.keptTo, to)
	c.owed.Advance(c.engine.Passed(), c.keptTo, c.Transport.Now())
}

// Edge implements stack.Upper.
func (c *Connection) Edge(edge uint64) {
	if c.early != nil {
		c.giveEarly(edge) // of earlydata.go, as in Arrive
	}
	if c.phase == phaseFull && !c.awaitsRtr && edge > c.rxBase {
		c.engine.LeftEdge(edge - c.rxBase)
		if passed := c.engine.Passed(); passed < c.keptTo {
			c.owed.Advance(passed, c.keptTo, c.Transport.Now())
		}
		c.heed()
	}
}

// Held implements stack.Upper.
func (c *Connection) Held() (bufs int, since int64) {
	if c.phase != phaseFull {
		return 0, 0
	}
	since, owes := c.owed.Owes(c.engine.Passed())
	if !owes {
		return 0, since
	}
	return c.engine.HeldBufs(), since
}

// Pull implements stack.Upper. Start-up frames travel in segments of their own.
func (c *Connection) Pull(dst [][]byte) (got stack.Pulled) {
	if len(c.out) > 0 {
		k := copy(dst[0], c.out)
		dst[0], got.N = dst[0][:k], 1
		if c.out = c.out[k:]; len(c.out) == 0 && c.phase == phaseToStream {
			c.Transport.GiveBack()
		}
	} else if c.phase == phaseFull {
		mayWait := c.packFull && !c.shut
		if mayWait && !c.Transport.Unacked() {
			mayWait, dst = false, dst[:1] // a second one may wait for the first
		}
		got.N, got.Ends = c.engine.Pull(dst, mayWait)
		c.heed()
	}
	if c.shut && !c.closed && c.drained() {
		c.closed = true
		c.Transport.CloseSend()
	}
	got.More = c.More()
	return got
}

// More implements transport.Upper.
func (c *Connection) More() bool {
	return len(c.out) > 0 || c.phase == phaseFull && c.engine.More()
}

// Acked implements stack.Upper: who needs it asks Transport.Unacked or Progress.
func (c *Connection) Acked(uint64) {}

// FinAcked implements stack.Upper: the peer's own half decides.
func (c *Connection) FinAcked() {}

// Advice implements stack.Upper: what it tells of may be temporary.
func (c *Connection) Advice(error) {}

// Woken implements stack.Upper.
func (c *Connection) Woken() { c.Transport.Woken() }

// Timer implements stack.Upper. What the one timer was set for depends on the phase.
func (c *Connection) Timer(int64) {
	switch c.phase {
	case phaseRequest, phaseReply:
		c.Fail(ErrStartupTimeout)
	case phaseDecide:
		c.Fail(errUndecided)
	default:
		if c.phase == phaseRejecting && !c.shut {
			c.closing()
			return
		}
		if c.sendFirstAt != 0 && c.Transport.Now() >= c.sendFirstAt {
			c.pauseOver()
			return
		}
		if c.wakeUpPlanned && !c.shut {
			c.wakeUp()
			return
		}
		if c.phase == phaseFull && c.awaitsReady && !c.shut {
			c.Fail(ErrStartupTimeout)
			return
		}
		if c.phase == phaseFull && c.Err == nil && c.Transport.Progress() != c.progressSeen {
			c.linger() // what was posted, or the peer's own rest, still moves
			return
		}
		if c.phase == phaseRejecting {
			c.Transport.Abort()
			return
		}
		c.Fail(ErrLinger)
	}
}

// StreamBase implements transport.Upper.
func (c *Connection) StreamBase() uint64 { return c.rxBase }
