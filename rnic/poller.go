package rnic

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// earlyMax is how many Bufs one connection may keep of octets that came ahead of a gap and are no whole frames, on top
// of what the largest FPDU takes.
const earlyMax = 256

// pollerTransport is a connection over our TCP: the stack's Upper above it, the transport of what stands above itself.
type pollerTransport struct {
	up          upper
	pollerState *pollerState
	conn        *stack.Conn // nil before Established and after Closed; Poller's goroutine
	waker       atomic.Pointer[stack.Conn]
	poller      *stack.Poller
	acked       uint64
	edge        uint64
	giving      bool // the connection is to be a stream again
	fin         bool // the peer's

	tentative bool // our address is being checked: there will be a connection
	given     bool // up while that was so
}

func newPollerTransport(ln *pollerState, up upper) *pollerTransport {
	return &pollerTransport{up: up, pollerState: ln, poller: ln.poller}
}

// The Upper.

func (u *pollerTransport) Established(c *stack.Conn) {
	u.enter(c)
	u.up.established()
}

// enter puts MPA above c.
func (u *pollerTransport) enter(c *stack.Conn) {
	u.conn = c
	u.waker.Store(c)
	c.SetNoDelay(true) // RFC 5044 appendix A.2, DECISIONS 24
}

// dial begins the handshake, when our address has been checked. Poller's goroutine; what comes of it is told above.
func (u *pollerTransport) dial(dial func(stack.Upper) (*stack.Conn, error)) {
	err := u.poller.UntilChecked(func() (again bool) {
		if u.given {
			return false
		}
		c, err := dial(u)
		if u.tentative = errors.Is(err, stack.ErrTentative); u.tentative {
			return true
		}
		if err != nil {
			u.up.over(err)
			return false
		}
		u.conn = c
		return false
	})
	if err != nil {
		u.tentative = false
		u.up.over(err)
	}
}

// takeOver puts MPA above a connection that was a stream. Poller's goroutine.
func (u *pollerTransport) takeOver(h stream.Handover) {
	u.enter(h.Conn)
	h.Conn.SetReceiveWindow(-1) // the stream's was what its reader had room for
	u.edge = h.Edge
	u.up.takeOver(h)
	h.Conn.SetSilent(false) // it was a stream, which has said enough to become this
}

func (u *pollerTransport) Arrive(_ *stack.Conn, off uint64, b mem.Buf, data []byte) stack.Verdict {
	return u.up.arrive(off, b, data)
}

func (u *pollerTransport) Edge(_ *stack.Conn, edge uint64) {
	u.edge = edge
	u.up.edge(edge)
}
func (u *pollerTransport) Pull(_ *stack.Conn, dst []byte) int { return u.up.pull(dst) }
func (u *pollerTransport) Acked(_ *stack.Conn, edge uint64)   { u.acked = edge }
func (u *pollerTransport) PeerClosed(*stack.Conn) {
	u.fin = true
	u.up.peerClosed()
}

func (u *pollerTransport) Woken(c *stack.Conn) {
	if u.giving {
		u.becomeStream()
		return
	}
	c.Send()
}
func (u *pollerTransport) Timer(*stack.Conn, int64) { u.up.timer() }
func (u *pollerTransport) Closed(_ *stack.Conn, err error) {
	u.up.over(err)
	u.waker.Store(nil)
	u.conn = nil
}

// More implements stack.Ahead.
func (u *pollerTransport) More(*stack.Conn) bool { return u.up.more() }

// Pushed implements stack.Ahead: the end of a message.
func (u *pollerTransport) Pushed(*stack.Conn) bool { return u.up.pushed() }

// Held implements stack.Holder: Bufs of frames that are not whole.
func (u *pollerTransport) Held(*stack.Conn) (bufs int, since int64) { return u.up.held() }

var _ stack.Upper = (*pollerTransport)(nil)
var _ stack.Ahead = (*pollerTransport)(nil)
var _ stack.Holder = (*pollerTransport)(nil)

// The transport. After Closed the stack recycles the Conn, so every way down looks whether it is still ours.

func (u *pollerTransport) wake() {
	if c := u.waker.Load(); c != nil { // harmless on a recycled Conn, by the stack's contract
		c.Wake()
	}
}

func (u *pollerTransport) submit(fn func()) error { return u.poller.Submit(fn) }

func (u *pollerTransport) send() {
	if u.conn != nil {
		u.conn.Send()
	}
}

func (u *pollerTransport) closeSend() {
	if u.conn != nil {
		u.conn.CloseSend()
	}
}

func (u *pollerTransport) abort() {
	switch {
	case u.conn != nil:
		u.conn.Abort()
	case u.tentative: // nobody else will say that it is over
		u.tentative, u.given = false, true
		u.up.over(stack.ErrTentative)
	}
}

func (u *pollerTransport) silent() {
	if u.conn != nil {
		u.conn.SetSilent(true)
	}
}

// spoke: a connection that had to give way is over, and hears nothing.
func (u *pollerTransport) spoke() bool {
	if u.conn != nil {
		u.conn.SetSilent(false)
	}
	return true
}

func (u *pollerTransport) setTimer(at int64) {
	if u.conn != nil {
		u.conn.SetTimer(at)
	}
}

func (u *pollerTransport) now() int64 { return u.poller.Now() }

func (u *pollerTransport) emss() int {
	if u.conn == nil {
		return 0
	}
	return u.conn.EMSS()
}

func (u *pollerTransport) unacked() bool { return u.conn != nil && u.conn.SentOffset() != u.acked }

// enterFull: the Poller has a pool.
func (u *pollerTransport) enterFull() {}

func (u *pollerTransport) memory() memory {
	ln, pool := u.pollerState, u.poller.Pool()
	return memory{
		reader: ln.reader, pool: pool, bufsMax: mpa.BufsMin(pool.Stride()) + earlyMax, spare: ln.reserve.Spare, reserve: &ln.reserve,
	}
}

// short: where Bufs are short the Poller may end connections of late peers (stack/pressure.go).
func (u *pollerTransport) short() {
	if u.conn != nil && u.poller.Pool().Available() < u.pollerState.reserve.Spare {
		u.conn.WantBufs()
	}
}

func (u *pollerTransport) giveUpAfter(d time.Duration) error {
	if u.conn != nil {
		u.conn.SetUserTimeout(int64(d))
		u.conn.SetKeepAlive(int64(d/keepAliveIdle), int64(d/keepAliveInterval), keepAliveCount)
	}
	return nil
}

// nagle: nothing to do, unacked tells more than Nagle's algorithm knows.
func (u *pollerTransport) nagle() {}

func (u *pollerTransport) stats() TransportStats {
	if u.conn == nil {
		return TransportStats{}
	}
	s := u.conn.Stats()
	return TransportStats{
		SegmentsIn: s.SegsIn, SegmentsOut: s.SegsOut, Retransmits: s.Retransmits, OutOfOrder: s.OOOSegs, BlackHoles: s.BlackHoles,
		EMSS: u.conn.EMSS(),
	}
}

func (u *pollerTransport) stamp() (ts uint32, ok bool) { return u.conn.Stamp() }

func (u *pollerTransport) progress() uint64 { return u.acked + u.edge }

func (u *pollerTransport) local() netip.AddrPort {
	if u.conn == nil {
		return netip.AddrPort{}
	}
	return u.conn.Local()
}

func (u *pollerTransport) remote() netip.AddrPort {
	if u.conn == nil {
		return netip.AddrPort{}
	}
	return u.conn.Remote()
}

// giveBack: Woken comes in a moment, in which nothing else of the connection's runs.
func (u *pollerTransport) giveBack() {
	u.giving = true
	if u.conn != nil {
		u.conn.Wake()
	}
}

// becomeStream is Woken's answer.
func (u *pollerTransport) becomeStream() {
	u.giving = false
	c := u.conn
	nc, err := stream.Attach(u.poller, c, u.up.streamBase(), u.acked, u.fin, stream.Options{})
	if err != nil {
		u.up.fail(err)
		return
	}
	u.up.handBack(nc)
	u.waker.Store(nil)
	u.conn = nil
}
