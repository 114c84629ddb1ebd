package verbs

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/mpa"
)

// What a queue pair meets at its move to RTR that is no peer of its own: it always ends, and says
// why.

// strange starts test/verbs/strange towards a number at a GID, with codes of timeout and retry_cnt.
func (l *lab) strange(flags, gid string, number, timeout, retries int) *netlab.Process {
	l.t.Helper()
	return l.runOn("--device roce "+flags, "gcc", l.compileAlone("strange", "-libverbs"), gid,
		strconv.Itoa(number), strconv.Itoa(timeout), strconv.Itoa(retries))
}

// requireUnanswered: the first request was retried in vain, for so many milliseconds at least; what
// was posted after it was flushed, and there was no event.
func requireUnanswered(t *testing.T, p *netlab.Process, atLeast int, why string) {
	t.Helper()
	require.Zero(t, p.Wait(t), "%s", p)
	p.Expect(t, 1, "^wr_id 0: transport retry counter exceeded$")
	p.Expect(t, 2, "^wr_id [19]: Work Request Flushed Error$")
	var ms int
	must(fmt.Sscanf(p.Lines("^after ")[0], "after %d ms", &ms))(t)
	require.GreaterOrEqual(t, ms, atLeast)
	require.Empty(t, p.Lines("^event: "), "%s", p)
	require.NotEmpty(t, p.Lines("^rnicd: queue pair .*"+why), "%s", p)
}

// requireForeign: the queue pair has ended as soon as it was found that its peer is none.
func requireForeign(t *testing.T, p *netlab.Process) {
	t.Helper()
	require.Zero(t, p.Wait(t), "%s", p)
	p.Expect(t, 1, "^wr_id 0: transport retry counter exceeded$")
	p.Expect(t, 2, "^wr_id [19]: Work Request Flushed Error$")
	p.Expect(t, 1, "^event: local work queue catastrophic error$")
	p.Expect(t, 1, "^rnicd: queue pair .*the peer does not connect queue pairs by number")
}

// strangePort is one of a number, and number one that it has.
func strangePort() (port uint16, number int) {
	slot := rand.IntN(1 << 12)
	return 28672 + uint16(slot), slot<<12 | 2
}

// Nobody is there: no host, no route, no port, no such number; a peer that is another one's. Each
// time the request fails after (retry_cnt + 1) times 4.096 us times 2^timeout, and two seconds.
func TestNobodyAtRTR(t *testing.T) {
	t.Parallel()
	l, nowhere := newLab(t), newLab(t)
	for _, args := range []string{"link add void type veth peer name end", "link set end up",
		"addr add 192.0.2.9/24 dev void", "link set void up",
		"neigh add 192.0.2.77 lladdr 02:00:00:00:00:77 dev void"} {
		nowhere.Run(t, "ip", strings.Fields(args)...)
	}
	cable := memifCable(t)
	peers := []*netlab.Process{ // which wait for somebody else
		l.strange("", "::1", 5<<12|7, 0, 7),
		l.strange(cable+" --role server --addr 10.9.0.2/24", "::1", 5<<12|7, 0, 7),
	}
	numbers := make([]int, len(peers))
	for i, p := range peers {
		p.Expect(t, 1, "^rnicd: queue pairs are numbered from ")
		text := strings.Fields(p.Lines("^rnicd: queue pairs are numbered from ")[0])[6]
		n := must(strconv.ParseInt(text, 0, 32))(t)
		numbers[i] = int(n) | 2
	}
	_, nobody := strangePort()
	type row struct {
		at               *lab
		flags, gid       string
		number           int
		timeout, retries int
		atLeast          int
		why              string
	}
	own := cable + cableClient
	for _, x := range sample.Of(t, 4, []row{
		{nowhere, "", "192.0.2.77", nobody, 18, 2, 3221, "no answer"},
		{nowhere, "", "198.51.100.1", nobody, 14, 7, 2000, "network is unreachable"},
		{l, "", "127.0.0.9", nobody, 14, 7, 2000, "connection refused"},
		{l, "", "127.0.0.1", numbers[0], 14, 7, 2000, ""}, // either connects
		{l, "", "127.0.0.2", numbers[0], 14, 7, 2000, "refused: it is to be connected to another"},
		{l, "", "127.0.0.2", numbers[0] ^ 0x800, 14, 7, 2000, "refused: nobody has the number"},
		{l, own, "10.9.0.9", nobody, 14, 7, 2000, "no answer"},
		{l, own, "10.9.0.2", numbers[1], 14, 7, 2000, "refused: it is to be connected to another"},
		{l, own, "10.9.0.2", numbers[1] ^ 0x800, 14, 7, 2000, "refused: nobody has the number"},
		{l, own, "10.9.0.2", nobody, 14, 7, 2000, ""},
		{l, own, "10.8.0.2", nobody, 14, 7, 2000, ""}, // a smaller one, which would connect
	}) {
		requireUnanswered(t, x.at.strange(x.flags, x.gid, x.number, x.timeout, x.retries), x.atLeast,
			x.why)
	}
}

const cableClient = " --addr 10.9.0.1/24"

// At the peer's port there is another program: one that is not RDMA, one of librdmacm, one of an
// older MPA. Our own TCP has the kernel's at the other side of a TAP.
func TestForeignersAtRTR(t *testing.T) {
	const tap = "--pmd tap --no-dad --host-addr 10.9.0.2/24 --addr 10.9.0.1/24"
	gids := map[string]string{"": "127.0.0.9", tap: "10.9.0.2"}
	type row struct {
		name, flags string
		serve       func(net.Conn)
		foreign     bool // at once; else nobody answers
	}
	var all []row
	for flags := range gids {
		all = append(all,
			row{"a web server", flags, func(c net.Conn) {
				_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
			}, true},
			row{"an echo", flags, func(c net.Conn) { _, _ = io.Copy(c, c) }, true},
			row{"another version", flags, func(c net.Conn) { _, _ = c.Write(replyOf(mpa.RFC5044)) }, true},
			row{"a Reply", flags, func(c net.Conn) { _, _ = c.Write(replyOf(mpa.RFC6581)) }, true},
			row{"silence", flags, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, false},
			row{"an end", flags, func(net.Conn) {}, false})
	}
	for _, x := range sample.Of(t, 4, all) {
		t.Run(x.name+" "+x.flags, func(t *testing.T) {
			l := newLab(t)
			port, number := strangePort()
			l.serveAt(port, x.serve)
			if x.foreign {
				requireForeign(t, l.strange(x.flags, gids[x.flags], number, 0, 7))
				return
			}
			requireUnanswered(t, l.strange(x.flags, gids[x.flags], number, 17, 3), 2147, "no answer")
		})
	}
	cable := memifCable(t)
	for _, x := range []struct{ flags, server, at, gid string }{
		{"", "", "0.0.0.0", "127.0.0.9"},
		{cable + cableClient, cable + " --role server --addr 10.9.0.2/24", "10.9.0.2", "10.9.0.2"},
	} {
		t.Run("rping "+x.flags, func(t *testing.T) {
			l := newLab(t)
			port, number := strangePort()
			rping := l.runOn(x.server, "rdmacm-utils", "rping", "-s", "-a", x.at, "-p",
				strconv.Itoa(int(port)))
			rping.Expect(t, 1, "^rnicd: listening at ")
			requireForeign(t, l.strange(x.flags, x.gid, number, 0, 7))
		})
	}
}

// replyOf is an accepting Reply with private data of somebody else.
func replyOf(d mpa.Dialect) []byte {
	p := mpa.Party{PeerToPeer: true, CRC: true, IRD: 4, ORD: 4, RTR: mpa.RTRWrite}
	f := p.Request(d, []byte("of somebody else"))
	f.Kind = mpa.Reply
	return f.Append(nil)
}

// serveAt has connections to a port served, in the lab.
func (l *lab) serveAt(port uint16, serve func(net.Conn)) {
	l.t.Helper()
	var n net.Listener
	var err error
	l.Do(func() { n, err = net.Listen("tcp", ":"+strconv.Itoa(int(port))) })
	require.NoError(l.t, err)
	l.t.Cleanup(func() { _ = n.Close() })
	go func() {
		for {
			c, err := n.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
}

// All slots are taken: the first queue pair says so.
func TestNoSlotAtAll(t *testing.T) {
	l := newLab(t)
	l.Do(func() {
		for port := 28672; port < 32768; port++ {
			c := must(net.ListenUDP("udp", &net.UDPAddr{Port: port}))(t)
			t.Cleanup(func() { _ = c.Close() })
		}
	})
	p := l.strange("", "127.0.0.1", 5<<12|2, 14, 7)
	require.Equal(t, 2, p.Wait(t), "%s", p)
	p.Expect(t, 1, "^no queue pair: Address already in use$")
	p.Expect(t, 1, "^rnicd: all ports from 28672 to 32767 are taken")
}
