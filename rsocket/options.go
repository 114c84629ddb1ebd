package rsocket

import (
	"cmp"
	"fmt"
	"time"

	"github.com/rnicd/rnicd/rnic"
)

// Defaults: librdmacm's, except for Linger, which has none there.
const (
	bufferDefault  = 128 << 10
	creditsDefault = 384
	lingerDefault  = 10 * time.Second
)

// Limits of Options.
const (
	BufferMin  = 2048
	BufferMax  = 256 << 20
	CreditsMin = 16
	CreditsMax = 8192
)

// Options of a Conn. The zero value has the defaults.
type Options struct {
	// Conn says how the connection starts and is framed: Dialect, PeerToPeer, RTR, Quirks.WakeUp,
	// NoMarkers, NoCRC, DropBadCRC, Packing, UserTimeout. The rest is this package's, and not
	// looked at. For peers that are Linux siw, see docs/guides/interop.md.
	Conn rnic.ConnParam
	// SendBuffer holds what was written and is not TCP's yet; ReceiveBuffer is the ring that the
	// peer writes. Octets; default 128 KiB.
	SendBuffer, ReceiveBuffer int
	// Credits is how many messages of the peer may wait to be read, whatever their length:
	// default 384.
	Credits int
	// Maps is how many ranges of its memory the peer may map at a time, for WriteAt: 0 to MapsMax.
	Maps int
	// LateGrants gives the peer no room before it has used up what it has, so that it always waits
	// for a round trip then. It is for peers whose octets are lost when they close and a grant
	// comes after that: programs over Linux siw (docs/guides/interop.md).
	LateGrants bool
	// Linger is how long Close waits in all, for what was written to go out and for the peer to
	// close, too, before it resets the connection: default 10 s. Conn.UserTimeout, or else 100 s,
	// in which nothing moves do the same (rnic.ErrLinger).
	Linger time.Duration
}

func (o *Options) check() error {
	o.SendBuffer, o.ReceiveBuffer = cmp.Or(o.SendBuffer, bufferDefault),
		cmp.Or(o.ReceiveBuffer, bufferDefault)
	o.Credits, o.Linger = cmp.Or(o.Credits, creditsDefault), cmp.Or(o.Linger, lingerDefault)
	for _, b := range []struct {
		name string
		n    int
	}{{"SendBuffer", o.SendBuffer}, {"ReceiveBuffer", o.ReceiveBuffer}} {
		if b.n < BufferMin || b.n > BufferMax {
			return fmt.Errorf("rsocket: %s of %d octets, %d to %d possible", b.name, b.n,
				BufferMin, BufferMax)
		}
	}
	switch {
	case o.Credits < CreditsMin || o.Credits > CreditsMax:
		return fmt.Errorf("rsocket: %d credits, %d to %d possible", o.Credits, CreditsMin, CreditsMax)
	case o.Maps < 0 || o.Maps > MapsMax:
		return fmt.Errorf("rsocket: %d mappings, 0 to %d possible", o.Maps, MapsMax)
	case o.Linger < 0:
		return fmt.Errorf("rsocket: Linger %v is negative", o.Linger)
	}
	o.ReceiveBuffer &^= 1 // two halves
	return nil
}

// connParam is of Conn what is the caller's.
func (o *Options) connParam() rnic.ConnParam {
	q := &o.Conn
	return rnic.ConnParam{
		Dialect: q.Dialect, PeerToPeer: q.PeerToPeer, RTR: q.RTR, NoMarkers: q.NoMarkers, NoCRC: q.NoCRC,
		DropBadCRC: q.DropBadCRC, Packing: q.Packing, UserTimeout: q.UserTimeout,
		Quirks: rnic.Quirks{WakeUp: q.Quirks.WakeUp},
	}
}
