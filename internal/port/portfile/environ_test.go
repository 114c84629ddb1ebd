package portfile

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/port"
)

// Variables are keys of a port, with the checks that these have; other programs' variables are not
// looked at.
func TestEnvironment(t *testing.T) {
	c, err := Environment([]string{
		"RNICD_PMD=tap", "RNICD_ADDR=10.9.0.2/24, fd09::2/64", "RNICD_DEV=tap7", "RNICD_MTU=9000",
		"RNICD_IDLE=spin", "RNICD_OFFLOAD=false",
		"RNICD_TCP_RTO_MIN=5ms", "RNICD_HOST_ADDRESS=10.9.0.1/24", "RNICD_NO_SKIP=1", "RNICD_ENGINE=/x",
		"HOME=/root", "RNICD_PAGE=", "RNICD_DEVICE=roce",
	}, port.Builtin())
	require.NoError(t, err)
	require.Equal(t, "tap", c.Driver.Name)
	require.Equal(t, "tap7", c.Device)
	require.Equal(
		t, []netip.Prefix{netip.MustParsePrefix("10.9.0.2/24"), netip.MustParsePrefix("fd09::2/64")},
		c.Addrs)
	require.Equal(t, 9000, c.MTU)
	require.True(t, c.NoOffload)
	require.Equal(t, 5*time.Millisecond, c.RTOMin)

	c, err = Environment(nil, port.Builtin())
	require.NoError(t, err)
	require.True(t, c.Driver.Sockets)
	require.Zero(t, c.PeerMax, "a program's own matter")
	require.Equal(t, programConns, c.ConnsMax)
	c, err = Environment([]string{"RNICD_PEER_CONNECTIONS=7", "RNICD_CONNECTIONS=9"}, port.Builtin())
	require.NoError(t, err)
	require.Equal(t, 7, c.PeerMax)
	require.Equal(t, 9, c.ConnsMax)

	c, err = Environment([]string{"RNICD_ADDR=127.0.0.9"}, port.Builtin())
	require.NoError(t, err)
	require.Equal(t, netip.MustParseAddr("127.0.0.9"), c.HostAt)

	for want, environ := range map[string][]string{
		`RNICD_MTU: 70000: want 576 to`: {"RNICD_PMD=tap",
			"RNICD_ADDR=10.9.0.2/24", "RNICD_MTU=70000"},
		`RNICD_MTU: want a whole number`: {"RNICD_PMD=tap",
			"RNICD_ADDR=10.9.0.2/24", "RNICD_MTU=\"x\""},
		`RNICD_ADDRESSES: "10.9.0.2": want an address with`: {"RNICD_PMD=tap",
			"RNICD_ADDR=10.9.0.2"},
		`RNICD_ADDRESSES: missing`:                               {"RNICD_PMD=tap"},
		`RNICD_DRIVER: "tab"`:                                    {"RNICD_PMD=tab"},
		`RNICD_ADRESSES: unknown; did you mean RNICD_ADDRESSES?`: {"RNICD_ADRESSES=10.9.0.2/24"},
		`RNICD_DRIVER and its other name: give only one`:         nil,
		`RNICD_MTU: of no use to the driver kernel`:              {"RNICD_MTU=1500"},
		`RNICD_DEVICE: tap7: want iwarp or roce; the device of a port is RNICD_DEV`: {
			"RNICD_PMD=tap", "RNICD_ADDR=10.9.0.2/24", "RNICD_DEVICE=tap7"},
		`RNICD_CAPTURE: the kernel sends these frames, and only it can write them; as root: ` +
			`tcpdump -i any -U -w 'x.pcapng' tcp`: {"RNICD_CAPTURE=x.pcapng"},
		`RNICD_DEV: of no use to the driver kernel`:                              {"RNICD_DEV=tap7"},
		`RNICD_ADDRESSES: 192.0.2.1: no interface of this host has this address`: {"RNICD_ADDR=192.0.2.1"},
		`RNICD_CONFIG and RNICD_MTU: give only one`:                              {"RNICD_CONFIG=x", "RNICD_MTU=1500"},
		`RNICD_TCP_RTO_MIN: "soon" is no duration`: {"RNICD_PMD=tap",
			"RNICD_ADDR=10.9.0.2/24", "RNICD_TCP_RTO_MIN=soon"},
		`RNICD_SOCKET: missing: the server's, as /run/memif.sock`: {"RNICD_PMD=memif",
			"RNICD_ADDR=10.9.0.2/24"},
	} {
		if environ == nil {
			environ = []string{"RNICD_PMD=tap", "RNICD_DRIVER=tap"}
			want = "its other name: give only one"
		}
		_, err := Environment(environ, port.Builtin())
		require.ErrorContains(t, err, want)
	}
}

const base = `[[port]]
name = "one"
addresses = ["10.9.0.1/24"]

[[service]]
name = "scratch"
type = "of which this package knows nothing"
`

// A daemon's file's port, by its name where there are several; other tables are the daemon's.
func TestEnvironmentFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rnicd.toml")
	require.NoError(t, os.WriteFile(file, []byte(base), 0o600))
	c, err := Environment([]string{"RNICD_CONFIG=" + file}, port.Builtin())
	require.NoError(t, err)
	require.Equal(t, "10.9.0.1/24", c.Addrs[0].String())
	require.Zero(t, c.PeerMax, "the file names no limit")
	_, err = Environment([]string{"RNICD_CONFIG=" + file, "RNICD_PORT=two"}, port.Builtin())
	require.ErrorContains(t, err, "RNICD_PORT: want one of the ports of "+file+": one")

	for text, want := range map[string]string{
		"[[uplink]]\nname = \"u\"\n":        file + " has no [[port]]",
		base + "[[port]]\nnam = \"two\"\n":  file + ":9:1: port.nam: unknown key; did you mean name?",
		base + "[tcp]\nrto_min = \"1ns\"\n": file + ":9:1: tcp.rto_min: 1ns: want 10µs to",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err = Environment([]string{"RNICD_CONFIG=" + file}, port.Builtin())
		require.ErrorContains(t, err, want)
	}
}
