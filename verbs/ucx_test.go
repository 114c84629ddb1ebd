package verbs

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/internal/skip"
)

// ucxCase is a test of ucx_perftest, by Debian's UCX 1.13.
type ucxCase struct {
	test       string
	size       int
	transports string // UCX_TLS
}

// ucxCases are all tests of UCP's, with a message that UCX sends at once and one that it sends by
// rendezvous; atomics have 8 octets. Connections of rc_verbs are made by datagrams.
func ucxCases() (all []ucxCase) {
	for _, transports := range []string{"rc_verbs,ud_verbs,self", "ud_verbs,self"} {
		for _, test := range strings.Fields("tag_lat tag_bw tag_sync_lat tag_sync_bw ucp_put_lat " +
			"ucp_put_bw ucp_get stream_bw stream_lat ucp_am_lat ucp_am_bw") {
			all = append(all, ucxCase{test, 8, transports}, ucxCase{test, 100_000, transports})
		}
		for _, test := range strings.Fields("ucp_add ucp_fadd ucp_swap ucp_cswap") {
			all = append(all, ucxCase{test, 8, transports})
		}
	}
	return all
}

const ucxPort = 13337

// requireUCX runs both ends, which exchange their addresses over the loopback. UCX compares what it
// receives with what was sent only in some of its tests; these end when all has come.
func requireUCX(t *testing.T, x ucxCase, server, client string) {
	t.Helper()
	if _, err := exec.LookPath("ucx_perftest"); err != nil {
		skip.Missing(t, "needs ucx_perftest, of Debian's package ucx-utils")
	}
	l := newLab(t)
	run := func(flags string, args ...string) *netlab.Process {
		return l.runOn("--device roce "+flags, "coreutils", append([]string{"env",
			"UCX_TLS=" + x.transports, "UCX_NET_DEVICES=rnicd0:1", "ucx_perftest"}, args...)...)
	}
	s := run(server)
	l.untilListening(ucxPort)
	c := run(client, here.String(), "-t", x.test, "-s", strconv.Itoa(x.size), "-n", "200", "-w", "20")
	require.Zero(t, c.Wait(t), "client:\n%s\nserver:\n%s", c, s)
	require.Zero(t, s.Wait(t), "server:\n%s\nclient:\n%s", s, c)
	c.Expect(t, 1, "^Final: +200 ")
}

func (x ucxCase) String() string {
	return x.test + " " + strconv.Itoa(x.size) + " " + x.transports
}

// UCX over the kernel's sockets.
func TestUCX(t *testing.T) {
	for _, x := range sample.Of(t, 4, ucxCases()) {
		t.Run(x.String(), func(t *testing.T) { requireUCX(t, x, "", "") })
	}
}

// UCX with our own TCP in each process, on a cable of shared memory.
func TestUCXOnMemif(t *testing.T) {
	for _, x := range sample.Of(t, 2, ucxCases()) {
		t.Run(x.String(), func(t *testing.T) {
			cable := memifCable(t)
			requireUCX(t, x, cable+" --role server --addr 10.9.0.1/24", cable+" --addr 10.9.0.2/24")
		})
	}
}

// Servers that listen by ucp_listener_create, and clients that know their address and port: UCX
// connects by librdmacm without a queue pair, and its own by number.
func TestUCXListener(t *testing.T) {
	if _, err := os.Stat("/usr/include/ucp/api/ucp.h"); err != nil {
		skip.Missing(t, "needs UCX's headers, of Debian's package libucx-dev")
	}
	seed := rand.Uint32() >> 1
	t.Logf("seed %d", seed)
	cable := "--pmd memif --no-dad --socket " + filepath.Join(t.TempDir(), "memif")
	cases := []struct{ name, server, client, at, transports string }{
		{"rc", "", "", here.String(), "rc,ud,self"},
		{"default", "", "", here.String(), "all"},
		{"memif", cable + " --role server --addr 10.9.0.1/24", cable + " --addr 10.9.0.2/24",
			"10.9.0.1", "rc,ud,self"},
	}
	if leftToMakeVerbs() {
		cases = sample.Of(t, 1, cases)
	}
	for _, x := range cases {
		t.Run(x.name, func(t *testing.T) {
			l := newLab(t)
			program := l.compileAlone("ucp", "-lucp", "-lucs")
			run := func(flags string, args ...string) *netlab.Process {
				return l.runOn("--device roce "+flags, "coreutils", slices.Concat([]string{"env",
					"UCX_TLS=" + x.transports, program, x.at, "7000"}, args)...)
			}
			const clients = 2
			s := run(x.server, strconv.Itoa(clients))
			s.Expect(t, 1, "^listening$")
			for i := range uint32(clients) {
				c := run(x.client, strconv.Itoa(clients), strconv.FormatUint(uint64(seed+i), 10))
				require.Zero(t, c.Wait(t), "client:\n%s\nserver:\n%s", c, s)
			}
			require.Zero(t, s.Wait(t), "%s", s)
		})
	}
}
