package tcp

import (
	"strings"
	"testing"

	"github.com/rnicd/rnicd/internal/flight"
	"github.com/stretchr/testify/require"
)

// flown makes a script's Conn record, and says what it has recorded since.
func (s *script) flown() func() string {
	r := flight.New(2)
	s.c.mem.Flight = r
	return func() string {
		var all []string
		events, _ := s.c.Events()
		for _, e := range events {
			all = append(all, e.String())
		}
		s.c.Forget()
		return strings.Join(all, "\n")
	}
}

// What a connection records says what happened to it.
func TestFlightRecord(t *testing.T) {
	s := opened(t, sackOnly(), "mss 1000 sackOK", 100*ms)
	said := s.flown()
	s.push(1000, 1000, 1000, 1000, 1000)
	s.drain()
	s.out = nil
	s.in(". 1 ack 1 sack 1001:5001")
	require.Equal(t, "fast retransmission at 0, 5000 octets in flight", said())
	s.in(". 1 ack 5001 win 0")
	require.Equal(t, "the peer's window closed at 5000", said())
	s.in(". 1 ack 5001 win 3000")
	require.Equal(t, "the peer's window opened: 3000 octets", said())
	s.in("R. 1 ack 5001")
	require.Equal(t, "the peer reset the connection, at 0 of its octets\nESTABLISHED to CLOSED",
		said())
}

// A loss found by RACK's timer, and a tail loss probe.
func TestFlightRecordOfRACK(t *testing.T) {
	s := opened(t, sackOnly(), "mss 1000 sackOK", 100*ms)
	said := s.flown()
	s.push(1000, 1000)
	s.drain()
	s.c.reo.seen = true // else RACK waits for no reordering
	s.advance(100 * ms)
	s.in(". 1 ack 1 sack 1001:2001")
	require.Empty(t, said(), "within the reordering window")
	s.advance(s.c.Deadline() - s.now)
	require.Equal(t, "RACK's timer at 0, 2000 octets in flight\nfast retransmission at 0, 2000 "+
		"octets in flight", said())

	s = opened(t, sackOnly(), "mss 1000 sackOK", 100*ms)
	said = s.flown()
	s.push(1000)
	s.drain()
	s.advance(s.c.Deadline() - s.now)
	s.drain()
	require.Equal(t, "tail loss probe to 1000, 1000 octets in flight", said())
}

// Repair by timers, and the end by the user timeout.
func TestFlightRecordOfTimers(t *testing.T) {
	s := opened(t, plain(), "mss 1000", 100*ms)
	said := s.flown()
	s.push(1000)
	s.drain()
	for s.c.State() != Closed {
		s.advance(max(s.c.Deadline()-s.now, 0))
		s.drain()
	}
	text := said()
	require.Regexp(t, `^retransmission timeout at 0 after \d+\.\d{3} ms\n`, text)
	require.Regexp(
		t, `\ngave up: 1000 octets in flight, no progress for \d+\.\d{3} s\nESTABLISHED to CLOSED$`, text)
}

// The words of package flight for states are ours.
func TestFlightStates(t *testing.T) {
	for s := range stateNames {
		require.Equal(t, State(s).String()+" to ?",
			flight.Event{Kind: flight.State, A: uint64(s), B: 99}.String())
	}
}

// A Conn that stands for others, and one without a recorder, record nothing.
func TestMutedConn(t *testing.T) {
	m := NewMemory(plain(), 1)
	m.Flight = flight.New(1)
	var c Conn
	c.Init(m)
	c.Mute()
	c.Connect(0, simID(false), 1, 0)
	c.finish(0)
	events, _ := c.Events()
	require.Empty(t, events)
	require.EqualValues(t, 1<<16-1, c.log, "for good")
}
