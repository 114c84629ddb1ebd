package rnic

import (
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/stack"
)

// ConnInfo is the connection of a QueuePair as it was at one moment, or one whose start-up is under
// way.
type ConnInfo struct {
	State                 string // of the QueuePair; connecting: start-up
	Initiator             bool
	Dialect               string // empty until start-up is over
	MarkersIn, MarkersOut bool
	CRC                   bool
	Stats                 Stats
}

// InfoOf fills in i for the connection over c; false: c does not belong to an Adapter. The
// goroutine of c's Poller, as in (*stack.Poller).EachConn.
func InfoOf(c *stack.Conn, i *ConnInfo) bool {
	conn, ok := c.Upper().(*connect.Connection)
	if !ok {
		return false
	}
	var v connect.View
	conn.View(&v)
	*i = ConnInfo{State: State(v.State).String(), Initiator: v.Initiator}
	if t := v.Terms; t != nil {
		i.Dialect, i.MarkersIn, i.MarkersOut, i.CRC = Dialect(t.Dialect).String(), t.Receive.Markers,
			t.Send.Markers, t.Receive.CRC
		i.Stats = statsOf(v.Counters)
	}
	return true
}

// PollerCounters are what all connections of an Adapter over one Poller have done, those that are
// over included. The fields that Stats has as well mean the same.
type PollerCounters struct {
	FPDUsIn, FPDUsOut uint64
	PayloadOut        uint64 // octets of DDP payload
	Placed            Placed
	Reassembled       uint64 // FPDUs that came in several segments
	OutOfOrder        uint64 // FPDUs that were placed ahead of a gap
	CRCErrors         uint64 // connections ended for a bad CRC; with DropBadCRC it is RefusedCRC
	TerminatesIn      uint64 // received
	// connections ended here for what the peer sent, with a Terminate where one could be sent
	Terminated uint64
	// connections that went into service and found no memory of an earlier one's to use
	ServicesMade uint64

	RefusedBudget, RefusedCRC, RefusedOutOfOrderRuns, RefusedPending, RefusedSpare,
	RefusedUnverified uint64
}

// CountersOf reads those of p's connections; zeros: p is none of the Adapter's. Poller goroutine.
func (a *Adapter) CountersOf(p *stack.Poller) (n PollerCounters) {
	s := a.host.StateOf(p)
	if s == nil {
		return n
	}
	t, r := s.Shared.Totals()
	return PollerCounters{
		FPDUsIn: t.FPDUsIn, FPDUsOut: t.FPDUsOut, PayloadOut: t.PayloadOut, Placed: Placed(t.Placed),
		Reassembled: t.Reassembled, OutOfOrder: t.Ahead,
		CRCErrors: t.CRCErrors, TerminatesIn: t.TerminatesIn, Terminated: t.Ended,
		ServicesMade:  t.ServicesMade,
		RefusedBudget: r.Budget, RefusedCRC: r.CRC, RefusedOutOfOrderRuns: r.OutOfOrderRuns,
		RefusedPending: t.RefusedPending, RefusedSpare: r.Spare,
		RefusedUnverified: r.Unverified,
	}
}
