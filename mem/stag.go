package mem

import (
	"strings"

	"github.com/rnicd/rnicd/internal/wq"
)

type STag = wq.STag

// Access is a set of rights. Ask for the least, for the shortest time: a buffer that a peer shall
// only write gets no RemoteRead (RFC 5042 sections 6.3.3 and 6.3.5).
type Access uint8

const (
	LocalRead Access = 1 << iota // always granted
	LocalWrite
	RemoteRead
	RemoteWrite

	// Refused is a right that nothing grants: Check with it fails as for want of a right, if not
	// for a reason that comes first. For a stream that may not do a thing to any memory.
	Refused

	remoteAccess = RemoteRead | RemoteWrite
	accessAll    = LocalRead | LocalWrite | remoteAccess
)

// String returns the rights' names, joined by "|".
func (a Access) String() string {
	var names []string
	for i, name := range []string{"LocalRead", "LocalWrite", "RemoteRead", "RemoteWrite"} {
		if a&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, "|")
}

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
	CheckAccess                    // right not granted: DDP 1/00
)

func (c CheckResult) String() string {
	names := [...]string{"OK", "invalid STag", "outside the region",
		"STag not associated with the stream", "TO wraps", "access right not granted"}
	if int(c) >= len(names) {
		return "unknown"
	}
	return names[c]
}
