// Package pmd is the interface between the Poller and a device: ports and queues, one call per
// burst.
//
// A frame comes in through Queue.Rx and leaves through Queue.Tx. Devices are wire (memory), tap
// (the kernel), memif (another process) and dpdk (hardware). Middleware is a Port around a Port, in
// any order; rnicd's own records frames, or loses and delays them. Limits: Ethernet only, one frame
// per Buf, no multicast filter.
package pmd

import (
	"math"

	"github.com/rnicd/rnicd/mem"
)

const (
	// EthernetLen is a header without tags, and the shortest frame a device takes: padding to 60
	// octets and the FCS are the device's affair.
	EthernetLen = 14
	// FrameOverhead is what a frame may have above the MTU: an Ethernet header and two VLAN tags.
	FrameOverhead = EthernetLen + 2*4
)

// Caps says what a port can do.
type Caps struct {
	MTU    int // largest IP packet, octets
	Queues int // receive/transmit queue pairs
	// verifies IPv4 and TCP checksums, sets mem.RxChecksumGood or Bad per frame; a frame with
	// neither was not looked at
	RxChecksum bool
	TxChecksum bool // completes checksums asked for by mem.TxChecksum
	TxSegment  bool // cuts frames asked for by mem.TxSegment
	// VLAN is the 802.1Q tag that the device puts into every frame sent and takes off those received;
	// it drops all others. 0: frames pass as they are.
	VLAN uint16
	// OneThread: a queue is cheaper to poll from one OS thread than from several in turn.
	OneThread bool
	// RSSKey and RSSTable say which queue the device puts a TCP segment on: entry h modulo
	// len(RSSTable), a queue, of the table, h the Toeplitz hash under RSSKey of remote address,
	// local address, remote port, local port. Both nil: one queue, or the device spreads flows by
	// rules that it does not tell.
	RSSKey   []byte
	RSSTable []uint16
}

// Counters of one queue, by reason. Read on the queue's own goroutine only.
type Counters struct {
	RxFrames, RxOctets, TxFrames, TxOctets uint64
	// RxNoBuf counts an empty pool: frames lost for it, where the device must drop them, else
	// bursts cut short, where they can wait in the device (wire, tap).
	RxNoBuf   uint64
	RxTooLong uint64 // dropped: longer than a Buf
	RxErrors  uint64 // device or system call errors on receive
	// RxOtherVLAN counts frames dropped because they are not of the VLAN that is the port's
	// (Caps.VLAN).
	RxOtherVLAN uint64
	// TxFull counts frames not taken because the device was full: one that is offered again, and not
	// taken again, counts again.
	TxFull uint64
	// dropped: device or system call errors on transmit, frames the device cannot carry
	TxErrors uint64
}

// Queue is one receive/transmit queue pair. All calls come from one goroutine.
type Queue interface {
	// Rx fills bufs with received frames, which the caller then owns, and returns how many. It does
	// not block. A frame whose checksum was left incomplete by a sender that shares our memory is
	// flagged mem.RxChecksumGood and has its CsumStart and CsumOffset set (CsumOffset is never 0
	// then); a caller that lets it out of that memory, or damages it, completes it first:
	// CompleteChecksum. Such a sender may also still read the Buf itself (mem.Pool.Lent): nobody
	// writes to it, and a caller that must, or keeps it for long, takes a copy (mem.Pool.Own).
	Rx(bufs []mem.Buf) int
	// Tx sends a prefix of bufs and returns its length. The caller keeps its own hold on every Buf,
	// taken or not: it frees those it needs no more (mem.Pool.Free); a device that still reads one
	// holds it too. A frame that cannot be sent at all counts as taken, and in Counters.TxErrors.
	Tx(bufs []mem.Buf) int
	Counters() Counters
}

// Port is a device.
type Port interface {
	Name() string
	MAC() [6]byte
	Caps() Caps
	// Open sets up queue i (0 <= i < Caps().Queues) with the pool its frames come from. Once per
	// queue.
	Open(i int, pool *mem.Pool) (Queue, error)
	// Close ends the port. Its queues are not to be used any more: first stop the goroutines that
	// do.
	Close() error
}

// Mapper is a Port whose device reaches memory by itself, and only what it was told of. The arena
// of its Pools it knows; Map adds other memory, as an application registers it (dpdk.Port). For
// set-up, any goroutine.
type Mapper interface {
	Port
	// Map lets the device reach b, whole pages of the given size in octets, writable, which must
	// stay mapped until Unmap or Close. What drives the device can then read and write all of
	// these pages.
	Map(b []byte, page int) error
	// Unmap ends what Map of the same b began. No frame of b may be under way.
	Unmap(b []byte) error
	// IOVA is the address at which the device sees b, somewhere in mapped memory; false when it
	// does not, or not in one piece.
	IOVA(b []byte) (addr uint64, ok bool)
}

// Trouble is why a device that is there takes no frames, or soon will not. The zero Trouble:
// nothing.
type Trouble struct {
	Kind string // of Troubles; empty: nothing
	Text string // for operators: what is wrong, and what to do
}

// Kinds of Trouble. No frame passes, except with TroubleBridge.
const (
	TroubleDown   = "down"   // the device is set down
	TroubleMoved  = "moved"  // into another network namespace
	TroubleLink   = "link"   // there is no link
	TroubleBridge = "bridge" // it is in a bridge, and will not be after a restart
)

// Troubles are all kinds.
var Troubles = []string{TroubleDown, TroubleMoved, TroubleLink, TroubleBridge}

// Stops says whether no frame passes.
func (t Trouble) Stops() bool { return t.Kind != "" && t.Kind != TroubleBridge }

// Troubled is a Port that knows its Trouble. Any goroutine, not during or after Close; a few system
// calls.
type Troubled interface {
	Port
	Trouble() Trouble
}

// LinkWatcher is a Port that tells when it has been connected.
type LinkWatcher interface {
	Port
	// WatchLink has up called, on a goroutine of the Port's, each time frames can get somewhere
	// that could not before: there is a carrier again, the device has become part of a bridge, or
	// its port of the bridge forwards. Not for the state at the time of the call. Once; it ends
	// with Close, which up must not wait for.
	WatchLink(up func()) error
}

// Interrupter is a Queue that can wake a goroutine that sleeps until a frame comes.
type Interrupter interface {
	Queue
	// Interrupt is the file descriptor that is readable then; false: there is none.
	Interrupt() (fd int, ok bool)
	// Arm switches it on: what comes from now on makes the descriptor readable. Call Rx once more
	// before sleeping, for what came before. Arm(false) switches it off.
	Arm(on bool)
}

// Timed is a Queue that holds frames for a time of its own, as fault does, or one around such a
// Queue.
type Timed interface {
	Queue
	// Deadline is when to call Rx again for what is held, in the nanoseconds of the Queue's clock;
	// math.MaxInt64: nothing is held.
	Deadline() int64
}

// Deadline is q's when it is Timed, else math.MaxInt64: for callers that wait in virtual time, or
// sleep, between polls.
func Deadline(q Queue) int64 {
	if t, ok := q.(Timed); ok {
		return t.Deadline()
	}
	return math.MaxInt64
}
