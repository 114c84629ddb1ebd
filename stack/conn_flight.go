package stack

import (
	"context"
	"errors"
	"net/netip"

	"github.com/rnicd/rnicd/internal/flight"
)

// Record adds an event to the connection's flight record, at the time of the present Turn.
func (c *Conn) Record(k flight.Kind, a, b uint64) { c.tcp.Record(k, a, b) }

// Events are the connection's last events, oldest first, on the clock of Poller.Now; before says
// how many there were before them. Until Closed returns. It allocates.
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

// FlightRecords are those of connections that a peer's address has, of all its TCP ports if that
// is 0, FlightRecordsMax at most. It looks through connections as EachConn does. Any goroutine
// but the Poller's.
func (p *Poller) FlightRecords(ctx context.Context, remote netip.AddrPort) ([]FlightRecord, error) {
	var all []FlightRecord
	visit := func(c *Conn) {
		if len(all) == FlightRecordsMax || c.tcp.ID().Remote.Netip() != remote.Addr() ||
			remote.Port() != 0 && c.tcp.ID().RemotePort != remote.Port() {
			return
		}
		events, before := c.Events()
		all = append(all, FlightRecord{c.Local(), c.Remote(), p.now, before, events})
	}
	err := p.EachConn(ctx, visit, func() error {
		if len(all) == FlightRecordsMax {
			return errEnough
		}
		return nil
	})
	if err != nil && err != errEnough {
		return nil, err
	}
	return all, nil
}

var errEnough = errors.New("stack: as many as are wanted")
