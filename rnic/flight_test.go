package rnic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/flight"
)

// flightOf is the flight record of a queue pair.
func (r *rig) flightOf(q *QueuePair) FlightRecord { return must(q.FlightRecord(r.t.Context())) }

func kindsOf(f FlightRecord) (all []flight.Kind) {
	for _, e := range f.Events {
		if e.Kind != flight.State {
			all = append(all, e.Kind)
		}
	}
	return all
}

// The record tells of start-up, of the error and of the end, at both ends, in order, over every
// transport; Config.Fell has it, too.
func TestFlightRecord(t *testing.T) {
	r, s, c := connected(t, opts{}, opts{})
	r.exchange(s, c)
	before := r.flightOf(s.qp)
	require.NoError(t, before.Err)
	require.Equal(t, []flight.Kind{flight.RequestIn, flight.ReplySent, flight.InService},
		kindsOf(before))
	require.NoError(t, c.wrong(s, func(wr *WorkRequest) { wr.RemoteSTag ^= 0x00010000 }))
	awaitClosed(s, c)
	f := r.flightOf(s.qp)
	require.Equal(t, s.qp.Err(), f.Err)
	require.Equal(t, before.Remote, f.Remote)
	require.Equal(t, before.Events, f.Events[:len(before.Events)])
	kinds := kindsOf(f)
	require.Equal(t, []flight.Kind{flight.RequestIn, flight.ReplySent, flight.InService,
		flight.TerminateSent, flight.Closing}, kinds[:5])
	require.Equal(t, flight.Flushed, kinds[len(kinds)-1])
	at := f.Events[0].At
	for _, e := range f.Events {
		require.GreaterOrEqual(t, e.At, at)
		at = e.At
		if e.Kind == flight.TerminateSent {
			require.Equal(t, "Terminate sent: layer 1, type 1, code 0x0", e.String())
		}
	}
	require.GreaterOrEqual(t, f.Now, at)
	f = r.flightOf(c.qp)
	require.Equal(t, c.qp.Err(), f.Err)
	require.Contains(t, kindsOf(f), flight.TerminateIn)
}

// An event names a dialect as everything else does.
func TestFlightNamesDialects(t *testing.T) {
	for d := Dialect(0); d <= RFC6581+1; d++ {
		e := flight.Event{Kind: flight.InService, A: uint64(d)}
		require.Equal(t, "in service, "+d.String(), e.String())
	}
}
