// Package dpdk is a pmd.Port and pmd.Queue over DPDK's ethdev: a NIC's queue polled from user
// space, or one of DPDK's virtual devices. Package stack drives it.
//
// Built with the tag dpdk and DPDK's development files (Debian: libdpdk-dev), it is a thin cgo
// binding of its own (docs/adr/0001-own-dpdk-binding.md). Without the tag it compiles to an Open
// that says so.
//
// One call into C receives or sends a whole burst. Arguments and results are a struct in C memory:
// handles, offsets, lengths, flags. mbuf pointers stay on the C side.
//
// Memory. A mem.Pool's slots are the packet buffers of both directions, so nothing is copied:
//
//	Receive:  Queue reserves a range of Bufs and lays a mempool of mbufs with external data rooms over it. A
//	          received mbuf's Buf follows from its buf_addr; the mbuf waits in a table by Buf until the owner
//	          has freed the Buf, and goes back to the mempool in the next Rx.
//	Transmit: a header mbuf from a second mempool gets the Buf's slot attached, with a shared info per Buf. The
//	          Buf is held for the device (mem.Pool.HoldDevice) until the last mbuf over it is freed.
//
// With TCP segmentation offload a run of segments is one frame of several mbufs: a copy of the
// headers, then the payloads in their Bufs (runs.go).
//
// Three kinds of frames are copied, each counted in QueueStats: a received chain of mbufs; a
// received mbuf of another pool (net_ring passes on the sender's); a frame to be sent whose slot
// is not contiguous for the device (physical IOVA, slot across two pages).
//
// Limits: Linux; one EAL per process, started once; one queue per Pool; at most 128 frames in a
// call; receive descriptors are never shared between queues; no link interrupts (the link is
// asked for), no flow rules. A Port's methods are for set-up, from any goroutine; a Queue's for
// its Poller.
package dpdk
