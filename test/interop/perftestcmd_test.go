package interop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
	"github.com/rnicd/rnicd/internal/tools/perf"
	"github.com/rnicd/rnicd/internal/tools/perftest"
)

// command is `rnicd` over one of the two transports.
type command struct {
	*rig
	path string
	pmd  []string // flags; none: kernel sockets
}

// overCommands runs a test with the program, over both transports.
func overCommands(t *testing.T, f func(c *command)) {
	t.Helper()
	if !*live {
		skip.Because(t, skip.VirtualMachine, "-live is not set")
	}
	for name, c := range map[string]*command{
		overSockets: {rig: &rig{host: bridgeAddr.Addr().String()}},
		overOurTCP: {rig: &rig{host: programAddr},
			pmd: []string{"--pmd", "tap", "--dev", ourTAP, "--addr", programAddr + "/24", "--no-offload"}},
	} {
		t.Run(name, func(t *testing.T) {
			needCard(t)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			c.t, c.ctx, c.path = t, ctx, os.Getenv(inside)
			c.siw("std")
			f(c)
		})
	}
}

// run starts the program. Its TAP joins the bridge as soon as it is there.
func (c *command) run(words ...string) *netlab.Process {
	c.t.Helper()
	args := append(strings.Fields(strings.Join(words, " ")), c.pmd...)
	p := netlab.Start(c.t, exec.Command(c.path, args...))
	if len(c.pmd) > 0 {
		p.Expect(c.t, 1, "^device ")
		require.NoError(c.t, ip("link set "+ourTAP+" master "+bridge+" up"))
	}
	return p
}

// words are a program's name in our command line.
func words(p perftest.Program) string {
	if p.Latency {
		return p.Op.String() + " lat"
	}
	return p.Op.String() + " bw"
}

func commandTest(p perftest.Program) perf.Test {
	return perf.Test{Op: p.Op, Latency: p.Latency, Size: 3000, Iterations: 100, TxDepth: 32,
		RxDepth: 32}
}

// Each program with our server, by its command line.
func TestCommandPerftestServer(t *testing.T) {
	overCommands(t, func(c *command) {
		for _, p := range perftest.Programs {
			port := newPort()
			line := fmt.Sprintf("perf server --compat perftest %s -s 3000 -n 100 -r 32 --once --port %d",
				words(p), port)
			if len(c.pmd) == 0 {
				line += " --pmd kernel --addr " + c.host
			}
			server := c.run(line)
			server.Expect(c.t, 1, "^ready ")
			job := c.start("exec %v %s %s", p, perftestFlags(commandTest(p), port), c.host)
			c.ends(job)
			table(c.rig, job.String(), commandTest(p))
			require.Zero(c.t, server.Wait(c.t), "%s", server)
			require.Len(c.t, server.Lines(fmt.Sprintf("^measured    %v, messages of 3000 octets, ", p)), 1,
				"%s", server)
		}
	})
}

// Our client with each program as server.
func TestCommandPerftestClient(t *testing.T) {
	overCommands(t, func(c *command) {
		for _, p := range perftest.Programs {
			port := newPort()
			job := c.start("exec %v %s", p, perftestFlags(commandTest(p), port))
			_, err := vm.Run(c.ctx, fmt.Sprintf("listening %d", port))
			require.NoError(c.t, err, "%s", job)
			client := c.run(fmt.Sprintf("perf %s %v:%d --compat perftest -s 3000 -n 100 -t 32 -r 32 "+
				"--timeout 60s", words(p), guestAddr.Addr(), port))
			require.Zero(c.t, client.Wait(c.t), "%s", client)
			require.Len(c.t, client.Lines(`^ 3000 +100 `), 1, "%s", client)
			c.ends(job)
		}
	})
}

// -a, -b and -q by our command line, in either role.
func TestCommandPerftestShapes(t *testing.T) {
	overCommands(t, func(c *command) {
		for _, flags := range []string{"-b -q 2 -s 3000", "-a"} {
			n := 64
			if flags == "-a" {
				n = 5
			}
			both := fmt.Sprintf("%s -n %d -t %d", flags, n, min(n, 32))
			port := newPort()
			line := fmt.Sprintf("perf server --compat perftest write bw %s -n %d --once --port %d",
				flags, n, port)
			if len(c.pmd) == 0 {
				line += " --pmd kernel --addr " + c.host
			}
			server := c.run(line)
			server.Expect(c.t, 1, "^ready ")
			job := c.start("exec ib_write_bw -R -F -d siw0 -p %d %s %s", port, both, c.host)
			c.ends(job)
			require.Zero(c.t, server.Wait(c.t), "%s", server)
			require.Len(c.t, server.Lines("^measured    ib_write_bw "), 1, "%s", server)

			port = newPort()
			job = c.start("exec ib_write_bw -R -F -d siw0 -p %d %s", port, both)
			_, err := vm.Run(c.ctx, fmt.Sprintf("listening %d", port))
			require.NoError(c.t, err, "%s", job)
			client := c.run(fmt.Sprintf("perf write bw %v:%d --compat perftest %s --timeout 60s",
				guestAddr.Addr(), port, both))
			require.Zero(c.t, client.Wait(c.t), "%s", client)
			c.ends(job)
		}
	})
}
