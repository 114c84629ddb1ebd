package rdmap

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/ddp"
)

// Lengths of RFC 7306's messages, which are headers without payload. Of the Response section 4 says
// 32, but Figure 6 shows 12 (DECISIONS 39).
const (
	AtomicRequestLen  = 52
	AtomicResponseLen = 12
	ImmediateLen      = 8
)

// AtomicCode says which operation an Atomic Request asks for, RFC 7306 Figure 5.
type AtomicCode uint8

const (
	FetchAdd    AtomicCode = 0
	CompareSwap AtomicCode = 2
)

// Valid says whether the code is assigned.
func (c AtomicCode) Valid() bool { return c == FetchAdd || c == CompareSwap }

const atomicCodeMask = 0x0f // of the first word; the rest is reserved

// AtomicRequest is the Atomic Operation Request header, RFC 7306 section 5.2.1.
type AtomicRequest struct {
	Code        AtomicCode
	ID          uint32 // comes back in the Response
	STag        ddp.STag
	TO          uint64
	Data        uint64 // to add, or to swap in
	Mask        uint64 // FetchAdd: highest bits of fields; CompareSwap: bits to replace
	Compare     uint64 // CompareSwap alone
	CompareMask uint64 // CompareSwap alone
}

// Put encodes into the first AtomicRequestLen octets of b, which must be there. What FetchAdd does
// not use is sent as section 5.2.1 has it, whatever the fields hold.
func (r *AtomicRequest) Put(b []byte) {
	p := (*[AtomicRequestLen]byte)(b)
	compare, mask := r.Compare, r.CompareMask
	if r.Code == FetchAdd {
		compare, mask = 0, ^uint64(0)
	}
	binary.BigEndian.PutUint32(p[0:4], uint32(r.Code)&atomicCodeMask)
	binary.BigEndian.PutUint32(p[4:8], r.ID)
	binary.BigEndian.PutUint32(p[8:12], uint32(r.STag))
	binary.BigEndian.PutUint64(p[12:20], r.TO)
	binary.BigEndian.PutUint64(p[20:28], r.Data)
	binary.BigEndian.PutUint64(p[28:36], r.Mask)
	binary.BigEndian.PutUint64(p[36:44], compare)
	binary.BigEndian.PutUint64(p[44:52], mask)
}

// ParseAtomicRequest decodes a message; the reserved bits are ignored, and so is whether the code
// is valid. false: it is not AtomicRequestLen octets long.
func ParseAtomicRequest(b []byte) (r AtomicRequest, ok bool) {
	if len(b) != AtomicRequestLen {
		return AtomicRequest{}, false
	}
	p := (*[AtomicRequestLen]byte)(b)
	return AtomicRequest{
		Code:        AtomicCode(binary.BigEndian.Uint32(p[0:4]) & atomicCodeMask),
		ID:          binary.BigEndian.Uint32(p[4:8]),
		STag:        ddp.STag(binary.BigEndian.Uint32(p[8:12])),
		TO:          binary.BigEndian.Uint64(p[12:20]),
		Data:        binary.BigEndian.Uint64(p[20:28]),
		Mask:        binary.BigEndian.Uint64(p[28:36]),
		Compare:     binary.BigEndian.Uint64(p[36:44]),
		CompareMask: binary.BigEndian.Uint64(p[44:52]),
	}, true
}

// Apply is what the operation makes of the value that is there (sections 5.1.1 and 5.1.2). The code
// must be valid.
func (r *AtomicRequest) Apply(original uint64) uint64 {
	if r.Code == FetchAdd {
		return addFields(original, r.Data, r.Mask)
	}
	if (r.Compare^original)&r.CompareMask != 0 {
		return original
	}
	return original&^r.Mask | r.Data&r.Mask
}

// addFields adds field by field: a bit of tops is the highest of its field, and what carries out of
// it is dropped. The fields are added without their highest bits, which then cannot carry, and
// these are put right by exclusive or.
func addFields(a, b, tops uint64) uint64 {
	return (a&^tops + b&^tops) ^ (a^b)&tops
}

// AtomicResponse is the Atomic Operation Response header, RFC 7306 section 5.2.2.
type AtomicResponse struct {
	ID       uint32 // of the Request
	Original uint64 // what was there before
}

// Put encodes into the first AtomicResponseLen octets of b, which must be there.
func (r *AtomicResponse) Put(b []byte) {
	p := (*[AtomicResponseLen]byte)(b)
	binary.BigEndian.PutUint32(p[0:4], r.ID)
	binary.BigEndian.PutUint64(p[4:12], r.Original)
}

// ParseAtomicResponse decodes a message. false: it is not AtomicResponseLen octets long.
func ParseAtomicResponse(b []byte) (r AtomicResponse, ok bool) {
	if len(b) != AtomicResponseLen {
		return AtomicResponse{}, false
	}
	p := (*[AtomicResponseLen]byte)(b)
	return AtomicResponse{ID: binary.BigEndian.Uint32(p[0:4]),
		Original: binary.BigEndian.Uint64(p[4:12])}, true
}
