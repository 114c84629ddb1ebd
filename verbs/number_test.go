package verbs

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/sample"
)

// numbered is a program without the connection manager, whose ends exchange the numbers of their
// queue pairs by a socket of their own; its client is given the server's address.
type numbered struct {
	args string
	port uint16 // of that socket
	need string
	want string
}

// byNumber is a row of perftest.
func byNumber(program, flags, want string) numbered {
	return numbered{program + " -F -n 200 " + flags, perfPort, "perftest", want}
}

var numberedPrograms = []numbered{
	{"ibv_rc_pingpong -g 0", perfPort, "ibverbs-utils", `^1000 iters in `},
	{"ibv_srq_pingpong -g 0", perfPort, "ibverbs-utils", `^1000 iters in `},
	{"ibv_rc_pingpong -g 0 -e -c -n 200", perfPort, "ibverbs-utils", `^200 iters in `},
	{"ibv_rc_pingpong -g 0 -t -c -n 200", perfPort, "ibverbs-utils", `^200 iters in `},
	{"ibv_srq_pingpong -g 0 -e -n 200", perfPort, "ibverbs-utils", `^200 iters in `},
	byNumber("ib_send_bw", "", `^ 65536 +200 `),
	byNumber("ib_write_bw", "", `^ 65536 +200 `),
	byNumber("ib_read_bw", "", `^ 65536 +200 `),
	byNumber("ib_send_lat", "", `^ 2 +200 `),
	byNumber("ib_write_lat", "", `^ 2 +200 `),
	byNumber("ib_read_lat", "", `^ 2 +200 `),
	byNumber("ib_atomic_bw", "", `^ 8 +200 `),
	byNumber("ib_atomic_lat", "", `^ 8 +200 `),
	byNumber("ib_send_bw", "-x 0 --use-srq", `^ 65536 +200 `),
	byNumber("ib_send_bw", "-e", `^ 65536 +200 `),
	byNumber("ib_send_lat", "-e", `^ 2 +200 `),
	byNumber("ib_write_bw", "-q 8", `^ 65536 +1600 `),
	byNumber("ib_write_bw", "-b", `^ 65536 +`),
	byNumber("ib_write_lat", "-I 64 -s 64", `^ 64 +200 `),
	byNumber("ib_send_bw", "-a", `^ 8388608 +200 `),
	// Receivers that are late, both ways. perftest takes each completion for -t of them and ends
	// too early, for good, where -n is no multiple.
	byNumber("ib_send_bw", "-b -q 2 -s 5000 -n 256 -t 32 -r 64", `^ 5000 +512 `),
}

// Both ends end well, over the kernel's sockets.
func TestProgramsByNumber(t *testing.T) {
	n := 8
	if leftToMakeVerbs() {
		n = 4
	}
	for _, x := range sample.Of(t, n, numberedPrograms) {
		t.Run(x.args, func(t *testing.T) {
			l := newLab(t)
			server := l.runOn("--device roce", x.need, strings.Fields(x.args)...)
			l.untilListening(x.port)
			client := l.runOn("--device roce", x.need, strings.Fields(x.args+" 127.0.0.1")...)
			requireNumbered(t, x, server, client)
		})
	}
}

// qperf's tests of reliable connections, by librdmacm; without -cm it addresses by LID. One server
// has them all. Up to 0.4.11 it tells the client its port before it listens (its commit 118a571),
// so a client that was too early does not count.
func TestQperf(t *testing.T) {
	l := newLab(t)
	l.runOn("--device roce", "qperf", "qperf")
	l.untilListening(19765)
	for _, test := range sample.Of(t, 3, strings.Fields(`rc_lat rc_bw rc_bi_bw rc_rdma_read_lat
		rc_rdma_read_bw rc_rdma_write_lat rc_rdma_write_bw rc_rdma_write_poll_lat
		rc_compare_swap_mr rc_fetch_add_mr ver_rc_compare_swap ver_rc_fetch_add`)) {
		var client *netlab.Process
		for tries := 0; ; tries++ {
			client = l.runOn("--device roce", "qperf", "qperf", "-cm", "1", "-t", "1", "127.0.0.1", test)
			if client.Wait(t) == 0 || tries == 10 ||
				len(client.Lines("^unexpected event from RDMA CM: Event rejected$")) == 0 {
				break
			}
			require.NotEmpty(t, client.Lines("^rnicd: connecting to .*: connection refused$"), "%s", client)
		}
		require.Zero(t, client.Wait(t), "%s", client)
		client.Expect(t, 1, `^    (latency|bw|msg_rate) +=  [0-9.]+ `)
		require.NotEmpty(t, client.Lines("^rnicd: connected, "), "%s", client)
	}
}

func requireNumbered(t *testing.T, x numbered, server, client *netlab.Process) {
	t.Helper()
	bothEnd(t, client, server)
	require.NotEmpty(t, client.Lines(x.want), "client:\n%s", client)
	require.NotEmpty(t, client.Lines("^rnicd: connected by number, "), "client:\n%s", client)
}

// asRoCE are flags for the device as RoCE, over either transport.
func asRoCE(t *testing.T) [2]string {
	return [2]string{"--device roce",
		"--device roce " + memifCable(t) + " --role server --addr 10.9.0.1/24"}
}

// Queue pairs of one process, in all their states, over either transport; and processes that begin
// at once, forked.
func TestQueuePairsByNumber(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	program := l.compile("numbers")
	for i, flags := range asRoCE(t) {
		args := [][]string{{program, "0"}, {program, "0", "single"}}[i]
		allWell(t, l.runOn(flags, "gcc", args...))
	}
}

// Connections of librdmacm for private data and an end alone, beside queue pairs by number.
func TestBareConnections(t *testing.T) {
	l := newLab(t)
	p := l.runOn("--device roce", "gcc", l.compile("bare"))
	require.Zero(t, p.Wait(t), "%s", p)
	p.Expect(t, 1, "^all well$")
}

// What the verbs have for reliable connections, call by call, at both ends, over either transport.
func TestCalls(t *testing.T) {
	l := newLab(t)
	program := l.compile("calls")
	for _, flags := range asRoCE(t) {
		allWell(t, l.runOn(flags, "gcc", program))
	}
}

// Moves with each attribute less and more, what is told back of them, and the state SQD, over
// either transport. An operator who asks hears why a move is refused.
func TestMoves(t *testing.T) {
	l := newLab(t)
	program := l.compile("moves")
	for _, flags := range asRoCE(t) {
		p := l.runOn(flags, "gcc", program)
		allWell(t, p)
		for _, why := range []string{
			"INIT to RTR: it lacks IBV_QP_AV", "RTR to SQD: there is no such move",
			"RTS to SQD: it must not have IBV_QP_CUR_STATE",
			"RTR to RTS: impossible value of IBV_QP_TIMEOUT",
			"SQD to SQD: the device does not have this value of IBV_QP_AV",
		} {
			line := "^rnicd: ibv_modify_qp of queue pair 0x[0-9a-f]{6}, " + why + "$"
			require.NotEmpty(t, p.Lines(line), why)
		}
	}
}

// An operator who asks hears with which device a program connects queue pairs by number.
func TestByNumberWithoutRoCE(t *testing.T) {
	l := newLab(t)
	server := l.runOn("", "ibverbs-utils", "ibv_rc_pingpong", "-g", "0")
	l.untilListening(perfPort)
	client := l.runOn("", "ibverbs-utils", "ibv_rc_pingpong", "-g", "0", here.String())
	require.NotZero(t, client.Wait(t), "%s", client)
	require.NotZero(t, server.Wait(t), "%s", server)
	server.Expect(t, 1, "^rnicd: ibv_modify_qp of queue pair 0x[0-9a-f]{6}, INIT to RTR: only with "+
		"--device roce, RNICD_DEVICE=roce: IBV_QP_AV IBV_QP_DEST_QPN$")
}

// What the peer may do by the access flags of queue pairs and regions, fences, and the events of
// the first message and the last buffer, over either transport.
func TestRights(t *testing.T) {
	l := newLab(t)
	program := l.compile("rights")
	for _, flags := range asRoCE(t) {
		allWell(t, l.runOn(flags, "gcc", program))
	}
}

// Two programs, each with our own TCP, on a cable of shared memory.
func TestProgramsByNumberOnMemif(t *testing.T) {
	if leftToMakeVerbs() {
		return
	}
	for _, x := range sample.Of(t, 4, numberedPrograms) {
		t.Run(x.args, func(t *testing.T) {
			l := newLab(t)
			cable := "--device roce " + memifCable(t)
			server := l.runOn(cable+" --role server --addr 10.9.0.1/24", x.need,
				strings.Fields(x.args)...)
			l.untilListening(x.port)
			client := l.runOn(cable+" --addr 10.9.0.2/24", x.need, strings.Fields(x.args+" 127.0.0.1")...)
			requireNumbered(t, x, server, client)
		})
	}
}

// Threads that use queue pairs in no order at all harm those alone, over either transport.
func TestMisuseByThreads(t *testing.T) {
	l := newLab(t)
	program := l.compile("misuse")
	for _, flags := range asRoCE(t) {
		seed := strconv.Itoa(int(rand.Int32()))
		p := l.runOn(flags, "gcc", program, seed,
			strconv.Itoa(sample.Count(300, 20000)))
		require.Zero(t, p.Wait(t), "seed %s\n%s", seed, p)
		p.Expect(t, 1, "^all well$")
	}
}
