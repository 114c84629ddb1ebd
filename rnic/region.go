package rnic

import (
	"fmt"

	"github.com/rnicd/rnicd/mem"
)

// Access is a set of rights on a MemoryRegion.
type Access = mem.Access

const (
	LocalWrite  = mem.LocalWrite
	RemoteRead  = mem.RemoteRead
	RemoteWrite = mem.RemoteWrite
)

// ProtectionDomain holds the regions and QueuePairs that may meet.
type ProtectionDomain struct {
	adapter *Adapter
	id      mem.ProtectionDomain
}

// RegisterOptions refine ProtectionDomain.RegisterWith.
type RegisterOptions struct {
	Access Access
	// Base is the tagged offset of the first octet; 0 makes the region zero-based.
	Base uint64
	// For binds the region to one QueuePair: no other stream of the domain may touch it. nil: all may.
	For *QueuePair
}

// Register makes b addressable, zero-based. b must stay mapped and unmoved until the region has been revoked:
// arena memory, or ordinary Go memory that stays reachable (the region keeps it so).
func (pd *ProtectionDomain) Register(b []byte, access Access) (*MemoryRegion, error) {
	return pd.RegisterWith(b, RegisterOptions{Access: access})
}

// RegisterWith is Register with a base offset and an association with one QueuePair.
func (pd *ProtectionDomain) RegisterWith(b []byte, opt RegisterOptions) (*MemoryRegion, error) {
	o := mem.RegionOptions{Access: opt.Access, Base: opt.Base}
	if opt.For != nil {
		o.Stream = opt.For.stream
	}
	m, err := pd.adapter.table.Register(pd.id, b, o)
	if err != nil {
		return nil, fmt.Errorf("rnic: register %d octets: %w", len(b), err)
	}
	return &MemoryRegion{MemoryRegion: m}, nil
}

// MemoryRegion is registered memory.
type MemoryRegion struct{ *mem.MemoryRegion }

// Slice names octets [off, off+n) of the region, for a work request. Out of range is the programmer's error.
func (m *MemoryRegion) Slice(off, n int) SGE {
	if off < 0 || n < 0 || off > m.Len() || n > m.Len()-off || uint64(n) > 1<<32-1 {
		panic(fmt.Sprintf("rnic: slice [%d, %d+%d) of a region of %d octets", off, off, n, m.Len()))
	}
	return SGE{STag: m.STag(), Length: uint32(n), Offset: m.Base() + uint64(off)}
}
