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

// PollerConn is a connection over our TCP: a Conn to the Upper of its stack.Conn, which the stack
// calls itself.
type PollerConn struct {
	up     Upper
	reader *mem.Reader // of placements on the Poller's goroutine
	conn   *stack.Conn // from Dial, Enter or TakeOver until Gone or HandBack; Poller's goroutine
	waker  atomic.Pointer[stack.Conn]
	poller *stack.Poller
	giving bool // the connection is to be a stream again
	later  bool // SendLater was called

	tentative bool // our address is being checked: there will be a connection
	givenUp   bool // by Abort, while that was so
}

// Init makes u a PollerConn that has no connection yet: Dial, Enter or TakeOver brings it.
// reader is of all placements on p's goroutine. Any goroutine.
func (u *PollerConn) Init(p *stack.Poller, reader *mem.Reader, up Upper) {
	u.up, u.reader, u.poller = up, reader, p
}

// Enter puts MPA above c. Poller's goroutine.
func (u *PollerConn) Enter(c *stack.Conn) {
	u.conn = c
	u.waker.Store(c)
	c.SetNoDelay(true) // RFC 5044 appendix A.2, DECISIONS 24
}

// Dial begins the handshake with remote from local, of which what is zero is chosen, as soon as our
// address has been checked. held: local's port is held for it (stack.Poller.Hold). Established or
// Closed tells what comes of it. Poller's goroutine.
func (u *PollerConn) Dial(local netip.AddrPort, held bool, remote netip.AddrPort) {
	if !u.dial(local, held, remote) {
		return
	}
	if err := u.poller.UntilChecked(func() (again bool) {
		return u.dial(local, held, remote)
	}); err != nil {
		u.tentative = false
		u.up.Closed(err)
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
	c, err := begin(u.poller, local, remote, u.up)
	if u.tentative = errors.Is(err, stack.ErrTentative); u.tentative {
		return true
	}
	if err != nil {
		u.up.Closed(err)
		return false
	}
	u.Enter(c)
	return false
}

// TakeOver puts MPA above a connection that was a stream.
func (u *PollerConn) TakeOver(h stream.Handover) {
	u.Enter(h.Conn)
	h.Conn.SetReceiveWindow(-1) // the stream's was what its reader had room for
	u.up.TakeOver(h)
	h.Conn.SetSilent(false) // it was a stream, which has said enough to become this
}

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

// SendLater rings the doorbell, at which the Poller looks in the next Turn.
func (u *PollerConn) SendLater() {
	if u.conn != nil {
		u.later = true
		u.conn.Wake()
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
		u.up.Closed(stack.ErrTentative)
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

func (u *PollerConn) Unacked() bool {
	return u.conn != nil && u.conn.SentOffset() != u.conn.AckedOffset()
}

// EnterFull does nothing: the Poller has a pool.
func (u *PollerConn) EnterFull(int) {}

func (u *PollerConn) Memory() Memory {
	pool := u.poller.Pool()
	return Memory{Reader: u.reader, Pool: pool, Stride: pool.Stride(), Ahead: AheadMax,
		Spare: u.poller.Budget().Spare}
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
		SegmentsIn: s.SegsIn, SegmentsOut: s.SegsOut, Retransmits: s.Retransmits, OutOfOrder: s.OOOSegs,
		BlackHoles: s.BlackHoles,
		EMSS:       u.conn.EMSS(),
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

func (u *PollerConn) Progress() uint64 {
	if u.conn == nil {
		return 0
	}
	return u.conn.AckedOffset() + u.conn.Edge()
}

func (u *PollerConn) Taken() (pulled, taken uint64) {
	if u.conn == nil {
		return 0, 0
	}
	return u.conn.SentOffset(), u.conn.AckedOffset()
}

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

// Woken goes on after GiveBack, or announces what was posted.
func (u *PollerConn) Woken() {
	switch {
	case u.giving:
		u.becomeStream()
	case u.conn != nil:
		if u.later {
			u.later = false
			u.up.Later()
		}
		u.conn.Send()
	}
}

// Gone forgets the stack's connection, which that will use for another one.
func (u *PollerConn) Gone() {
	u.waker.Store(nil)
	u.conn = nil
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
	nc, err := stream.Attach(u.poller, c, u.up.StreamBase(), stream.Options{})
	if err != nil {
		u.up.Fail(err)
		return
	}
	u.up.HandBack(nc)
	u.Gone()
}
