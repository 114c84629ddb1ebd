// Package stream has net.Conn, net.Listener and a dialer over the userspace TCP of package stack,
// for programs that use byte streams and no RDMA. net/http runs over it unchanged.
//
// A Poller turns on its own core and calls a stack.Upper, which must not block, lock or allocate
// per segment. The application's goroutines block in Read and Write. Between the two are, per
// connection:
//
//	          application                             Poller
//	Write ──copy──▶ octetQueue         ──────────copy──▶ Pull into the Buf that is sent
//	Read ◀──copy─── recvRing (Bufs)    ◀── the Buf itself ── Arrive
//	      ─────────▶ the same ring, past the reader: Bufs on their way back to the pool
//	requests (bits) ▶ Woken
//	parkers     ◀─── only when a goroutine waits
//	notice      ◀─── only after a call that found nothing
//
// Each Listener has a goroutine, connections have none. Octets out of order wait in their Bufs
// (early.go) until the left edge reaches them. Small segments are copied together, so that a peer
// that sends single octets does not hold a Buf for each.
//
// Limits per connection: the receive window begins at Options.ReceiveWindow and grows with what
// the application reads in a round trip (window.go), up to Options.ReceiveWindowMax, a quarter of
// the Poller's pool, and the window scale of the SYN (stack.Config.TCP.ReceiveWindow).
// Options.SendBuffer octets may wait to be sent, and tcp.Config.SentMax segments for
// acknowledgment. Limits per Poller: at most half of the pool's Bufs wait for readers. Beyond
// that, octets in order are copied to ordinary memory, up to the window; segments after a gap are
// refused, counted, and sent again by the peer, and connections whose peer leaves a gap open for
// tcp.Config.UserTimeoutNs may be reset (stack.ErrHoarding).
//
// A Conn that is closed with octets unread, or that receives octets after Close, sends a RST (RFC
// 9293 section 3.6.1, SHLD-3). Otherwise Close goes on sending what was written. The connection
// is reset if the peer acknowledges nothing for Options.FlushTimeout, and dropped if the peer
// does not close its half within tcp.Config.FinWait2Ns, or the time of Conn.SetFinWait2.
//
// docs/reference/sockets.md compares options and settings with those of sockets. Calls that do not
// block (TryRead, TryWrite, Ready) and a hook (SetNotify) let one goroutine serve many connections.
//
// A Conn must be closed: until then it keeps the Bufs of unread octets.
//
// A connection can speak in streaming mode first and be handed over to another stack.Upper at an
// exact position: Conn.Detach. Package rnic does so when it starts MPA.
package stream
