package daemon

import (
	"encoding/json"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/status"
)

// A connection that ends with an error is logged with its last events, in one record, and both can
// be asked for; so can those of one that goes on.
func TestFlightRecords(t *testing.T) {
	text, c := controlled(t)
	r := start(t, text+"[log]\nformat = \"json\"\n"+measure)
	_, end := r.measuring(at(7175))
	defer end()
	bad, endBad := r.measuring(at(7175))
	bad.Abort() // a reset: the server still waits for it
	endBad()
	line := r.log.await(t, 1, "a connection has ended with an error")
	var record struct {
		Port, Remote, Error string
		Events              map[string]string
	}
	require.NoError(t, json.Unmarshal([]byte(line), &record))
	require.Equal(t, "cable", record.Port)
	require.Contains(t, record.Error, "reset")
	require.Contains(t, record.Events["1"], "before: CLOSED to SYN-RECEIVED")
	var words []string
	for _, text := range record.Events {
		words = append(words, text)
	}
	require.Contains(t, strings.Join(words, "\n"), "MPA Request received: Rev ")

	var f status.Flights
	require.NoError(t, c.Get(r.ctx, "/v1/events", nil, &f))
	require.Len(t, f.Records, 1)
	require.Equal(t, record.Remote, f.Records[0].Remote.String())
	require.Equal(t, record.Error, f.Records[0].Error)
	require.Len(t, f.Records[0].Events, len(record.Events))
	require.NoError(t, c.Get(r.ctx, "/v1/events", url.Values{"remote": {"10.9.0.2"}}, &f))
	require.Len(t, f.Records, 2)
	open := f.Records[1]
	require.Empty(t, open.Error)
	require.Equal(t, netip.MustParseAddr("10.9.0.2"), open.Remote.Addr())
	require.Truef(t, slices.ContainsFunc(open.Events, func(e status.FlightEvent) bool {
		return e.Kind == "in_service"
	}), "%v", open.Events)
	require.NoError(t, c.Get(r.ctx, "/v1/events", url.Values{"remote": {open.Remote.String()}}, &f))
	require.Len(t, f.Records, 1)
	require.ErrorContains(t, c.Get(r.ctx, "/v1/events", url.Values{"remote": {"peer"}}, &f),
		`remote: "peer" is no address`)
}
