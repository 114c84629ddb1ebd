package iperf3

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// A server may send its text to clients that did not ask, as iperf3 3.12 does once one has: it is
// not shown.
func TestServerOutputNotAskedFor(t *testing.T) {
	ctl, peer := net.Pipe()
	defer ctl.Close()
	defer peer.Close()
	for _, asked := range []bool{false, true} {
		rep := newReport(&transfer{params: Params{ServerOutput: asked}}, false, &wireResults{},
			&wireResults{ServerOutput: "text"}, ctl)
		require.Equal(t, asked, rep.ServerOutput != "")
	}
}
