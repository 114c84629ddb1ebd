// Package tcp is a TCP without I/O, clock, goroutine or lock, and without payload: the caller keeps
// the octets, the Conn keeps the arithmetic. Time is an argument (int64 nanoseconds of any
// monotonic clock).
//
// Below it is inet, which has checked the packet; above it is the user of the connection. A
// packet's way in and out:
//
//	Parse ─► Conn.Input ─► Arrival ─► (the caller keeps or refuses the octets) ─► Conn.Commit ─► Conn.Next ─► Transmit.Put
//	                                                          Conn.Room ─► Conn.Push ─► Conn.Next ─┘
//
// Two properties make it fit for MPA (RFC 5044). There is no receive buffer: every new octet is
// passed up when it arrives, in any order, and is acknowledged only after Commit, with which the
// caller accepts it. And one Push is one segment: a retransmission has the same boundaries, so
// that an FPDU stays aligned with its segment as long as the peer's window and the path allow it.
//
// A listener's half-open connections are Halfs, or cookies; a Conn begins with Resume (or Connect,
// or Accept).
//
// Limits of a Conn: SentMax unacknowledged segments, RangesMax out-of-order runs. It takes room for
// them from the Memory that it shares with other Conns, which is bounded too. Nothing is allocated
// after NewMemory, except by SetCongestion. A Conn belongs to one goroutine.
package tcp

import "github.com/rnicd/rnicd/internal/inet"

// ID is the 4-tuple.
type ID struct {
	Local, Remote         inet.Addr
	LocalPort, RemotePort uint16
}

// Handle is the caller's name for the octets of one sent segment; opaque here.
type Handle uint32

// NoHandle is no payload.
const NoHandle = ^Handle(0)

// Events a Conn has seen since TakeEvents.
type Events uint16

const (
	EvEstablished Events = 1 << iota
	EvAcked              // snd.una moved: Release has handles, Room may have grown
	EvPeerClosed         // the peer's FIN is in order: no more octets will come
	EvReset              // RST accepted
	EvRefused            // RST in SYN-SENT
	EvTimeout            // gave up: R2, keep-alives without an answer, or an orphan in FIN-WAIT-2
	EvClosed             // the Conn is CLOSED and may be reused
	// R1: several retransmissions in a row were not acknowledged; told once until there is progress
	EvSuspect
	EvFinAcked // FIN-WAIT-2: the peer has acknowledged our FIN and not sent its own
	EvRoom     // the peer's window opened without snd.una moving: Room may have grown
)

// Arrival is what Input found new: octets [Skip, Skip+Len) of the payload stand at stream offset
// Offset. The first octet after the peer's SYN is offset 0. Len 0: nothing to hand up.
//
// It is one contiguous piece, the first octets of the segment that are not yet held and lie in the
// window. Should a segment bridge a run that is already held, what is new beyond that run is left
// to retransmission: such segments come only from a peer that cuts its stream again, and one piece
// keeps the caller's path simple.
type Arrival struct {
	Offset  uint64
	Skip    int
	Len     int
	InOrder bool // Offset is the left edge
	Fin     bool // a FIN follows the octets
	Drop    Drop // why there is nothing (for the counters)

	hasFin bool   // a FIN stands in the segment, at finAt, next to the piece or not
	full   uint8  // full-sized segments, for the delayed ACK
	finAt  uint64 // offset after the peer's last octet
}
