package interop

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
)

// withVerbs builds the libraries of package verbs beside our command.
func withVerbs(t *testing.T) {
	t.Helper()
	if !*live {
		skip.Because(t, skip.VirtualMachine, "-live is not set")
	}
	dir := filepath.Dir(os.Getenv(inside))
	for _, args := range [][]string{
		{"../../verbs/shim/build.sh", filepath.Join(dir, "librnicd_verbs.so")},
		{"go", "build", "-buildvcs=false", "-buildmode=c-shared", "-o", filepath.Join(dir, "librnicd_engine.so"), "../../verbs/cshared"},
	} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// program starts a C program over our libraries. Its TAP is in the bridge before: it is the program that opens it.
func (c *command) program(line string) *netlab.Process {
	c.t.Helper()
	flags := "run --verbose --peer siw "
	if len(c.pmd) > 0 {
		if _, err := net.InterfaceByName(ourTAP); err != nil {
			require.NoError(c.t, ip("tuntap add dev "+ourTAP+" mode tap"))
			c.t.Cleanup(func() { require.NoError(c.t, ip("link delete "+ourTAP)) })
			require.NoError(c.t, ip("link set "+ourTAP+" master "+bridge+" up"))
		}
		flags += strings.Join(c.pmd, " ") + " --no-dad "
	}
	return netlab.Start(c.t, exec.Command(c.path, strings.Fields(flags+"-- "+line)...))
}

// rdma-core's rping and perftest's ib_write_bw over our libraries, with the same programs over siw, in either role.
func TestVerbsPrograms(t *testing.T) {
	withVerbs(t)
	for _, x := range []struct{ name, server, client, want string }{
		{"rping", "rping -s -v -V -C 10 -S 3000 -p %d", "rping -c -v -V -C 10 -S 3000 -p %d -a ", "ping data: rdma-ping-9: JKLM"},
		{"ib_write_bw", "ib_write_bw -R -F -s 3000 -n 200 -p %d", "ib_write_bw -R -F -s 3000 -n 200 -p %d ", " 3000       200 "},
	} {
		t.Run(x.name, func(t *testing.T) {
			if _, err := exec.LookPath(x.name); err != nil {
				skip.Missing(t, "needs %s", x.name)
			}
			t.Run("our server", func(t *testing.T) {
				overCommands(t, func(c *command) {
					port := newPort()
					server := c.program(fmt.Sprintf(x.server, port))
					server.Expect(c.t, 1, "^rnicd: listening at ")
					job := c.start("exec "+x.client+"%s", port, c.host)
					c.ends(job)
					require.Contains(c.t, job.String(), x.want)
					require.Zero(c.t, server.Wait(c.t), "%s", server)
				})
			})
			t.Run("our client", func(t *testing.T) {
				overCommands(t, func(c *command) {
					for tries := 1; ; tries++ {
						port := newPort()
						job := c.start("exec "+x.server, port)
						_, err := vm.Run(c.ctx, fmt.Sprintf("listening %d", port))
						require.NoError(c.t, err, "%s", job)
						client := c.program(fmt.Sprintf(x.client, port) + guestAddr.Addr().String())
						if status := client.Wait(c.t); status == 0 {
							require.Contains(c.t, client.String(), x.want)
							c.ends(job)
							return
						}
						// Between its two connections perftest's server does not listen, and its
						// client does not try again.
						require.Contains(c.t, client.String(), "RDMA_CM_EVENT_REJECTED; error: -111.", "%s", job)
						require.Less(c.t, tries, 5, "%s\n%s", client, job)
					}
				})
			})
		})
	}
}
