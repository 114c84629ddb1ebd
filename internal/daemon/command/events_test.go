package command

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/status"
)

func TestEvents(t *testing.T) {
	w := newWired(t)
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		root := Root(port.Builtin())
		root.SetArgs(append([]string{"events", "--socket", w.path}, args...))
		root.SetOut(&out)
		err := root.Execute()
		return out.String(), err
	}
	out, err := run()
	require.NoError(t, err)
	require.Empty(t, out)
	_, err = run("nobody")
	require.EqualError(t, err, `remote: "nobody" is no address, as 10.9.0.2 or 10.9.0.2:33000`)

	var text bytes.Buffer
	a := netip.MustParseAddrPort("10.9.0.1:7174")
	b := netip.MustParseAddrPort("10.9.0.2:33000")
	writeFlights(&text, []status.Flight{
		{Port: "rnic0", Local: a, Remote: b, Error: "reset by peer", Ended: time.Unix(0, 0).UTC(),
			Before: 3, Events: []status.FlightEvent{{Ago: 0.25, Text: "keep-alive probe"}}},
		{Port: "rnic0", Local: a, Remote: b},
	})
	require.Equal(t, `rnic0 10.9.0.1:7174 10.9.0.2:33000 ended 1970-01-01T00:00:00Z: reset by peer
    3 events before these
     -0.250000 s  keep-alive probe
rnic0 10.9.0.1:7174 10.9.0.2:33000 open
`, text.String())
}
