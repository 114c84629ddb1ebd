// Package transport carries the octets of an MPA connection: over our own TCP on a stack.Poller,
// or over a kernel socket. Both are a Conn for the layer above, which is an Upper for them.
// Neither knows MPA.
//
// Its files, in reading order:
//
//	transport.go     Conn and Upper: the interfaces of both sides
//	poller.go        PollerConn: our TCP, placement out of order, the Poller's packet buffers
//	held.go          HeldSocket: a local address and port of the kernel's, for a socket to come
//	kernel.go        KernelConn: a connection over a socket, in order only
//	kernel_linux.go  what it asks Linux
//	watch.go         Watch: a descriptor that is no connection's
//	loop.go          Loop: turns, and drives all connections over sockets
//	sockets.go       the epoll that it looks at, and what it knows of a connection
//	socket.go        a descriptor, and the calls with it
//	segments.go      what a connection sends together
//	bufs.go          what connections read into, and MPA keeps
//	bufferedconn.go  BufferedConn: a socket given back to the ULP with octets that were read already
//	slots.go         Slots: limits of connections over sockets, in all and of a peer
//	limits.go        sizes, counts and times
package transport
