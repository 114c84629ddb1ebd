// Package flight records the last events of each connection, to be read when one has ended with
// an error. It runs always, like the flight recorder of an aircraft, and costs little: an event
// takes 32 octets, and is recorded only for what is unusual, not per packet.
//
// A Recorder has a bounded number of rings, allocated at the start. A connection takes a ring
// with its first event, and keeps it while it is among the connections with the latest events;
// then another connection takes the ring. So an idle connection costs the two octets of its Log,
// and a connection that always retransmits does not overwrite the events of others (ADR 0021).
//
// Time is the caller's: Recorder.Now. One goroutine at a time.
package flight

import "fmt"

const (
	// EventsMax is how many events a ring has: the last ones of a connection.
	EventsMax = 64
	// RingsMax is the most rings of a Recorder.
	RingsMax = 1<<16 - 2

	none  = 0         // of a Log: no ring
	muted = 1<<16 - 1 // and there will be none
)

// Event is something that happened to a connection. What A and B are, Kind says.
type Event struct {
	At   int64 // nanoseconds on the recording clock
	Kind Kind
	A, B uint64
}

// Log is a connection's hold on a ring; zero: none. It stands in the connection, and is not copied.
type Log uint16

// Mute ends recording in l.
func (l *Log) Mute() { *l = muted }

// ring is the last events of its owner.
type ring struct {
	owner      *Log
	count      uint64 // events ever recorded of the owner
	prev, next uint16 // in the order of use, as Logs
}

// Recorder has the rings of the connections of one goroutine. A nil one records nothing.
type Recorder struct {
	Now    int64 // when events happen that are recorded now
	rings  []ring
	events []Event // EventsMax for each ring
	newest uint16  // as Logs
	oldest uint16
}

// New makes a Recorder of n rings: 2 KiB each. It panics unless 1 to RingsMax.
func New(n int) *Recorder {
	if n < 1 || n > RingsMax {
		panic(fmt.Sprintf("flight: %d rings, must be 1 to %d", n, RingsMax))
	}
	r := &Recorder{rings: make([]ring, n), events: make([]Event, n*EventsMax), newest: 1,
		oldest: uint16(n)}
	for i := range r.rings {
		at := uint16(i + 1)
		r.rings[i].prev, r.rings[i].next = at-1, at+1
	}
	r.rings[n-1].next = none
	return r
}

// Record adds an event to l's ring. Where l has none, that of the connection whose last event is
// the longest ago becomes l's.
func (r *Recorder) Record(l *Log, k Kind, a, b uint64) {
	if r == nil {
		return
	}
	at := uint16(*l)
	if at == muted {
		return
	}
	if at == none || r.rings[at-1].owner != l {
		at = r.oldest
		r.rings[at-1].owner, r.rings[at-1].count = l, 0
		*l = Log(at)
	}
	if at != r.newest {
		r.renew(at)
	}
	g := &r.rings[at-1]
	r.events[int(at-1)*EventsMax+int(g.count%EventsMax)] = Event{r.Now, k, a, b}
	g.count++
}

// renew makes a ring the one used last.
func (r *Recorder) renew(at uint16) {
	g := &r.rings[at-1]
	r.rings[g.prev-1].next = g.next // it is not the newest: there is one before it
	if g.next != none {
		r.rings[g.next-1].prev = g.prev
	} else {
		r.oldest = g.prev
	}
	g.prev, g.next = none, r.newest
	r.rings[r.newest-1].prev = at
	r.newest = at
}

// Release gives l's ring back, and forgets its events.
func (r *Recorder) Release(l *Log) {
	at := uint16(*l)
	if at == muted {
		return
	}
	*l = none
	if r == nil || at == none || r.rings[at-1].owner != l {
		return
	}
	g := &r.rings[at-1]
	g.owner, g.count = nil, 0
	if at == r.oldest {
		return
	}
	if at == r.newest {
		r.newest = g.next
		r.rings[g.next-1].prev = none
	} else {
		r.rings[g.prev-1].next = g.next
		r.rings[g.next-1].prev = g.prev
	}
	r.rings[r.oldest-1].next = at
	g.prev, g.next = r.oldest, none
	r.oldest = at
}

// Events are copies of l's, oldest first; before says how many there were before them.
func (r *Recorder) Events(l *Log) (all []Event, before uint64) {
	at := uint16(*l)
	if r == nil || at == none || at == muted || r.rings[at-1].owner != l {
		return nil, 0
	}
	count := r.rings[at-1].count
	n := min(count, EventsMax)
	all = make([]Event, 0, n)
	for i := count - n; i < count; i++ {
		all = append(all, r.events[int(at-1)*EventsMax+int(i%EventsMax)])
	}
	return all, count - n
}
