package port

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/stack"
)

const (
	// AddrTimeout bounds the check of our addresses, which takes up to 7 s and begins again when the
	// link comes up.
	AddrTimeout   = 30 * time.Second
	busyPause     = time.Millisecond
	counterPeriod = 5 * time.Millisecond
)

// AddrTakenError: another host on the link has an address of ours.
type AddrTakenError struct {
	Addr netip.Addr
	MAC  inet.MAC
}

func (e *AddrTakenError) Error() string {
	if e.MAC == inet.SwitchMAC {
		return fmt.Sprintf("%v: the switch gives this program other addresses, or another MAC: see "+
			"addresses and mac of its [[program]]", e.Addr)
	}
	return fmt.Sprintf("%v: another host on the link has this address, the one with MAC %v; choose "+
		"another, or take it from that host", e.Addr, e.MAC)
}

// ErrAddrsUnknown: whether another host has our addresses could not be found out within
// AddrTimeout.
var ErrAddrsUnknown = fmt.Errorf(
	"whether another host has our addresses could not be found out within %v", AddrTimeout)

// AwaitAddrs returns when our addresses may be used: no other host has said that one is its own.
// Otherwise its error is an *AddrTakenError, ErrAddrsUnknown, a Poller's or ctx's. For after Start.
func (p *Port) AwaitAddrs(ctx context.Context) error {
	limited, cancel := awake.Timeout(ctx, AddrTimeout, nil)
	defer cancel()
	for _, poller := range p.pollers {
		err := poller.AwaitAddrs(limited)
		var taken *stack.AddrError
		switch {
		case err == nil:
		case errors.As(err, &taken):
			return &AddrTakenError{taken.Addr, taken.MAC}
		case ctx.Err() != nil:
			return ctx.Err()
		case limited.Err() != nil:
			return ErrAddrsUnknown
		default:
			return err
		}
	}
	return nil
}

// WatchLink tells the Pollers whenever the device is connected, until Close. An error says that it
// cannot: our addresses are then not announced. For after Start, once.
func (p *Port) WatchLink() error {
	device, ok := p.device.(pmd.LinkWatcher)
	if !ok {
		return nil
	}
	return device.WatchLink(func() {
		for _, poller := range p.pollers {
			for errors.Is(poller.LinkUp(), stack.ErrBusy) {
				time.Sleep(busyPause)
			}
		}
	})
}

// Await looks at each Poller's counters until they are as wanted; false: they were not in time, or
// it has stopped.
func (p *Port) Await(ctx context.Context, timeout time.Duration,
	wanted func(*stack.Counters) bool) bool {
	ctx, cancel := awake.Timeout(ctx, timeout, nil)
	defer cancel()
	tick := time.NewTicker(counterPeriod)
	defer tick.Stop()
	for _, poller := range p.pollers {
		for {
			k, err := poller.Counters(ctx)
			if err != nil {
				return false
			}
			if wanted(&k) {
				break
			}
			<-tick.C
		}
	}
	return true
}
