package rnic

import (
	"context"
	"net/netip"

	"github.com/rnicd/rnicd/internal/flight"
	"github.com/rnicd/rnicd/rnic/internal/connect"
)

// FlightRecord is the last events of a connection (package flight): start-up frames, changes of
// state, losses and how they were found, closed windows, bad CRCs, Terminates.
type FlightRecord struct {
	Local, Remote netip.AddrPort
	Err           error          // why it has ended
	Now           int64          // when this was so: nanoseconds on the clock of Events
	Before        uint64         // events before these
	Events        []flight.Event // oldest first
}

// FlightRecord returns the QueuePair's last events: while it is in service those of now, after
// Done those of its end, which are kept if it ended with an error that this end did not want.
// Config.Fell has them of all connections. A connection that has had no event for long, on a
// Poller with more connections than stack.Config.FlightRings, has none any more. ErrState before
// there is a connection. It waits as Stats does. Any application goroutine.
func (q *QueuePair) FlightRecord(ctx context.Context) (FlightRecord, error) {
	r, err := q.end.FlightRecord(ctx)
	return FlightRecord(r), err
}

// fell makes what a Host tells what Config.Fell is told.
func fell(tell func(FlightRecord)) func(*connect.FlightRecord) {
	if tell == nil {
		return nil
	}
	return func(r *connect.FlightRecord) { tell(FlightRecord(*r)) }
}
