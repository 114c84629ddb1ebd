package mem

// Buf is a handle of one packet buffer of a Pool: an index, never a pointer.
type Buf uint32

// NoBuf is no buffer.
const NoBuf = ^Buf(0)

// DescFlags say what is known of, or wanted for, the frame in a Buf.
type DescFlags uint16

const (
	// receive: IP and TCP/UDP checksums were verified by the device
	RxChecksumGood DescFlags = 1 << iota
	RxChecksumBad            // receive: device found a bad checksum
	// transmit: device completes the checksum at CsumStart+CsumOffset (field holds the folded,
	// uncomplemented pseudo-header sum)
	TxChecksum
	TxSegment // transmit: device cuts the frame by GSOSize
)

// Desc describes the frame in a Buf. It is pointer-free and belongs to the Buf's owner, which may
// assign to the whole of it: the holder of the Buf is written down elsewhere.
type Desc struct {
	Off, Len              uint32 // the frame's first octet within the slot, and its length
	Flags                 DescFlags
	CsumStart, CsumOffset uint16 // relative to Off
	GSOSize, HdrLen       uint16
	_                     [12]byte // 32 octets: two to a cache line, none across two
}

// hold says which owners a Buf has. Two bits and no count: a sent Buf that waits for both its ACK
// and the device is the only one that is ever held twice (DESIGN, Central types).
type hold uint8

const (
	holdOwner  hold = 1 << iota // the stack, or what it gave the Buf to
	holdDevice                  // a device still reads it
)
