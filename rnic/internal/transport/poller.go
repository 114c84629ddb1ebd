package transport

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/internal/flight"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// PollerConn is a connection over our TCP. To the stack it is the Upper of a stack.Conn, to what
// stands above it a Conn.
type PollerConn struct {
	up     Upper
	reader *mem.Reader // of placements on the Poller's goroutine
	conn   *stack.Conn // from Dial, Established or TakeOver until Closed or HandBack; Poller's goroutine
	waker  atomic.Pointer[stack.Conn]
	poller *stack.Poller
	acked  uint64
	edge   uint64 // the left edge of what has arrived
	giving bool   // the connection is to be a stream again
	fin    bool   // the peer's FIN is in order

	tentative bool // our address is being checked: there will be a connection
	givenUp   bool // by Abort, while that was so
}

// Init makes u a PollerConn that has no connection yet: Dial, Established or TakeOver brings it.
// reader is of all placements on p's goroutine. Any goroutine.
func (u *PollerConn) Init(p *stack.Poller, reader *mem.Reader, up Upper) {
	u.up, u.reader, u.poller = up, reader, p
}

// Above is what stands above u. Poller's goroutine.
func (u *PollerConn) Above() Upper { return u.up }

// What the stack calls, on the Poller's goroutine.

func (u *PollerConn) Established(c *stack.Conn) {
	u.enter(c)
	u.up.Established()
}

// enter puts MPA above c.
func (u *PollerConn) enter(c *stack.Conn) {
	u.conn = c
	u.waker.Store(c)
	c.SetNoDelay(true) // RFC 5044 appendix A.2, DECISIONS 24
}

// Dial begins the handshake with remote from local, of which what is zero is chosen, as soon as our
// address has been checked. held: local's port is held for it (stack.Poller.Hold). Established or
// Over tells what comes of it. Poller's goroutine.
func (u *PollerConn) Dial(local netip.AddrPort, held bool, remote netip.AddrPort) {
	if !u.dial(local, held, remote) {
		return
	}
	if err := u.poller.UntilChecked(func() (again bool) {
		return u.dial(local, held, remote)
	}); err != nil {
		u.tentative = false
		u.up.Over(err)
	}
}

// dial is one try to begin it; again: our address is being checked.
func (u *PollerConn) dial(local netip.AddrPort, held bool, remote netip.AddrPort) (again bool) {
	if u.givenUp {
		return false
	}
	begin := (*stack.Poller).DialFrom
	if held {
		begin = (*stack.Poller).DialHeld
	}
	c, err := begin(u.poller, local, remote, u)
	if u.tentative = errors.Is(err, stack.ErrTentative); u.tentative {
		return true
	}
	if err != nil {
		u.up.Over(err)
		return false
	}
	u.conn = c
	return false
}

// TakeOver puts MPA above a connection that was a stream.
func (u *PollerConn) TakeOver(h stream.Handover) {
	u.enter(h.Conn)
	h.Conn.SetReceiveWindow(-1) // the stream's was what its reader had room for
	u.edge = h.Edge
	u.up.TakeOver(h)
	h.Conn.SetSilent(false) // it was a stream, which has said enough to become this
}

func (u *PollerConn) Arrive(_ *stack.Conn, off uint64, b mem.Buf, data []byte) stack.Verdict {
	return u.up.Arrive(off, b, data)
}

func (u *PollerConn) Edge(_ *stack.Conn, edge uint64) {
	u.edge = edge
	u.up.Edge(edge)
}
func (u *PollerConn) Pull(_ *stack.Conn, dst []byte) int { return u.up.Pull(dst) }

// RunLen, PullRun and ArriveRun implement stack.Bulk.
func (u *PollerConn) RunLen(_ *stack.Conn, size int) int { return u.up.RunLen(size) }

func (u *PollerConn) PullRun(_ *stack.Conn, dst [][]byte, size int) int {
	return u.up.PullRun(dst, size)
}

func (u *PollerConn) ArriveRun(_ *stack.Conn, off uint64, bufs []mem.Buf, data [][]byte) (int, stack.Verdict) {
	return u.up.ArriveRun(off, bufs, data)
}

func (u *PollerConn) Acked(_ *stack.Conn, edge uint64) { u.acked = edge }
func (u *PollerConn) PeerClosed(*stack.Conn) {
	u.fin = true
	u.up.PeerClosed()
}

func (u *PollerConn) Woken(c *stack.Conn) {
	if u.giving {
		u.becomeStream()
		return
	}
	c.Send()
}
func (u *PollerConn) Timer(*stack.Conn, int64) { u.up.Timer() }
func (u *PollerConn) Closed(_ *stack.Conn, err error) {
	u.up.Over(err)
	u.waker.Store(nil)
	u.conn = nil
}

// More implements stack.Ahead.
func (u *PollerConn) More(*stack.Conn) bool { return u.up.More() }

// Pushed implements stack.Ahead: the end of a message.
func (u *PollerConn) Pushed(*stack.Conn) bool { return u.up.Pushed() }

// Held implements stack.Holder: Bufs of frames that are not whole.
func (u *PollerConn) Held(*stack.Conn) (bufs int, since int64) { return u.up.Held() }

var _ stack.Upper = (*PollerConn)(nil)
var _ stack.Ahead = (*PollerConn)(nil)
var _ stack.Holder = (*PollerConn)(nil)
var _ stack.Bulk = (*PollerConn)(nil)

// What the Upper calls. After Closed the stack recycles the stack.Conn, so each of these looks
// whether there still is one, except Stamp: that is for while a segment arrives.

func (u *PollerConn) Wake() {
	if c := u.waker.Load(); c != nil { // harmless on a recycled Conn, by the stack's contract
		c.Wake()
	}
}

func (u *PollerConn) Submit(fn func()) error { return u.poller.Submit(fn) }

func (u *PollerConn) Send() {
	if u.conn != nil {
		u.conn.Send()
	}
}

func (u *PollerConn) CloseSend() {
	if u.conn != nil {
		u.conn.CloseSend()
	}
}

func (u *PollerConn) Abort() {
	switch {
	case u.conn != nil:
		u.conn.Abort()
	case u.tentative: // the stack knows no connection whose end it could tell
		u.tentative, u.givenUp = false, true
		u.up.Over(stack.ErrTentative)
	}
}

func (u *PollerConn) Silent() {
	if u.conn != nil {
		u.conn.SetSilent(true)
	}
}

// Spoke is always in time: a connection that had to give way is over, and nothing arrives on it.
func (u *PollerConn) Spoke() bool {
	if u.conn != nil {
		u.conn.SetSilent(false)
	}
	return true
}

func (u *PollerConn) SetTimer(at int64) {
	if u.conn != nil {
		u.conn.SetTimer(at)
	}
}

func (u *PollerConn) Now() int64 { return u.poller.Now() }

func (u *PollerConn) EMSS() int {
	if u.conn == nil {
		return 0
	}
	return u.conn.EMSS()
}

func (u *PollerConn) Unacked() bool { return u.conn != nil && u.conn.SentOffset() != u.acked }

// EnterFull does nothing: the Poller has a pool.
func (u *PollerConn) EnterFull(int) {}

func (u *PollerConn) Memory() Memory {
	pool := u.poller.Pool()
	return Memory{Reader: u.reader, Pool: pool, Stride: pool.Stride(), Ahead: AheadMax, Spare: u.poller.Budget().Spare}
}

// Short lets the Poller end connections of late peers (stack/pressure.go).
func (u *PollerConn) Short(inOrder bool) {
	switch {
	case u.conn == nil:
	case inOrder:
		u.conn.NeedBufs()
	default:
		u.conn.WantBufs()
	}
}

func (u *PollerConn) GiveUpAfter(d time.Duration) error {
	if u.conn != nil {
		u.conn.SetUserTimeout(int64(d))
		u.conn.SetKeepAlive(int64(d/keepAliveIdle), int64(d/keepAliveInterval), keepAliveCount)
	}
	return nil
}

// Nagle does nothing: Unacked tells more than Nagle's algorithm knows.
func (u *PollerConn) Nagle() {}

func (u *PollerConn) Stats() Stats {
	if u.conn == nil {
		return Stats{}
	}
	s := u.conn.Counts()
	return Stats{
		SegmentsIn: s.SegsIn, SegmentsOut: s.SegsOut, Retransmits: s.Retransmits, OutOfOrder: s.OOOSegs, BlackHoles: s.BlackHoles,
		EMSS: u.conn.EMSS(),
	}
}

func (u *PollerConn) Record(k flight.Kind, a, b uint64) {
	if u.conn != nil {
		u.conn.Record(k, a, b)
	}
}

func (u *PollerConn) Events() (all []flight.Event, before uint64) {
	if u.conn == nil {
		return nil, 0
	}
	return u.conn.Events()
}

func (u *PollerConn) Stamp() (ts uint32, ok bool) { return u.conn.Stamp() }

func (u *PollerConn) Progress() uint64 { return u.acked + u.edge }

func (u *PollerConn) Local() netip.AddrPort {
	if u.conn == nil {
		return netip.AddrPort{}
	}
	return u.conn.Local()
}

func (u *PollerConn) Remote() netip.AddrPort {
	if u.conn == nil {
		return netip.AddrPort{}
	}
	return u.conn.Remote()
}

// GiveBack has Woken called soon, when nothing else of the connection runs.
func (u *PollerConn) GiveBack() {
	u.giving = true
	if u.conn != nil {
		u.conn.Wake()
	}
}

// becomeStream is what Woken does after GiveBack.
func (u *PollerConn) becomeStream() {
	u.giving = false
	c := u.conn
	nc, err := stream.Attach(u.poller, c, u.up.StreamBase(), u.acked, u.fin, stream.Options{})
	if err != nil {
		u.up.Fail(err)
		return
	}
	u.up.HandBack(nc)
	u.waker.Store(nil)
	u.conn = nil
}
