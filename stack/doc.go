// Package stack is the Poller: one core and one device queue, with the neighbours, TCP connections
// and timers of that queue. Here the layers below, which do no I/O, meet a device, a clock and
// packet buffers. The package knows nothing of RDMA: above each connection is an Upper, which is a
// byte stream or a QueuePair.
//
// Only Poller.Submit, Poller.Stop, Poller.Counters, the other methods that say so, and Conn.Wake
// may be called from any goroutine. Everything else is for the Poller's goroutine.
//
// # Reading order
//
// The files below are in the order in which a Turn, a packet and a connection meet them. A file
// calls functions of its own and of files after it.
//
// What the package offers, and what it asks of the layer above:
//
//	errors.go            all errors
//	upper.go             Upper: what stands above a connection
//	open.go              Open: a port with its memory and running Pollers
//
// A Turn, and what reaches it from other goroutines:
//
//	poller_run.go        Run: Turn after Turn, and what is done between them
//	poller_wait.go       what a Poller does when there is no work, as package waiting says
//	poller.go            Poller; New, Turn, Deadline
//	poller_config.go     Config, defaults, limits
//	names.go             types of internal/inet that a program names
//	poller_turns.go      the count of Turns, for a watchdog
//	poller_stop.go       the end of a Poller
//	pause_amd64.go       waiting without giving up the core; pause_other.go: not known elsewhere
//	poller_thread.go     whether it keeps an OS thread
//	poller_affinity.go   the core it runs on
//	poller_addrs.go      adding, removing and awaiting addresses
//	conn_flight.go       the last events of a connection
//	conn_info.go         lists all connections, a few in each Turn
//	poller_control.go    functions given to Submit
//	poller_doorbell.go   Conn.Wake
//	poller_counters.go   Counters; why frames were dropped
//	group_inbox.go       frames that came to another member of a Group
//
// A frame comes in:
//
//	rx.go                bursts from the device; what a frame was leads on from here
//	rx_conn.go           the connection of a segment
//	rx_receiver.go       receiver; Ethernet and VLAN
//	rx_prefetch.go       prefetches the connections of a burst
//	rx_ipv4.go           IPv4
//	rx_ipv6.go           IPv6 and its extension headers
//	rx_fragment.go       fragments of either
//	rx_tcp.go            the TCP header
//	rx_group.go          groups: joined and left, and what comes to them
//	rx_udp.go            UDP: its ports, and what comes there
//	rx_icmp.go           ICMP messages
//	rx_coalesce.go       joins frames with consecutive octets to one segment
//
// Frames that belong to no connection:
//
//	host_neighbour.go    neighbours that became known or were lost
//	host_icmp.go         ICMP errors about segments of ours
//	host.go              the rest, which is an iphost.Host's: what lies between
//	host_waiters.go      what waits for a change to an address
//
// A connection, from its opening to its end:
//
//	conn.go              Conn
//	conn_dial.go         an active open; the choice of address and port
//	conn_listen.go       a passive open
//	conn_ports.go        ports: which are listened at, which are held
//	conn_cookie.go       SYN cookies
//	conn_timers.go       timers that are due
//	conn_syncache.go     half-open connections
//	conn_place.go        which connection a new one replaces
//	conn_input.go        a segment: tcp.Conn.Input, Upper.Arrive, tcp.Conn.Commit, Upper.Edge
//	conn_serve.go        what a connection needs at the end of a Turn
//	sched.go             whose turn it is to send octets
//	conn_life.go         opened, established, closed
//	conn_leaving.go      leavers: Closed, once the device has what was sent last
//
// A segment goes out:
//
//	tx.go                sender: tcp.Conn.Next, as long as a connection may send
//	tx_pull.go           Upper.Pull: the next segments
//	tx_udp.go            a datagram of UDP
//	tx_emit.go           transmitter: a segment becomes a frame; who owns a Buf that was sent
//	tx_answer.go         a RST, or a SYN,ACK, in the Buf of what it answers
//	tx_headers.go        TCP and IP headers
//	tx_neighbour.go      the MAC address of the next hop
//	tx_batch.go          the batch for the device
//	tx_frame.go          Ethernet and IP headers of other packets than TCP
//
// When packet buffers run short:
//
//	pressure.go          pressure: the policy; the shares of the pool; which connection is ended
//	pressure_waiting.go  connections that wait for Bufs
//	pressure_claims.go   which connection may take a Buf; how long a peer has held some
//	pressure_loans.go    Bufs in equal parts for connections that flow, while they are short
//
// Foundations:
//
//	rx_vector.go         the frames that a segment stands for
//	clock.go             the time of a Turn
//	dead.go              Bufs to be freed
//	conn_peers.go        peers: connections of each remote address, and which are silent
//	group.go             Pollers that share an address; frames between them
//	group_rss.go         the member that the port's RSS hash gives a connection to
//	conn_path.go         paths: the path MTU of a connection
//	conn_marks.go        requests to a connection until it is next served
//	conn_slab.go         the slots of connections; lists of them
//	conn_lookup.go       4-tuple to connection
//	conn_prefetch.go     reading connections into the cache
//	timers.go            the timing wheel
//	secret.go            initial sequence numbers and other values that must not be guessed
//	siphash.go           its keyed hash
//	largepages.go        huge pages for tables
//
// # Limits
//
// The Poller sends no IP options, and fragments only of answers to pings; DF is set otherwise. A
// hard ICMP error ends a connection only while it is being opened (RFC 5927 section 5.2). IPv6
// addresses are configured, there is no autoconfiguration; redirects are ignored. A Poller does
// not connect to its own address. Several Pollers may share an address: see Group.
//
// # Memory
//
// New allocates everything. A connection, with its TCP, takes less than 1 KiB whether it is in
// use or not. Records of what is in flight, and of what came out of order, are shared by all
// connections (tcp.Memory: Config.TCP.RecordsMax and SpansMax, 3 MB by default). A half-open
// connection takes 112 octets (Config.SynMax), or nothing when it is a cookie.
//
// The pool must hold the unacknowledged segments of all connections (up to a congestion window
// each), the Bufs that Uppers and the device keep, and Config.PendingMax frames. When fewer than
// 4*BurstMax Bufs are free (a quarter of a smaller pool), no Upper is asked for octets, so that
// ACKs can come in and free some. See pressure.go.
//
// A connection with nothing to send does not notice that its peer has vanished, not even in
// FIN-WAIT-2, unless its Upper turns keep-alives on (Conn.SetKeepAlive) or the application has
// closed it (Conn.SetOrphaned).
package stack
