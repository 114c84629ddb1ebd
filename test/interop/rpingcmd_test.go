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
)

// commandAddr is where our command has its own stack: another host than that of the other tests.
const commandAddr = "10.9.0.3"

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
		overOurTCP: {rig: &rig{host: commandAddr},
			pmd: []string{"--pmd", "tap", "--dev", ourTAP, "--addr", commandAddr + "/24", "--no-offload"}},
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

// rdma-core's rping -c with our server, by its command line.
func TestCommandRpingServer(t *testing.T) {
	overCommands(t, func(c *command) {
		port := newPort()
		words := fmt.Sprintf("rping server --once -v --port %d", port)
		if len(c.pmd) == 0 {
			words += " --pmd kernel --addr " + c.host
		}
		server := c.run(words)
		server.Expect(t, 1, "^ready ")
		job := c.start("rping -c -v -V -a %s -p %d -C 10 -S 3000", c.host, port)
		c.ends(job)
		require.Contains(c.t, job.String(), "ping data: rdma-ping-9: JKLM")
		require.Zero(c.t, server.Wait(c.t), "%s", server)
		require.Len(c.t, server.Lines("^server ping data: rdma-ping-9: JKLM"), 1, "%s", server)
		require.Len(c.t, server.Lines(`^pinged      10 times by 10\.9\.0\.2:\d+ \(rfc6581\)$`), 1, "%s", server)
	})
}

// Our client with rdma-core's rping -s.
func TestCommandRpingClient(t *testing.T) {
	overCommands(t, func(c *command) {
		job, addr := c.serve(fmt.Sprintf("exec rping -s -v -p $port -S 3000 -a %v", guestAddr.Addr()))
		client := c.run("rping " + addr + " -c 10 -S 3000 -V --wait 10s --timeout 60s")
		require.Zero(c.t, client.Wait(c.t), "%s", client)
		require.Len(c.t, client.Lines("^pings       10 of 3000 octets, all as they were$"), 1, "%s", client)
		_ = c.status(job)
		require.Contains(c.t, job.String(), "server ping data: rdma-ping-9: JKLM")
	})
}
