package verbs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
	datagrams("ib_send_lat", "", `^ 2 +200 `),
	datagrams("ib_send_bw", "", `^ 4096 +200 `),
	datagrams("ib_send_lat", "-a", `^ 4096 +200 `),
	datagrams("ib_send_bw", "-b -s 1000", `^ 1000 +200 `),
	datagrams("ib_send_bw", "-e -q 3 -x 0", `^ 4096 +600 `),
	datagrams("ib_send_lat", "-e -I 64 -s 64", `^ 64 +200 `),
}

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
			l.untilListening(x.port)
			client := l.runOn("--device roce", x.need, strings.Fields(x.client)...)
			require.Equal(t, 0, client.Wait(t), "client:\n%s\nserver:\n%s", client, server)
			require.Equal(t, 0, server.Wait(t), "server:\n%s\nclient:\n%s", server, client)
			if x.wantc != "" {
				client.Expect(t, 1, x.wantc)
			}
		})
	}
}
