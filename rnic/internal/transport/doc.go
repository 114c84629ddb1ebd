// Package transport carries the octets of one connection of MPA: over our own TCP on a
// stack.Poller, or over a socket of the kernel. Both know what stands above them as an Upper, and
// are known to it as a Conn. Neither knows MPA.
//
// Its files, in reading order:
//
//	transport.go     Conn and Upper: what each side may ask of the other
//	poller.go        PollerConn: our TCP, placement out of order, the Poller's packet buffers
//	kernel.go        KernelConn: a socket, in order only, with buffers of its own
//	kernel_linux.go  what Linux is asked and told about a socket
//	bufferedconn.go  BufferedConn: a socket given back to the ULP with octets that were read already
//	slots.go         Slots: how many connections over sockets there may be, and of which peers
//	limits.go        sizes, counts and times
//	fortest.go       what tests of package rnic ask of a transport
package transport
