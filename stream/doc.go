// Package stream gives net.Conn, net.Listener and a dialer over the userspace TCP of package stack,
// for programs that want octets in order and know nothing of RDMA: net/http runs on it as it is.
//
// Two worlds meet here. Below, a Poller turns on its own core and calls a stack.Upper, which must
// not block, lock or allocate per segment. Above, goroutines block in Read and Write. Between them
// stand, per connection:
//
//	          application                             Poller
//	Write ──copy──▶ octetQueue         ──────────copy──▶ Pull into the Buf that is sent
//	Read ◀──copy─── recvRing (Bufs)    ◀── the Buf itself ── Arrive
//	      ─────────▶ the same ring, past the reader: Bufs on their way back to the pool
//	requests (bits) ▶ Woken
//	parkers     ◀─── only when somebody waits
//	notice      ◀─── only after a look that found nothing
//
// There is no goroutine per connection and none is started but one per Listener. Octets that come
// out of order wait in their Bufs (early.go) until the left edge reaches them; small segments are
// copied together, so that a peer which sends single octets cannot hold a Buf for each.
//
// Limits. Per connection: the receive window, which begins at Options.ReceiveWindow and grows with
// what the application reads in a round trip (window.go) up to Options.ReceiveWindowMax, to a
// quarter of the Poller's pool, and to the window scale that stack.Config.TCP.ReceiveWindow made
// the SYN offer; Options.SendBuffer octets to be sent, besides tcp.Config.SentMax segments that
// wait for acknowledgment. Per Poller: half of the pool's Bufs wait for readers, at most; beyond
// that octets in order are copied to ordinary memory, up to the window, and segments after a gap
// are refused, counted, and sent again by the peer. While that happens, connections whose peer has
// left a gap open for stack.Config.StallNs may be reset (stack.ErrHoarding).
//
// A Conn that is closed with octets unread, or that receives octets after Close, resets (RFC 9293
// section 3.6.1, SHLD-3). One that is closed in order goes on sending what was written; when the
// peer acknowledges nothing of it for Options.FlushTimeout it is reset, and when the peer does not
// close its half for tcp.Config.FinWait2Ns it is forgotten.
//
// Options and settings of a connection are those of sockets: docs/reference/sockets.md has them side by side.
// Calls that do not block (TryRead, TryWrite, Ready) and a hook (SetNotify) let one goroutine serve
// many connections.
//
// A Conn must be closed: one that is forgotten keeps the Bufs of what it did not read.
//
// A connection can speak in streaming mode first and be handed over to another stack.Upper at an
// exact position: Conn.Detach. Package rnic does so when it starts MPA.
package stream
