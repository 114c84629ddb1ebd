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
	shared *qp.Shared // with other connections
	phase  phase
	half   half    // ours
	timer  purpose // of the Transport's timer
	// Param.DropBadCRC has an effect: a kernel socket has acknowledged everything
	dropBadCRC bool
	packFull   bool       // Param.PackFull
	told       bool       // EventTerminated was told
	resetting  resetting  // Fail was called
	timerAt    int64      // when the timer is due for its purpose
	Responder  *Responder // of a Responder
	engine     *qp.Engine // engine and endpoint: nil at a Responder before the Request is accepted
	endpoint   *Endpoint
	frames
	fallback
	promises
	*retries // in acknowledged mode, in service; else nil

	repliedAt   int64 // Responder: when the Reply was made
	sendFirstAt int64 // Responder: when it may send first (sendfirst.go); 0: never by time

	claim        atomic.Uint32  // what came first: the ULP took the Request, or the connection ended
	early        *earlyData     // delayed start-up: octets that came before MPA did
	rxNext       uint64         // stream offset of the next start-up octet
	rxBase       uint64         // stream offset of MPA's first octet
	progressSeen uint64         // Transport.Progress when the linger timer was set
	Err          error          // the first reason
	badCRC       uint64         // FPDUs with a bad CRC that are in the flight record
	self, Peer   netip.AddrPort // once established
	at           int            // in Host.connections, under its mutex
	Gone         Signal         // the connection is over
	Returned     net.Conn       // before Gone: the stream that the connection is again
}

// fallback is what an Initiator tries when this connection has failed.
type fallback struct {
	dialect   mpa.Dialect   // of the Request
	older     []mpa.Dialect // to be tried next
	again     func()        // tries them; nil: nothing can be tried
	elsewhere func()        // tries another Poller, for our end may be its; nil: there is none
}

// promises are octets that MPA keeps, whose rest the peer owes.
type promises struct {
	keptTo uint64          // their end, in MPA's stream
	owed   stack.PeerClock // since when
}

// keeps notes that MPA keeps octets that end at to, and has passed those up to passed.
func (p *promises) keeps(to, passed uint64, now int64) {
	p.keptTo = max(p.keptTo, to)
	p.owed.Advance(passed, p.keptTo, now)
}

func NewConnection(h *Host) *Connection {
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
	c.Transport, c.Memory, c.shared = u, u.Memory(), p.Shared
	return c, u
}

// newKernelConnection makes a connection over nc, in a slot that it gives back at its end. If it
// returns an error, nc and the slot are still the caller's.
func newKernelConnection(h *Host, nc *net.TCPConn,
	at *transport.Slot) (*Connection, *transport.KernelConn, error) {
	c := NewConnection(h)
	s, err := transport.NewKernelConn(c, h.Loop, nc, at, h.Reader)
	if err != nil {
		return nil, nil, err
	}
	c.Transport, c.Memory, c.shared = s, s.Memory(), h.sockets
	if !h.addConnection(c) {
		s.Discard()
		return nil, nil, ErrClosed
	}
	return c, s, nil
}

// initiate makes c an Initiator's connection, for the first of the dialects.
func (c *Connection) initiate(e *Endpoint, tries []mpa.Dialect) {
	c.engine, c.endpoint = e.engine, e
	c.dialect, c.older = tries[0], tries[1:]
	c.privateMax = int(e.param.PrivateDataMax)
}

// respondFor makes c a Responder's connection.
func (c *Connection) respondFor(r *Responder) { c.Responder, c.privateMax = r, r.PrivateMax }

// Established to Closed, in several files, implement stack.Upper, and Connection implements
// transport.Upper.
var _ transport.Upper = (*Connection)(nil)

// Arrive implements stack.Upper.
func (c *Connection) Arrive(off uint64, bufs []mem.Buf, data [][]byte) (n int, v stack.Verdict) {
	if c.resetting != resetNot {
		return len(bufs), stack.Taken // swallowed: it could not be acknowledged
	}
	if c.phase.takesFPDUs() && c.early == nil && off >= c.rxBase && bufs[0] != mem.NoBuf {
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
		c.keeps(at, c.engine.Passed(), c.Transport.Now())
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
	if c.phase.awaitsFrame() {
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
	case phaseMarker, phaseRtr, phaseFull:
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
		if c.phase == phaseMarker && off == c.rxBase && !c.opensCulley02(data) {
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

// Edge implements stack.Upper.
func (c *Connection) Edge(edge uint64) {
	if c.early != nil {
		c.giveEarly(edge) // of earlydata.go, as in Arrive
	}
	if c.phase.inService() && c.phase != phaseRtrFrame && edge > c.rxBase && c.resetting == resetNot {
		c.engine.LeftEdge(edge - c.rxBase)
		if passed := c.engine.Passed(); passed < c.keptTo {
			c.keeps(c.keptTo, passed, c.Transport.Now())
		}
		c.heed()
	}
}

// Held implements stack.Upper.
func (c *Connection) Held() (bufs int, since int64) {
	if !c.phase.inService() {
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
	} else if c.phase.inService() {
		mayWait := c.packFull && c.half == halfOpen
		if mayWait && !c.Transport.Unacked() {
			mayWait, dst = false, dst[:1] // a second one may wait for the first
		}
		got.N, got.Ends = c.engine.Pull(dst, mayWait)
		c.heed()
		if c.retries != nil && c.retryAt == 0 {
			c.awaitAnswers(dst[:got.N])
		}
	}
	if c.half == halfClosing && c.drained() {
		c.closeHalf()
	}
	got.More = c.More()
	return got
}

// More implements transport.Upper.
func (c *Connection) More() bool {
	return len(c.out) > 0 || c.phase.inService() && c.engine.More()
}

// Acked implements stack.Upper: who needs it asks Transport.Unacked or Progress.
func (c *Connection) Acked(uint64) {}

// FinAcked implements stack.Upper: the peer's own half decides.
func (c *Connection) FinAcked() {}

// Advice implements stack.Upper: what it tells of may be temporary.
func (c *Connection) Advice(error) {}

// Later implements transport.Upper.
func (c *Connection) Later() {
	if c.resetting != resetNot {
		c.resetLater(c.More())
		return
	}
	if c.phase.inService() && c.engine.SendAcknowledgements() {
		c.Transport.Send()
	}
}

// Woken implements stack.Upper.
func (c *Connection) Woken() { c.Transport.Woken() }

// Timer implements stack.Upper.
func (c *Connection) Timer(now int64) {
	due := c.retryDueAt()
	shared := due != 0 // it may not be the purpose's time
	if shared && now >= due {
		c.retryDue()
	}
	if !shared || c.timerAt != 0 && now >= c.timerAt {
		c.timed()
	}
	if shared && c.phase != phaseOver {
		c.armTimer()
	}
}

// timed does what the timer was set for.
func (c *Connection) timed() {
	was := c.timer
	c.timer, c.timerAt = timerOff, 0
	switch was {
	case timerFrame:
		c.Fail(ErrStartupTimeout)
	case timerDecision:
		c.Fail(ErrUndecided)
	case timerWakeUp, timerWakeUpLate:
		c.wakeUp(was == timerWakeUpLate)
	case timerSendFirst:
		c.pauseOver()
	case timerRejected:
		c.closing()
	case timerHandBack:
		c.Fail(ErrLinger)
	case timerLinger:
		c.lingered()
	case timerReset:
		c.resetDue(c.More())
	}
}

// StreamBase implements transport.Upper.
func (c *Connection) StreamBase() uint64 { return c.rxBase }
