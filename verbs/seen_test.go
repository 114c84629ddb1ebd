package verbs

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/status"
)

// seen is a program that obeys orders.
type seen struct {
	*netlab.Process
	orders io.Writer
}

func (l *lab) startSeen(flags string, args ...string) *seen {
	l.t.Helper()
	all := append(append([]string{"run"}, strings.Fields(flags)...), "--",
		l.compileAlone("seen", "-lrdmacm", "-libverbs"))
	cmd := exec.Command(filepath.Join(l.dir, "rnicd"), append(all, args...)...)
	orders := must(cmd.StdinPipe())(l.t)
	return &seen{l.Start(l.t, cmd), orders}
}

// seenPair is two, with these flags of rnicd run, that have connected over the kernel's sockets.
func (l *lab) seenPair(ofServer, ofClient string) (server, client *seen) {
	l.t.Helper()
	server = l.startSeen(ofServer, "server")
	l.untilListening(7000)
	client = l.startSeen(ofClient, "client", "127.0.0.1")
	server.Expect(l.t, 1, "^ready ")
	client.Expect(l.t, 1, "^ready ")
	return server, client
}

func (s *seen) order(t *testing.T, text string) {
	t.Helper()
	must(fmt.Fprintln(s.orders, text))(t)
}

// rnicd runs a command, and returns what it prints and its exit status.
func (l *lab) rnicd(args ...string) (string, int) {
	l.t.Helper()
	p := l.Start(l.t, exec.Command(filepath.Join(l.dir, "rnicd"), args...))
	code := p.Wait(l.t)
	return p.String(), code
}

// of asks a program by a command, which has to succeed.
func (l *lab) of(pid int, command ...string) string {
	l.t.Helper()
	text, code := l.rnicd(append(command, "--program", strconv.Itoa(pid))...)
	require.Zero(l.t, code, "%s", text)
	return text
}

// statusOf is all that a program says of itself.
func (l *lab) statusOf(pid int) (d status.Daemon) {
	l.t.Helper()
	require.NoError(l.t, json.Unmarshal([]byte(l.of(pid, "status", "--json")), &d))
	return d
}

// pidIn is the number after a word, in a line of a program.
func pidIn(t *testing.T, line string) int {
	t.Helper()
	f := strings.Fields(line)
	pid := must(strconv.Atoi(f[len(f)-1]))(t)
	return pid
}

func socketOf(pid int) string {
	return filepath.Join("/run/rnicd-programs", strconv.Itoa(pid)+".sock")
}

// status, ss, events and top show programs while they run, over the kernel's sockets and our TCP.
func TestProgramsAreSeen(t *testing.T) {
	const cable = "--pmd memif --no-dad --socket "
	for _, transport := range []string{"kernel", "memif"} {
		t.Run(transport, func(t *testing.T) {
			l := newLab(t)
			flags, at := []string{"", ""}, "127.0.0.1"
			if transport == "memif" {
				socket := filepath.Join(t.TempDir(), "memif")
				flags = []string{cable + socket + " --role server --addr 10.9.0.1/24",
					cable + socket + " --addr 10.9.0.2/24"}
				at = "10.9.0.1"
			}
			server := l.startSeen(flags[0]+" --verbose", "server")
			server.Expect(t, 1, "^rnicd: listening at ")
			client := l.startSeen(flags[1], "client", at)
			server.Expect(t, 1, "^ready ")
			client.Expect(t, 1, "^ready ")

			is := l.statusOf(server.PID())
			require.Equal(t, status.KindProgram, is.Kind)
			require.Equal(t, server.PID(), is.PID)
			require.True(t, is.Healthy)
			require.Equal(t, transport, is.Ports[0].Driver)
			p := is.Program
			require.Regexp(t, "^/.*/seen server$", p.Command)
			require.Equal(t, "iwarp", p.Looks)
			require.Equal(t, 1, p.QueuePairs)
			require.Equal(t, 1, p.Connections)
			require.Equal(t, 1, p.Regions)
			require.EqualValues(t, 4096, p.RegionOctets)
			require.Len(t, p.Listeners, 1)
			require.EqualValues(t, 7000, p.Listeners[0].Port())
			if transport == "memif" {
				require.EqualValues(t, []string{"10.9.0.1/24"}, is.Ports[0].Addresses)
				require.Equal(t, 1, is.Ports[0].Queues[0].Counters.Conns)
			} else {
				require.Equal(t, 1, is.Ports[0].KernelConnections)
			}

			text := l.of(server.PID(), "status")
			require.Regexp(t, `healthy +up .* 1 connections +pid \d+ +/.*/seen server\n`, text)
			require.Regexp(t, `(?m)^device rnicd0 \(iwarp\) .* 1 regions of 4\.1k octets$`, text)
			require.Regexp(t, `(?m)^listening at .*:7000$`, text)
			text, _ = l.rnicd("status") // a daemon may be there or not
			require.Regexp(t, `(?m)^ +`+strconv.Itoa(client.PID())+` iwarp +`+transport+
				` +1 +0 +1 +4\.1k .*/seen client `+at+`$`, text)

			text = l.of(server.PID(), "ss")
			require.Regexp(t, `(?m)^listen .*:7000  port:rnicd0 listener pid:\d+ seen$`, text)
			require.Regexp(t, `(?m)^established .*:7000 -> .* rdma qp:0x\w+ pid:\d+ seen$`, text)
			require.Regexp(t, `(?m)^ +rdma rts rfc6581 .* crc:true$`, text)
			require.Regexp(t, `messages in:1 out:1 `, text)
			require.Regexp(t, `retrans:`, text)
			var c status.Connection
			require.NoError(t, json.Unmarshal([]byte(l.of(client.PID(), "ss", "kind=rdma", "--json")), &c))
			require.NotZero(t, c.QP)
			require.NotZero(t, c.RDMA.Stats.TCP.SegmentsIn+c.Conn.TCP.SegsIn)
			text, _ = l.rnicd("ss", "pid="+strconv.Itoa(client.PID()), fmt.Sprint("qp=", c.QP))
			require.Equal(t, 1, strings.Count(text, "established"), "%s", text)
			text = l.of(client.PID(), "top", "--once", "--view", "connections", "--period", "100ms")
			require.Contains(t, text, c.Conn.Remote.String()+" ")
			require.Contains(t, text, fmt.Sprintf(" %06x ", c.QP))

			text = l.of(client.PID(), "events", c.Conn.Remote.String())
			require.Regexp(t, `^program `+strconv.Itoa(client.PID())+` rnicd0 .* open\n`, text)
			require.Contains(t, text, "MPA Reply received")
			require.Empty(t, l.of(server.PID(), "events"))
			client.order(t, "send")
			server.Expect(t, 1, "^rnicd: ended, ")
			require.Regexp(t, ` ended 20\S+: rnic: stream terminated: .*no buffer`,
				l.of(server.PID(), "events"))
			client.Signal(t, syscall.SIGKILL)
			client.Wait(t)

			require.FileExists(t, socketOf(client.PID()))
			text, code := l.rnicd("ss", "--program", strconv.Itoa(client.PID()))
			require.Equal(t, 1, code)
			require.Contains(t, text, "no such program of rnicd run has a device open")
			require.NoFileExists(t, socketOf(client.PID()), "whoever looks removes it")
			require.FileExists(t, socketOf(server.PID()))
			server.order(t, "exit")
			require.Zero(t, server.Wait(t), "%s", server)
			require.NoFileExists(t, socketOf(server.PID()))
		})
	}
}

// What programs do hurts neither them nor whoever looks: descriptors that are closed, another root,
// children with and without a device, another program in their place.
func TestSeenMeanwhile(t *testing.T) {
	l := newLab(t)
	server, client := l.seenPair("", "")
	client.order(t, "close")
	client.Expect(t, 1, "^closed ")
	require.Equal(t, 1, l.statusOf(client.PID()).Program.Connections)

	client.order(t, "child")
	child := pidIn(t, client.Expect(t, 1, "^child "))
	is := l.statusOf(child)
	require.Equal(t, child, is.PID)
	require.Zero(t, is.Program.QueuePairs, "its parent's are none of its own")
	require.Equal(t, 1, l.statusOf(client.PID()).Program.Connections)

	// A child that has the parent's socket does not answer in its place.
	client.order(t, "idle")
	idle := pidIn(t, client.Expect(t, 1, "^idle "))
	client.Signal(t, syscall.SIGKILL)
	require.Eventually(t, func() bool {
		text, code := l.rnicd("status", "--program", strconv.Itoa(client.PID()))
		return code == 3 && strings.Contains(text, "no such program")
	}, netlab.Patience, netlab.Patience/1000)
	for _, pid := range []int{idle, child} {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	client.Wait(t)

	server.order(t, "root "+t.TempDir())
	server.Expect(t, 1, "^rooted ")
	require.Equal(t, server.PID(), l.statusOf(server.PID()).PID)
	server.order(t, "exit")
	require.Zero(t, server.Wait(t), "%s", server)
	_, code := l.rnicd("status", "--program", strconv.Itoa(server.PID()))
	require.Equal(t, 3, code)
	require.NoFileExists(t, socketOf(server.PID()))
}

// A program that becomes another one is not seen any more.
func TestSeenUntilExec(t *testing.T) {
	l := newLab(t)
	server, client := l.seenPair("", "")
	require.Equal(t, client.PID(), l.statusOf(client.PID()).PID)
	client.order(t, "exec")
	require.Eventually(t, func() bool {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", client.PID()))
		return err == nil && string(name) == "sleep\n"
	}, netlab.Patience, netlab.Patience/1000)
	_, code := l.rnicd("status", "--program", strconv.Itoa(client.PID()))
	require.Equal(t, 3, code)
	require.NoFileExists(t, socketOf(client.PID()))
	for _, p := range []*seen{server, client} {
		p.Signal(t, syscall.SIGKILL)
		p.Wait(t)
	}
}

// Queue pairs for datagrams have no connections: they are told of with the port where they are
// reached.
func TestDatagramsAreSeen(t *testing.T) {
	l := newLab(t)
	server := l.runOn("--device roce", "ibverbs-utils", "ibv_ud_pingpong", "-g", "0")
	l.untilListening(perfPort)
	is := l.statusOf(server.PID())
	require.Equal(t, "roce", is.Program.Looks)
	require.Equal(t, 1, is.Program.Datagrams)
	require.Zero(t, is.Program.QueuePairs)
	require.Len(t, is.Program.Listeners, 1)
	text := l.of(server.PID(), "ss", "kind=datagrams")
	require.Regexp(t, fmt.Sprintf(`^unconn \[::\]:%d  port:rnicd0 datagrams qp:0x\w{6} pid:%d ibv_ud_pingpong\n$`,
		is.Program.Listeners[0].Port(), server.PID()), text)
	server.Signal(t, syscall.SIGKILL)
	server.Wait(t)
}

// --control says where the socket is, or that there is none, and what is wrong with that.
func TestControlDirectory(t *testing.T) {
	l := newLab(t)
	dir := filepath.Join(t.TempDir(), "sockets")
	server, client := l.seenPair("--control "+dir, "--control off")
	path := filepath.Join(dir, strconv.Itoa(server.PID())+".sock")
	text, code := l.rnicd("ss", "--socket", path)
	require.Zero(t, code, "%s", text)
	require.Contains(t, text, "established ")
	for _, p := range []*seen{server, client} {
		_, code = l.rnicd("status", "--program", strconv.Itoa(p.PID()))
		require.Equal(t, 3, code)
		p.order(t, "exit")
		require.Zero(t, p.Wait(t), "%s", p)
		require.Equal(t, "", strings.Join(p.Lines("^rnicd: "), "\n"))
	}
	require.NoFileExists(t, path)

	bad := l.startSeen("--control /proc/none", "server")
	bad.Expect(t, 1, "^rnicd: no control socket: .*/proc/none")
	bad.Signal(t, syscall.SIGKILL)
	bad.Wait(t)
}
