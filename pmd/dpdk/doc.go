// Package dpdk is the pmd.Port and pmd.Queue over DPDK's ethdev: a NIC's queue polled from user
// space, or one of DPDK's virtual devices. It is the first and the last station of a packet's way;
// package stack drives it.
//
// Built with the tag dpdk and DPDK's development files (Debian: libdpdk-dev), it is a thin cgo
// binding of its own (docs/adr/0001-own-dpdk-binding.md). Without the tag it compiles to an Open
// that says so.
//
// One call into C carries a whole burst, each way. What crosses is a struct in C memory: handles,
// offsets, lengths, flags. mbuf pointers stay on the C side.
//
// Memory. A mem.Pool's slots are the packet buffers of both directions, so nothing is copied:
//
//	Receive:  Queue reserves a range of Bufs and lays a mempool of mbufs with external data rooms over it. A
//	          received mbuf's Buf follows from its buf_addr; the mbuf waits in a table by Buf until the owner
//	          has freed the Buf, and goes back to the mempool in the next Rx.
//	Transmit: a header mbuf from a second mempool gets the Buf's slot attached, with a shared info per Buf. The
//	          Buf is held for the device (mem.Pool.HoldDevice) until the last mbuf over it is freed.
//
// A run of segments that the device is to cut is one frame of several mbufs: a copy of the headers,
// then the payloads in their Bufs (runs.go).
//
// Exceptions, each counted in QueueStats: a received mbuf that is not ours (net_ring passes on the
// sender's) or is a chain is copied; a frame to be sent whose slot the device does not see as one
// piece (IOVA as physical address, slot across pages) is copied.
//
// Limits: Linux; one EAL per process, started once; one queue per Pool; at most 128 frames in a
// call; receive descriptors are never shared between queues; no link interrupts (the link is asked
// for), no flow rules. A Port's methods are for set-up, from any goroutine; a Queue's for its Poller.
package dpdk
