package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/skip"
)

// Errors of the client's own, and of its server's absence: one line, status 1.
func TestPutErrors(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	ns.serving(t) // its network has hosts that do not answer
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	files := strings.NewReplacer("FILE", randomFile(t, 10).path, "FIFO", fifo)
	for words, want := range map[string]string{
		"FIFO 127.0.0.1": `.*/fifo is not a regular file; its length must be known beforehand`,
		"/tmp 127.0.0.1": `/tmp is a directory; want a file`,
		"- 127.0.0.1": `-: the length must be known beforehand, and standard input has none; ` +
			`a file of that name is \./-`,
		"/tmp/no/such 127.0.0.1": `open /tmp/no/such: no such file or directory`,
		"/dev/zero 127.0.0.1":    `/dev/zero is not a regular file; its length must be known beforehand`,
		"FILE 127.0.0.1:9": `rnic: connect to 127\.0\.0\.1:9: .*connection refused; ` +
			`is a server running there\? --wait 5s waits for one`,
		"FILE 127.0.0.1": `rnic: connect to 127\.0\.0\.1:7174: .*connection refused; ` +
			`is a server running there\? --wait 5s waits for one`,
		"--wait 200ms FILE 127.0.0.1:9": `rnic: connect to 127\.0\.0\.1:9: .*connection refused; ` +
			`no server listened there for --wait 200ms`,
		"FILE 192.0.2.1": `rnic: connect to 192\.0\.2\.1:7174: ` +
			`.*(no route to host|network is unreachable)`,
		"FILE :7174": `":7174" names no server: want HOST or HOST:PORT`,
		"127.0.0.1 FILE": `open 127\.0\.0\.1: no such file or directory; ` +
			`the file comes first: rnicd put FILE HOST\[:PORT\]`,
		"10.9.0.77:7174 image": `open 10\.9\.0\.77:7174: no such file or directory; ` +
			`the file comes first: rnicd put FILE HOST\[:PORT\]`,
		"FILE FILE":               `".+/random-10" names no server: want HOST or HOST:PORT`,
		"FILE 127.0.0.1:0":        `"127\.0\.0\.1:0": port "0" is not a number from 1 to 65535`,
		"FILE 127.0.0.1:65536":    `"127\.0\.0\.1:65536": port "65536" is not a number from 1 to 65535`,
		"FILE":                    `1 argument given; want: rnicd put FILE HOST\[:PORT\]`,
		"--banana FILE 127.0.0.1": `unknown flag: --banana; see rnicd put --help`,
		"--dialect rfc9999 FILE 127.0.0.1": `--dialect "rfc9999": ` +
			`want rddp-01, rfc5044, rtr or rfc6581`,
		"--dialect= FILE 127.0.0.1": `--dialect "": want rddp-01, rfc5044, rtr or rfc6581`,
		"--dialect culley-02 FILE 127.0.0.1": `--dialect "culley-02": ` + // which has no frames
			`want rddp-01, rfc5044, rtr or rfc6581`,
		"--timeout -1s FILE 127.0.0.1": `--timeout -1s, --wait 0s: must not be negative`,
		"--timeout 300ms FILE 10.9.0.77": `gave up after --timeout 300ms: ` +
			`rnic: connect to 10\.9\.0\.77:7174: .*(timed out|timeout|deadline exceeded); ` +
			`nothing answers there: .*`,
		"--timeout 300ms --wait 5s FILE 127.0.0.1:9": `gave up after --timeout 300ms: ` +
			`rnic: connect to 127\.0\.0\.1:9: .*connection refused`,
	} {
		begin := time.Now()
		ns.fails(t, "put "+files.Replace(words), want+"$")
		require.Less(t, time.Since(begin), 20*time.Second, words)
	}
}

// A name that is empty, as of a variable that is not set, is told as such.
func TestEmptySource(t *testing.T) {
	_, _, err := openSource("")
	require.EqualError(t, err, "the name of the file is empty")
}

// A get whose words are in put's order says which comes first. A name that is merely unknown is
// the resolver's fault alone.
func TestGetSwapped(t *testing.T) {
	ns := newNamespace(t)
	const hint = `; the server comes first: rnicd get HOST\[:PORT\] FILE$`
	file := randomFile(t, 10).path
	ns.fails(t, "get "+file+" 10.9.0.1", `".+/random-10" names no server: want HOST or HOST:PORT`+hint)
	ns.fails(t, "get copy 10.9.0.1", `rnic: connect to copy:7174: .+`+hint)
	ns.fails(t, "get copy [fd09::1]:7174", `rnic: connect to copy:7174: .+`+hint)
	ns.fails(t, "get nobody.invalid copy",
		`rnic: connect to nobody\.invalid:7174: .*lookup nobody\.invalid[^;]*$`)
}

// serveErrors are flags of serve and patterns of the errors that they cause.
var serveErrors = []struct{ args, want string }{
	{"--addr banana",
		`--addr "banana": want an address with its prefix length, as 10\.9\.0\.1/24 or fd09::1/64`},
	{"--addr 10.9.0.1", `--addr "10\.9\.0\.1": want an address with its prefix length`},
	{"--addr ::1/64", `--addr ::1/64: want the unicast address of a host`},
	{"--addr 224.0.0.1/24", `--addr 224\.0\.0\.1/24: want the unicast address of a host`},
	{"--host-addr banana", `--host-addr "banana": want an address with its prefix length`},
	{"--pmd banana", `--pmd "banana": want tap, dpdk, memif or kernel`},
	{"--pmd kernel --capture a.pcapng", `--capture: .* as root: tcpdump -i any -U -w 'a.pcapng' tcp$`},
	{"--pmd kernel --fault drop=1%", `--pmd kernel has no use for --fault: leave it out`},
	{"--pmd kernel --mtu 9000 --congestion reno",
		`--pmd kernel has no use for --congestion, --mtu: leave it out`},
	{"--pmd kernel --no-markers --drop-bad-crc",
		`--pmd kernel has no use for --no-markers, --drop-bad-crc: leave it out`},
	{"--pmd kernel --addr 127.0.0.1/8",
		`--addr "127\.0\.0\.1/8": with --pmd kernel want one address of this host, without a prefix length, as 127\.0\.0\.1`},
	{"--pmd kernel --addr 127.0.0.1,127.0.0.2",
		`--addr "127\.0\.0\.1,127\.0\.0\.2": with --pmd kernel want one address`},
	{"--pmd kernel --addr 192.0.2.1 --region 1MiB",
		`rnic: listen on "192\.0\.2\.1:7174": listen tcp4 192\.0\.2\.1:7174: bind: cannot assign requested address`},
	{"--pci 0000:01:00.0", `--pmd tap has no use for --pci: leave it out`},
	{"--queues 0", `--queues 0: want 1 to 64`},
	{"--addr 10.9.0.0/24",
		`--addr 10\.9\.0\.0/24: the first and the last address of a network are no host's`},
	{"--addr 10.9.3.255/22",
		`--addr 10\.9\.3\.255/22: the first and the last address of a network are no host's`},
	{"--host-addr 10.9.0.1/24",
		`--host-addr 10\.9\.0\.1/24: that is our stack's own address, by --addr; give the kernel's side another of its network`},
	{"--host-addr 10.8.0.1/24",
		`--host-addr 10\.8\.0\.1/24: not in the network of --addr 10\.9\.0\.1/24, so our stack could not answer it; choose one of that network, or name a --gateway`},
	{"--host-addr fd09::1/64", `--host-addr fd09::1/64: not in the network of --addr 10\.9\.0\.1/24`},
	{"--gateway 10.9.0.1",
		`stack: poller "rnic0": gateway 10\.9\.0\.1 is our own address; name a router's`},
	{"--page 3M", `--page "3M": want auto, 2M, 1G or normal`},
	{"--fault drop=200%", `--fault: fault: "drop=200%": a probability is 0% to 100%, or 0 to 1`},
	{"--fault banana", `--fault: fault: "banana": write key=value, such as drop=1%`},
	{"--core 999", `stack: poller "rnic0": core 999 is not available; allowed CPUs: [-0-9,]+`},
	{"--idle banana", `--idle "banana": want adaptive, spin, pause, sleep, interrupt`},
	{"--idle sleep --spin", `--spin and --idle sleep: give only one`},
	{"--idle interrupt --fault drop=1%",
		`stack: poller "rnic0": IdleInterrupt, but its queue has no interrupts`},
	{"--flow-control full", `--pmd tap has no use for --flow-control: leave it out`},
	{"--cores 0-", `--cores "0-": want CPUs as 2-5 or 2,4,6`},
	{"--cores 0,0", `--cores "0,0": 0 twice; a Poller has a CPU of its own`},
	{"--cores 0-1 --core 0", `--core and --cores: give only one`},
	{"--cores 0-1 --queues 3", `--cores 0-1: 2 CPUs for --queues 3: want one for each`},
	{"--cores 0-64", `--cores 0-64: 65 CPUs, and a device has at most 64 queues`},
	{"--pmd kernel --cores 0", `--pmd kernel has no use for --cores: leave it out`},
	{"--core -7", `stack: poller "rnic0": core -7 is not available; allowed CPUs: [-0-9,]+`},
	{"--mtu -1", `--mtu -1: want 576 to 65521 octets`},
	{"--mtu 65535", `--mtu 65535: want 576 to 65521 octets`},
	{"--mtu banana", `--mtu "banana": want a whole number`},
	{"--mtu 99999999999999999999", `--mtu "99999999999999999999": want a smaller number`},
	{"--port 0", `--port "0": want 1 to 65535`},
	{"--port 70000", `--port "70000": want 1 to 65535`},
	{"--vlan 4095", `--vlan "4095": want 0 to 4094`},
	{"--once=banana", `--once "banana": want true or false`},
	{"--idle-timeout banana", `--idle-timeout "banana": want a duration, as 2s`},
	{"--idle-timeout 2", `--idle-timeout "2": want a duration, as 2s`},
	{"--rto-min 0", `--rto-min 0s: want 10µs to 1m0s`},
	{"--pto-min 0", `--pto-min 0s: want 10µs to 1s`},
	{"--dialect=", `--dialect "": want rddp-01, rfc5044, rtr or rfc6581`},
	{"--addr 10.9.0.1/24,10.9.0.1/16", `--addr: 10\.9\.0\.1 is given twice`},
	{"--fault drop=1%,dup=1%,drop=2%", `--fault: fault: "drop=2%": drop is given twice`},
	{"--idle-timeout 0s", `--idle-timeout 0s: must be positive`},
	{"--region 0", `--region 0: must be at least one octet`},
	{"--region banana", `--region: "banana" is not a size; write 4096, 64KiB, 256MiB, 1.5GiB or 1TiB`},
	{"--region 1000GiB",
		`hugepages: .*1000 GiB of memory wanted, .* available of which .* are kept free; ask for less or add memory`},
	{"--region 1000GiB --pmd kernel",
		`hugepages: .*1000 GiB of memory wanted, .* ask for less or add memory`},
	{"--region 8589934591GiB",
		`hugepages: .*8589934591 GiB of memory wanted, .* ask for less or add memory`},
	{"--region 9223372036854775807",
		`--region: 9223372036854775807 octets are more than can be addressed`},
	{"--node 1000",
		`hugepages: NUMA node 1000 wanted, online: [0-9 ]+; choose one of these, or AnyNode \(-1\)`},
	{"--dev averylongdevicename",
		`tap: name "averylongdevicename" has 19 octets; a device name has at most 15: choose a shorter one`},
	{"--dev lo", `tap: lo: .+`},
	{"--capture /no/such/dir/file",
		`--capture: capture: open /no/such/dir/file: no such file or directory; choose a file that can be written`},
	{"banana", `1 argument given; want: rnicd serve$`},
	{"--pmd memif", `--pmd memif: --socket is missing: the server's, as /run/memif\.sock or @memif$`},
	{"--pmd memif --socket x --role boss", `--role "boss": want client or server$`},
	{"--pmd memif --socket x --dev eth0", `--pmd memif has no use for --dev: leave it out$`},
	{"--socket x --id 3", `--pmd tap has no use for --socket, --id: leave it out$`},
	{"--region 1MiB --pmd memif --socket @nobody-there-at-all",
		`--socket @nobody-there-at-all: no server answers: connecting: dial unixpacket @nobody-there-at-all: connect: connection refused$`},
	{"--region 1MiB --pmd memif --socket /no/where/s --role server",
		`memif: no folder for /no/where/s: mkdir -p /no/where$`},
}

// A wrong flag: one line names the flag and what it wants, the status is 1, and no device is left.
func TestServeErrors(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	for _, c := range serveErrors {
		t.Run(c.args, func(t *testing.T) {
			ns.fails(t, "serve "+c.args, c.want)
			require.False(t, ns.Has(t, "rnic0"))
		})
	}
}

// The demo's cable takes what its own driver takes.
func TestDemoErrors(t *testing.T) {
	for args, want := range map[string]string{
		"--mtu 66":    "rnicd: --mtu 66: want 576 to 65513 octets",
		"--mtu 65514": "rnicd: --mtu 65514: want 576 to 65513 octets",
		"--mtu 70000": "rnicd: --mtu 70000: want 576 to 65513 octets",
		"/tmp":        "rnicd: /tmp is a directory; want a file",
	} {
		out, err := exec.Command(programPath(t), append([]string{"demo"}, strings.Fields(args)...)...).
			CombinedOutput()
		require.Error(t, err)
		require.Equal(t, want+"\n", string(out))
	}
}

// A word that is no command is an error, also after one that has others; the help is not.
func TestUnknownCommands(t *testing.T) {
	for _, c := range []struct {
		args   string
		status int
		want   string // a pattern
	}{
		{"banana", 1, `^rnicd: unknown command "banana" for "rnicd"; see rnicd --help$`},
		{"srve", 1, `^rnicd: unknown command "srve" for "rnicd"; did you mean serve\?$`},
		{"stream banana", 1,
			`^rnicd: unknown command "banana" for "rnicd stream"; see rnicd stream --help$`},
		{"stream sourc", 1, `^rnicd: unknown command "sourc" for "rnicd stream"; did you mean source\?$`},
		{"stream sink a b", 1, `^rnicd: 2 arguments given; want: rnicd stream sink \[HOST\[:PORT\]\]$`},
		{"run", 1, `^rnicd: 0 arguments given; want: rnicd run \[--pmd .* -- PROGRAM \[ARGUMENT\.\.\.\]$`},
		{"serve --potr 1", 1, `^rnicd: unknown flag: --potr; did you mean --port\?$`},
		{"serve --peermax 1", 1, `^rnicd: unknown flag: --peermax; did you mean --peer-max\?$`},
		{"serve -z 1", 1, `^rnicd: unknown shorthand flag: 'z' in -z; see rnicd serve --help$`},
		{"stream --banana", 1, `^rnicd: unknown flag: --banana; see rnicd stream --help$`},
		{"switch", 1, `^rnicd: no --config given; want: rnicd switch --config FILE$`},
		{"switch --config /no", 1, `^rnicd: --config /no: no such file or directory$`},
		{"serve --config=", 1, `^rnicd: --config "": the name of the file is empty$`},
		{"serve --config /no", 1, `^rnicd: --config /no: no such file or directory$`},
		{"serve --config x --region 1MiB", 1,
			`^rnicd: --config: the file says everything; leave out --region$`},
		{"doctor --config /no", 1, `^rnicd: --config /no: no such file or directory$`},
		{"run --config /no true", 1, `^rnicd: --config /no: no such file or directory$`},
		{"check /no", 1, `^rnicd: /no: no such file or directory$`},
		{"events a b", 1, `^rnicd: 2 arguments given; want: rnicd events \[ADDRESS\[:PORT\]\]$`},
		{"", 0, `^  stream `},
		{"stream", 0, `^  source `},
		{"help stream", 0, `^  source `},
		{"help", 0, `^  stream `},
		{"help nosuch", 1, `^rnicd: unknown command "nosuch" for "rnicd"; see rnicd --help$`},
		{"help stream sauce", 1, `^rnicd: unknown command "sauce" for "rnicd stream"; did you mean source`},
		{"help version x", 1, `^rnicd: unknown command "x" for "rnicd version"; see rnicd version --help$`},
	} {
		t.Run(c.args, func(t *testing.T) {
			out, err := exec.Command(programPath(t), strings.Fields(c.args)...).CombinedOutput()
			var exit *exec.ExitError
			if err != nil {
				require.ErrorAs(t, err, &exit)
				require.Equal(t, c.status, exit.ExitCode())
			}
			require.Equal(t, c.status == 0, err == nil, "%s", out)
			require.Regexp(t, "(?m)"+c.want, string(out))
		})
	}
}

// Each mistake has a line of its own: of a file, of flags and of the variables they become.
func TestMistakesAreLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bad.toml")
	require.NoError(t, os.WriteFile(file, []byte("[[port]]\nmtu = 3\npgae = 1\n"), 0o600))
	for args, want := range map[string][]string{
		"check " + file: {"rnicd: " + file + ":2:1: port.mtu: 3: want 576 to ",
			"rnicd: " + file + ":3:1: port.pgae: unknown key; did you mean page?"},
		"serve --config " + file: {"rnicd: " + file + ":2:1: port.mtu: 3: want 576 to ",
			"rnicd: " + file + ":3:1: port.pgae: unknown key; did you mean page?"},
		"serve --mtu 3 --page x --host-addr 10.9.9 --addr y --queues 0 --idle-timeout 0s --region 0": {
			"rnicd: --mtu 3: want ", `rnicd: --page "x": want `, `rnicd: --host-addr "10.9.9": want `,
			`rnicd: --addr "y": want `, "rnicd: --queues 0: want ", "rnicd: --idle-timeout 0s: must ",
			"rnicd: --region 0: must "},
		"put --wait -1s --user-timeout 0s --dialect x --mtu 9 FILE HOST": {"rnicd: --timeout 0s, --wait ",
			"rnicd: --user-timeout 0s: want ", `rnicd: --dialect "x": want `,
			"rnicd: --pmd kernel has no use for --mtu: "},
		"stream source -l 0 -P 0 -t -1s --idle-timeout 0s HOST": {"rnicd: --length 0: want ",
			"rnicd: --parallel 0: want ", "rnicd: --time -1s: must ", "rnicd: --idle-timeout 0s: must "},
		"perf write bw --tx-depth 0 --user-timeout 0s HOST": {"rnicd: --tx-depth 0: want ",
			"rnicd: --user-timeout 0s: want "},
		"demo --mtu 3 --fault x": {"rnicd: --mtu 3: want ",
			`rnicd: --fault: fault: "x": write `},
		"perf write best --tx-depth 0 -r 0 --warmup -1 -n 0 -s 0 --user-timeout 0s a/b": {
			`rnicd: "best": want `, "rnicd: --tx-depth 0: want ", "rnicd: --rx-depth 0: want ",
			"rnicd: --warmup -1: must ", "rnicd: --iters 0: want ", "rnicd: --size 0: want ",
			"rnicd: --user-timeout 0s: want ", `rnicd: "a/b" names no server`},
		"perf demo swim best -t 0": {`rnicd: "swim": want `, `rnicd: "best": want `,
			"rnicd: --tx-depth 0: want "},
		"serve --pmd banana --mtu 3": {`rnicd: --pmd "banana": want `, "rnicd: --mtu 3: want "},
		"serve --pmd memif --role x --queues 0": {"rnicd: --pmd memif: --socket is missing",
			`rnicd: --role "x": want `, "rnicd: --queues 0: want "},
		"put --addr 10.9.0.1 --capture f FILE HOST": {"rnicd: --pmd kernel has no use for --addr in a ",
			"rnicd: --capture: "},
		"run --control " + file + "/x/y -- sh": {"rnicd: --control: " + file + " is there, and is no "},
		"run --pmd tap --mtu 3 --mac x -- sh":  {"rnicd: --mtu: 3: want ", `rnicd: --mac: "x": want `},
	} {
		out, err := exec.Command(programPath(t), strings.Fields(args)...).CombinedOutput()
		require.Error(t, err)
		lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
		for _, w := range want {
			found := func(l string) bool { return strings.HasPrefix(l, w) }
			require.True(t, slices.ContainsFunc(lines, found), "%s: %s", w, out)
		}
		for _, l := range lines {
			require.Regexp(t, "^rnicd: ", l)
		}
	}
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
		skip.Missing(t, "needs a known and small number of free hugepages: %d, %v", free, err)
	}
	server := ns.serving(t, "--region", fmt.Sprintf("%dMiB", 2*free+64))
	require.Len(
		t,
		server.Lines(
			`^memory +\S+ [MG]iB on normal pages \(hugepages: \d+ pages of 2 MiB wanted, \d+ free; run hugepages/setup.sh \d+ `), 1, "%s", server)
	f := randomFile(t, 1<<20)
	ns.put(t, f)
	ns.stop(t, server)

	server = ns.serving(t, "--page", "normal")
	require.Len(t, server.Lines(`^memory +\S+ MiB on normal pages$`), 1,
		"asked for, so no fall-back: %s", server)
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
	const why = ": not permitted to create or attach to the device: operation not permitted; run as " +
		"root or with CAP_NET_ADMIN"
	p := ns.Start(t, asNobody(exec.Command(programPath(t), "serve", "--region", "1MiB")))
	require.Equal(t, 1, p.Wait(t), "%s", p)
	require.Len(t, errorLines(p), 1, "%s", p)
	require.Contains(t, errorLines(p)[0], "rnicd: tap: rnic0"+why)
	if program.dpdk {
		p = ns.Start(
			t, asNobody(exec.Command(programPath(t), "serve", "--region", "1MiB", "--pmd", "dpdk")))
		require.Equal(t, 1, p.Wait(t), "%s", p)
		require.Len(t, errorLines(p), 1, "%s", p)
		require.Contains(t, errorLines(p)[0], "run as root or with CAP_NET_ADMIN")
	}
	p = ns.Start(
		t, asNobody(exec.Command(programPath(t), "demo", "--region", "8MiB", "--size", "4MiB")))
	require.Equal(t, 0, p.Wait(t), "%s", p)
	require.Len(t, p.Lines("^received +4.0 MiB"), 1, "%s", p)
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("x"), 0o600))
	p = ns.Start(t, asNobody(exec.Command(programPath(t), "put", secret, "127.0.0.1")))
	require.Equal(t, 1, p.Wait(t), "%s", p)
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
		cmd := exec.Command("sh", "-c", `mount -t tmpfs none /dev/net && exec "$0" "$@"`, programPath(t),
			"serve", "--region", "1MiB", "--pmd", driver)
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		p := ns.Start(t, cmd)
		require.Equal(t, 1, p.Wait(t), "%s", p)
		require.Len(t, errorLines(p), 1, "%s", p)
		require.Regexp(
			t,
			`^rnicd: tap: rnic0: /dev/net/tun: no such file or directory; load the driver \(modprobe tun\)`,
			errorLines(p)[0])
	}
}
