package connect

import (
	"context"
	"errors"
	"net/netip"

	"github.com/rnicd/rnicd/internal/flight"
)

// FlightRecord is the last events of a connection.
type FlightRecord struct {
	Local, Remote netip.AddrPort
	Err           error // why it has ended; nil while it has not, or if it was closed in order
	Now           int64 // when this was so, on the clock of the events
	Before        uint64
	Events        []flight.Event
}

func (c *Connection) flightRecord(err error) *FlightRecord {
	r := &FlightRecord{Local: c.self, Remote: c.Peer, Err: err, Now: c.Transport.Now()}
	r.Events, r.Before = c.Transport.Events()
	return r
}

// keepRecord keeps the flight record of a connection that ends with an error that this end did not
// want.
func (c *Connection) keepRecord(err error) {
	if err == nil || errors.Is(err, ErrClosed) || c.endpoint == nil && c.Host.Fell == nil {
		return
	}
	r := c.flightRecord(err)
	if c.endpoint != nil {
		c.endpoint.flown = r
	}
	if c.Host.Fell != nil {
		c.Host.Fell(r)
	}
}

// recordBadCRC records a segment that was dropped, if it was for its CRC.
func (c *Connection) recordBadCRC(off uint64) {
	if n := c.engine.Stats().Receive.RefusedCRC; n != c.badCRC {
		c.badCRC = n
		c.Transport.Record(flight.BadCRC, off, n)
	}
}

// FlightRecord returns the events of now; after Done those of the end, if that was an error. It
// asks the driving goroutine and may block until ctx ends. Any goroutine.
func (e *Endpoint) FlightRecord(ctx context.Context) (FlightRecord, error) {
	c := e.Connection.Load()
	if c == nil {
		return FlightRecord{}, ErrState
	}
	over := func() (FlightRecord, error) {
		if e.flown == nil {
			return FlightRecord{Local: c.self, Remote: c.Peer}, nil
		}
		return *e.flown, nil
	}
	if e.Done.Given() { // and the Poller perhaps stopped
		return over()
	}
	ch := make(chan *FlightRecord, 1)
	if err := Order(c.Transport.Submit, func() { ch <- c.flightRecord(nil) }); err != nil {
		return FlightRecord{}, err
	}
	e.host.Turn()
	select {
	case r := <-ch:
		return *r, nil
	case <-e.Done.C():
		return over()
	case <-ctx.Done():
		return FlightRecord{}, ctx.Err()
	}
}
