// Package memif is a port over shared memory to another process of the same host: the packet interface of VPP and DPDK
// (net_memif), version 2.0, in either role. One process can so own the NIC, and others sit on it without privileges, each with
// its own Poller.
//
// The client makes the memory and passes it, with its rings, over a Unix socket; the server maps it. From then on frames pass
// through rings alone, one pair for each queue, and the socket tells that the other end has gone: a process that is killed
// leaves nothing behind. A client (Dial) attaches again by itself; a server (Listen) has a port for each of its interfaces
// (Bind), or for each client that comes (Accept).
//
//	client                    shared memory                   server
//	Tx ─ lends Bufs, or copies ─► ring client to server ─► copies ─ Rx
//	Rx ◄─ posted Bufs, or copies ─ ring server to client ◄─ copies ─ Tx
//
// With Config.Arena a client's Bufs are themselves in shared memory, and each frame is copied once on its way, by the server.
// A server always copies: what it has checked must not change.
//
// A server trusts its clients with nothing. Every index, offset and length is read once and checked; memory that goes away
// under it (a fault) ends the connection, not the process. A client trusts its server to leave alone what it has given back,
// and with Config.Arena with the contents of the arena.
//
// We poll, and say so to the peer (no interrupts). A peer that wants interrupts gets them.
//
// Below package stack time is an argument; here only the goroutines that keep connections read a clock, for handshakes and for
// attaching again. docs/adr/0019-memif.md says what was decided, with figures.
//
// Limits: Linux, little-endian. As many rings in one direction as in the other. Ethernet mode only. No offloads: checksums are
// complete on the way.
package memif
