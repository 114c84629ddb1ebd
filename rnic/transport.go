package rnic

import (
	"net"
	"net/netip"
	"time"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// transportConn is a transport connection under MPA: our TCP on a Poller, or a kernel socket. All but wake and submit are
// for the goroutine (kernel socket: the lock) that drives the connection.
type transportConn interface {
	wake()               // any goroutine: work was posted
	submit(func()) error // any goroutine: run on the driving goroutine
	send()               // there is something to pull
	closeSend()          // end our half behind what was pulled
	abort()
	silent()           // the peer's start-up frame is awaited: a connection that comes in may have this one's place
	spoke() bool       // it has come; false: too late, the place is another's
	setTimer(at int64) // one timer on the clock of now; 0 clears
	now() int64
	emss() int
	unacked() bool // octets are on their way; when they have been acknowledged the transport pulls again
	enterFull()    // FPDUs may come and go from here on; before, memory may have no pool
	memory() memory
	short() // octets were refused, for want of packet buffers perhaps: other connections may have to give some back
	nagle() // let small segments wait, where unacked is not known
	// giveUpAfter is ConnParam.UserTimeout. It fails where the kernel refuses that.
	giveUpAfter(time.Duration) error
	stats() TransportStats
	giveBack()                   // make a stream of the connection, as soon as what was pulled is on its way, and end the connection
	stamp() (ts uint32, ok bool) // of the segment that arrives: when the peer sent it, on the peer's clock
	progress() uint64            // grows with every octet that arrives or is acknowledged
	local() netip.AddrPort
	remote() netip.AddrPort
}

// memory is where octets lie that arrive over a transport.
type memory struct {
	reader  *mem.Reader
	pool    *mem.Pool
	bufsMax int // Bufs one connection may keep for reassembly
	spare   int // Bufs to leave in the pool for other connections
	reserve *mpa.Reserve
	inOrder bool // octets come in order, and were acknowledged when they come
}

// upper is what stands above a transport connection: MPA, from its start-up on. The goroutine (kernel socket: the lock) that drives the
// connection calls it.
type upper interface {
	established()             // the connection stands
	takeOver(stream.Handover) // likewise, and it was a stream until now
	arrive(off uint64, b mem.Buf, data []byte) stack.Verdict
	edge(edge uint64)    // the left edge of the stream
	pull(dst []byte) int // fills the next segment
	more() bool          // the next pull would have octets
	pushed() bool        // a message has ended in what was pulled since this was last asked
	timer()
	peerClosed()        // the peer's FIN is in order
	fail(err error)     // this end resets the connection
	lost(err error)     // the transport failed, and over will come
	over(err error)     // the last call; err is the transport's
	streamBase() uint64 // after giveBack: where the stream's octets begin
	handBack(net.Conn)  // the last call after giveBack: the stream
	// held is how many Bufs are kept only because the peer has not sent the rest of a frame, or octets before it,
	// and since when it owes those.
	held() (bufs int, since int64)
}

// Keep-alives of a connection with a UserTimeout: the first after half of it, four in all, and after them the end.
const (
	keepAliveIdle     = 2
	keepAliveInterval = 8
	keepAliveCount    = 4
)
