package ddp

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/mem"
)

// Lengths of the two headers, control field included (sections 6.2, 6.3).
const (
	TaggedLen   = 14
	UntaggedLen = 18
)

// The DDP control field, section 6.1: T, L, four reserved bits, DV.
const (
	controlTagged  = 0x80
	controlLast    = 0x40
	controlVersion = 0x03
)

// STag and Verdict are mem's: rdmap speaks of both and stands on ddp alone.
type (
	STag    = mem.STag
	Verdict = mem.CheckResult
)

// Header of a DDP segment, both models. STag and TO are the Tagged model's; ULP32, QN, MSN and MO
// the Untagged model's; the fields of the other model are zero after Parse and ignored by Put.
type Header struct {
	Tagged, Last bool
	Version      uint8  // DV
	ULP          uint8  // first octet of RsvdULP (RDMAP's control octet)
	ULP32        uint32 // rest of RsvdULP, untagged only (RDMAP: Invalidate STag)
	STag         mem.STag
	QN           uint32
	TO           uint64
	MSN, MO      uint32
}

// Len is the encoded length: TaggedLen or UntaggedLen.
func (h *Header) Len() int {
	if h.Tagged {
		return TaggedLen
	}
	return UntaggedLen
}

// Words are the octets of a Tagged header as Put encodes them, the first 14 of the 16 in hi and lo,
// most significant octet first.
func (h *Header) Words() (hi, lo uint64) {
	control := h.Version&controlVersion | controlTagged
	if h.Last {
		control |= controlLast
	}
	return uint64(control)<<56 | uint64(h.ULP)<<48 | uint64(h.STag)<<16 | h.TO>>48, h.TO << 16
}

// Put encodes the header into the first Len octets of b, which must be there. The reserved bits are
// sent zero.
func (h *Header) Put(b []byte) {
	control := h.Version & controlVersion
	if h.Last {
		control |= controlLast
	}
	if h.Tagged {
		p := (*[TaggedLen]byte)(b)
		p[0] = control | controlTagged
		p[1] = h.ULP
		binary.BigEndian.PutUint32(p[2:6], uint32(h.STag))
		binary.BigEndian.PutUint64(p[6:14], h.TO)
		return
	}
	p := (*[UntaggedLen]byte)(b)
	p[0] = control
	p[1] = h.ULP
	binary.BigEndian.PutUint32(p[2:6], h.ULP32)
	binary.BigEndian.PutUint32(p[6:10], h.QN)
	binary.BigEndian.PutUint32(p[10:14], h.MSN)
	binary.BigEndian.PutUint32(p[14:18], h.MO)
}

// Parse decodes the header at the front of b and says how many octets it took. false: b is too
// short for the header that its first octet announces. The reserved bits are not checked (section
// 6.1); neither is the version, which Stream.Place holds against the stream's.
func Parse(b []byte) (h Header, n int, ok bool) {
	n, ok = h.parse(b)
	return h, n, ok
}

// parse is Parse in place: the packet path decodes into a Header that the Stream owns.
func (h *Header) parse(b []byte) (n int, ok bool) {
	if len(b) < TaggedLen {
		return 0, false
	}
	control := b[0]
	if control&controlTagged != 0 {
		p := (*[TaggedLen]byte)(b)
		// Field by field, as mpa.Receiver.pass: a literal costs waiting for the CRC.
		h.Tagged, h.Last, h.Version, h.ULP = true, control&controlLast != 0, control&controlVersion, p[1]
		h.STag, h.TO = mem.STag(binary.BigEndian.Uint32(p[2:6])), binary.BigEndian.Uint64(p[6:14])
		h.ULP32, h.QN, h.MSN, h.MO = 0, 0, 0, 0
		return TaggedLen, true
	}
	if len(b) < UntaggedLen {
		return 0, false
	}
	p := (*[UntaggedLen]byte)(b)
	h.Tagged, h.Last, h.Version, h.ULP = false, control&controlLast != 0, control&controlVersion, p[1]
	h.ULP32, h.QN = binary.BigEndian.Uint32(p[2:6]), binary.BigEndian.Uint32(p[6:10])
	h.MSN, h.MO = binary.BigEndian.Uint32(p[10:14]), binary.BigEndian.Uint32(p[14:18])
	h.STag, h.TO = 0, 0
	return UntaggedLen, true
}
