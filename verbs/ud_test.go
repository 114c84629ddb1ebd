package verbs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
)

// datagramExchanges are Debian's programs with datagrams, on the device as RoCE.
var datagramExchanges = []exchange{
	{
		name: "ibv_ud_pingpong", need: "ibverbs-utils", port: perfPort,
		server: "ibv_ud_pingpong -g 0 -n 200", client: "ibv_ud_pingpong -g 0 -n 200 127.0.0.1",
		wants: `^200 iters in `, wantc: `^200 iters in `,
	},
	{
		name: "ibv_ud_pingpong -e", need: "ibverbs-utils", port: perfPort,
		server: "ibv_ud_pingpong -g 0 -n 200 -e", client: "ibv_ud_pingpong -g 0 -n 200 -e 127.0.0.1",
		wants: `^200 iters in `, wantc: `^200 iters in `,
	},
	{
		name: "udaddy", need: "rdmacm-utils", port: udaddyPort,
		server: "udaddy -b 127.0.0.1 -c 5 -C 20 -S 1000",
		client: "udaddy -s 127.0.0.1 -c 5 -C 20 -S 1000", wants: `^return status 0$`,
		wantc: `^return status 0$`,
	},
	datagrams("ib_send_lat", "", `^ 2 +200 `),
	datagrams("ib_send_bw", "", `^ 4096 +200 `),
	datagrams("ib_send_lat", "-a", `^ 4096 +200 `),
	datagrams("ib_send_bw", "-b -s 1000", `^ 1000 +200 `),
	datagrams("ib_send_bw", "-e -q 3 -x 0", `^ 4096 +600 `),
	datagrams("ib_send_lat", "-e -I 64 -s 64", `^ 64 +200 `),
}

// The same over our own stack at both ends, on a cable of shared memory. The programs find each
// other by loopback.
func TestDatagramsOnMemif(t *testing.T) {
	for _, x := range []exchange{
		{
			name: "ibv_ud_pingpong", need: "ibverbs-utils", port: perfPort,
			server: "ibv_ud_pingpong -g 0 -s 1000 -n 200",
			client: "ibv_ud_pingpong -g 0 -s 1000 -n 200 127.0.0.1", wantc: `^200 iters in `,
		},
		{
			name: "udaddy", need: "rdmacm-utils", port: udaddyPort, server: "udaddy -c 5 -C 20",
			client: "udaddy -s 10.9.0.1 -c 5 -C 20", wantc: `^return status 0$`,
		},
		datagrams("ib_send_lat", "", `^ 2 +200 `),
		// It waits for all: none of the first ones is lost while the peer's MAC is asked for.
		datagrams("ib_send_bw", "", `^ 1024 +200 `),
		datagrams("ib_send_bw", "-b -q 2", `^ 1024 +400 `),
	} {
		onMemif(t, x.name, "", x)
		if x.need != "perftest" || !testing.Short() { // several Pollers, the first of which sends
			onMemif(t, x.name+" two queues", " --queues 2", x)
		}
	}
}

// onMemif runs an exchange between two programs with our own stack.
func onMemif(t *testing.T, name, flags string, x exchange) {
	t.Run(name, func(t *testing.T) {
		l := newLab(t)
		cable := "--device roce " + memifCable(t) + flags
		server := l.runOn(cable+" --role server --addr 10.9.0.1/24", x.need,
			strings.Fields(x.server)...)
		if x.port == udaddyPort {
			server.Expect(t, 1, "^rnicd: listening at ")
		} else {
			l.untilListening(x.port)
		}
		client := l.runOn(cable+" --addr 10.9.0.2/24", x.need, strings.Fields(x.client)...)
		bothEnd(t, client, server)
		client.Expect(t, 1, x.wantc)
	})
}

// Queue pairs of one process, over either transport.
func TestQueuePairsForDatagrams(t *testing.T) {
	l := newLab(t)
	program := l.compile("datagrams")
	const server = " --role server --addr 10.9.0.1/24"
	for flags, args := range map[string]string{"": "sockets", memifCable(t) + server: "",
		memifCable(t) + " --queues 2" + server: ""} {
		allWell(t, l.runOn(flags, "gcc", append([]string{program}, strings.Fields(args)...)...))
	}
}

// Two that listen to a group get what a third sends there, by either IP.
func TestMckey(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Run(t, "ip", "link", "add", "group0", "type", "veth", "peer", "name", "group1")
	l.Run(t, "ip", "addr", "add", "fd77::1/64", "dev", "group0", "nodad")
	l.Run(t, "ip", "link", "set", "group0", "up")
	l.Run(t, "ip", "link", "set", "group1", "up")
	for _, at := range []string{"-m 239.77.3.1 -b 127.0.0.1", "-m ff05::77:1 -b fd77::1"} {
		run := func(flags string) *netlab.Process {
			return l.runOn("--device roce", "rdmacm-utils", strings.Fields("mckey "+at+flags)...)
		}
		servers := []*netlab.Process{run(""), run("")}
		for _, s := range servers {
			s.Expect(t, 1, "^rnicd: group .* is joined at ")
		}
		client := run(" -s")
		for _, p := range append(servers, client) {
			require.Zero(t, p.Wait(t), "%s: %s", at, p)
			p.Expect(t, 1, "^return status 0$")
		}
	}
}

// The same over our own stack at both ends, whatever the number of Pollers.
func TestMckeyOnMemif(t *testing.T) {
	if leftToMakeVerbs() {
		return
	}
	for name, x := range map[string]struct{ flags, group, server, client string }{
		"IPv4":       {"", "239.77.3.1", "10.9.0.1", "10.9.0.2"},
		"IPv6":       {"", "ff05::77:1", "fd77::1", "fd77::2"},
		"two queues": {" --queues 2", "239.77.3.1", "10.9.0.1", "10.9.0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			prefix := map[bool]string{true: "/64", false: "/24"}[strings.Contains(x.server, ":")]
			cable := "--device roce " + memifCable(t) + x.flags
			run := func(flags, at, send string) *netlab.Process {
				return l.runOn(cable+flags+" --addr "+at+prefix, "rdmacm-utils",
					strings.Fields("mckey -m "+x.group+" -b "+at+send)...)
			}
			server := run(" --role server", x.server, "")
			server.Expect(t, 1, "^rnicd: group .* is joined at ")
			client := run("", x.client, " -s")
			for _, p := range []*netlab.Process{client, server} {
				require.Zero(t, p.Wait(t), "%s\nserver:\n%s", p, server)
				p.Expect(t, 1, "^return status 0$")
			}
		})
	}
}

// The rsockets of librdmacm over datagrams: to a server that counts, and to one that echoes, until
// the client ends. The server does not end by itself.
func TestUdpong(t *testing.T) {
	l := newLab(t)
	l.runOn("--device roce", "rdmacm-utils", "udpong", "-b", here.String())
	l.untilBound(udaddyPort)
	for _, x := range []struct{ flags, want string }{
		{"", "^custom +64 +20 "}, {"-T b", "^custom +64 +20 "}, {"-T e", "^custom +64 +40 "},
	} {
		client := l.runOn("--device roce", "rdmacm-utils",
			strings.Fields("udpong -S 64 -C 20 -s "+here.String()+" "+x.flags)...)
		require.Zero(t, client.Wait(t), "%s", client)
		client.Expect(t, 1, x.want)
	}
}

const udaddyPort = 7174 // and udpong's

// datagrams is a row of perftest with datagrams.
func datagrams(program, flags, want string) exchange {
	x := perf(program, flags, want)
	x.name += " UD"
	x.server = strings.Replace(x.server, " -R ", " -c UD ", 1)
	x.client = strings.Replace(x.client, " -R ", " -c UD ", 1)
	return x
}

// Datagrams between two processes over the kernel's sockets. They would be lost if a process had
// no time for them while its socket's buffer is full; there is room for all that a program sends
// here.
func TestDatagramPrograms(t *testing.T) {
	for _, x := range datagramExchanges {
		t.Run(x.name, func(t *testing.T) {
			if x.long && testing.Short() {
				return
			}
			l := newLab(t)
			server := l.runOn("--device roce", x.need, strings.Fields(x.server)...)
			if x.port == udaddyPort {
				server.Expect(t, 1, "^rnicd: listening at ")
			} else {
				l.untilListening(x.port)
			}
			client := l.runOn("--device roce", x.need, strings.Fields(x.client)...)
			bothEnd(t, client, server)
			if x.wantc != "" {
				client.Expect(t, 1, x.wantc)
			}
		})
	}
}
