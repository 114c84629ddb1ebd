package main

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/sample"
)

// Where a client of ours is that has its own TCP: on a second TAP, bridged with the first.
const (
	clientHost = "10.9.0.2"
	toolBridge = "br0"
)

// bridged makes a bridge; what attach is called with joins it.
func (ns *namespace) bridged(t testing.TB) {
	t.Helper()
	ns.Run(t, "ip", "link", "add", toolBridge, "type", "bridge", "forward_delay", "0", "stp_state",
		"0", "mcast_snooping", "0")
	ns.Run(t, "ip", "addr", "add", kernelHost+"/24", "dev", toolBridge)
	ns.Run(t, "ip", "link", "set", toolBridge, "up")
}

func (ns *namespace) attach(t testing.TB, p *process, device string) {
	t.Helper()
	p.Expect(t, 1, "^device ")
	ns.Run(t, "ip", "link", "set", device, "master", toolBridge, "up")
}

// listening starts a server command and waits until it is ready.
func (ns *namespace) listening(t testing.TB, words string) *process {
	t.Helper()
	p := ns.rnicd(t, strings.Fields(words)...)
	p.Expect(t, 1, "^ready ")
	return p
}

// succeeds runs a command that must end well.
func (ns *namespace) succeeds(t testing.TB, words string) *process {
	t.Helper()
	p := ns.rnicd(t, strings.Fields(words)...)
	require.Zero(t, p.Wait(t), "%s\n%s", words, p)
	return p
}

// fails runs a command that must end with one line of an error like want. What it prints of a
// device that it has opened is no error.
func (ns *namespace) fails(t testing.TB, words, want string) {
	t.Helper()
	p := ns.rnicd(t, strings.Fields(words)...)
	require.Equal(t, 1, p.Wait(t), "%s\n%s", words, p)
	lines := errorLines(p)
	if strings.Contains(words, "--core") || strings.HasPrefix(words, "stream ") {
		lines = p.Lines("^rnicd: ")
	}
	require.Len(t, lines, 1, "%s", p)
	require.Regexp(t, "^rnicd: "+want, lines[0], words)
}

// ends ends a server that was told to.
func (ns *namespace) ends(t testing.TB, server *process) {
	t.Helper()
	server.Signal(t, syscall.SIGTERM)
	require.Equal(t, 0, server.Wait(t), "%s", server)
}

// Every measurement, over kernel sockets: a table with a line for each size, and the server says
// what it was.
func TestPerfOverKernelSockets(t *testing.T) {
	ns := newNamespace(t)
	server := ns.listening(t, "perf server --pmd kernel --addr 127.0.0.1")
	for _, op := range []string{"write", "read", "send", "atomic"} {
		p := ns.succeeds(t, "perf "+op+" bw 127.0.0.1 -n 200 --warmup 10")
		size := "65536"
		if op == "atomic" {
			size = "8"
		}
		require.Len(t, p.Lines("^ #bytes +#iterations +BW peak"), 1, "%s", p)
		require.Len(t, p.Lines(`^ `+size+` +200 +\d+\.\d\d +\d+\.\d\d +\d+\.\d{6}$`), 1, "%s", p)
		require.Len(
			t, p.Lines("^"+op+` bandwidth with 127\.0\.0\.1:7175: rfc6581, CRC32C, no markers, ORD 32$`), 1,
			"%s", p)
		p = ns.succeeds(t, "perf "+op+" lat 127.0.0.1 -n 100 -s 8")
		require.Len(
			t,
			p.Lines(
				`^ #bytes +#iterations +t_min\[usec\] +t_max\[usec\] +t_typical\[usec\] .* 99\.9% percentile\[usec\]$`), 1, "%s", p)
		require.Len(t, p.Lines(`^ 8 +100( +\d+\.\d\d){7}$`), 1, "%s", p)
		server.Expect(t, 1, "^measured    "+op+" bandwidth, messages of "+size+
			` octets, in \S+ s, by 127\.0\.0\.1:\d+$`)
		server.Expect(t, 1, "^measured    "+op+" latency, messages of 8 octets")
	}
	p := ns.succeeds(t, "perf write bw 127.0.0.1 --all -n 30")
	require.Len(t, p.Lines(`^ \d+ +30 `), 23, "%s", p)
	require.Len(t, p.Lines(`^ 8388608 +30 `), 1, "%s", p)
	require.Empty(t, server.Lines("^(failed|refused)"), "%s", server)
	ns.ends(t, server)
}

// --json is one line a size and nothing else on standard output; without a peak, null stands there.
func TestPerfJSON(t *testing.T) {
	ns := newNamespace(t)
	server := ns.listening(t, "perf server --pmd kernel --addr 127.0.0.1")
	one := func(words string) (rec perfRecord) {
		out := filepath.Join(t.TempDir(), "out")
		args := append([]string{"-c", `"$@" > "$0"`, out, programPath(t)}, strings.Fields(words)...)
		p := ns.Start(t, exec.Command("sh", args...))
		require.Zero(t, p.Wait(t), "%s", p)
		text := must(os.ReadFile(out))(t)
		require.NoError(t, json.Unmarshal(text, &rec), "%s", text)
		return rec
	}
	rec := one("perf send bw 127.0.0.1 -s 1000 -n 500 --json")
	require.Equal(t, "send_bw", rec.Test)
	require.Equal(t, []any{1000, uint64(500)}, []any{rec.SizeOctets, rec.Iterations})
	require.InEpsilon(t, 500*1000/rec.ElapsedSeconds, rec.Bandwidth.Average, 1e-6)
	require.GreaterOrEqual(t, *rec.Bandwidth.Peak, rec.Bandwidth.Average)
	require.Nil(t, rec.Latency)
	rec = one("perf write bw 127.0.0.1 -D 50ms --json")
	require.Nil(t, rec.Bandwidth.Peak)
	require.GreaterOrEqual(t, rec.ElapsedSeconds, 0.05)
	rec = one("perf read lat 127.0.0.1 -n 50 --json")
	require.Equal(t, "read_lat", rec.Test)
	require.Nil(t, rec.Bandwidth)
	require.LessOrEqual(t, rec.Latency.Min, rec.Latency.Median)
	require.LessOrEqual(t, rec.Latency.Median, rec.Latency.Max)
	ns.ends(t, server)
}

// Our TCP at both ends, on two TAPs of a bridge, through a bad network: measurements and files
// come through it all.
func TestToolsOverOurTCP(t *testing.T) {
	ns := newNamespace(t)
	ns.bridged(t)
	const bad = " --fault drop=0.5%,reorder=1%,dup=0.5%,seed=3"
	client := func(words string) *process {
		t.Helper()
		p := ns.rnicd(t, append(strings.Fields(words), "--pmd", "tap", "--wait", "20s",
			"--timeout", "60s")...)
		ns.attach(t, p, "rnic1")
		require.Zero(t, p.Wait(t), "%s", p)
		require.False(t, ns.Has(t, "rnic1"), "the TAP is still there")
		return p
	}
	start := func(words string) *process {
		t.Helper()
		p := ns.rnicd(t, strings.Fields(words+bad)...)
		ns.attach(t, p, "rnic0")
		p.Expect(t, 1, "^ready ")
		return p
	}
	t.Run("perf", func(t *testing.T) {
		server := start("perf server")
		for _, kind := range sample.Of(t, 2, []string{"write bw", "write lat", "read bw", "send bw",
			"send lat", "atomic lat"}) {
			words := "perf " + kind + " " + serverHost + " -n 100"
			if strings.HasSuffix(kind, "bw") {
				words += " -s 20000"
			}
			p := client(words)
			require.Len(t, p.Lines(`^ \d+ +100 `), 1, "%s", p)
		}
		require.Empty(t, server.Lines("^(failed|refused)"), "%s", server)
		ns.stop(t, server)
	})
	t.Run("files", func(t *testing.T) {
		f := randomFile(t, 3<<20+17)
		server := start("serve --region 8MiB --file " + f.path)
		p := client("put --quiet " + f.path + " " + serverAddr)
		require.Len(t, p.Lines("^sha256 +"+f.sum+"$"), 1, "%s", p)
		require.Len(t, p.Lines("^start-up +rfc5044, CRC32C, markers both ways$"), 1, "%s", p)
		got := filepath.Join(t.TempDir(), "got")
		p = client("get --quiet " + serverAddr + " " + got)
		require.Len(t, p.Lines("^sha256 +"+f.sum+"$"), 1, "%s", p)
		requireSame(t, f.path, got)
		server.Expect(t, 2, "^sha256 +"+f.sum+"$")
		ns.stop(t, server)
	})
}

// A server that vanishes silently, as when its cable is cut, is noticed within
// --user-timeout, over either transport, by an end that sends and by one that only waits.
func TestUserTimeout(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	ns := newNamespace(t)
	ns.bridged(t)
	for _, kind := range []string{"write bw", "read bw"} {
		for _, pmd := range sample.Of(t, 1, []string{"kernel", "tap"}) {
			t.Run(kind+" "+pmd, func(t *testing.T) {
				server := ns.rnicd(t, "perf", "server")
				ns.attach(t, server, "rnic0")
				server.Expect(t, 1, "^ready ")
				words := "perf " + kind + " " + serverHost +
					" --duration 1h --user-timeout 1s --wait 20s --pmd " + pmd
				client := ns.rnicd(t, strings.Fields(words)...)
				if pmd == "tap" {
					ns.attach(t, client, "rnic1")
				}
				client.Expect(t, 1, "^(write|read) bandwidth with ")
				ns.Run(t, "ip", "link", "set", "rnic0", "nomaster")
				require.Equal(t, 1, client.Wait(t), "%s", client)
				// the kernel says what ARP said
				require.Len(t, client.Lines("^rnicd: .*(timed out|no route to host)"), 1, "%s", client)
				ns.stop(t, server)
			})
		}
	}
	ns.fails(t, "perf write bw 127.0.0.1 --user-timeout 999ms",
		`--user-timeout 999ms: want 1s or more$`)
}

func requireSame(t testing.TB, want, got string) {
	t.Helper()
	a := must(os.ReadFile(want))(t)
	b := must(os.ReadFile(got))(t)
	require.True(t, string(a) == string(b), "%s and %s differ", want, got)
}

// Files of every awkward size come whole, into a new file or over an old one, which keeps its mode.
func TestGetFiles(t *testing.T) {
	ns := newNamespace(t)
	dir := t.TempDir()
	for _, n := range []int{0, 1, 4097, 9 << 20} {
		f := randomFile(t, n)
		server := ns.listening(t, "serve --pmd kernel --addr 127.0.0.1 --region 1MiB --file "+f.path)
		got := filepath.Join(dir, "got-"+strconv.Itoa(n))
		if n == 1 {
			require.NoError(t, os.WriteFile(got, []byte("something longer"), 0o640))
		}
		p := ns.succeeds(t, "get 127.0.0.1 "+got)
		require.Len(t, p.Lines("^got +"+got+" from 127.0.0.1:7174$"), 1, "%s", p)
		require.Len(t, p.Lines("^start-up +rfc6581, CRC32C, no markers$"), 1, "%s", p)
		requireSame(t, f.path, got)
		if n == 1 {
			st := must(os.Stat(got))(t)
			require.EqualValues(t, 0o640, st.Mode().Perm())
		}
		server.Expect(t, 1, "^sent +"+regexp.QuoteMeta(octets(uint64(n)))+` to 127\.0\.0\.1:\d+$`)
		server.Expect(t, 1, "^sha256 +"+f.sum+"$")
		ns.ends(t, server)
	}
	left := must(filepath.Glob(filepath.Join(dir, ".*")))(t)
	require.Empty(t, left)
}

// If get fails it leaves no new file, and an old file unchanged.
func TestGetErrors(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	f := randomFile(t, 3<<20)
	small := filepath.Join(t.TempDir(), "small")
	require.NoError(t, os.Mkdir(small, 0o700))
	require.NoError(t, unix.Mount("tmpfs", small, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(small, 0)) })
	old := filepath.Join(small, "old")
	require.NoError(t, os.WriteFile(old, []byte("old"), 0o600))

	nowhere := filepath.Join(t.TempDir(), "x") // FILE

	empty := ns.listening(t, "serve --pmd kernel --addr 127.0.0.1 --region 1MiB --port 7001")
	server := ns.listening(t, "serve --pmd kernel --addr 127.0.0.1 --region 1MiB --file "+f.path)
	measures := ns.listening(t, "perf server --pmd kernel --addr 127.0.0.1 --port 7002")
	for words, want := range map[string]string{
		"127.0.0.1:7001 " + small +
			"/x": `get from 127\.0\.0\.1:7001: xfer: the server refused: this server has no file to read; start it with --file$`,
		"127.0.0.1:7002 " + small +
			"/x": `get from 127\.0\.0\.1:7002: xfer: the server refused: .*\(16 octets\) is no request for a test; this is .rnicd perf server.$`,
		"127.0.0.1 " +
			old: `get from 127\.0\.0\.1:7174: .*/old: no room for the 3\.0 MiB \(3145728 octets\) that the server offers: 1020\.0 KiB of its file system are free$`,
		"--size-max 1MiB 127.0.0.1 FILE": `get from 127\.0\.0\.1:7174: the server offers 3\.0 MiB \(3145728 octets\), --size-max is 1\.0 MiB$`,
		"--size-max -1 127.0.0.1 FILE":   `--size-max: "-1" is not a size`,
		"127.0.0.1:9 " + small +
			"/x": `rnic: connect to 127\.0\.0\.1:9: .*connection refused; is a server running there\?`,
		"127.0.0.1 " + small:                      `.*/small is a directory; want the name of a file$`,
		"127.0.0.1 -":                             `-: a file gets its name when all of it is there, and standard output has none; a file of that name is \./-$`,
		"127.0.0.1 /dev/null":                     `/dev/null is not a regular file, and would be replaced by one$`,
		"127.0.0.1 /no/such/dir/x":                `stat /no/such/dir: no such file or directory$`,
		"127.0.0.1":                               `1 argument given; want: rnicd get HOST\[:PORT\] FILE$`,
		"--addr 10.9.0.2/24 127.0.0.1 FILE":       `--pmd kernel has no use for --addr in a client: leave it out$`,
		"--fault drop=1% 127.0.0.1 FILE":          `--pmd kernel has no use for --fault: leave it out$`,
		"--dialect rfc9 127.0.0.1 FILE":           `--dialect "rfc9": want`,
		"--pmd tap --mtu 5 127.0.0.1 FILE":        `--mtu 5: want 576 to`,
		"--pmd banana 127.0.0.1 FILE":             `--pmd "banana": want`,
		"--timeout -1s 127.0.0.1 " + small + "/x": `--timeout -1s, --wait 0s: must not be negative$`,
	} {
		ns.fails(t, "get --quiet "+strings.ReplaceAll(words, "FILE", nowhere), want)
	}
	server.Expect(t, 2, "^failed .*without reading anything: it may have no room for the file, or "+
		"be told a --size-max$")
	content := must(os.ReadFile(old))(t)
	require.Equal(t, "old", string(content))
	entries := must(os.ReadDir(small))(t)
	require.Len(t, entries, 1)
	empty.Expect(t, 1, "^refused +127.*: this server has no file to read")
	server.Expect(t, 1, "^failed ")
	for _, p := range []*process{empty, server, measures} {
		ns.ends(t, p)
	}
	ns.fails(t, "serve --file /no/such --region 1MiB",
		`--file: open /no/such: no such file or directory$`)
	ns.fails(t, "serve --file - --region 1MiB",
		`--file: -: the length must be known beforehand, and standard input has none; a file of that name is \./-$`)
	ns.fails(t, "serve --file= --region 1MiB", `--file "": want the name of a file$`)
}

// resetting listens at addr of the namespace until the test is over, and resets all connections.
func (ns *namespace) resetting(t *testing.T, addr string) {
	t.Helper()
	var l net.Listener
	var err error
	ns.Do(func() { l, err = net.Listen("tcp", addr) })
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
	}()
}

// Wrong words and flags of perf, and servers of something else: one line each.
func TestToolErrors(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	files := ns.listening(t, "serve --pmd kernel --addr 127.0.0.1 --region 1MiB --port 7001")
	ns.rejecting(t, "127.0.0.1:7003", "")
	ns.resetting(t, "127.0.0.1:7004")
	echo := ns.listening(t, "stream echo --pmd kernel --addr 127.0.0.1 --port 7005")
	small := ns.listening(t, "perf server --pmd kernel --addr 127.0.0.1 --size-max 1000 --port 7002")
	for words, want := range sample.Map(t, 12, map[string]string{
		"perf write bw 127.0.0.1:7001":        `perf with 127\.0\.0\.1:7001: perf: the server refused: xfer: malformed message: .* is not a transfer request; this is .rnicd serve.$`,
		"perf write bw 127.0.0.1:9":           `rnic: connect to 127\.0\.0\.1:9: .*connection refused; is a server running there\?`,
		"perf write bw 127.0.0.1:7003":        `rnic: connect to 127\.0\.0\.1:7003: .*connection rejected by the peer \(0 octets of private data\); is it a server of something else\?$`,
		"perf write bw 127.0.0.1:7004":        `rnic: connect to 127\.0\.0\.1:7004: .*; what listens there may be no server of RDMA over TCP, or is full \(--peer-max\)$`,
		"perf write bw 127.0.0.1:7005":        `rnic: connect to 127\.0\.0\.1:7005: mpa: .*; what listens there may be no server of RDMA over TCP$`,
		"perf write best 127.0.0.1":           `"best": want bw or lat$`,
		"perf write bw":                       `1 argument given; want: rnicd perf write bw\|lat HOST\[:PORT\]$`,
		"perf rite bw 127.0.0.1":              `unknown command "rite" for "rnicd perf"; did you mean write\?$`,
		"perf write bw 127.0.0.1 -a -s 5":     `--all and --size: choose one$`,
		"perf write bw 127.0.0.1 -D 1s -n 5":  `--duration and --iters: choose one$`,
		"perf write bw 127.0.0.1 -n 0":        `--iters 0: want 1 or more$`,
		"perf write bw 127.0.0.1 -s 0":        `--size 0: want 1 to 67108864 octets$`,
		"perf write bw 127.0.0.1 -D 0s":       `--duration 0s: must be positive$`,
		"perf write bw 127.0.0.1 --warmup -1": `--warmup -1: must not be negative$`,
		"perf write bw 127.0.0.1 -t 0":        `--tx-depth 0: want 1 to 4096$`,
		"perf send bw 127.0.0.1 -r 5000":      `--rx-depth 5000: want 1 to 4096$`,
		"perf atomic bw 127.0.0.1 -s 16":      `--size 16: an atomic has 8 octets$`,
		"perf atomic bw 127.0.0.1 -a":         `--all: an atomic has 8 octets$`,
		"perf server --size-max 65MiB":        `--size-max 65MiB: want 1 to 67108864 octets$`,
		"perf server --clients 0":             `--clients 0: want 1 to 256$`,
		"perf server --idle-timeout 0s":       `--idle-timeout 0s: must be positive$`,
		"perf demo swim bw":                   `"swim": want write, read, send or atomic$`,
		"perf demo write bw --fault banana":   `--fault: fault: "banana"`,
	}) {
		ns.fails(t, words, want)
	}
	ns.fails(t, "perf write bw 127.0.0.1:7002",
		`perf with 127\.0\.0\.1:7002: perf: the server refused: messages of 65536 octets asked for, 1 to 1000 served$`)
	// on a TAP that leads nowhere
	alone := ns.exits(t, 1, "perf", "write", "bw", "10.9.0.254", "--pmd", "tap")
	require.Contains(t, alone.String(),
		"no route to host; no host on rnic1 answers: --host-addr gives the kernel's side of it "+
			"an address")
	small.Expect(t, 1, "^refused +127.*: messages of 65536 octets asked for, 1 to 1000 served$")
	for _, p := range []*process{small, files, echo} {
		ns.ends(t, p)
	}
}

// A tool that is interrupted says so and ends with status 130; a server goes on when its client is
// killed, and tells when it is.
func TestToolsInterrupted(t *testing.T) {
	ns := newNamespace(t)
	server := ns.listening(t, "perf server --pmd kernel --addr 127.0.0.1")
	client := ns.rnicd(t, "perf", "write", "lat", "127.0.0.1", "-D", "60s")
	client.Expect(t, 1, "^ #bytes")
	client.Signal(t, os.Interrupt)
	require.Equal(t, 130, client.Wait(t), "%s", client)
	server.Expect(t, 1, "^failed +127")
	client = ns.rnicd(t, "perf", "send", "bw", "127.0.0.1", "-D", "60s")
	client.Expect(t, 1, "^ #bytes")
	client.Signal(t, os.Kill)
	client.Wait(t)
	server.Expect(t, 2, "^failed +127")
	client = ns.rnicd(t, "perf", "read", "lat", "127.0.0.1", "-D", "60s")
	client.Expect(t, 1, "^ #bytes")
	server.Signal(t, os.Kill)
	server.Wait(t)
	require.Equal(t, 1, client.Wait(t), "%s", client)
	require.Len(t, client.Lines(`^rnicd: perf with 127\.0\.0\.1:7175: `), 1, "%s", client)
}

// Both ends in one process, without root, through a bad cable too.
func TestPerfDemo(t *testing.T) {
	for _, words := range []string{
		"perf demo write bw -n 300", "perf demo read bw -n 100 --no-markers --no-crc",
		"perf demo send lat -n 100",
		"perf demo atomic lat -n 100",
		"perf demo write bw -s 30000 -n 100 --fault drop=1%,reorder=1%,seed=5",
	} {
		p := netlab.Start(t, exec.Command(programPath(t), strings.Fields(words)...))
		require.Zero(t, p.Wait(t), "%s", p)
		require.Len(t, p.Lines(`^ \d+ +\d00 `), 1, "%s", p)
	}
}
