package main

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// jsonLine is the only line of JSON that a process printed.
func jsonLine[T any](t testing.TB, p *process) (v T) {
	t.Helper()
	lines := p.Lines(`^\{`)
	require.Len(t, lines, 1, "%s", p)
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &v))
	return v
}

// stream starts `rnicd stream` over the kernel's sockets.
func (ns *namespace) stream(t testing.TB, command string, args ...string) *process {
	t.Helper()
	return ns.rnicd(t, append([]string{"stream", command, "--pmd", "kernel"}, args...)...)
}

// A connection that is under way is told of as what it is when the server is told to end.
func TestStreamServerEndsUnderWay(t *testing.T) {
	ns := newNamespace(t)
	const told = `^failed      127\.0\.0\.1:\d+: cut short: the server was told to end$`
	server := ns.stream(t, "source", "-t", "60s")
	server.Expect(t, 1, "^ready ")
	ns.Do(func() {
		conn := must(net.Dial("tcp", "127.0.0.1:5201"))(t)
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		must(conn.Read(make([]byte, 1)))(t)
		ns.ends(t, server)
	})
	require.Len(t, server.Lines(told), 1, "%s", server)
}

// Every octet arrives, and an echo comes back as it was; either side may be the one that dials.
func TestStreamPlain(t *testing.T) {
	ns := newNamespace(t)
	const all = 10_000_019
	for _, row := range []struct {
		listens, dials []string
		sent, back     uint64
	}{
		{[]string{"sink"}, []string{"source", "-n", "10000019"}, all, 0},
		{[]string{"source", "-n", "10000019", "-l", "1000"}, []string{"sink"}, all, 0},
		{[]string{"echo", "-l", "777"}, []string{"source", "-n", "10000019"}, all, all},
		{[]string{"source", "-n", "10000019"}, []string{"echo"}, all, all},
	} {
		listener := ns.stream(t, row.listens[0], append(row.listens[1:], "--json", "--once")...)
		listener.Expect(t, 1, "^ready ")
		dialler := ns.stream(t, row.dials[0], append(row.dials[1:], "--json", "127.0.0.1")...)
		require.Equal(t, 0, dialler.Wait(t), "%s", dialler)
		require.Equal(t, 0, listener.Wait(t), "%s", listener)
		for _, p := range []*process{listener, dialler} {
			res := jsonLine[plainResult](t, p)
			require.Equal(t, row.sent, res.Bytes, "%s", p)
			require.Equal(t, row.back, res.Back, "%s", p)
			require.Positive(t, res.Seconds)
			require.InEpsilon(t, float64(res.Bytes)*8/res.Seconds/1e9, res.Gbit, 1e-9)
			require.GreaterOrEqual(t, res.Resent, int64(0), "known of either transport")
		}
	}
}

// --parallel is so many connections, each with all that a source sends.
func TestStreamParallel(t *testing.T) {
	ns := newNamespace(t)
	echo := ns.stream(t, "echo", "--json")
	echo.Expect(t, 1, "^ready ")
	source := ns.stream(t, "source", "-n", "300000", "-P", "3", "127.0.0.1")
	require.Equal(t, 0, source.Wait(t), "%s", source)
	source.Expect(t, 3, "^sent        293.0 KiB .*; 293.0 KiB back$")
	echo.Expect(t, 3, `^\{.*"bytes":300000,"bytes_back":300000,`)
	ns.ends(t, echo)
	refused := ns.stream(t, "source", "-n", "1", "-P", "3", "127.0.0.1:9")
	require.Equal(t, 1, refused.Wait(t), "%s", refused)
	require.Len(t, refused.Lines("^rnicd: .*connection refused"), 1, "%s", refused)
}

// A source that gets back something else than it sent says at which octet.
func TestStreamEchoChanged(t *testing.T) {
	ns := newNamespace(t)
	source := ns.stream(t, "source", "-n", "1000", "-l", "100", "--once")
	source.Expect(t, 1, "^ready ")
	ns.Do(func() {
		c := must(net.DialTimeout("tcp4", "127.0.0.1:5201", patience))(t)
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		b := make([]byte, 1000)
		for n := 0; n < len(b); {
			k, err := c.Read(b[n:])
			require.NoError(t, err)
			n += k
		}
		b[250] ^= 1
		must(c.Write(b))(t)
	})
	require.Equal(t, 1, source.Wait(t))
	require.Regexp(t, "^rnicd: octets [0-9]+ to [0-9]+ came back changed$",
		source.Lines("^rnicd: ")[0])
}

// A peer that goes silent or away ends its own connection only.
func TestStreamPlainBadPeers(t *testing.T) {
	ns := newNamespace(t)
	sink := ns.stream(t, "sink", "--idle-timeout", "300ms")
	sink.Expect(t, 1, "^ready ")
	ns.Do(func() {
		silent := must(net.DialTimeout("tcp4", "127.0.0.1:5201", patience))(t)
		defer silent.Close()
		sink.Expect(t, 1, `^failed .*nothing moved for 300ms`)
		reset := must(net.DialTimeout("tcp4", "127.0.0.1:5201", patience))(t)
		must(reset.Write([]byte("x")))(t)
		require.NoError(t, reset.(*net.TCPConn).SetLinger(0))
		require.NoError(t, reset.Close())
		sink.Expect(t, 1, `^failed .*connection reset by peer`)
	})
	source := ns.stream(t, "source", "-n", "1MiB", "127.0.0.1")
	require.Equal(t, 0, source.Wait(t), "%s", source)
	sink.Expect(t, 1, `^received    1\.0 MiB in `)
	ns.ends(t, sink)
}

// Wrong flags and absent peers: one line, status 1.
func TestStreamErrors(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	for _, c := range []struct{ args, want string }{
		{"sink --idle-timeout 0s", `--idle-timeout 0s: must be positive`},
		{"sink --pmd tap --gateway banana",
			`--gateway "banana": want the address of a router on the link, as 10\.9\.0\.254`},
		{"sink --pmd tap --gateway 10.8.0.1",
			`stack: poller "rnic0": gateway 10\.8\.0\.1 is not on 10\.9\.0\.0/24`},
		{"sink --pmd tap --congestion bbr",
			`--congestion: congestion control "bbr" is not known; choose one of .*cubic.*`},
		{"sink --pmd tap --addr fd09::1/64 --mtu 1000",
			`stack: poller "rnic0": MTU 1000: IPv6 wants at least 1280`},
		{"sink --peer-max 9",
			`--pmd kernel has no use for --peer-max here: the kernel accepts what comes; leave it out`},
		{"sink --queues 2", `--pmd kernel has no use for --queues: leave it out`},
		{"source --spin 127.0.0.1", `--pmd kernel has no use for --spin: leave it out`},
		{"source 127.0.0.1",
			`dial tcp 127\.0\.0\.1:5201: connect: connection refused; is a server running there\? --wait 5s waits for one`},
		{"source --wait 200ms 127.0.0.1:9",
			`dial tcp 127\.0\.0\.1:9: connect: connection refused; no server listened there for --wait 200ms`},
		{"source -p 9 127.0.0.1", `dial tcp 127\.0\.0\.1:9: connect: connection refused; .*`},
		{"source -p 9 127.0.0.1:10", `dial tcp 127\.0\.0\.1:10: connect: connection refused; .*`},
		{"source 127.0.0.1:0", `"127\.0\.0\.1:0": port "0" is not a number from 1 to 65535`},
		{"source -t 0 127.0.0.1", `--time 0s: must be positive`},
		{"source -t banana 127.0.0.1", `--time "banana": want seconds, as 2, or a duration, as 500ms`},
		{"source -t -2 127.0.0.1", `--time "-2": want seconds, .*`},
		{"source --local-port 9", `--local-port: of no use without HOST: leave it out`},
		{"echo --wait 5s", `--wait: of no use without HOST: leave it out`},
		{"sink --pmd tap --peer-max 3 127.0.0.1", `--peer-max: of no use with HOST: leave it out`},
		{"sink --local-port 0 127.0.0.1", `--local-port "0": want 1 to 65535`},
		{"echo -P 2", `--parallel: of no use without HOST: leave it out`},
		{"echo -P 65 127.0.0.1", `--parallel 65: want 1 to 64`},
		{"echo -P 2 --local-port 9 127.0.0.1",
			`--local-port is of no use to several connections: leave it or --parallel out`},
		{"source --length 0 127.0.0.1", `--length 0: want 1 to 1048576`},
		{"source -t 1s -n 1 127.0.0.1", `only one of --time and --bytes can end the sending`},
		{"sink --once 127.0.0.1:9",
			`dial tcp 127\.0\.0\.1:9: connect: connection refused; is a server running there\? --wait 5s waits for one`},
	} {
		t.Run(c.args, func(t *testing.T) {
			command, flags, _ := strings.Cut(c.args, " ") // of which the last --pmd counts
			ns.fails(t, "stream "+command+" --pmd kernel "+flags, c.want+"$")
		})
	}
}

// A listening stream command gives one address as many connections as --peer-max says: a further
// one is not answered, one of another address is, and so is the next when one has gone.
func TestStreamPeerMax(t *testing.T) {
	for _, command := range []string{"echo", "sink"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			const other = "10.9.0.253"
			ns := newNamespace(t)
			server := ns.listening(t, "stream "+command+" --host-addr 10.9.0.254/24 --peer-max 2 --counters")
			ns.Run(t, "ip", "addr", "add", other+"/24", "dev", "rnic0")
			ns.Do(func() {
				dial := func(from string, within time.Duration) (net.Conn, error) {
					d := net.Dialer{Timeout: within, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
					return d.Dial("tcp4", serverHost+":5201")
				}
				first := must(dial(kernelHost, patience))(t)
				second := must(dial(kernelHost, patience))(t)
				defer second.Close()
				_, err := dial(kernelHost, 100*time.Millisecond)
				require.Error(t, err)
				stranger := must(dial(other, patience))(t)
				defer stranger.Close()
				require.NoError(t, first.(*net.TCPConn).SetLinger(0))
				require.NoError(t, first.Close())
				again := must(dial(kernelHost, patience))(t)
				require.NoError(t, again.Close())
			})
			ns.ends(t, server)
			require.NotEmpty(t, server.Lines(`stack/peer max +[1-9]`), "%s", server)
		})
	}
}

// A stream command that dials without --pmd, and cannot, says that it has our TCP, and what has
// not.
func TestStreamKernelHint(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	for words, hint := range map[string]int{
		"stream sink 127.0.0.1": 1, "stream source -t 1 127.0.0.1": 1,
		"stream sink --pmd tap 127.0.0.1": 0,
	} {
		p := ns.exits(t, 1, strings.Fields(words)...)
		require.Len(t, p.Lines("^rnicd: .*network is unreachable"), 1, "%s", p)
		require.Len(t, p.Lines("^rnicd: .*: --pmd kernel dials with this host's$"), hint, "%s", p)
	}
}

// --addr, of the kernel's addresses, and --local-port are where a connection comes from.
func TestStreamFrom(t *testing.T) {
	ns := newNamespace(t)
	sink := ns.stream(t, "sink", "--addr", "127.0.0.2", "--once")
	sink.Expect(t, 1, `^ready +127\.0\.0\.2:5201, sink$`)
	ns.succeeds(t, "stream source --pmd kernel --addr 127.0.0.3 --local-port 4444 -n 1000 127.0.0.2")
	require.Equal(t, 0, sink.Wait(t), "%s", sink)
	sink.Expect(t, 1, `^received    1000 B .*from 127\.0\.0\.3:4444`)
}
