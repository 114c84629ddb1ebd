package stack

import (
	"github.com/rnicd/rnicd/mem"
)

// Verdict of Upper.Arrive on the offered octets.
type Verdict uint8

const (
	Taken   Verdict = iota // consumed; the Poller frees the Buf
	Kept                   // the Upper keeps the Buf and frees it to the Poller's pool later
	Refused                // not taken: not committed, the peer sends them again
)

// Upper stands above one connection: a byte stream or a QueuePair. All calls come on the Poller's
// goroutine.
//
// The order is Established, any number of the middle ones, PeerClosed at most once, Closed once. A
// connection that never opened gets Closed only. Every method may call Send, CloseSend, Abort,
// SetTimer, SetReceiveWindow of any connection and Dial, Listen of the Poller: such calls leave a
// mark that the Poller acts on when the burst is done.
type Upper interface {
	Established(c *Conn)
	// Arrive offers new octets at a stream offset, in any order, each octet once. data aliases b's
	// slot. On Taken and Refused b stays the Poller's; on Kept it is the Upper's until it frees it.
	Arrive(c *Conn, off uint64, b mem.Buf, data []byte) Verdict
	// Edge says that all octets before edge have arrived and were taken.
	Edge(c *Conn, edge uint64)
	// Pull fills dst (at most one segment's payload) with the next octets to send and returns how
	// many; 0: nothing now. dst is the payload room of the Buf that will be sent. After 0 the
	// Poller asks again when the connection is next touched (a segment, a timer, Send or Wake).
	Pull(c *Conn, dst []byte) int
	// Acked says that our octets before edge have been acknowledged.
	Acked(c *Conn, edge uint64)
	PeerClosed(c *Conn) // the peer's FIN is in order
	// Closed is the last call; nil after an orderly close of both halves. c must not be used
	// afterwards except for Wake, which another goroutine may still be calling and which then does
	// nothing worse than a Woken too many. TIME-WAIT is spent after Closed, without the Upper.
	Closed(c *Conn, err error)
	Woken(c *Conn)            // somebody called Wake
	Timer(c *Conn, now int64) // the time of SetTimer has come
}

// Finisher is an optional part of an Upper: FinAcked says that the peer has acknowledged our FIN
// while its own half is still open. Where it has closed that too, Closed says so.
type Finisher interface {
	FinAcked(c *Conn)
}

// Holder is an optional part of an Upper that keeps Bufs: Held says how many it keeps only because
// the peer has not sent octets that they wait for, and since when the peer owes those, in the
// nanoseconds of Poller.Now. It is called while Bufs are short; where the peer is late the
// connection may be ended with ErrHoarding (pressure.go).
type Holder interface {
	Held(c *Conn) (bufs int, since int64)
}

// Ahead is an optional part of an Upper: More says, right after a Pull that returned octets,
// whether the next Pull would return some too. After false Pull is not called again in this Turn;
// Send or Wake announce later octets. Pushed says, right after More, whether a unit that the
// receiver may wait for (a Write, a message) has ended in what Pull has returned since Pushed was
// last called.
//
// PSH is set on the last segment that there is to send (RFC 9293 section 3.9.1.2, MUST-61), and on
// the last segment of each unit, also if more is queued after it. Without Ahead every segment
// carries PSH, which is correct but keeps a receiver from merging segments.
type Ahead interface {
	More(c *Conn) bool
	Pushed(c *Conn) bool
}

// Bulk is an optional part of an Upper that is Ahead, for long units: several segments in one call.
// What it does is what Pull and Arrive would do for one segment after the other.
type Bulk interface {
	// RunLen is how many segments of exactly size octets PullRun may be asked for, about: 0 where
	// Pull has to be called, as for the end of a unit.
	RunLen(c *Conn, size int) int
	// PullRun fills as many of dst, from the first on, as it has segments of exactly size octets
	// for, in a unit that does not end in any of them, and returns how many. dst are the payload
	// rooms of Bufs, as Pull's is, of at least size octets each.
	PullRun(c *Conn, dst [][]byte, size int) int
	// ArriveRun is Arrive of segments that continue each other from off, the left edge, on. n is
	// how many of them it has looked at, at least one: all before the last of those were Taken, and
	// v says what becomes of that one. Edge comes after them, and a call for the others. data[i]
	// aliases the slot of bufs[i]; neither slice may be kept.
	ArriveRun(c *Conn, off uint64, bufs []mem.Buf, data [][]byte) (n int, v Verdict)
}

// Adviser is an optional part of an Upper: Advice reports an error that has not ended the
// connection and may be temporary (RFC 9293 section 3.9.1.8): ErrStalled, or ErrNoRoute or
// ErrNetUnreachable from a router. Without it there are no reports; Conn.SoftError has the last
// error in either case.
type Adviser interface {
	Advice(c *Conn, err error)
}
