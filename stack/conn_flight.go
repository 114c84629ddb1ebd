package stack

import (
	"context"
	"net/netip"

	"github.com/rnicd/rnicd/flight"
)

// Record adds an event to the connection's flight record, at the time of the present Turn.
func (c *Conn) Record(k flight.Kind, a, b uint64) { c.tcp.Record(k, a, b) }

// Events are the connection's last events, oldest first, on the clock of Poller.Now; before says how
// many there were before them. Until Closed returns. It allocates.
func (c *Conn) Events() (all []flight.Event, before uint64) { return c.tcp.Events() }

// FlightRecord is what is known of a connection.
type FlightRecord struct {
	Local, Remote netip.AddrPort
	Now           int64 // on the clock of the events
	Before        uint64
	Events        []flight.Event
}

// FlightRecordsMax is how many FlightRecords returns at most.
const FlightRecordsMax = 64

// FlightRecords asks the Poller for those of connections that a peer's address has, of all its TCP
// ports if that is 0, FlightRecordsMax at most. The Poller looks through its connections, and copies.
// Any goroutine but the Poller's.
func (p *Poller) FlightRecords(ctx context.Context, remote netip.AddrPort) (all []FlightRecord, err error) {
	ready := make(chan struct{})
	err = p.Submit(func() {
		defer close(ready)
		all = p.flightRecords(remote)
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-ready:
		return all, nil
	case <-p.done:
		return nil, ErrStopped
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *Poller) flightRecords(remote netip.AddrPort) (all []FlightRecord) {
	for i := range p.slab.conns {
		c := &p.slab.conns[i]
		if c.phase == phaseFree || c.id.Remote.Netip() != remote.Addr() || remote.Port() != 0 && c.id.RemotePort != remote.Port() {
			continue
		}
		if len(all) == FlightRecordsMax {
			break
		}
		events, before := c.Events()
		all = append(all, FlightRecord{c.Local(), c.Remote(), p.now, before, events})
	}
	return all
}
