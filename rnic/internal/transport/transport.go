package transport

import (
	"net"
	"net/netip"
	"time"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// Conn is a transport connection under MPA: our TCP on a Poller, or a kernel socket. All but wake
// and submit are for the goroutine (kernel socket: the lock) that drives the connection.
type Conn interface {
	Wake()               // any goroutine: work was posted
	Submit(func()) error // any goroutine: run on the driving goroutine
	Send()               // there is something to pull
	CloseSend()          // end our half after what was pulled
	Abort()
	Silent()           // the peer's start-up frame is awaited: a connection that comes in may have this one's place
	Spoke() bool       // it has come; false: too late, the place is another's
	SetTimer(at int64) // one timer on the clock of now; 0 clears
	Now() int64
	EMSS() int
	Unacked() bool // octets are on their way; when they have been acknowledged the transport pulls again
	// EnterFull: octets may be kept from here on, in as many Bufs. Before, memory may have no pool.
	EnterFull(kept int)
	Memory() Memory
	Short() // octets were refused, for want of packet buffers perhaps: other connections may have to give some back
	Nagle() // let small segments wait, where unacked is not known
	// GiveUpAfter is ConnParam.UserTimeout. It fails where the kernel refuses that.
	GiveUpAfter(time.Duration) error
	Stats() Stats
	GiveBack()                   // make a stream of the connection, as soon as what was pulled is on its way, and end the connection
	Stamp() (ts uint32, ok bool) // of the segment that arrives: when the peer sent it, on the peer's clock
	Progress() uint64            // grows with every octet that arrives or is acknowledged
	Local() netip.AddrPort
	Remote() netip.AddrPort
}

// Memory is where octets lie that arrive over a transport.
type Memory struct {
	Reader  *mem.Reader
	Pool    *mem.Pool
	Stride  int  // of the pool's Bufs
	Ahead   int  // Bufs one connection may keep of octets ahead of a gap, beyond what the rest of one frame takes
	Spare   int  // Bufs to leave in the pool for other connections
	InOrder bool // octets come in order, and were acknowledged when they come
}

// Stats come from our TCP or from the kernel's TCP_INFO.
type Stats struct {
	SegmentsIn, SegmentsOut, Retransmits, OutOfOrder uint64
	BlackHoles                                       uint64 // times our TCP found the path to swallow large segments, and cut what was in flight
	EMSS                                             int
	Kernel                                           bool
}

// Upper is what stands above a transport connection: MPA, from its start-up on. The goroutine
// (kernel socket: the lock) that drives the connection calls it.
type Upper interface {
	Established()             // the connection stands
	TakeOver(stream.Handover) // likewise, and it was a stream until now
	Arrive(off uint64, b mem.Buf, data []byte) stack.Verdict
	Edge(edge uint64)    // the left edge of the stream
	Pull(dst []byte) int // fills the next segment
	More() bool          // the next pull would have octets
	Pushed() bool        // a message has ended in what was pulled since this was last asked
	Timer()
	PeerClosed()        // the peer's FIN is in order
	Fail(err error)     // this end resets the connection
	Lost(err error)     // the transport failed, and over will come
	Over(err error)     // the last call; err is the transport's
	StreamBase() uint64 // after giveBack: where the stream's octets begin
	HandBack(net.Conn)  // the last call after giveBack: the stream
	// Held is how many Bufs are kept only because the peer has not sent the rest of a frame, or
	// octets before it, and since when it owes those.
	Held() (bufs int, since int64)
}
