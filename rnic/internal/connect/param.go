package connect

import (
	"net/netip"
	"time"

	"github.com/rnicd/rnicd/mpa"
)

// TriesMax is how many dialects an Initiator tries.
const TriesMax = 2

// Param is how an Endpoint connects, and what the connection is like from then on. Its values were
// checked. rnic.ConnParam says what each field does.
type Param struct {
	PrivateData    []byte
	PrivateDataMax int32
	ORDMin         int32
	IRD, ORD       int
	Local          netip.AddrPort             // an Initiator's end; what is zero is chosen
	Bound          *Binding                   // that has its port, or nil
	Check          func(private []byte) error // nil: none

	UserTimeout time.Duration
	WakeUp      time.Duration

	Tries        [TriesMax]mpa.Dialect // an Initiator's, to be tried one after the other; 0: no more
	Named        bool                  // the application named the dialect: no other will do
	RTR          mpa.RTRKinds
	PeerToPeer   bool
	KeepRejected bool

	NoMarkers       bool
	NoCRC           bool
	DropBadCRC      bool
	PackFull        bool
	AllowHalfClosed bool
	Acknowledged    bool
	MayAcknowledge  bool // Acknowledged, if the peer's frame says so, too
}

// tries are the dialects of Tries.
func (p *Param) tries() []mpa.Dialect {
	n := 0
	for n < len(p.Tries) && p.Tries[n] != 0 {
		n++
	}
	return p.Tries[:n]
}
