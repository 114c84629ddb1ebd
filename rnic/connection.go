package rnic

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
)

// Values of connection.claim.
const (
	unclaimed uint32 = iota
	claimedByULP
	claimedByEnd
)

// Time-outs of a connection.
const (
	requestTimeout = 10 * time.Second // Responder waits for the Request, and for its ULP's decision
	replyTimeout   = 10 * time.Second // Initiator waits for the Reply
	lingerTimeout  = 3 * time.Second  // after a Terminate or a rejection, in all
	// closeTimeout is how long an orderly end waits without progress, unless ConnParam.UserTimeout
	// says otherwise: as long as TCP tries, here and at the peer. What either still sends again
	// nobody else can see, and R2 is at least 100 s (RFC 9293 section 3.8.3, SHLD-11).
	closeTimeout = 100 * time.Second
)

// phase of a connection.
//
//	Responder:  connecting -> request -> decide -> full -> over
//	                             |          +----> rejecting -> over
//	Initiator:  connecting -> reply ------------> full -> over
//	                             +-------------> rejecting -> over
//
// culley-02 goes from connecting to full, and at the Responder through decide. A Responder that awaits a Ready-to-Receive frame
// is in full operation but for what it receives.
type phase uint8

const (
	phaseConnecting phase = iota
	phaseRequest
	phaseDecide
	phaseReply
	phaseFull
	phaseRejecting
	phaseLeaving // MPA is left, and the connection goes back to streaming mode (mpatostream.go)
	phaseOver
)

// connection is one from its first octet: MPA start-up, then octets for a QueuePair.
type connection struct {
	adapter   *Adapter
	transport transport.Conn
	transport.Memory
	reserve   *mpa.Reserve // that it shares with other connections; nil: its memory is its own
	phase     phase
	initiator bool
	listener  *Listener
	qp        *qp.Engine // it and end: nil at a Responder before the Request is accepted
	end       *endpoint
	own       mpa.Frame // the frame we sent or are going to send

	dialect     Dialect   // Initiator: of the Request
	older       []Dialect // Initiator: to be tried next
	again       func()    // Initiator: tries them; nil: nobody can
	privateMax  int       // the application's buffer for the peer's, of Rev 0
	firstMarker bool      // culley-02: the peer's first octets are still to be looked at
	awaitsRtr   bool      // Responder: a Ready-to-Receive frame comes before FPDUs
	awaitsReady bool      // Responder: the Initiator owes that frame or an RTR message
	dropBadCRC  bool      // ConnParam.DropBadCRC has an effect: a kernel socket has acknowledged everything
	packFull    bool      // ConnParam.Packing

	wakeUpPlanned bool // Initiator: the timer is that of wakeup.go

	repliedAt   int64 // Responder: when the Reply was made
	sendFirstAt int64 // Responder: when it may send first (sendfirst.go), no later than the timer; 0: no matter

	claim      atomic.Uint32   // who has the Request: the ULP, or the end of the connection if that comes first
	in         []byte          // start-up octets received and not yet a frame
	out        []byte          // start-up octets not yet pulled
	earlyData  *earlyData      // delayed start-up: octets that came before MPA did
	rxNext     uint64          // stream offset of the next start-up octet
	rxBase     uint64          // stream offset of MPA's first octet
	keptTo     uint64          // end of what MPA ever kept, in its stream
	owed       stack.PeerClock // for what would make that whole
	shut       bool            // our half is to be closed when all was pulled
	closed     bool            // closeSend was called
	seen       uint64          // car.progress when the linger timer was set
	err        error           // the first reason
	self, peer netip.AddrPort  // once established
	gone       chan struct{}
	returned   net.Conn // before gone: the stream that the connection is again
}

func newConnection(a *Adapter) *connection {
	return &connection{adapter: a, privateMax: mpa.PrivateDataMax, gone: make(chan struct{})}
}

// newPollerConnection makes a connection over our TCP.
func newPollerConnection(a *Adapter, ln *pollerState) (*connection, *transport.PollerConn) {
	l := newConnection(a)
	u := transport.NewPollerConn(ln.poller, ln.reader, l)
	l.transport, l.Memory, l.reserve = u, u.Memory(), &ln.reserve
	return l, u
}

// newKernelConnection makes a connection over nc, at a place that it gives back at its end. With an error that is the caller's to do.
func newKernelConnection(a *Adapter, nc *net.TCPConn, at *transport.Place) (*connection, *transport.KernelConn, error) {
	l := newConnection(a)
	s, err := transport.NewKernelConn(l, nc, at, a.table.NewReader(), a.start)
	if err != nil {
		return nil, nil, err
	}
	l.transport, l.Memory = s, s.Memory()
	if !a.addConnection(l) {
		l.Reader.Close()
		return nil, nil, ErrClosed
	}
	return l, s, nil
}

// bufsMax is how many Bufs MPA may keep.
func (l *connection) bufsMax() int { return mpa.BufsMin(l.Stride) + l.Ahead }

// Held implements upper.
func (l *connection) Held() (bufs int, since int64) {
	if l.phase != phaseFull {
		return 0, 0
	}
	since, owes := l.owed.Owes(l.qp.Passed())
	if !owes {
		return 0, since
	}
	return l.qp.HeldBufs(), since
}

// keeps notes that MPA keeps octets that end at to.
func (l *connection) keeps(to uint64) {
	l.keptTo = max(l.keptTo, to)
	l.owed.Advance(l.qp.Passed(), l.keptTo, l.transport.Now())
}

// StreamBase implements upper.
func (l *connection) StreamBase() uint64 { return l.rxBase }

// Pushed implements upper.
func (l *connection) Pushed() bool { return l.qp != nil && l.qp.Pushed() }

// Arrive implements upper.
func (l *connection) Arrive(off uint64, b mem.Buf, data []byte) stack.Verdict {
	if l.earlyData != nil {
		return l.arriveEarly(off, b, data)
	}
	return l.arriveNew(off, b, data)
}

// arriveNew takes octets at a stream offset. During start-up only octets in order are taken; TCP sends the others again.
func (l *connection) arriveNew(off uint64, b mem.Buf, data []byte) stack.Verdict {
	if l.startingUp() {
		if off < l.rxNext { // of a segment whose rest was refused
			skip := min(l.rxNext-off, uint64(len(data)))
			if off, data = off+skip, data[skip:]; len(data) == 0 {
				return stack.Taken
			}
		}
		if off != l.rxNext {
			return stack.Refused
		}
		if used := l.startup(data); used < len(data) {
			return l.arriveNew(off, b, data)
		}
		return stack.Taken
	}
	switch l.phase {
	case phaseLeaving: // the stream's, when it is one again
		return stack.Refused
	case phaseDecide:
		// The peer spoke before we answered. Nothing behind the Request is taken until the ULP has decided.
		if off+uint64(len(data)) <= l.rxBase {
			return stack.Taken
		}
		return stack.Refused
	case phaseFull:
		if off < l.rxBase { // a refused segment that began with the start-up frame comes again
			skip := l.rxBase - off
			if skip >= uint64(len(data)) {
				return stack.Taken
			}
			off, data = l.rxBase, data[skip:]
		}
		if b == mem.NoBuf {
			return stack.Refused // come again in one
		}
		if l.firstMarker && off == l.rxBase && !l.opensCulley02(data) {
			return stack.Taken
		}
		if l.dropBadCRC {
			if stamp, ok := l.transport.Stamp(); ok {
				l.qp.Sent(stamp)
			}
		}
		v := stack.Verdict(l.qp.Arrive(off-l.rxBase, b, data))
		if v == stack.Kept {
			l.keeps(off - l.rxBase + uint64(len(data)))
		}
		l.heed()
		return v
	}
	return stack.Taken // rejecting or over: swallowed
}

// startingUp says whether a frame of the peer's is due.
func (l *connection) startingUp() bool {
	return l.phase == phaseRequest || l.phase == phaseReply || l.phase == phaseFull && l.awaitsRtr
}

// Edge announces the left edge of the stream.
func (l *connection) Edge(edge uint64) {
	if l.earlyData != nil {
		l.giveEarly(edge)
	}
	if l.phase == phaseFull && !l.awaitsRtr && edge > l.rxBase {
		l.qp.LeftEdge(edge - l.rxBase)
		if passed := l.qp.Passed(); passed < l.keptTo {
			l.owed.Advance(passed, l.keptTo, l.transport.Now())
		}
		l.heed()
	}
}

// Pull fills the next segment. Start-up frames travel in segments of their own.
func (l *connection) Pull(dst []byte) int {
	n := 0
	if len(l.out) > 0 {
		n = copy(dst, l.out)
		if l.out = l.out[n:]; len(l.out) == 0 && l.phase == phaseLeaving {
			l.transport.GiveBack()
		}
	} else if l.phase == phaseFull {
		n = l.qp.Pull(dst, l.packFull && !l.shut && l.transport.Unacked())
		l.heed()
	}
	if l.shut && !l.closed && l.drained() {
		l.closed = true
		l.transport.CloseSend()
	}
	return n
}

func (l *connection) drained() bool {
	return len(l.out) == 0 && (l.phase != phaseFull || l.qp.Idle())
}

// More says whether the next pull would have octets.
func (l *connection) More() bool {
	return len(l.out) > 0 || l.phase == phaseFull && l.qp.More()
}

// heed does what the engine's last call means for the connection.
func (l *connection) heed() {
	if l.qp.Effects != 0 {
		l.heedEffects()
	}
}

func (l *connection) heedEffects() {
	fx, err := l.qp.TakeEffects()
	err = publicError(err)
	if fx&qp.EffectOpened != 0 {
		l.opened()
	}
	if fx&qp.EffectCloseHalf != 0 && !l.shut {
		l.closing()
	}
	switch {
	case fx&qp.EffectFail != 0:
		l.Fail(err)
	case fx&qp.EffectLeave != 0:
		l.qp.Tell(qp.EventTerminated, 0, err)
		l.note(err)
		l.closing()
	}
	if fx&qp.EffectSend != 0 {
		l.transport.Send()
	}
	if fx&qp.EffectShort != 0 {
		l.transport.Short()
	}
}

// MPA's Verdicts are the stack's.
var _ = [1]struct{}{}[stack.Verdict(mpa.Done)-stack.Taken+stack.Verdict(mpa.Kept)-stack.Kept+stack.Verdict(mpa.Refused)-stack.Refused]

// opened: the Responder's half may send.
func (l *connection) opened() {
	l.sendFirstAt, l.awaitsReady = 0, false
	if !l.shut {
		l.transport.SetTimer(0)
	}
	l.transport.Send()
}

// open lets the Responder send.
func (l *connection) open() {
	l.qp.Open()
	l.heed()
}

// closing ends our half behind what is still to be pulled, and bounds the wait for the peer's.
func (l *connection) closing() {
	if l.phase == phaseOver {
		return
	}
	l.shut = true
	l.linger()
	if l.drained() && !l.closed {
		l.closed = true
		l.transport.CloseSend()
		return
	}
	l.transport.Send()
}

// linger bounds how long a peer that does nothing can keep a closing connection.
func (l *connection) linger() {
	l.seen = l.transport.Progress()
	wait := lingerTimeout
	if l.phase == phaseFull && l.err == nil {
		wait = cmp.Or(l.end.conn.UserTimeout, closeTimeout)
	}
	at := l.transport.Now() + int64(wait)
	if l.sendFirstAt != 0 {
		at = min(at, l.sendFirstAt)
	}
	l.transport.SetTimer(at)
}

// shutdown is the application's orderly close.
func (l *connection) shutdown() {
	switch l.phase {
	case phaseFull:
		l.qp.Leave(qp.Closing)
		if !l.shut {
			l.closing()
		}
	default:
		l.Fail(ErrClosed)
	}
}

// PeerClosed: the peer's FIN is in order. A graceful event unless a frame is cut or the peer still owes one of start-up's, or
// its RTR message (DECISIONS 29).
func (l *connection) PeerClosed() {
	switch {
	case l.phase == phaseRequest || l.phase == phaseReply || l.phase == phaseDecide || l.phase == phaseFull && l.awaitsReady && !l.shut:
		l.Fail(&connectionError{fmt.Errorf("%w during MPA start-up", ErrPeerClosed)})
	case l.phase == phaseFull && (l.qp.Cut() || len(l.in) > 0):
		l.Fail(&connectionError{fmt.Errorf("%w in the middle of a frame", ErrPeerClosed)})
	case l.phase == phaseFull && l.qp.PeerEnds():
		l.Fail(&connectionError{ErrUnanswered})
	case l.phase == phaseLeaving: // the stream will say so
	default:
		if l.phase == phaseFull {
			l.qp.Leave(qp.Closing)
			l.end.tellPeerClosed(l.shut)
			if l.qp.StopUnopened() {
				// The FPDU that would have let us send will not come.
			} else if l.end.conn.AllowHalfClosed && !l.shut {
				return
			}
		}
		l.closing()
	}
}

// note records the first reason.
func (l *connection) note(err error) {
	if l.err == nil {
		l.err = err
	}
}

// Lost notes that the transport failed. An Initiator may end what was rejected as it likes.
func (l *connection) Lost(err error) {
	if l.phase != phaseRejecting {
		l.note(&connectionError{err})
	}
}

// Fail aborts the connection for err.
func (l *connection) Fail(err error) {
	l.note(err)
	if l.phase == phaseFull {
		l.qp.Leave(qp.Error)
	}
	if l.phase != phaseOver {
		l.transport.Abort()
	}
}

func (l *connection) Timer() {
	switch l.phase {
	case phaseRequest, phaseReply:
		l.Fail(ErrStartupTimeout)
	case phaseDecide:
		l.Fail(errUndecided)
	default:
		if l.phase == phaseRejecting && !l.shut {
			l.closing()
			return
		}
		if l.sendFirstAt != 0 && l.transport.Now() >= l.sendFirstAt {
			l.pauseOver()
			return
		}
		if l.wakeUpPlanned && !l.shut {
			l.wakeUp()
			return
		}
		if l.phase == phaseFull && l.awaitsReady && !l.shut {
			l.Fail(ErrStartupTimeout)
			return
		}
		if l.phase == phaseFull && l.err == nil && l.transport.Progress() != l.seen {
			l.linger() // what was posted, or the peer's own rest, still moves
			return
		}
		if l.phase == phaseRejecting {
			l.transport.Abort()
			return
		}
		l.Fail(ErrLinger)
	}
}

// Over is the last event. err is the transport's reason.
func (l *connection) Over(err error) {
	if l.phase == phaseOver {
		return
	}
	was := l.phase
	switch {
	case err == nil:
	case l.err != nil && errors.Is(err, stack.ErrTentative): // what ended the wait for an address says less
		l.err = fmt.Errorf("%w: %w", l.err, err)
	default:
		l.Lost(err)
	}
	err = l.err
	l.adapter.dropConnection(l)
	l.dropEarly()
	if l.fallsBack(was, err) {
		l.phase = phaseOver
		l.adapter.startup.fallbacks.Add(1)
		close(l.gone)
		l.again()
		return
	}
	if e := l.end; e != nil {
		if was == phaseFull {
			e.final = e.snapshot(l)
		}
		l.phase = phaseOver
		if was != phaseFull {
			select {
			case e.connected <- orClosed(err):
			default:
			}
		}
		e.conclude(err)
		if was == phaseFull {
			e.tellEnd(err)
		}
	}
	l.phase = phaseOver
	if l.listener != nil && err != nil {
		l.listener.report(l, was, err)
	}
	close(l.gone)
}

func orClosed(err error) error {
	if err == nil {
		return errClosedEarly
	}
	return err
}
