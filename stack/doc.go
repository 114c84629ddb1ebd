// Package stack is the Poller: one core, one device queue, its neighbours, TCP connections and timers. It is where
// the I/O-free layers below meet a device, a clock and packet buffers. It knows nothing of RDMA: what stands above a
// connection is an Upper, a byte stream or a QueuePair.
//
// A packet's way through one Turn, with the file that has it:
//
//  1. poller.go   the clock is read once
//  2. control.go  functions given to Submit, doorbells rung by Conn.Wake
//  3. rx.go       a burst of frames: Ethernet, then neigh.go (ARP), icmp.go, rx6.go and nd.go, fragment.go, or TCP with
//     its checksum; join.go: frames of the burst that continue each other are taken as one
//  4. lookup.go   4-tuple to connection; without one: listen.go and syncache.go, or a RST
//  5. rx.go       tcp.Conn.Input, Upper.Arrive, tcp.Conn.Commit, Upper.Edge
//  6. timer.go    due timers; each.go: the application's part, if it runs to completion on the Poller (Config.Each)
//  7. tx.go       per touched connection: Release, Upper.Acked, Upper.Pull, tcp.Conn.Next, headers, neighbour, batch
//  8. tx.go       the batch goes to the device; what it did not take waits, and nobody is pulled from meanwhile
//
// Limits: no IP options are sent, and no fragments but of answers to pings (DF is always set). Hard ICMP errors end
// connections that are being opened only (RFC 5927 section 5.2). IPv6 addresses are given, not made of what routers
// advertise, and redirects are ignored. A Poller does not talk to its own address. Several Pollers may share one
// (group.go).
//
// Memory: New makes everything. Per connection, its TCP included, that is less than 1.5 KiB, in use or not. What is in
// flight or out of order stands in records and spans that all connections share (tcp.Memory: Config.TCP.RecordsMax and
// SpansMax, 3 MB by default); a connection that finds none waits its turn (starved.go). Half-open connections take an
// entry of 112 octets (Config.SynMax), or nothing when they are cookies.
//
// The pool wants room for what waits for acknowledgment on all connections at once (up to a congestion window each),
// for what Uppers keep, for Config.PendingMax frames and the device's own needs. When fewer than 4*BurstMax Bufs (a
// quarter of a smaller pool) are left, nothing is pulled any more, so that ACKs can still come in and free some; an
// Upper that keeps Bufs without bound can still stop everything.
//
// A connection with nothing to send does not notice a peer that vanished, in FIN-WAIT-2 neither, unless its Upper turns
// keep-alives on, or says that nobody reads any more (advice.go: SetKeepAlive, SetOrphaned).
//
// Everything is for the Poller's goroutine except Poller.Submit, Poller.Stop, Poller.Counters and Conn.Wake.
package stack
