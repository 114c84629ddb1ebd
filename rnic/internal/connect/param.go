package connect

import (
	"time"

	"github.com/rnicd/rnicd/mpa"
)

// Param is how an endpoint connects, and what the connection is like from then on; it was checked.
// rnic.ConnParam says what each field does.
type Param struct {
	Tries          []mpa.Dialect // an Initiator's, to be tried one after the other
	Named          bool          // the application wants no other dialect than that
	PrivateData    []byte
	PrivateDataMax int
	PeerToPeer     bool
	RTR            mpa.RTRKinds
	IRD, ORD       int
	ORDMin         int
	KeepRejected   bool

	UserTimeout     time.Duration
	NoMarkers       bool
	NoCRC           bool
	DropBadCRC      bool
	PackFull        bool
	AllowHalfClosed bool

	WakeUp time.Duration
}
