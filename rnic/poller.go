package rnic

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/stack"
)

// earlyMax is how many Bufs one connection may keep of octets that came ahead of a gap and are no whole frames, on top
// of what the largest FPDU takes.
const earlyMax = 256

// spareShare is the part of a Poller's pool, one in so many Bufs, that all connections together leave free of octets that
// wait for the rest of their frame.
const spareShare = 4

// onPoller is a link over our TCP: the stack's Upper above it, the link's carrier below it.
type onPoller struct {
	link   *link
	conn   *stack.Conn // nil before Established and after Closed; Poller's goroutine
	waker  atomic.Pointer[stack.Conn]
	poller *stack.Poller
	acked  uint64
	edge   uint64
	giving bool // the connection is to be a stream again
	fin    bool // the peer's, while that is so

	tentative bool // our address is being checked: there will be a connection
}

func newPollerLink(a *Adapter, ln *lane) *onPoller {
	l := newLink(a)
	l.reader, l.pool, l.holdMax = ln.reader, ln.poller.Pool(), mpa.BufsMin(ln.poller.Pool().Stride())+earlyMax
	u := &onPoller{link: l, poller: ln.poller}
	l.lane = ln
	l.spare, l.reserve = ln.reserve.Spare, &ln.reserve
	l.car = u
	return u
}

// The Upper.

func (u *onPoller) Established(c *stack.Conn) {
	u.enter(c)
	u.link.established()
}

// enter puts MPA above c.
func (u *onPoller) enter(c *stack.Conn) {
	u.conn = c
	u.waker.Store(c)
	c.SetNoDelay(true) // RFC 5044 appendix A.2, DECISIONS 24
	u.link.lane.enter(u.link)
}

func (u *onPoller) Arrive(_ *stack.Conn, off uint64, b mem.Buf, data []byte) stack.Verdict {
	if u.link.handed != nil {
		return u.link.arriveHanded(off, b, data)
	}
	return u.link.arrive(off, b, data)
}

func (u *onPoller) Edge(_ *stack.Conn, edge uint64) {
	u.edge = edge
	u.link.edge(edge)
}
func (u *onPoller) Pull(_ *stack.Conn, dst []byte) int { return u.link.pull(dst) }
func (u *onPoller) Acked(_ *stack.Conn, edge uint64)   { u.acked = edge }
func (u *onPoller) PeerClosed(*stack.Conn) {
	u.fin = u.link.phase == phaseLeaving
	u.link.peerClosed()
}

func (u *onPoller) Woken(c *stack.Conn) {
	if u.giving && len(u.link.out) == 0 {
		u.becomeStream()
		return
	}
	c.Send()
}
func (u *onPoller) Timer(*stack.Conn, int64) { u.link.timer() }
func (u *onPoller) Closed(_ *stack.Conn, err error) {
	u.link.over(err)
	u.link.lane.leave(u.link)
	u.waker.Store(nil)
	u.conn = nil
}

// More implements stack.Ahead.
func (u *onPoller) More(*stack.Conn) bool { return u.link.more() }

// Pushed implements stack.Ahead: the end of a message.
func (u *onPoller) Pushed(*stack.Conn) bool { return u.link.qp != nil && u.link.qp.pushed() }

// The carrier. After Closed the stack recycles the Conn, so every way down looks whether it is still ours.

func (u *onPoller) wake() {
	if c := u.waker.Load(); c != nil { // harmless on a recycled Conn, by the stack's contract
		c.Wake()
	}
}

func (u *onPoller) submit(fn func()) error { return u.poller.Submit(fn) }

func (u *onPoller) send() {
	if u.conn != nil {
		u.conn.Send()
	}
}

func (u *onPoller) closeSend() {
	if u.conn != nil {
		u.conn.CloseSend()
	}
}

func (u *onPoller) abort() {
	switch {
	case u.conn != nil:
		u.conn.Abort()
	case u.tentative: // nobody else will say that it is over
		u.tentative = false
		u.link.err = fmt.Errorf("%w: %w", u.link.err, stack.ErrTentative)
		u.link.over(nil)
	}
}

func (u *onPoller) silent() {
	if u.conn != nil {
		u.conn.SetSilent(true)
	}
}

// spoke: a connection that had to give way is over, and hears nothing.
func (u *onPoller) spoke() bool {
	if u.conn != nil {
		u.conn.SetSilent(false)
	}
	return true
}

func (u *onPoller) setTimer(at int64) {
	if u.conn != nil {
		u.conn.SetTimer(at)
	}
}

func (u *onPoller) now() int64 { return u.poller.Now() }

func (u *onPoller) emss() int {
	if u.conn == nil {
		return 0
	}
	return u.conn.EMSS()
}

func (u *onPoller) unacked() bool { return u.conn != nil && u.conn.SentOffset() != u.acked }

// enterFull: the Poller has a pool.
func (u *onPoller) enterFull() {}

func (u *onPoller) giveUpAfter(d time.Duration) error {
	if u.conn != nil {
		u.conn.SetUserTimeout(int64(d))
		u.conn.SetKeepAlive(int64(d/keepAliveIdle), int64(d/keepAliveInterval), keepAliveCount)
	}
	return nil
}

// nagle: nothing to do, unacked tells more than Nagle's algorithm knows.
func (u *onPoller) nagle() {}

func (u *onPoller) stats() TransportStats {
	if u.conn == nil {
		return TransportStats{}
	}
	s := u.conn.Stats()
	return TransportStats{
		SegmentsIn: s.SegsIn, SegmentsOut: s.SegsOut, Retransmits: s.Retransmits, OutOfOrder: s.OOOSegs, BlackHoles: s.BlackHoles,
		EMSS: u.conn.EMSS(),
	}
}

func (u *onPoller) stamp() (ts uint32, ok bool) { return u.conn.Stamp() }

func (u *onPoller) progress() uint64 { return u.acked + u.edge }

func (u *onPoller) local() netip.AddrPort {
	if u.conn == nil {
		return netip.AddrPort{}
	}
	return u.conn.Local()
}

func (u *onPoller) remote() netip.AddrPort {
	if u.conn == nil {
		return netip.AddrPort{}
	}
	return u.conn.Remote()
}
