package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Files of every awkward size land whole, and both sides say the same hash.
func TestPutFiles(t *testing.T) {
	ns := newNamespace(t)
	server := ns.serving(t, "--region", "64MiB")
	for _, n := range []int{64 << 20, 0, 1, 1459, 4097, 1<<20 + 1} {
		f := randomFile(t, n)
		client := ns.put(t, f)
		require.Len(t, client.lines("^sent +"+f.path+" to "+serverAddr+"$"), 1, "%s", client)
		require.Len(t, client.lines(`^segments +\d+ sent, \d+ retransmitted; \d+ FPDUs$`), 1, "%s", client)
		require.Len(t, client.lines(`^goodput +\S+ [kMG]?bit/s \(\S+ \S+ in \S+ s; hashing in place at the server took \S+ s\)$`), 1, "%s", client)
		require.Len(t, client.lines(`^placed +\S+ [KMG]?i?B directly, .* through reassembly, .* ahead of a gap$`), 1, "%s", client)
		server.expect(t, 1, "^received +"+regexp.QuoteMeta(octets(uint64(n)))+" from "+kernelHost)
		server.expect(t, 1, "^sha256 +"+f.sum+"$")
	}
	require.Empty(t, server.lines("^(failed|refused)"), "%s", server)
	ns.stop(t, server)
}

// A file that the region cannot hold is refused with both numbers, and the next one is served.
func TestPutTooLarge(t *testing.T) {
	ns := newNamespace(t)
	server := ns.serving(t, "--region", "1MiB")
	big := randomFile(t, 1<<20+1)
	client := ns.rnicd(t, "put", big.path, serverAddr)
	require.Equal(t, 1, client.wait(t), "%s", client)
	const why = "1048577 octets offered, the region holds 1048576; start the server with a larger --region"
	require.Equal(t, []string{"rnicd: xfer: the server refused: " + why}, errorLines(client))
	server.expect(t, 1, "^refused +"+kernelHost+`:\d+: `+why+"$")
	ns.put(t, randomFile(t, 1<<20)) // exactly full
	require.Len(t, server.lines("^(refused|failed)"), 1, "%s", server)
	ns.stop(t, server)
}

// Several clients at once are each served, in memory of their own.
func TestPutsAtOnce(t *testing.T) {
	ns := newNamespace(t)
	server := ns.serving(t, "--region", "64MiB")
	var clients []*process
	var files []testFile
	for i := range 6 {
		f := randomFile(t, 8<<20+i)
		files = append(files, f)
		clients = append(clients, ns.rnicd(t, "put", "--timeout", "60s", f.path, serverAddr))
	}
	for i, c := range clients {
		require.Equal(t, 0, c.wait(t), "%s", c)
		require.Len(t, c.lines("^sha256 +"+files[i].sum+"$"), 1, "%s", c)
		server.expect(t, 1, "^sha256 +"+files[i].sum+"$")
	}
	require.Empty(t, server.lines("^(failed|refused)"), "%s", server)
	ns.stop(t, server)
}

// A bad network costs time, never octets. What stands behind a gap is placed before the gap is filled.
func TestPutThroughFaults(t *testing.T) {
	ns := newNamespace(t)
	server := ns.serving(t, "--region", "16MiB", "--fault", "drop=1%,reorder=1%,dup=0.5%,corrupt=0.1%,seed=7")
	f := randomFile(t, 8<<20)
	client := ns.put(t, f)
	server.expect(t, 1, "^sha256 +"+f.sum+"$")
	placed := client.lines("^placed ")
	require.Len(t, placed, 1)
	require.Regexp(t, ` [1-9][0-9.]* ([KM]i)?B of it ahead of a gap$`, placed[0], "%s", client)
	require.Regexp(t, `^segments +\d+ sent, [1-9]\d* retransmitted`, client.lines("^segments")[0], "%s", client)
	ns.stop(t, server)
}

// Without markers a segment behind a gap cannot be told apart into frames: nothing is placed ahead.
func TestPutWithoutMarkersAndCRC(t *testing.T) {
	ns := newNamespace(t)
	server := ns.serving(t, "--no-markers", "--no-crc", "--fault", "drop=1%,seed=3")
	client := ns.put(t, randomFile(t, 4<<20), "--no-crc", "--quiet")
	require.Regexp(t, ` 0 B of it ahead of a gap$`, client.lines("^placed ")[0], "%s", client)
	ns.stop(t, server)
}

// MPA over the kernel's TCP serves too; a host in the namespace needs no device then.
func TestServeOverKernelSockets(t *testing.T) {
	ns := newNamespace(t)
	server := ns.rnicd(t, "serve", "--pmd", "kernel", "--region", "16MiB")
	server.expect(t, 1, "^ready ")
	f := randomFile(t, 4<<20)
	client := ns.rnicd(t, "put", f.path, "127.0.0.1")
	require.Equal(t, 0, client.wait(t), "%s", client)
	server.expect(t, 1, "^sha256 +"+f.sum+"$")
	server.signal(t, os.Interrupt)
	require.Equal(t, 0, server.wait(t), "%s", server)
}

// --once ends with the first transfer's result.
func TestServeOnce(t *testing.T) {
	t.Run("success", func(t *testing.T) {
		ns := newNamespace(t)
		server := ns.serving(t, "--once")
		ns.put(t, randomFile(t, 100_000))
		require.Equal(t, 0, server.wait(t), "%s", server)
		require.False(t, ns.has(t, "rnic0"))
	})
	t.Run("failure", func(t *testing.T) {
		ns := newNamespace(t)
		server := ns.serving(t, "--once")
		ns.do(func() {
			c := dialRaw(t)
			c.start(100_000)
			c.close()
		})
		require.Equal(t, 1, server.wait(t), "%s", server)
		require.Len(t, server.lines("^failed "), 1, "%s", server)
		require.Len(t, server.lines("^rnicd: "), 1, "%s", server)
	})
	t.Run("interrupted", func(t *testing.T) {
		ns := newNamespace(t)
		server := ns.serving(t, "--once")
		server.signal(t, os.Interrupt)
		require.Equal(t, 130, server.wait(t), "%s", server)
		require.Len(t, server.lines("^rnicd: interrupted$"), 1, "%s", server)
		require.False(t, ns.has(t, "rnic0"))
	})
}

// Both signals end the daemon in order: status 0, no TAP, also in the middle of a transfer.
func TestServeEndsOnSignals(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			ns := newNamespace(t)
			server := ns.serving(t)
			require.True(t, ns.has(t, "rnic0"))
			ns.do(func() {
				c := dialRaw(t)
				defer c.close()
				c.start(100_000)
				server.signal(t, sig)
				require.Equal(t, 0, server.wait(t), "%s", server)
			})
			require.Len(t, server.lines("^failed +"+kernelHost+`:\d+: cut short: the server was told to end$`), 1, "%s", server)
			require.Len(t, server.lines("^failed "), 1, "%s", server)
			require.Empty(t, server.lines("^rnicd: "), "%s", server)
			require.False(t, ns.has(t, "rnic0"))
		})
	}
}

// slow makes a transfer last: one window per 50 ms.
const slow = "delay=50ms,seed=1"

// A client that is killed leaves one line at the server, which goes on.
func TestClientKilled(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	server := ns.serving(t, "--fault", slow, "--region", "256MiB")
	client := ns.rnicd(t, "put", zeros(t, 192<<20), serverAddr)
	client.expect(t, 1, `^sent +\d+ %`)
	client.signal(t, syscall.SIGKILL)
	require.Equal(t, 128+9, client.wait(t))
	server.expect(t, 1, "^failed +"+kernelHost+":")
	ns.put(t, randomFile(t, 100_000))
	require.Len(t, server.lines("^(failed|refused)"), 1, "%s", server)
	ns.stop(t, server)
}

// A client that is interrupted says so.
func TestClientInterrupted(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	server := ns.serving(t, "--fault", slow, "--region", "256MiB")
	client := ns.rnicd(t, "put", zeros(t, 192<<20), serverAddr)
	client.expect(t, 1, `^sent +\d+ %`)
	client.signal(t, os.Interrupt)
	require.Equal(t, 130, client.wait(t), "%s", client)
	require.Len(t, client.lines("^rnicd: interrupted$"), 1, "%s", client)
	server.expect(t, 1, "^failed +"+kernelHost+":")
	ns.stop(t, server)
}

func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	p := start(t, exec.Command(programPath(t), "demo", "--fault", slow, zeros(t, 250<<20)))
	p.expect(t, 1, `^sent +\d+ %`)
	p.signal(t, os.Interrupt)
	require.Equal(t, 130, p.wait(t), "%s", p)
	require.Len(t, p.lines("^rnicd: "), 1, "%s", p)
}

// A server that is killed is an error at its client, at once.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	server := ns.serving(t, "--fault", slow, "--region", "256MiB")
	client := ns.rnicd(t, "put", "--timeout", "3s", zeros(t, 192<<20), serverAddr)
	client.expect(t, 1, `^sent +\d+ %`)
	server.signal(t, syscall.SIGKILL)
	require.Equal(t, 128+9, server.wait(t))
	require.False(t, ns.has(t, "rnic0"), "the TAP goes with its process")
	require.Equal(t, 1, client.wait(t), "%s", client)
	require.Len(t, client.lines("^rnicd: "), 1, "%s", client)
}

// A client that falls silent is given up after --idle-timeout.
func TestClientSilent(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	server := ns.serving(t, "--idle-timeout", "500ms")
	ns.do(func() {
		c := dialRaw(t)
		defer c.close()
		c.start(100_000)
		server.expect(t, 1, "^failed +"+c.local()+": xfer: nothing was written by the client for 500ms$")
	})
	ns.put(t, randomFile(t, 1000))
	ns.stop(t, server)
}

// A server that starts late is waited for, with --wait only.
func TestPutWaits(t *testing.T) {
	ns := newNamespace(t)
	f := randomFile(t, 1000)
	client := ns.rnicd(t, "put", "--wait", "60s", f.path, "127.0.0.1")
	server := ns.rnicd(t, "serve", "--pmd", "kernel", "--region", "16MiB")
	server.expect(t, 1, "^sha256 +"+f.sum+"$")
	require.Equal(t, 0, client.wait(t), "%s", client)
}

// The demo needs no root. Its file may be larger than the usual region.
func TestDemo(t *testing.T) {
	f := randomFile(t, 3<<20)
	p := start(t, exec.Command(programPath(t), "demo", "--region", "4MiB", f.path))
	require.Equal(t, 0, p.wait(t), "%s", p)
	require.Len(t, p.lines("^sha256 +"+f.sum+"$"), 2, "%s", p)

	p = start(t, exec.Command(programPath(t), "demo", "--region", "4MiB", "--fault", "drop=1%,reorder=1%,dup=0.5%,seed=7", f.path))
	require.Equal(t, 0, p.wait(t), "%s", p)
	require.Regexp(t, ` [1-9][0-9.]* ([KM]i)?B of it ahead of a gap$`, p.lines("^placed ")[0], "%s", p)

	p = start(t, exec.Command(programPath(t), "demo", "--region", "1MiB", f.path))
	require.Equal(t, 1, p.wait(t), "%s", p)
	require.Equal(t, "rnicd: xfer: the server refused: 3145728 octets offered, the region holds 1048576; start the server with a larger --region",
		p.lines("^rnicd: ")[0])

	p = start(t, exec.Command(programPath(t), "demo", "--no-crc", zeros(t, 257<<20)))
	require.Equal(t, 0, p.wait(t), "%s", p)
	require.Contains(t, p.String(), "received    257.0 MiB")
}

// With DPDK in the program its net_tap does the same job.
func TestPutThroughDPDK(t *testing.T) {
	ns := newNamespace(t)
	if programPath(t); !program.dpdk {
		p := ns.rnicd(t, "serve", "--pmd", "dpdk")
		require.Equal(t, 1, p.wait(t), "%s", p)
		require.Len(t, errorLines(p), 1, "%s", p)
		t.Skip("the program is built without DPDK's driver: no libdpdk, or under the race detector")
	}
	server := ns.rnicd(t, "serve", "--pmd", "dpdk", "--region", "16MiB")
	server.expect(t, 1, "^ready ")
	ns.run(t, "ip", "addr", "add", kernelHost+"/24", "dev", "rnic0")
	ns.run(t, "ip", "link", "set", "rnic0", "up")
	f := randomFile(t, 8<<20)
	ns.put(t, f)
	server.expect(t, 1, "^sha256 +"+f.sum+"$")
	ns.stop(t, server)
}

// A capture opens in tshark, which finds the layers and no bad checksum.
func TestCapture(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("needs tshark to look at it")
	}
	for _, c := range []struct {
		name   string
		args   []string
		tagged int // segments at least, of a MiB
	}{
		{"no markers", []string{"--no-markers"}, 1 << 20 / 1460},
		// tshark 4.0 counts one marker too many in a segment that ends where the next one is due (number_of_markers in
		// packet-iwarp-mpa.c), and gives the connection up there.
		{"markers", nil, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := newNamespace(t)
			file := filepath.Join(t.TempDir(), "frames.pcapng")
			server := ns.serving(t, append([]string{"--capture", file}, c.args...)...)
			ns.put(t, randomFile(t, 1<<20))
			ns.stop(t, server)
			require.Equal(t, 1, dissected(t, file, "iwarp_mpa.req"))
			require.Equal(t, 1, dissected(t, file, "iwarp_mpa.rep"))
			require.GreaterOrEqual(t, dissected(t, file, "iwarp_ddp.tagged_flag == 1"), c.tagged)
			require.Zero(t, dissected(t, file, "tcp.checksum.status == 0 || ip.checksum.status == 0"))
			require.Zero(t, dissected(t, file, "_ws.malformed"))
			if c.tagged > 10 {
				require.Equal(t, 2, dissected(t, file, "iwarp_rdma.opcode == 3"), "the closing message and its answer")
			}
		})
	}
}

// dissected is how many frames of the file tshark shows under the filter.
func dissected(t *testing.T, file, filter string) int {
	t.Helper()
	cmd := exec.Command("tshark", "-r", file, "--enable-heuristic", "iwarp_mpa_tcp", "-o", "tcp.check_checksum:TRUE",
		"-o", "ip.check_checksum:TRUE", "-T", "fields", "-e", "frame.number", "-Y", filter)
	out, err := cmd.Output()
	require.NoError(t, err, "%v", cmd.Args)
	return strings.Count(string(out), "\n")
}

// Errors of the client's own, and of its server's absence: one line, status 1.
func TestPutErrors(t *testing.T) {
	ns := newNamespace(t)
	ns.serving(t) // its network has hosts that do not answer
	f := randomFile(t, 10).path
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"directory", []string{"/tmp", "127.0.0.1"}, "rnicd: /tmp is a directory; put takes one file"},
		{"missing file", []string{"/tmp/no/such", "127.0.0.1"}, "rnicd: open /tmp/no/such: no such file or directory"},
		{"device", []string{"/dev/zero", "127.0.0.1"}, "rnicd: /dev/zero is not a regular file; its length must be known beforehand"},
		{"no listener", []string{f, "127.0.0.1:9"}, "rnicd: rnic: connect to 127.0.0.1:9: stack: connection refused"},
		{"default port", []string{f, "127.0.0.1"}, "rnicd: rnic: connect to 127.0.0.1:7174: stack: connection refused"},
		{"no listener, waiting", []string{"--wait", "200ms", f, "127.0.0.1:9"}, "rnicd: rnic: connect to 127.0.0.1:9: stack: connection refused"},
		{"no route", []string{f, "192.0.2.1"}, "rnicd: rnic: connect to 192.0.2.1:7174: stack: no route to host"},
		{"no host", []string{f, ":7174"}, `rnicd: ":7174" names no server: want HOST or HOST:PORT`},
		{"port 0", []string{f, "127.0.0.1:0"}, `rnicd: "127.0.0.1:0": port "0" is not a number from 1 to 65535`},
		{"port too high", []string{f, "127.0.0.1:65536"}, `rnicd: "127.0.0.1:65536": port "65536" is not a number from 1 to 65535`},
		{"one argument", []string{f}, "rnicd: put wants FILE and HOST[:PORT], not 1 arguments"},
		{"flag", []string{"--banana", f, "127.0.0.1"}, "rnicd: unknown flag: --banana"},
		{"silent host", []string{"--timeout", "300ms", f, "10.9.0.77"}, "rnicd: gave up after --timeout 300ms: rnic: connect to 10.9.0.77:7174: stack: connection timed out"},
		{"silent host, waiting", []string{"--timeout", "300ms", "--wait", "5s", f, "127.0.0.1:9"}, "rnicd: gave up after --timeout 300ms: rnic: connect to 127.0.0.1:9: stack: connection refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			begin := time.Now()
			p := ns.rnicd(t, append([]string{"put"}, c.args...)...)
			require.Equal(t, 1, p.wait(t), "%s", p)
			require.Equal(t, []string{c.want}, errorLines(p))
			require.Less(t, time.Since(begin), 20*time.Second)
		})
	}
}

// Wrong flags: one line that names the flag and what it wants, status 1, and no device left.
func TestServeErrors(t *testing.T) {
	ns := newNamespace(t)
	for _, c := range []struct {
		args string
		want string // a pattern
	}{
		{"--addr banana", `--addr "banana": want an IPv4 address with its prefix length, as 10\.9\.0\.1/24`},
		{"--addr 10.9.0.1", `--addr "10\.9\.0\.1": want an IPv4 address with its prefix length`},
		{"--addr ::1/64", `--addr ::1/64: want the unicast IPv4 address of a host`},
		{"--addr 224.0.0.1/24", `--addr 224\.0\.0\.1/24: want the unicast IPv4 address of a host`},
		{"--host-addr banana", `--host-addr "banana": want an IPv4 address with its prefix length`},
		{"--pmd banana", `--pmd "banana": want tap, dpdk or kernel`},
		{"--pmd kernel --fault drop=1%", `--pmd kernel has no driver and no core of ours: leave --fault, --capture, --core and --spin away`},
		{"--page 3M", `--page "3M": want auto, 2M, 1G or normal`},
		{"--fault drop=200%", `--fault: fault: "drop=200%": a probability is 0% to 100%, or 0 to 1`},
		{"--fault banana", `--fault: fault: "banana": write key=value, such as drop=1%`},
		{"--core 999", `stack: poller "rnic0": core 999 is not available; allowed CPUs: [-0-9,]+`},
		{"--core -7", `stack: poller "rnic0": core -7 is not available; allowed CPUs: [-0-9,]+`},
		{"--mtu -1", `--mtu -1: want 576 to 65535 octets`},
		{"--mtu 65535 --region 1MiB", `tap: rnic0: MTU 65535; the kernel's driver takes 68 to 65521`},
		{"--port 0", `--port 0: want 1 to 65535`},
		{"--idle-timeout 0s", `--idle-timeout 0s: must be positive`},
		{"--region 0", `--region 0: must be at least one octet`},
		{"--region banana", `.*"banana" is not a size; write 4096, 64KiB, 256MiB or 1GiB`},
		{"--region 1000GiB", `hugepages: .*1000 GiB of memory wanted, .* available of which .* are kept free; ask for less or add memory`},
		{"--region 1000GiB --pmd kernel", `hugepages: .*1000 GiB of memory wanted, .* ask for less or add memory`},
		{"--region 8589934591GiB", `hugepages: .*8589934591 GiB of memory wanted, .* ask for less or add memory`},
		{"--region 9223372036854775807", `--region: 9223372036854775807 octets are more than can be addressed`},
		{"--node 1000", `hugepages: NUMA node 1000 wanted, online: [0-9 ]+; choose one of these or AnyNode`},
		{"--dev averylongdevicename", `tap: name "averylongdevicename" has 19 octets; a device name has at most 15: choose a shorter one`},
		{"--dev lo", `tap: lo: .+`},
		{"--capture /no/such/dir/file", `--capture: capture: open /no/such/dir/file: no such file or directory; choose a file that can be written`},
		{"banana", `unknown command "banana" for "rnicd serve"`},
	} {
		t.Run(c.args, func(t *testing.T) {
			p := ns.rnicd(t, append([]string{"serve"}, strings.Fields(c.args)...)...)
			require.Equal(t, 1, p.wait(t), "%s", p)
			lines := errorLines(p)
			if strings.Contains(c.args, "--core") {
				lines = p.lines("^rnicd: ")
			}
			require.Len(t, lines, 1, "%s", p)
			require.Regexp(t, "^rnicd: "+c.want, lines[0])
			require.False(t, ns.has(t, "rnic0"))
		})
	}
}

// Two daemons cannot have one device.
func TestServeDeviceBusy(t *testing.T) {
	ns := newNamespace(t)
	server := ns.serving(t)
	p := ns.rnicd(t, "serve", "--region", "1MiB")
	require.Equal(t, 1, p.wait(t), "%s", p)
	require.Equal(t, []string{"rnicd: tap: rnic0: device or resource busy: another process holds the device; end that process or choose another name"},
		errorLines(p))
	ns.put(t, randomFile(t, 1000))
	ns.stop(t, server)
}

// What no hugepages suffice for lies on normal pages, and one line says so.
func TestServeWithoutHugepages(t *testing.T) {
	ns := newNamespace(t)
	var free int
	text, err := os.ReadFile("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
	if err == nil {
		_, err = fmt.Sscan(string(text), &free)
	}
	if err != nil || free > 2048 {
		t.Skipf("needs a known and small number of free hugepages: %d, %v", free, err)
	}
	server := ns.serving(t, "--region", fmt.Sprintf("%dMiB", 2*free+64))
	require.Len(t, server.lines(`^memory +\S+ [MG]iB on normal pages \(hugepages: \d+ pages of 2 MiB wanted, \d+ free; run hugepages/setup.sh \d+ `), 1, "%s", server)
	f := randomFile(t, 1<<20)
	ns.put(t, f)
	ns.stop(t, server)

	server = ns.serving(t, "--page", "normal")
	require.Len(t, server.lines(`^memory +\S+ MiB on normal pages$`), 1, "asked for, so no fall-back: %s", server)
	ns.stop(t, server)
}

// nobody is a user without any rights.
const nobody = 65534

func asNobody(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

// Without rights: a clear error for the TAP, by either driver, and a demo that works.
func TestWithoutRights(t *testing.T) {
	ns := newNamespace(t)
	const why = ": not permitted to create or attach to the device: operation not permitted; run as root or with CAP_NET_ADMIN"
	p := ns.start(t, asNobody(exec.Command(programPath(t), "serve", "--region", "1MiB")))
	require.Equal(t, 1, p.wait(t), "%s", p)
	require.Len(t, errorLines(p), 1, "%s", p)
	require.Contains(t, errorLines(p)[0], "rnicd: tap: rnic0"+why)
	if program.dpdk {
		p = ns.start(t, asNobody(exec.Command(programPath(t), "serve", "--region", "1MiB", "--pmd", "dpdk")))
		require.Equal(t, 1, p.wait(t), "%s", p)
		require.Len(t, errorLines(p), 1, "%s", p)
		require.Contains(t, errorLines(p)[0], "run as root or with CAP_NET_ADMIN")
	}
	p = ns.start(t, asNobody(exec.Command(programPath(t), "demo", "--region", "8MiB", "--size", "4MiB")))
	require.Equal(t, 0, p.wait(t), "%s", p)
	require.Len(t, p.lines("^received +4.0 MiB"), 1, "%s", p)
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("x"), 0o600))
	p = ns.start(t, asNobody(exec.Command(programPath(t), "put", secret, "127.0.0.1")))
	require.Equal(t, 1, p.wait(t), "%s", p)
	require.Equal(t, []string{"rnicd: open " + secret + ": permission denied"}, errorLines(p))
}

// Without /dev/net/tun: a clear error, by either driver.
func TestWithoutTun(t *testing.T) {
	ns := newNamespace(t)
	drivers := []string{"tap"}
	if programPath(t); program.dpdk {
		drivers = append(drivers, "dpdk")
	}
	for _, driver := range drivers {
		cmd := exec.Command("sh", "-c", `mount -t tmpfs none /dev/net && exec "$0" "$@"`, programPath(t), "serve", "--region", "1MiB", "--pmd", driver)
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		p := ns.start(t, cmd)
		require.Equal(t, 1, p.wait(t), "%s", p)
		require.Len(t, errorLines(p), 1, "%s", p)
		require.Regexp(t, `^rnicd: tap: rnic0: /dev/net/tun: no such file or directory; load the driver \(modprobe tun\)`, errorLines(p)[0])
	}
}
