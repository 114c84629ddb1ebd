package stack

import (
	"github.com/rnicd/rnicd/mem"
)

// Verdict of Upper.Arrive on an offered segment.
type Verdict uint8

const (
	Taken   Verdict = iota // consumed; the Poller frees the Buf
	Kept                   // the Upper keeps the Buf and frees it to the Poller's pool later
	Refused                // not taken: not committed, the peer sends the octets again
)

// PullMax is how many segments Pull is asked for at most.
const PullMax = 32

// Pulled is what Upper.Pull has filled.
type Pulled struct {
	N int // segments, from the first on; 0: nothing now

	// Ends has bit i set where a unit that the receiver may wait for (a Write, a message) has ended
	// in segment i: it gets PSH, also if more is queued after it.
	Ends uint32

	// More says that the next Pull would return some too. The last segment that there is to send
	// gets PSH (RFC 9293 section 3.9.1.2, MUST-61), and Pull is not called again in this Turn: Send
	// or Wake announce later octets.
	More bool
}

// Upper stands above one connection: a byte stream or a QueuePair. All calls come on the Poller's
// goroutine. It learns its Conn from Dial, from the function given to Listen, or from who calls
// SetUpper.
//
// The order is Established, any number of the middle ones, PeerClosed at most once, Closed once. A
// connection that never opened gets Closed only. Every method may call Send, CloseSend, Abort,
// SetTimer, SetReceiveWindow of any connection and Dial, Listen of the Poller: such calls leave a
// mark that the Poller acts on when the burst is done.
//
// Segments come and go in vectors; one segment is a vector of length one. Neither bufs, data nor
// dst may be kept.
type Upper interface {
	Established()
	// Arrive offers new octets, each once: segments that continue each other from stream offset off
	// on. data[i] aliases the slot of bufs[i]. Those from the left edge on come in order, others in
	// any order and one by one. n is how many the Upper has looked at, at least one: all of these
	// before the last are Taken, and v says what becomes of the last. Edge comes after them, and
	// another call for the others. On Taken and Refused a Buf stays the Poller's; on Kept it is the
	// Upper's until it frees it.
	Arrive(off uint64, bufs []mem.Buf, data [][]byte) (n int, v Verdict)
	// Edge says that all octets before edge have arrived and were taken.
	Edge(edge uint64)
	// Pull fills dst, each the payload room of the Buf of one segment to be sent, with the next
	// octets, and cuts each that it fills to what it has put there. After none the Poller asks
	// again when the connection is next touched (a segment, a timer, Send or Wake). With Nagle's
	// algorithm only the last may be short.
	Pull(dst [][]byte) Pulled
	// Acked says that our octets before edge have been acknowledged.
	Acked(edge uint64)
	// FinAcked says that the peer has acknowledged our FIN while its own half is still open. Where
	// it has closed that too, Closed says so.
	FinAcked()
	PeerClosed() // the peer's FIN is in order
	// Held says how many Bufs the Upper keeps only because the peer has not sent octets that they
	// wait for, and since when the peer owes those, in the nanoseconds of Poller.Now. It is called
	// while Bufs are short; where the peer is late the connection may be ended with ErrHoarding
	// (pressure.go).
	Held() (bufs int, since int64)
	// Advice reports an error that has not ended the connection and may be temporary (RFC 9293
	// section 3.9.1.8): ErrStalled, or ErrNoRoute or ErrNetUnreachable from a router. Conn.SoftError
	// keeps the last.
	Advice(err error)
	Woken()          // somebody called Conn.Wake
	Timer(now int64) // the time of Conn.SetTimer has come
	// Closed is the last call; nil after an orderly close of both halves. The Conn must not be used
	// afterwards except for Wake, which another goroutine may still be calling and which then does
	// nothing worse than a Woken too many. TIME-WAIT is spent after Closed, without the Upper.
	Closed(err error)
}
