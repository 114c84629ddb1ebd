// Package mpa frames ULPDUs for TCP: FPDU layout, markers, CRC32C, start-up frames. Pure: no I/O, no clock.
package mpa

import "github.com/rnicd/rnicd/mem"

const (
	MarkerSpacing = 512
	MarkerLen     = 4
	HeaderLen     = 2
	CRCLen        = 4
	MULPDUMin     = 128
	MULPDUMax     = 64768
)

// Mode of one half-connection.
type Mode struct{ Markers, CRC bool }

// ErrorCode of section 8 (RFC 5044), layer 2 type 0 in a Terminate.
type ErrorCode uint8

const (
	ErrConnection ErrorCode = 1 // TCP closed, terminated or lost
	ErrCRC        ErrorCode = 2
	ErrMarker     ErrorCode = 3 // marker and ULPDU_Length disagree
	ErrStartup    ErrorCode = 4 // invalid Request or Reply frame
)

// Error is an MPA error as the ULP sees it.
type Error struct {
	Code   ErrorCode
	Offset uint64 // stream offset in MPA's half-connection
	What   string // constant text
}

func (e *Error) Error() string { panic("skeleton") }

// Sender writes FPDUs of one half-connection in stream order.
type Sender struct{}

func (s *Sender) Init(mode Mode) { panic("skeleton") }

// Offset is the MPA stream offset of the next octet (0 = first octet after start-up).
func (s *Sender) Offset() uint64 { panic("skeleton") }

// MULPDU by RFC 5044 section 4.5, clamped to 128..64768.
func (s *Sender) MULPDU(emss int) int { panic("skeleton") }

// Size is how many stream octets an FPDU with an n-octet ULPDU takes at the current position, markers included.
func (s *Sender) Size(n int) int { panic("skeleton") }

// Put writes the FPDU whose ULPDU is the concatenation of parts to dst (at least Size octets) and returns its size. Copies payload once; allocates nothing.
func (s *Sender) Put(dst []byte, parts [][]byte) int { panic("skeleton") }

// ULPDU is one validated ULPDU. Valid during the call of Sink.Place only.
type ULPDU struct {
	Start, End uint64 // FPDU's place in the MPA stream: the order
	Len        int
	Pieces     [][]byte // its octets; markers and segment ends cut them
	Direct     bool     // straight from one received segment, nothing was held
	InOrder    bool     // all earlier octets have been passed
}

// Sink takes ULPDUs (DDP). An error stops the Receiver for good.
type Sink interface{ Place(u *ULPDU) error }

// Verdict of Input on a Buf.
type Verdict uint8

const (
	Done    Verdict = iota // the Buf is not needed any more
	Kept                   // the Receiver holds the Buf and frees it to its Pool later
	Refused                // nothing was taken: do not commit
)

type ReceiverConfig struct {
	Mode       Mode
	Pool       *mem.Pool
	BufsMax    int  // reassembly budget in Bufs, at least one largest FPDU
	DropBadCRC bool // refuse a segment with a bad CRC instead of reporting it
}

type ReceiverStats struct {
	FPDUs, Direct, Reassembled, OutOfOrder            uint64 // FPDUs
	BytesDirect, BytesReassembled, BytesOutOfOrder    uint64 // ULPDU octets
	HeldBufs, HeldBufsPeak, RefusedBudget, RefusedCRC uint64
}

// Receiver finds FPDUs in stream octets that may come in any order, each octet once.
type Receiver struct{}

func (r *Receiver) Init(cfg ReceiverConfig) { panic("skeleton") }

// Input offers data (octets within Buf b's slot) at MPA stream offset off.
func (r *Receiver) Input(off uint64, b mem.Buf, data []byte, sink Sink) Verdict { panic("skeleton") }

// Edge tells the stream's left edge; frames that have become whole or in order are passed. The result: every FPDU that
// ends at or before it has been passed to the Sink.
func (r *Receiver) Edge(left uint64, sink Sink) uint64 { panic("skeleton") }

func (r *Receiver) Err() error           { panic("skeleton") }
func (r *Receiver) Stats() ReceiverStats { panic("skeleton") }
func (r *Receiver) Close()               { panic("skeleton") } // frees all held Bufs
