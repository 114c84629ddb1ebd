package peer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
)

// Places bound how many clients are served at a time.
type Places struct{ taken chan struct{} }

// NewPlaces makes n of them.
func NewPlaces(n int) Places { return Places{make(chan struct{}, n)} }

// placeWait is how long a client waits for another one's place. One that comes again as soon as it
// has closed its connection, as a test of all sizes does, finds the server not done with that one
// yet: its own place is still taken.
const placeWait = time.Second

// Take takes a place, and waits a moment for one. The error says to the client that there is none;
// or it is ctx's.
func (p Places) Take(ctx context.Context) error {
	late, stop := awake.After(placeWait)
	defer stop()
	select {
	case p.taken <- struct{}{}:
		return nil
	case <-late:
		if cap(p.taken) == 1 {
			return errors.New("another client is being served, and one at a time" + Later)
		}
		return fmt.Errorf("%d other clients are being served, and no more at a time"+Later, cap(p.taken))
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Leave gives a place back.
func (p Places) Leave() { <-p.taken }

// Network is what bounds of one peer are about: its address, or of IPv6 its /64, since one host
// has all addresses.
func Network(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // an error only of lengths that cannot be
	return p
}
