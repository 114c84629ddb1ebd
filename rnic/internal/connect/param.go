package connect

import (
	"time"

	"github.com/rnicd/rnicd/mpa"
)

// Param is how an Endpoint connects, and what the connection is like from then on. Its values were
// checked. rnic.ConnParam says what each field does.
type Param struct {
	Tries          []mpa.Dialect // an Initiator's, to be tried one after the other
	Named          bool          // the application named the dialect: no other will do
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
