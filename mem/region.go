package mem

// STag is a Steering Tag: a 24-bit index, unpredictable, and an 8-bit key in the low octet.
type STag uint32

func (s STag) Index() uint32 { return uint32(s) >> 8 }
func (s STag) Key() uint8    { return uint8(s) }

// Access is a set of rights.
type Access uint8

const (
	LocalRead Access = 1 << iota // always granted
	LocalWrite
	RemoteRead
	RemoteWrite
)

// ProtectionDomain names the set of regions and streams that may meet. Zero is no domain.
type ProtectionDomain uint32

// StreamID names one DDP stream. AnyStream on a region: every stream of the domain.
type StreamID uint32

const AnyStream StreamID = 0

// CheckResult is the verdict of Table.Check; each but CheckOK maps to one DDP error code.
type CheckResult uint8

const (
	CheckOK            CheckResult = iota
	CheckInvalidSTag               // unknown, revoked, or wrong key: DDP 1/00
	CheckBounds                    // outside the region: DDP 1/01
	CheckNotAssociated             // other domain or stream: DDP 1/02
	CheckWrap                      // TO + length wraps: DDP 1/03
	CheckAccess                    // right not granted: DDP 1/00 by DECISIONS 33
)

// RegionOptions refine Register.
type RegionOptions struct {
	Access Access
	Base   uint64   // TO of the first octet: 0 = zero-based
	Stream StreamID // AnyStream or the one stream that may use it remotely
}

// Table maps STags to memory. Register and Revoke are for any goroutine; Check is lock-free.
type Table struct{}

func NewTable(entriesMax int) *Table { panic("skeleton") }

func (t *Table) AllocDomain() ProtectionDomain { panic("skeleton") }

// Register makes b addressable. b must stay mapped and unmoved until the region is revoked.
func (t *Table) Register(pd ProtectionDomain, b []byte, opt RegionOptions) (*MemoryRegion, error) {
	panic("skeleton")
}

// Check is the only way from a wire address to memory. The slice is valid until the Reader's Exit.
func (t *Table) Check(pd ProtectionDomain, stream StreamID, stag STag, to uint64, n int, need Access) ([]byte, CheckResult) {
	panic("skeleton")
}

// NewReader gives a goroutine that calls Check its own epoch word. Enter/Exit bracket a burst of Check + copy.
func (t *Table) NewReader() *Reader { panic("skeleton") }

type Reader struct{}

func (r *Reader) Enter() { panic("skeleton") }
func (r *Reader) Exit()  { panic("skeleton") }
func (r *Reader) Close() { panic("skeleton") }

// MemoryRegion is a registered range.
type MemoryRegion struct{}

func (m *MemoryRegion) STag() STag               { panic("skeleton") }
func (m *MemoryRegion) Base() uint64             { panic("skeleton") }
func (m *MemoryRegion) Len() int                 { panic("skeleton") }
func (m *MemoryRegion) Bytes() []byte            { panic("skeleton") }
func (m *MemoryRegion) Domain() ProtectionDomain { panic("skeleton") }
func (m *MemoryRegion) Revoke()                  { panic("skeleton") } // no octet is placed after it returns; entry kept, key rotated by Revalidate
func (m *MemoryRegion) Revalidate() STag         { panic("skeleton") } // a revoked region gets a new key
func (m *MemoryRegion) Deregister()              { panic("skeleton") } // Revoke, then give the entry back
