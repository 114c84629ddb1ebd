package verbs

import (
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/internal/skip"
)

// exchange is a program's two ends, and what each prints when all went well.
type exchange struct {
	name           string
	need           string // Debian's package
	port           uint16
	server, client string // command lines
	wants, wantc   string // a line of each; "": any, and none
	long           bool   // not with -short
}

const (
	rpingPort = 7174
	cmaPort   = 7471
	perfPort  = 18515
)

// perf is a row of perftest: the same flags at both ends.
func perf(program, flags, want string) exchange {
	args := program + " -R -F -n 200 " + flags
	return exchange{
		name: program + strings.ReplaceAll(" "+flags, " -", "-"), need: "perftest", port: perfPort,
		server: args, client: args + " 127.0.0.1", wantc: want, long: flags != "",
	}
}

// Debian's programs, unmodified, between two processes over the kernel's sockets.
var exchanges = []exchange{
	{
		name: "ucmatose", need: "rdmacm-utils", port: cmaPort,
		server: "ucmatose -b 127.0.0.1", client: "ucmatose -s 127.0.0.1", wants: `^return status 0$`,
		wantc: `^return status 0$`,
	},
	{
		name: "ucmatose ten connections", need: "rdmacm-utils", port: cmaPort, long: true,
		server: "ucmatose -b 127.0.0.1 -c 10 -C 50 -S 5000",
		client: "ucmatose -s 127.0.0.1 -c 10 -C 50 -S 5000",
		wants:  `^return status 0$`, wantc: `^return status 0$`,
	},
	{
		name: "rdma_client", need: "rdmacm-utils", port: cmaPort,
		server: "rdma_server", client: "rdma_client -s 127.0.0.1", wants: `^rdma_server: end 0$`,
		wantc: `^rdma_client: end 0$`,
	},
	{
		name: "rdma_xclient", need: "rdmacm-utils", port: cmaPort,
		server: "rdma_xserver", client: "rdma_xclient -s 127.0.0.1", wants: `^rdma_xserver: end 0$`,
		wantc: `^rdma_xclient: end 0$`,
	},
	{
		name: "rstream", need: "rdmacm-utils", port: cmaPort,
		server: "rstream -S 65536 -I 5 -C 20 -T v -T b",
		client: "rstream -S 65536 -I 5 -C 20 -T v -T b -s 127.0.0.1",
		wants:  `^custom +64k +20 +5 `, wantc: `^custom +64k +20 +5 `,
	},
	{
		name: "riostream", need: "rdmacm-utils", port: cmaPort,
		server: "riostream -S 65536 -I 5 -C 20 -T v -T b",
		client: "riostream -S 65536 -I 5 -C 20 -T v -T b -s 127.0.0.1",
		wants:  `^custom +64k +20 +5 `, wantc: `^custom +64k +20 +5 `,
	},
	perf("ib_send_bw", "", `^ 65536 +200 `),
	perf("ib_write_bw", "", `^ 65536 +200 `),
	perf("ib_read_bw", "", `^ 65536 +200 `),
	perf("ib_send_lat", "", `^ 2 +200 `),
	perf("ib_write_lat", "", `^ 2 +200 `),
	perf("ib_read_lat", "", `^ 2 +200 `),
	perf("ib_atomic_bw", "", `^ 8 +200 `),
	perf("ib_atomic_lat", "", `^ 8 +200 `),
	perf("ib_atomic_bw", "-A CMP_AND_SWAP", `^ 8 +200 `),
	perf("ib_send_bw", "-e", `^ 65536 +200 `),
	perf("ib_read_bw", "-e", `^ 65536 +200 `), // those of Writes refuse it
	perf("ib_read_lat", "-e", `^ 2 +200 `),
	perf("ib_send_lat", "-e", `^ 2 +200 `),
	perf("ib_atomic_bw", "-e", `^ 8 +200 `),
	perf("ib_atomic_lat", "-e", `^ 8 +200 `),
	perf("ib_send_bw", "-b", `^ 65536 +`),
	perf("ib_send_bw", "-b -q 2 -s 5000 -n 128 -t 32 -r 64", `^ 5000 +256 `),
	perf("ib_send_bw", "-q 3 -s 5000 -n 128 -t 32 -r 64", `^ 5000 +384 `),
	perf("ib_send_bw", "--use-srq", `^ 65536 +200 `),
	perf("ib_send_bw", "-a", `^ 8388608 +200 `),
	perf("ib_write_bw", "-q 4", `^ 65536 +800 `),
	perf("ib_write_bw", "-b", `^ 65536 +`),
	perf("ib_write_lat", "-I 64 -s 64", `^ 64 +200 `),
}

// Both ends end well, and say so.
func TestPrograms(t *testing.T) {
	for _, x := range exchanges {
		t.Run(x.name, func(t *testing.T) {
			if x.long && testing.Short() {
				return
			}
			l := newLab(t)
			server := l.run(x.need, strings.Fields(x.server)...)
			l.untilListening(x.port)
			client := l.run(x.need, strings.Fields(x.client)...)
			bothEnd(t, client, server)
			if x.wantc != "" {
				client.Expect(t, 1, x.wantc)
			}
			if x.wants != "" {
				server.Expect(t, 1, x.wants)
			}
		})
	}
}

// CRC32C is done without where both ends are told so, and only there.
func TestProgramsNoCRC(t *testing.T) {
	for _, x := range []struct{ server, client, want string }{
		{"--no-crc", "--no-crc", "no CRC"}, {"--no-crc", "", "CRC32C"}, {"", "--no-crc", "CRC32C"},
	} {
		l := newLab(t)
		server := l.runOn(x.server, "rdmacm-utils", "rping", "-s", "-C", "1", "-a", here.String())
		server.Expect(t, 1, "^rnicd: listening at ")
		client := l.runOn(x.client, "rdmacm-utils", "rping", "-c", "-C", "1", "-a", here.String())
		bothEnd(t, client, server)
		for _, p := range []*netlab.Process{server, client} {
			require.Len(t, p.Lines("^rnicd: connected, .*: rfc6581, "+x.want+"$"), 1, "%+v: %s", x, p)
		}
	}
}

// What iWARP has not is refused as by a device without it: the program says so and ends.
func TestProgramsRefused(t *testing.T) {
	l := newLab(t)
	p := l.run("rdmacm-utils", "udaddy", "-b", here.String())
	require.NotZero(t, p.Wait(t))
	p.Expect(t, 1, "Operation not supported")
	for _, args := range []string{"mckey -m 239.0.0.1 -b 127.0.0.1", "udaddy -s 127.0.0.1"} {
		p := l.run("rdmacm-utils", strings.Fields(args)...)
		require.NotZero(t, p.Wait(t), "%s:\n%s", args, p)
	}
}

// A file by the rsockets of librdmacm itself, which call these libraries. The server does not end
// by itself.
func TestRcopy(t *testing.T) {
	l := newLab(t)
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	want := make([]byte, 1<<20)
	_, _ = rand.Read(want)
	require.NoError(t, os.WriteFile(from, want, 0o600))
	l.run("rdmacm-utils", "rcopy")
	l.untilListening(7427)
	client := l.run("rdmacm-utils", "rcopy", from, here.String()+":"+to)
	require.Zero(t, client.Wait(t), "%s", client)
	got := must(os.ReadFile(to))(t)
	require.True(t, bytes.Equal(want, got))
}

// A program of the sockets' API, by librspreload over librdmacm's rsockets. Where a server waits
// for a connection, librdmacm 44 may sleep until it looks again: after 5 s, or what the file
// says. iperf3 sends either way, over our TCP at either end, too, and in two streams: with a third
// it would have four connections, which librdmacm before 53 does not bear.
func TestPreloadedRsockets(t *testing.T) {
	preload := must(filepath.Glob("/usr/lib/*/rsocket/librspreload.so"))(t)
	if len(preload) == 0 {
		skip.Missing(t, "needs librspreload.so, of Debian's package librdmacm1")
	}
	const impatient = "mount -t tmpfs none /etc/rdma && mkdir /etc/rdma/rsocket && echo 20 > " +
		"/etc/rdma/rsocket/wake_up_interval && exec "
	if _, err := exec.LookPath("iperf3"); err != nil {
		skip.Missing(t, "needs iperf3")
	}
	// flags of rnicd run, where the server is, flags of iperf3's client
	type conversation struct{ server, client, at, way string }
	var all []conversation
	for _, way := range []string{"", "-R", "-P 2"} {
		all = append(all, conversation{"", "", "127.0.0.1", way},
			conversation{tapFlags, "", "10.9.0.2", way}, conversation{"", tapFlags, "10.9.0.1", way})
	}
	for _, x := range sample.Of(t, 3, all) {
		l := newLab(t)
		run := func(flags, args string) *netlab.Process {
			return l.Start(t, exec.Command("unshare", "-m", "sh", "-c",
				impatient+"env LD_PRELOAD="+preload[0]+" "+filepath.Join(l.dir, "rnicd")+
					" run --verbose "+flags+" -- "+args))
		}
		server := run(x.server, "iperf3 -s -1")
		server.Expect(t, 1, "^rnicd: listening at ")
		client := run(x.client, "iperf3 -n 20M -c "+x.at+" "+x.way)
		require.Zero(t, client.Wait(t), "%+v, client:\n%s\nserver:\n%s", x, client, server)
		require.Zero(t, server.Wait(t), "%+v, server:\n%s\nclient:\n%s", x, server, client)
		// iperf3's server counts up to where its other connection says that the test is over, which may
		// come before the last octets.
		receiver := map[bool]*netlab.Process{true: client, false: server}[x.way == "-R"]
		receiver.Expect(t, 1, `(20\.\d|1[5-9]\.\d) MBytes .* receiver$`)
		require.NotEmpty(t, client.Lines("^rnicd: connected, .* with "+x.at+":5201: "),
			"not over rsockets:\n%s", client)
	}
}

// withFabric adds an interface with addresses, among which libfabric looks for devices: it does not
// look at loopback.
func (l *lab) withFabric(addrs ...string) {
	l.t.Helper()
	l.Run(l.t, "ip", "link", "add", "fabric0", "type", "veth", "peer", "name", "fabric1")
	for _, a := range addrs {
		l.Run(l.t, "ip", "addr", "add", a, "dev", "fabric0")
	}
	l.Run(l.t, "ip", "link", "set", "fabric0", "up")
	l.Run(l.t, "ip", "link", "set", "fabric1", "up")
}

// requireFabric sends messages there and back and compares them, up to 1 MiB.
func (l *lab) requireFabric(server, client, addr string) {
	l.t.Helper()
	ping := []string{"fi_pingpong", "-p", "verbs", "-e", "msg", "-c", "-I", "5"}
	s := l.runOn(server, "libfabric-bin", ping...)
	l.untilListening(47592) // its own socket, by which the ends find each other
	c := l.runOn(client, "libfabric-bin", append(ping, addr)...)
	require.Zero(l.t, c.Wait(l.t), "client:\n%s\nserver:\n%s", c, s)
	require.Zero(l.t, s.Wait(l.t), "server:\n%s", s)
	c.Expect(l.t, 1, `^1m +5 +=5 `)
}

// libfabric over either look of the device.
func TestFabrics(t *testing.T) {
	l := newLab(t)
	l.withFabric("10.9.9.1/24")
	for flags, protocol := range map[string]string{"": "IWARP", "--device roce": "RDMA_CM_IB_RC"} {
		info := l.runOn(flags, "libfabric-bin", "fi_info", "-p", "verbs")
		require.Zero(t, info.Wait(t), "%s", info)
		require.NotEmpty(t, info.Lines(`^ +protocol: FI_PROTO_`+protocol+`$`), "%s", info)
		l.requireFabric(flags, flags, "10.9.9.1")
	}
}

// libfabric with our own TCP in each process, where an interface of the kernel has their addresses,
// too. It binds an id to loopback to find a device; a program that listens there is refused.
func TestFabricsOnMemif(t *testing.T) {
	l := newLab(t)
	l.withFabric("10.9.0.1/24", "10.9.0.2/24")
	for _, flags := range []string{"", "--device roce "} {
		flags += memifCable(t)
		server := flags + " --role server --addr 10.9.0.1/24"
		l.requireFabric(server, flags+" --addr 10.9.0.2/24", "10.9.0.1")
		p := l.runOn(server, "rdmacm-utils", "rping", "-s", "-a", "127.0.0.1")
		require.NotZero(t, p.Wait(t), "%s", p)
		p.Expect(t, 1, "^rdma_listen: Cannot assign requested address$")
	}
}

// A queue pair that no connection manager has connected does not get to RTR; both ends end.
func TestPingpongRefused(t *testing.T) {
	l := newLab(t)
	server := l.run("ibverbs-utils", "ibv_rc_pingpong")
	l.untilListening(18515)
	client := l.run("ibverbs-utils", "ibv_rc_pingpong", here.String())
	require.NotZero(t, client.Wait(t), "%s", client)
	require.NotZero(t, server.Wait(t), "%s", server)
	server.Expect(t, 1, "^Failed to modify QP to RTR$") // and the client finds its socket closed
}

// The device is found, with what programs print of it.
func TestDevice(t *testing.T) {
	l := newLab(t)
	p := l.run("ibverbs-utils", "ibv_devices")
	require.Zero(t, p.Wait(t), p)
	p.Expect(t, 1, `rnicd0 +\t02726e6963640001`)
	p = l.run("ibverbs-utils", "ibv_devinfo", "-v")
	require.Zero(t, p.Wait(t), p)
	for _, line := range []string{`transport:\s+iWARP`, `state:\s+PORT_ACTIVE`,
		`max_qp_rd_atom:\s+128`, `max_sge_rd:\s+1`} {
		p.Expect(t, 1, line)
	}
}
