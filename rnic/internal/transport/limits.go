package transport

import (
	"time"

	"github.com/rnicd/rnicd/mem"
)

// AheadMax is how many Bufs one connection over a Poller may keep of octets that came ahead of a
// gap and are no whole frames, beyond what the largest FPDU takes.
const AheadMax = 256

// Sizes of a connection over a kernel socket.
const (
	startupReadMax = 2 << 10   // octets of one read before full operation
	socketReadMax  = 64 << 10  // octets of one Buf of a read
	readSlots      = 4         // Bufs of one read
	socketWriteMax = 256 << 10 // octets framed before one write
	runsMax        = socketWriteMax / 64
	sendVec        = 64 // runs of one write
	writesMax      = 4  // in a row for one connection
)

// KernelStride is the stride of Bufs of connections over kernel sockets.
const KernelStride = socketReadMax + mem.Headroom

// Numbers of a Loop.
const (
	socketEventsMax = 64 // of one look at all sockets
	spareMax        = 16 // segments that are kept for connections whose sockets take no more
	// how old the kernel's segment size may be, where so many octets were sent since: it grows with
	// the first windows, and changes with the path
	segmentAskNs = 10_000_000
	// nothing gets lost on the way from a socket, except where a program closes our descriptors
	asleepMaxNs = 10_000_000_000
)

// userTimeout is how long octets may be unacknowledged on a kernel socket before the peer is taken
// to be gone, as tcp.Config.UserTimeoutNs says for our TCP.
const userTimeout = 100 * time.Second

// Keep-alives of a connection with a user timeout (Conn.GiveUpAfter): the first after half of it,
// further ones after an eighth each, four in all, and then the end.
const (
	keepAliveIdle     = 2
	keepAliveInterval = 8
	keepAliveCount    = 4
)

// kernelKeepAliveMax is the longest time between keep-alives that Linux takes (MAX_TCP_KEEPIDLE and
// MAX_TCP_KEEPINTVL).
const kernelKeepAliveMax = 32767 * time.Second
