package tcp

import "github.com/rnicd/rnicd/internal/flight"

// State of RFC 9293 section 3.3.2. There is no LISTEN: a listener is a port of the Poller, not a
// Conn.
//
//	          Connect                         Accept (a SYN)
//	Closed ──────────► SynSent ──────────┐  ┌──────────────── Closed
//	                     │ SYN,ACK       ▼  ▼
//	                     │           SynReceived
//	                     ▼               │ ACK of our SYN
//	                Established ◄────────┘
//	        CloseSend │       │ FIN
//	                  ▼       ▼
//	           FinWait1       CloseWait
//	  ACK of FIN │  │ FIN         │ CloseSend
//	             ▼  ▼             ▼
//	      FinWait2  Closing     LastAck
//	         FIN │  │ ACK of FIN  │ ACK of FIN
//	             ▼  ▼             ▼
//	           TimeWait ──────► Closed
//	                    2 MSL
//
// Any state goes to Closed on an acceptable RST, on Abort and on the user timeout.
type State uint8

const (
	Closed State = iota
	SynSent
	SynReceived
	Established
	FinWait1
	FinWait2
	CloseWait
	Closing
	LastAck
	TimeWait
)

var stateNames = [...]string{
	Closed: "CLOSED", SynSent: "SYN-SENT", SynReceived: "SYN-RECEIVED", Established: "ESTABLISHED",
	FinWait1: "FIN-WAIT-1", FinWait2: "FIN-WAIT-2", CloseWait: "CLOSE-WAIT", Closing: "CLOSING",
	LastAck: "LAST-ACK", TimeWait: "TIME-WAIT",
}

// String is the RFC's name.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "?"
}

// enter changes the state.
func (c *Conn) enter(s State) {
	c.Record(flight.State, uint64(c.state), uint64(s))
	c.state = s
}

// Record adds an event to the flight record (package flight) of the Memory, where there is one.
func (c *Conn) Record(k flight.Kind, a, b uint64) { c.mem.Flight.Record(&c.log, k, a, b) }

// Events are the last ones of the flight record, oldest first, copied; before says how many there
// were before them.
func (c *Conn) Events() (all []flight.Event, before uint64) { return c.mem.Flight.Events(&c.log) }

// Mute keeps the Conn out of the flight record, for good: one that stands for others.
func (c *Conn) Mute() { c.log.Mute() }

// Forget gives back what the flight record has of this connection. Start of another one does, too.
func (c *Conn) Forget() { c.mem.Flight.Release(&c.log) }

// synchronized states have seen both SYNs acknowledged.
func (s State) synchronized() bool { return s >= Established }

// receives says whether octets may still come: the peer has not closed its half.
func (s State) receives() bool { return s == Established || s == FinWait1 || s == FinWait2 }
