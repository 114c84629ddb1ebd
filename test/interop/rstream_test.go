package interop

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/tools/rstream"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/rsocket"
)

// rstreamRun is one way to run rstream.
type rstreamRun struct {
	name string
	test rstream.Test
	how  string // -T: how the program waits
	opt  rsocket.Options
}

var rstreamRuns = []rstreamRun{
	{"short transfers", rstream.Custom(100, 300, 3), "block", rsocket.Options{Conn: rnic.ConnParam{NoMarkers: true, NoCRC: true}}},
	{"long transfers, CRC", rstream.Custom(300000, 3, 3), "block", rsocket.Options{Conn: rnic.ConnParam{NoMarkers: true}}},
	{"there and back, polling", rstream.Custom(64, 1, 200), "async", rsocket.Options{Conn: rnic.ConnParam{NoMarkers: true}}},
	{"small buffers", rstream.Custom(10000, 5, 3), "block", rsocket.Options{
		Conn: rnic.ConnParam{NoMarkers: true}, SendBuffer: rsocket.BufferMin, ReceiveBuffer: rsocket.BufferMin, Credits: rsocket.CreditsMin}},
}

// overRstream runs a test over both transports, each way.
func overRstream(t *testing.T, f func(r *rig, run rstreamRun)) {
	for _, run := range rstreamRuns {
		t.Run(run.name, func(t *testing.T) {
			over(t, func(r *rig) {
				r.siw("std")
				f(r, run)
			})
		})
	}
}

// flags are those of the program.
func (run rstreamRun) flags(port int) string {
	return fmt.Sprintf("-p %d -S %d -C %d -I %d -T verify -T %s", port, run.test.Size, run.test.Transfers, run.test.Iterations, run.how)
}

// printed: the program has printed its line.
func (run rstreamRun) printed(t *testing.T, out string) {
	t.Helper()
	require.Regexp(t, `(?m)^custom +[0-9.km]+ +[0-9]+ +[0-9]+ +[0-9.km]+ +[0-9.]+s +[0-9.]+ +[0-9.]+`, out)
	require.NotContains(t, out, "verification failed")
}

// rstream in the guest as client of our server; what comes at either end is compared.
func TestSiwRstreamClient(t *testing.T) {
	overRstream(t, func(r *rig, run rstreamRun) {
		l, err := rsocket.NewListener(r.adapter, r.listen(), rsocket.ListenOptions{Options: run.opt})
		require.NoError(r.t, err)
		defer l.Close()
		job := r.start("exec rstream -s %s %s", r.host, run.flags(r.port))
		c, err := l.Accept()
		require.NoError(r.t, err)
		run.measure(r, c, rstream.End{Verify: true})
		r.ends(job)
		run.printed(r.t, job.String())
	})
}

// rstream in the guest as our server.
func TestSiwRstreamServer(t *testing.T) {
	overRstream(t, func(r *rig, run rstreamRun) {
		job, addr := r.serve("exec rstream " + strings.Replace(run.flags(0), "-p 0", "-p $port", 1))
		opt := run.opt
		opt.Conn.Quirks.WakeUp = rnic.WakeUpDefault
		opt.LateGrants = true // it closes after the last octets
		c, err := rsocket.Dial(r.ctx, r.adapter, addr, opt)
		require.NoError(r.t, err, "%s", job)
		run.measure(r, c, rstream.End{Client: true, Verify: true})
		r.ends(job)
		run.printed(r.t, job.String())
	})
}

// measure is our end of the test, up to the orderly end of the connection.
func (run rstreamRun) measure(r *rig, c net.Conn, e rstream.End) {
	r.t.Helper()
	begin := time.Now()
	err := e.Tests(r.ctx, c, []rstream.Test{run.test}, func(res rstream.Result) { r.t.Log(res) })
	require.NoError(r.t, err)
	r.t.Logf("all of it %.1f s", time.Since(begin).Seconds())
}

// Our command with rdma-core's rstream as its client, and as its server.
func TestCommandRstream(t *testing.T) {
	const plan = "-S 3000 -C 20 -I 10"
	overCommands(t, func(c *command) {
		port := newPort()
		words := fmt.Sprintf("rstream server %s -V --once --port %d", plan, port)
		if len(c.pmd) == 0 {
			words += " --pmd kernel --addr " + c.host
		}
		server := c.run(words)
		server.Expect(c.t, 1, "^ready ")
		job := c.start("exec rstream -s %s -p %d %s -T verify -T block", c.host, port, plan)
		c.ends(job)
		require.Regexp(c.t, "(?m)^custom +2.9k +20 +10 +1.1m ", job.String())
		require.Zero(c.t, server.Wait(c.t), "%s", server)
		require.Len(c.t, server.Lines(`^served +10\.9\.0\.2:\d+$`), 1, "%s", server)

		job, addr := c.serve("exec rstream -p $port " + plan + " -T verify -T block")
		client := c.run("rstream " + addr + " " + plan + " -V --late-grants --wait 10s --timeout 60s")
		require.Zero(c.t, client.Wait(c.t), "%s", client)
		require.Len(c.t, client.Lines("^custom +2.9k +20 +10 +1.1m "), 1, "%s", client)
		c.ends(job)
	})
}

// riostreamRuns are ways to run riostream, which never sleeps: it looks at its memory.
var riostreamRuns = []rstreamRun{
	{"riostream, short transfers", rstream.Custom(100, 20, 30), "nonblock", rsocket.Options{Maps: 1, Conn: rnic.ConnParam{NoMarkers: true, NoCRC: true}}},
	{"riostream, long transfers, CRC", rstream.Custom(300000, 3, 3), "block", rsocket.Options{Maps: 1, Conn: rnic.ConnParam{NoMarkers: true}}},
}

// riostream in the guest as client of our server, and as our server: what it writes into our
// memory, and we into its, is compared.
func TestSiwRiostream(t *testing.T) {
	for _, run := range riostreamRuns {
		t.Run(run.name, func(t *testing.T) {
			over(t, func(r *rig) {
				r.siw("std")
				l, err := rsocket.NewListener(r.adapter, r.listen(), rsocket.ListenOptions{Options: run.opt})
				require.NoError(r.t, err)
				defer l.Close()
				job := r.start("exec riostream -s %s %s", r.host, run.flags(r.port))
				c, err := l.Accept()
				require.NoError(r.t, err)
				run.measure(r, c, rstream.End{Verify: true, Direct: true})
				r.ends(job)
				run.printed(r.t, job.String())

				job, addr := r.serve("exec riostream " + strings.Replace(run.flags(0), "-p 0", "-p $port", 1))
				opt := run.opt
				opt.Conn.Quirks.WakeUp = rnic.WakeUpDefault
				opt.LateGrants = true
				dialled, err := rsocket.Dial(r.ctx, r.adapter, addr, opt)
				require.NoError(r.t, err, "%s", job)
				run.measure(r, dialled, rstream.End{Client: true, Verify: true, Direct: true})
				r.ends(job)
				run.printed(r.t, job.String())
			})
		})
	}
}

// Our command with --direct, and rdma-core's riostream at the other end.
func TestCommandRiostream(t *testing.T) {
	const plan = "-S 3000 -C 20 -I 10"
	overCommands(t, func(c *command) {
		port := newPort()
		words := fmt.Sprintf("rstream server --direct %s -V --once --port %d", plan, port)
		if len(c.pmd) == 0 {
			words += " --pmd kernel --addr " + c.host
		}
		server := c.run(words)
		server.Expect(c.t, 1, "^ready ")
		job := c.start("exec riostream -s %s -p %d %s -T verify", c.host, port, plan)
		c.ends(job)
		require.Regexp(c.t, "(?m)^custom +2.9k +20 +10 +1.1m ", job.String())
		require.Zero(c.t, server.Wait(c.t), "%s", server)

		job, addr := c.serve("exec riostream -p $port " + plan + " -T verify")
		client := c.run("rstream --direct " + addr + " " + plan + " -V --late-grants --wait 10s --timeout 60s")
		require.Zero(c.t, client.Wait(c.t), "%s", client)
		require.Len(c.t, client.Lines("^custom +2.9k +20 +10 +1.1m "), 1, "%s", client)
		c.ends(job)
	})
}
