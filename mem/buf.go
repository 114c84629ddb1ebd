// Package mem holds packet buffers, rings and registered memory.
package mem

import "github.com/rnicd/rnicd/hugepages"

// Buf is a handle of one packet buffer of a Pool: an index, never a pointer.
type Buf uint32

// NoBuf is no buffer.
const NoBuf = ^Buf(0)

// DescFlags say what is known of, or wanted for, the frame in a Buf.
type DescFlags uint16

const (
	RxChecksumGood DescFlags = 1 << iota // receive: IP and TCP/UDP checksums were verified by the device
	RxChecksumBad                        // receive: device found a bad checksum
	TxChecksum                           // transmit: device completes the checksum at CsumStart+CsumOffset (field holds the folded, uncomplemented pseudo-header sum)
	TxSegment                            // transmit: device cuts the frame by GSOSize
)

// Desc describes the frame in a Buf. It is pointer-free and belongs to the Buf's owner.
type Desc struct {
	Off, Len              uint32 // the frame's first octet within the slot, and its length
	Flags                 DescFlags
	CsumStart, CsumOffset uint16 // relative to Off
	GSOSize, HdrLen       uint16
	// hold bits (owner, device) live in unexported fields
}

// PoolConfig sizes a Pool.
type PoolConfig struct {
	Bufs     int // how many
	Stride   int // octets per slot, headroom included; a multiple of 64
	Headroom int // octets in front of the payload that a sender keeps for headers (Headroom const if 0)
}

// Headroom is enough for Ethernet, two VLAN tags, IPv6, and a TCP header with all its options.
const Headroom = 128

// Pool is a set of fixed-stride buffers inside one arena. It belongs to one goroutine (a Poller).
//
// Ownership: Alloc gives the caller the owner's hold. A device that keeps a Buf beyond Tx adds the
// device's hold (HoldDevice) and drops it when it is done (DeviceDone). Free drops the owner's hold. The Buf is
// free again when neither is left.
type Pool struct{}

func NewPool(a *hugepages.Arena, cfg PoolConfig) (*Pool, error) { panic("skeleton") }

func (p *Pool) Alloc() Buf           { panic("skeleton") } // NoBuf when empty (counted); Desc zeroed, Off = Headroom
func (p *Pool) AllocN(dst []Buf) int { panic("skeleton") }
func (p *Pool) Free(b Buf)           { panic("skeleton") } // panics on double free
func (p *Pool) FreeN(bufs []Buf)     { panic("skeleton") }
func (p *Pool) Desc(b Buf) *Desc     { panic("skeleton") }
func (p *Pool) Data(b Buf) []byte    { panic("skeleton") } // slot[Off:Off+Len]
func (p *Pool) Slot(b Buf) []byte    { panic("skeleton") } // the whole slot
func (p *Pool) Available() int       { panic("skeleton") }
func (p *Pool) Size() int            { panic("skeleton") }
func (p *Pool) Stride() int          { panic("skeleton") }
func (p *Pool) Headroom() int        { panic("skeleton") }
func (p *Pool) Memory() []byte       { panic("skeleton") } // all slots, for a device that maps them
func (p *Pool) HoldDevice(b Buf)     { panic("skeleton") }
func (p *Pool) DeviceDone(b Buf)     { panic("skeleton") }
func (p *Pool) InDevice(b Buf) bool  { panic("skeleton") } // a retransmission must wait while true
func (p *Pool) Exhausted() uint64    { panic("skeleton") } // how often Alloc found nothing

// Reserve takes n neighbouring Bufs out of circulation for a device that fills them itself (DPDK's receive
// mempool). Such a Buf enters the stack through Adopt and, once freed, is handed back by TakeReturned. Only
// before the Pool is used.
func (p *Pool) Reserve(n int) (first Buf, err error) { panic("skeleton") }
func (p *Pool) Adopt(b Buf)                          { panic("skeleton") } // owner's hold on a reserved Buf the device filled
func (p *Pool) TakeReturned(dst []Buf) int           { panic("skeleton") }
