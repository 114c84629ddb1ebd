// Package tcp is a TCP without I/O, clock, goroutine or lock, and without payload: the caller keeps the octets, the
// Conn keeps the arithmetic. Time is an argument (int64 nanoseconds).
package tcp

import "github.com/rnicd/rnicd/inet"

// Seq is a sequence number; comparisons are modulo 2^32.
type Seq uint32

// Flags of a TCP header.
type Flags uint8

const (
	FIN Flags = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
	ECE
	CWR
)

// SACKBlock is [Left, Right).
type SACKBlock struct{ Left, Right Seq }

// Options that may stand in a header.
type Options struct {
	MSS           uint16 // 0 = absent
	WindowScale   int8   // -1 = absent
	SACKPermitted bool
	HasTimestamps bool
	TSval, TSecr  uint32
	SACK          [4]SACKBlock
	SACKCount     int
}

// Segment is a decoded segment. Payload octets stay with the caller.
type Segment struct {
	SrcPort, DstPort uint16
	Seq, Ack         Seq
	Flags            Flags
	Window           uint16
	Urgent           uint16
	HdrLen           int // where the payload begins
	Len              int // payload octets
	Options          Options
}

// Drop says why a segment, or a part of it, was not accepted.
type Drop uint8

const (
	DropNone Drop = iota
	DropShort
	DropHeaderLen
	DropOptions
	DropChecksum
	DropNoConn
	DropWindow
	DropPAWS
	DropDuplicate
	DropAckUnsent
	DropNoACK
	DropRSTChallenge
	DropSYNChallenge
	DropRangesFull
	DropState
	DropRefused
	DropMax
)

func (d Drop) String() string { panic("skeleton") }

// Parse decodes the header in b (the TCP part of a packet) into s without allocating.
func Parse(b []byte, s *Segment) Drop { panic("skeleton") }

// ID is the 4-tuple.
type ID struct {
	Local, Remote         inet.Addr
	LocalPort, RemotePort uint16
}

// Handle is the caller's name for the octets of one sent segment; opaque here.
type Handle uint32

// NoHandle is no payload.
const NoHandle = ^Handle(0)

// Transmit is one segment to send. The caller writes the header with Put before the payload
// (Handle's octets [Off, Off+Len)) and computes the checksum.
type Transmit struct {
	ID         ID
	Seq, Ack   Seq
	Flags      Flags
	Window     uint16
	Options    Options
	Handle     Handle
	Off, Len   int
	Retransmit bool
}

func (t *Transmit) HeaderLen() int { panic("skeleton") }
func (t *Transmit) Put(b []byte)   { panic("skeleton") } // HeaderLen octets; checksum field zero

// Config of a connection. Zero fields take the default.
type Config struct {
	MSS           int // announced; MTU - 40 for IPv4
	ReceiveWindow int // octets beyond the left edge, default 1 MiB
	NoTimestamps  bool
	NoSACK        bool
	NoWindowScale bool
	SentMax       int   // segments in flight or queued, a power of two, default 1024
	RangesMax     int   // out-of-order ranges held, default 64
	RTOMinNs      int64 // default 200 ms
	RTOInitialNs  int64 // default 1 s
	RTOMaxNs      int64 // default 60 s
	DelayedAckNs  int64 // default 40 ms; every second full segment is ACKed at once
	TimeWaitNs    int64 // default 60 s
	SynRetries    int   // default 6
	UserTimeoutNs int64 // unacknowledged data or probes for this long: timed out; default 100 s
	InitialWindow int   // segments, default 10
	NoDelay       bool  // no Nagle
}

// Events a Conn has seen since TakeEvents.
type Events uint16

const (
	EvEstablished Events = 1 << iota
	EvAcked              // snd.una moved: Release has handles, Room may have grown
	EvPeerClosed         // the peer's FIN is in order: no more octets will come
	EvReset              // RST accepted
	EvRefused            // RST in SYN-SENT
	EvTimeout            // gave up retransmitting
	EvClosed             // the Conn is CLOSED and may be reused
)

// Arrival is what Input found new: octets [Skip, Skip+Len) of the payload stand at stream offset Offset.
// The first octet after the peer's SYN is offset 0. Len 0: nothing to hand up.
type Arrival struct {
	Offset  uint64
	Skip    int
	Len     int
	InOrder bool // Offset is the left edge
	Fin     bool // a FIN follows the octets
	Drop    Drop // why there is nothing (for the counters)
}

// Stats of a connection.
type Stats struct {
	SegsIn, SegsOut, BytesIn, BytesOut                                                 uint64
	Retransmits, FastRetransmits, Timeouts, DupSegs, OOOSegs, DupAcksIn, ChallengeAcks uint64
	SRTTNs, RTONs                                                                      int64
	Cwnd, Ssthresh, Flight, SndWnd                                                     int
}

// State of RFC 9293 section 3.3.2.
type State uint8

const (
	Closed State = iota
	SynSent
	SynReceived
	Established
	FinWait1
	FinWait2
	CloseWait
	Closing
	LastAck
	TimeWait
)

// Conn is one connection. All memory is made by NewConn; Connect or Accept start it, and after EvClosed it may be started again.
type Conn struct{}

func NewConn(cfg Config) *Conn { panic("skeleton") }

// Connect starts an active open with initial sequence number iss. tsOffset is added to the timestamp clock.
func (c *Conn) Connect(now int64, id ID, iss Seq, tsOffset uint32) { panic("skeleton") }

// Accept starts a passive open from a SYN.
func (c *Conn) Accept(now int64, id ID, iss Seq, tsOffset uint32, syn *Segment) { panic("skeleton") }

// Input runs RFC 9293 section 3.10.7 on a segment with a good checksum. Call Commit afterwards, always.
func (c *Conn) Input(now int64, s *Segment) Arrival { panic("skeleton") }

// Commit takes octets into the stream (RCV.NXT, SACK, ACK, FIN processing). refused: the octets of a were not kept; the peer will send them again.
func (c *Conn) Commit(now int64, a *Arrival, refused bool) { panic("skeleton") }

func (c *Conn) TakeEvents() Events { panic("skeleton") }

// Edge is the left edge: all octets before this offset have been committed.
func (c *Conn) Edge() uint64 { panic("skeleton") }

// Room is how many octets the next new segment may carry: EMSS when one may be queued now, 0 when not (no window,
// sent ring full, not established, or a segment is queued that has not been sent yet).
func (c *Conn) Room(now int64) int { panic("skeleton") }

// Push queues n octets (1..EMSS) as the next segment; Next sends it. psh sets PSH. The caller keeps h's octets unchanged until Release returns h.
func (c *Conn) Push(now int64, h Handle, n int, psh bool) { panic("skeleton") }

// Next gives the next segment to send: SYN, retransmission, queued data, FIN, probe, RST, or a due ACK; false when there is none.
func (c *Conn) Next(now int64, t *Transmit) bool { panic("skeleton") }

// Release returns, one by one, handles that are wholly acknowledged (or, after EvClosed, were abandoned).
func (c *Conn) Release() (Handle, bool) { panic("skeleton") }

func (c *Conn) AckedOffset() uint64  { panic("skeleton") } // our octets before this offset are acknowledged
func (c *Conn) PushedOffset() uint64 { panic("skeleton") } // offset the next pushed octet will have

func (c *Conn) CloseSend(now int64) { panic("skeleton") } // FIN after what is queued
func (c *Conn) Abort(now int64)     { panic("skeleton") } // RST; Next gives it; EvClosed follows

func (c *Conn) Deadline() int64        { panic("skeleton") } // math.MaxInt64: none
func (c *Conn) Expire(now int64)       { panic("skeleton") } // due timers; follow with Next
func (c *Conn) SetReceiveWindow(n int) { panic("skeleton") } // octets beyond the left edge; the right edge never moves back
func (c *Conn) EMSS() int              { panic("skeleton") } // payload octets a full segment carries: options subtracted
func (c *Conn) State() State           { panic("skeleton") }
func (c *Conn) ID() ID                 { panic("skeleton") }
func (c *Conn) Stats() Stats           { panic("skeleton") }

// ResetFor makes the RST that answers a segment without a connection (RFC 9293 section 3.10.7.1); false when s carries RST.
func ResetFor(id ID, s *Segment, t *Transmit) bool { panic("skeleton") }
