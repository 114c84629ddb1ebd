package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Metrics are answered at the host_address of a port, or of an uplink, of the same file, of either
// family; what check passes starts.
func TestMetricsAtHostAddress(t *testing.T) {
	for _, tc := range []struct{ command, at, text string }{
		{"serve", "10.9.0.254:9175", `
[[port]]
name = "rnic0"
addresses = ["10.9.0.1/24"]
host_address = "10.9.0.254/24"
`},
		{"serve", "[fd09::fe]:9175", `
[[port]]
name = "rnic0"
addresses = ["fd09::1/64"]
host_address = "fd09::fe/64"
`},
		{"switch", "10.9.0.254:9175", `
[switch]
socket = "@metrics-at-host-address"
[[uplink]]
name = "rnic0"
host_address = "10.9.0.254/24"
[[program]]
name = "one"
addresses = ["10.9.0.1"]
`},
	} {
		ns := newNamespace(t)
		path := configured(t, "[metrics]\nlisten = \""+tc.at+"\"\n"+tc.text)
		ns.exits(t, 0, "check", path)
		server := ns.rnicd(t, tc.command, "--config", path)
		server.Expect(t, 1, "msg=ready ")
		require.Contains(t, ns.scrape(t, tc.at), "rnicd_build_info")
		ns.stop(t, server)
	}
}
