// Package memif is a port over shared memory to another process of the same host: the packet
// interface of VPP and DPDK (net_memif), version 2.0, in either role. So one process can own the
// NIC, and other processes use it without privileges, each with its own Poller.
//
// The client creates the memory and passes it, with its rings, over a Unix socket; the server
// maps it. After that, frames pass through the rings only, one pair for each queue. The socket
// shows when the other process has ended, and nothing of it is left. A client (Dial) attaches
// again by itself. A server (Listen) has a port for each of its interfaces (Bind), or for each
// client (Accept).
//
//	client                    shared memory                   server
//	Tx ─ lends Bufs, or copies ─► ring client to server ─► copies ─ Rx
//	Rx ◄─ posted Bufs, or copies ─ ring server to client ◄─ copies ─ Tx
//
// With Config.Arena a client's Bufs are in shared memory, and the server copies each frame once.
// A server always copies, as a frame must not change after it was checked.
//
// A server does not trust its clients. It reads each index, offset and length once, and checks
// it. If a client truncates its memory, the fault ends the connection, not the process. A client
// trusts its server not to change buffers that the server has returned and, with Config.Arena,
// with the contents of the arena.
//
// This end polls, and asks its peer for interrupts only while it sleeps (Queue.Arm). A peer that
// wants interrupts gets them.
//
// Below package stack time is an argument. Here only the goroutines that attach and keep
// connections read a clock, for handshakes and retries. docs/adr/0019-memif.md has the decisions.
//
// Limits: Linux, little-endian. The same number of rings in both directions. Ethernet mode only.
// No offloads: frames carry complete checksums.
package memif
