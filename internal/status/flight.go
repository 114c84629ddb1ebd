package status

import (
	"net/netip"
	"time"
)

// Flights is the answer to GET /v1/events: connections that have ended first, oldest first.
type Flights struct {
	Records List[Flight] `json:"records"`
}

// Flight is the last events of a connection.
type Flight struct {
	Port   string            `json:"port"`
	PID    int               `json:"pid,omitempty"` // of a program of rnicd run
	Local  netip.AddrPort    `json:"local"`
	Remote netip.AddrPort    `json:"remote"`
	Error  string            `json:"error,omitempty"` // why it has ended; empty: it has not
	Ended  time.Time         `json:"ended,omitzero"`
	Before uint64            `json:"before,omitempty"` // events before these
	Events List[FlightEvent] `json:"events"`           // oldest first
}

// FlightEvent is one of package flight.
type FlightEvent struct {
	Ago  float64 `json:"seconds_ago"` // before the end, or now
	Kind string  `json:"kind"`
	A    uint64  `json:"a"`
	B    uint64  `json:"b"`
	Text string  `json:"text"`
}
