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

// Connection is one from its first octet: MPA start-up, then octets for a QueuePair.
type Connection struct {
	Host      *Host
	Transport transport.Conn
	transport.Memory
	reserve   *mpa.Reserve // that it shares with other connections; nil: its memory is its own
	phase     phase
	initiator bool
	Responder *Responder // of a Responder
	engine    *qp.Engine // it and end: nil at a Responder before the Request is accepted
	endpoint  *Endpoint
	own       mpa.Frame // the frame we sent or are going to send

	dialect     mpa.Dialect   // Initiator: of the Request
	older       []mpa.Dialect // Initiator: to be tried next
	again       func()        // Initiator: tries them; nil: nobody can
	privateMax  int           // the application's buffer for the peer's, of Rev 0
	firstMarker bool          // culley-02: the peer's first octets are still to be looked at
	awaitsRtr   bool          // Responder: a Ready-to-Receive frame comes before FPDUs
	awaitsReady bool          // Responder: the Initiator owes that frame or an RTR message
	dropBadCRC  bool          // ConnParam.DropBadCRC has an effect: a kernel socket has acknowledged everything
	packFull    bool          // ConnParam.Packing

	wakeUpPlanned bool // Initiator: the timer is that of wakeup.go

	repliedAt   int64 // Responder: when the Reply was made
	sendFirstAt int64 // Responder: when it may send first (sendfirst.go), no later than the timer; 0: no matter

	claim        atomic.Uint32   // which has the Request: the ULP, or the end of the connection if that comes first
	in           []byte          // start-up octets received and not yet a frame
	out          []byte          // start-up octets not yet pulled
	early        *earlyData      // delayed start-up: octets that came before MPA did
	rxNext       uint64          // stream offset of the next start-up octet
	rxBase       uint64          // stream offset of MPA's first octet
	keptTo       uint64          // end of what MPA ever kept, in its stream
	owed         stack.PeerClock // for what would make that whole
	shut         bool            // our half is to be closed when all was pulled
	closed       bool            // closeSend was called
	progressSeen uint64          // Transport.Progress when the linger timer was set
	Err          error           // the first reason
	told         bool            // EventTerminated was told
	self, Peer   netip.AddrPort  // once established
	Gone         chan struct{}
	Returned     net.Conn // before gone: the stream that the connection is again
}

// NewConnection makes a connection that has no transport yet.
func newConnection(h *Host) *Connection {
	return &Connection{Host: h, privateMax: mpa.PrivateDataMax, Gone: make(chan struct{})}
}

// newPollerConnection makes a connection over our TCP.
func newPollerConnection(h *Host, ln *PollerState) (*Connection, *transport.PollerConn) {
	l := newConnection(h)
	u := transport.NewPollerConn(ln.Poller, ln.Reader, l)
	l.Transport, l.Memory, l.reserve = u, u.Memory(), &ln.reserve
	return l, u
}

// newKernelConnection makes a connection over nc, at a place that it gives back at its end. With an
// error that is the caller's to do.
func newKernelConnection(h *Host, nc *net.TCPConn, at *transport.Place) (*Connection, *transport.KernelConn, error) {
	l := newConnection(h)
	s, err := transport.NewKernelConn(l, nc, at, h.NewReader(), h.Start)
	if err != nil {
		return nil, nil, err
	}
	l.Transport, l.Memory = s, s.Memory()
	if !h.addConnection(l) {
		l.Reader.Close()
		return nil, nil, ErrClosed
	}
	return l, s, nil
}

// bufsMax is how many Bufs MPA may keep.
func (l *Connection) bufsMax() int { return mpa.BufsMin(l.Stride) + l.Ahead }

// Held implements transport.Upper.
func (l *Connection) Held() (bufs int, since int64) {
	if l.phase != phaseFull {
		return 0, 0
	}
	since, owes := l.owed.Owes(l.engine.Passed())
	if !owes {
		return 0, since
	}
	return l.engine.HeldBufs(), since
}

// keeps notes that MPA keeps octets that end at to.
func (l *Connection) keeps(to uint64) {
	l.keptTo = max(l.keptTo, to)
	l.owed.Advance(l.engine.Passed(), l.keptTo, l.Transport.Now())
}

// StreamBase implements transport.Upper.
func (l *Connection) StreamBase() uint64 { return l.rxBase }

// Pushed implements transport.Upper.
func (l *Connection) Pushed() bool { return l.engine != nil && l.engine.Pushed() }

// Arrive implements transport.Upper.
func (l *Connection) Arrive(off uint64, b mem.Buf, data []byte) stack.Verdict {
	if l.early != nil {
		return l.arriveEarly(off, b, data)
	}
	return l.arriveNew(off, b, data)
}

// arriveNew takes octets at a stream offset. During start-up only octets in order are taken; TCP
// sends the others again.
func (l *Connection) arriveNew(off uint64, b mem.Buf, data []byte) stack.Verdict {
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
		// The peer spoke before we answered. Nothing after the Request is taken until the ULP has
		// decided.
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
			if stamp, ok := l.Transport.Stamp(); ok {
				l.engine.Sent(stamp)
			}
		}
		v := stack.Verdict(l.engine.Arrive(off-l.rxBase, b, data))
		if v == stack.Kept {
			l.keeps(off - l.rxBase + uint64(len(data)))
		}
		l.heed()
		return v
	}
	return stack.Taken // rejecting or over: swallowed
}

// startingUp says whether a frame of the peer's is due.
func (l *Connection) startingUp() bool {
	return l.phase == phaseRequest || l.phase == phaseReply || l.phase == phaseFull && l.awaitsRtr
}

// Edge announces the left edge of the stream.
func (l *Connection) Edge(edge uint64) {
	if l.early != nil {
		l.giveEarly(edge)
	}
	if l.phase == phaseFull && !l.awaitsRtr && edge > l.rxBase {
		l.engine.LeftEdge(edge - l.rxBase)
		if passed := l.engine.Passed(); passed < l.keptTo {
			l.owed.Advance(passed, l.keptTo, l.Transport.Now())
		}
		l.heed()
	}
}

// Pull fills the next segment. Start-up frames travel in segments of their own.
func (l *Connection) Pull(dst []byte) int {
	n := 0
	if len(l.out) > 0 {
		n = copy(dst, l.out)
		if l.out = l.out[n:]; len(l.out) == 0 && l.phase == phaseLeaving {
			l.Transport.GiveBack()
		}
	} else if l.phase == phaseFull {
		n = l.engine.Pull(dst, l.packFull && !l.shut && l.Transport.Unacked())
		l.heed()
	}
	if l.shut && !l.closed && l.drained() {
		l.closed = true
		l.Transport.CloseSend()
	}
	return n
}

func (l *Connection) drained() bool {
	return len(l.out) == 0 && (l.phase != phaseFull || l.engine.Idle())
}

// More says whether the next pull would have octets.
func (l *Connection) More() bool {
	return len(l.out) > 0 || l.phase == phaseFull && l.engine.More()
}
