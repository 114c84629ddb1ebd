package transport

import (
	"net"
	"net/netip"
	"time"

	"github.com/rnicd/rnicd/internal/flight"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// Conn is a transport connection under MPA: our TCP on a Poller, or a kernel socket. Wake and
// Submit are for any goroutine; a Poller's must not wait for room in Submit (stack.ErrBusy).
// Everything else is for the goroutine that drives the connection: the Poller's, or the one that
// holds the Loop.
type Conn interface {
	Wake()               // work was posted
	Submit(func()) error // runs the function on the driving goroutine
	Send()               // there is something to pull
	// SendLater has Upper.Later called in the Turn after this one; a Poller perhaps in this one, if a
	// submitted function has called. A Loop reads in that before, unless it is the one before a sleep.
	SendLater()
	CloseSend() // ends our half after what was pulled
	Abort()     // resets the connection
	// the peer's start-up frame is awaited: a connection that comes in may take this one's slot
	Silent()
	Spoke() bool       // the frame has come; false: too late, the slot is another's
	SetTimer(at int64) // one timer, on the clock of Now; 0 clears it
	Now() int64
	EMSS() int
	// octets are on their way; when they have been acknowledged the transport pulls again
	Unacked() bool
	// EnterFull says that octets may be kept from here on, in as many Bufs. Before, Memory may have
	// no Pool.
	EnterFull(kept int)
	Memory() Memory
	// Short says that octets were refused because packet buffers are short, inOrder: those that
	// come next. Other connections may have to give some back.
	Short(inOrder bool)
	Nagle() // lets small segments wait, where Unacked is not known
	// GiveUpAfter sets the user timeout. It fails where the kernel refuses it.
	GiveUpAfter(time.Duration) error
	Stats() Stats
	// Record adds to the connection's flight record; Events are its last ones, and how many there
	// were before them, until Gone.
	Record(k flight.Kind, a, b uint64)
	Events() (all []flight.Event, before uint64)
	// Wake was called, and the driving goroutine says so; Poller's connections only
	Woken()
	Gone() // the last call: the Upper's Closed has been called
	// makes the connection a stream when what was pulled is on its way; then Upper.HandBack
	GiveBack()
	// of the segment that arrives: when the peer sent it, on the peer's clock
	Stamp() (ts uint32, ok bool)
	Progress() uint64 // grows with every octet that arrives or is acknowledged
	// Taken is how many octets of the stream were pulled, and of these that the peer's TCP has
	// acknowledged, or perhaps less
	Taken() (pulled, taken uint64)
	Local() netip.AddrPort
	Remote() netip.AddrPort
}

// Memory is where octets lie that arrive over a transport.
type Memory struct {
	Reader *mem.Reader
	Pool   *mem.Pool
	Stride int // of the pool's Bufs
	// Bufs one connection may keep of octets ahead of a gap, beyond what the rest of one frame takes
	Ahead   int
	Spare   int  // Bufs to leave in the pool for other connections
	InOrder bool // octets come in order, and were acknowledged when they come
}

// Stats come from our TCP or from the kernel's TCP_INFO.
type Stats struct {
	SegmentsIn, SegmentsOut, Retransmits, OutOfOrder uint64
	// times our TCP found the path to swallow large segments, and cut what was in flight
	BlackHoles uint64
	EMSS       int
	Kernel     bool
}

// Upper is what stands above a transport connection: MPA, from its start-up on. The goroutine that
// drives the connection calls it, over our TCP the stack itself.
type Upper interface {
	stack.Upper
	TakeOver(stream.Handover) // Established, of a connection that was a stream until now
	More() bool               // the next Pull would have octets
	Later()                   // SendLater was called in a Turn before
	Fail(err error)           // this end resets the connection
	Lost(err error)           // the transport failed; Closed will follow
	StreamBase() uint64       // after GiveBack: where the stream's octets begin
	HandBack(net.Conn)        // the last call after GiveBack: the stream
}
