package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/internal/skip"
)

// switchOfGuide is the configuration of the guide, with a socket of this test's.
func switchOfGuide(t *testing.T) (text, socket string) {
	t.Helper()
	guide := readFile(t, "../../docs/guides/switch.md")
	_, text, found := strings.Cut(guide, "<!-- switch -->\n```toml\n")
	require.True(t, found)
	text, _, found = strings.Cut(text, "```\n")
	require.True(t, found)
	example := readFile(t, filepath.Join(repository, exampleFolder, "switch.toml"))
	require.True(t, strings.HasSuffix(example, "\n\n"+text), "the example is that of the guide")
	socket = filepath.Join(t.TempDir(), "programs", "switch.sock") // the switch makes its folder
	require.Contains(t, text, "/run/rnicd-switch/programs/switch.sock")
	return strings.Replace(text, "/run/rnicd-switch/programs/switch.sock", socket, 1), socket
}

// switched runs a switch in a namespace.
type switched struct {
	*namespace
	*process
	socket string
	dumps  int // of counters
}

func newSwitched(t *testing.T, text, socket string) *switched {
	t.Helper()
	ns := newNamespace(t)
	s := &switched{namespace: ns, process: ns.rnicd(t, "switch", "--config", configured(t, text)),
		socket: socket}
	s.Expect(t, 1, "msg=ready ")
	s.Expect(t, 1, `level=INFO msg="memory mapped" memory_octets=\d+ pages=`)
	return s
}

// seenAt adds where a switch is asked: a control socket, and Prometheus' port.
func seenAt(t *testing.T, text string) (with, path string) {
	path = filepath.Join(t.TempDir(), "control.sock")
	return "[control]\nsocket = \"" + path + "\"\n[metrics]\nlisten = \"127.0.0.1:9175\"\n" + text,
		path
}

// program starts a command as a program of the switch.
func (s *switched) program(t testing.TB, words string, id int, addr string,
	more ...string) *process {
	t.Helper()
	args := append(strings.Fields(words), "--pmd", "memif", "--socket", s.socket, "--id",
		strconv.Itoa(id), "--addr", addr, "--dad", "quick")
	return s.rnicd(t, append(args, more...)...)
}

// counter is a number of the line of a program, an uplink or a thread.
func (s *switched) counter(t testing.TB, line, name string) int {
	t.Helper()
	s.dumps++
	s.Signal(t, syscall.SIGUSR1)
	text := s.Expect(t, s.dumps, "^"+line+" ")
	m := regexp.MustCompile(` ` + name + `=(\d+)`).FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n := must(strconv.Atoi(m[1]))(t)
	return n
}

// end ends the switch in order and looks that nothing stays.
func (s *switched) end(t testing.TB) {
	t.Helper()
	s.process.Signal(t, syscall.SIGTERM)
	require.Equal(t, 0, s.process.Wait(t), "%s", s.process)
	require.NoFileExists(t, s.socket)
	require.False(t, s.Has(t, "rnic0"), "the TAP is still there")
}

func succeeded(t testing.TB, p *process, f testFile, others ...*process) {
	t.Helper()
	require.Equal(t, 0, p.Wait(t), "%s\n%v", p, others)
	require.Len(t, p.Lines("^sha256 +"+f.sum+"$"), 1, "%s", p)
}

// The guide's example is what it says: programs write to each other, and the kernel to each, at
// addresses of their own and at one that two share.
func TestSwitchOfTheGuide(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	text, socket := switchOfGuide(t)
	path := configured(t, text)
	s := newSwitched(t, text, socket)
	check := s.exits(t, 0, "check", path)
	require.Len(t, check.Lines("^"+path+": a switch, 1 uplink, 4 programs$"), 1, "%s", check)

	store := s.program(t, "serve --region 64MiB", 1, "10.9.0.1/24")
	left := s.program(t, "serve --region 64MiB --dial-ports 50000-50999", 3, "10.9.0.9/24")
	right := s.program(t, "serve --region 64MiB --port 7175 --dial-ports 51000-51999", 4,
		"10.9.0.9/24")
	for _, p := range []*process{store, left, right} {
		p.Expect(t, 1, "^ready ")
	}
	s.Expect(t, 3, `msg=attached program=\w+ pid=\d+ uid=0 `)
	for i, to := range []struct {
		addr   string
		server *process
	}{{"10.9.0.1:7174", store}, {"10.9.0.9:7174", left}, {"10.9.0.9:7175", right}} {
		f := randomFile(t, 8<<20+i)
		succeeded(t, s.program(t, "put --timeout 60s", 2, "10.9.0.2/24", f.path, to.addr), f,
			s.process, to.server)
		to.server.Expect(t, 1, "^sha256 +"+f.sum+"$")
		f = randomFile(t, 8<<20+i)
		succeeded(t, s.rnicd(t, "put", "--pmd", "kernel", "--timeout", "60s", f.path, to.addr), f,
			s.process, to.server)
		to.server.Expect(t, 1, "^sha256 +"+f.sum+"$")
	}
	s.Run(t, "ping", "-c", "1", "-W", "30", "10.9.0.1")
	s.Run(t, "ping", "-c", "1", "-W", "30", "10.9.0.9")
	// One that dials from the shared address, and one with another's.
	s.ends(t, right)
	f := randomFile(t, 1<<20)
	succeeded(t, s.program(t, "put --timeout 60s --dial-ports 51000-51999", 4, "10.9.0.9/24", f.path,
		"10.9.0.1:7174"), f, s.process)
	thief := s.program(t, "put --timeout 60s --wait 1s", 2, "10.9.0.254/24", f.path, "10.9.0.1:7174")
	require.Equal(t, 1, thief.Wait(t), "%s", thief)
	require.NotZero(t, s.counter(t, "program writer", "spoofed-mac"))
	s.end(t)
}

// SIGHUP adds and removes programs; other programs stay attached, and a mistake changes nothing.
func TestSwitchReload(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	text, socket := switchOfGuide(t)
	ns := newNamespace(t)
	path := configured(t, text)
	s := &switched{namespace: ns, process: ns.rnicd(t, "switch", "--config", path), socket: socket}
	s.Expect(t, 1, "msg=ready ")
	store := s.program(t, "serve --region 64MiB", 1, "10.9.0.1/24")
	store.Expect(t, 1, "^ready ")
	write := func(text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		s.process.Signal(t, syscall.SIGHUP)
	}
	write(text + "[[program]]\nname = \"more\"\nid = 1\naddresses = [\"10.9.0.5\"]\n")
	s.Expect(t, 1, `msg="not reloaded" error=".*program.id: 1 on .* is .*store.*"`)
	write("[log]\nlevel = \"warn\"\nformat = \"json\"\n" + strings.Replace(text, "[switch]",
		"[metrics]\nlisten = \"127.0.0.1:0\"\n[switch]\nmulticast = 5", 1) +
		"[[program]]\nname = \"more\"\nid = 5\naddresses = [\"10.9.0.5\"]\n")
	for _, key := range []string{"log.format", "metrics.listen", "switch.multicast"} {
		s.Expect(t, 1, `level=WARN msg="needs a restart; it is as it was" key=`+key+"$")
	}
	f := randomFile(t, 1<<20)
	succeeded(t, s.program(t, "put --timeout 60s", 5, "10.9.0.5/24", f.path, "10.9.0.1:7174"),
		f, s.process)
	require.Empty(t, s.Lines("msg=reloaded"), "not a warning")
	write(text)
	s.Expect(t, 1, `msg=reloaded added=\[\] removed=\[more\] changed=\[\]`)
	gone := s.program(t, "put", 5, "10.9.0.5/24", f.path, "10.9.0.1:7174")
	require.Equal(t, 1, gone.Wait(t))
	require.Contains(t, gone.String(), "ID not found")
	require.Len(t, s.Lines("msg=attached program=store"), 1, "%s", s.process)
	for _, now := range []struct{ text, key string }{
		{strings.Replace(text, `name = "rnic0"`,
			"name = \"rnic0\"\nqueues = 1\nbuffers = 100\nmac = \"02:00:00:00:00:09\"", 1),
			"uplink.rnic0.mac, uplink.rnic0.buffers"},
		{text + "[[uplink]]\nname = \"more\"\n", ""},
		{strings.Replace(text, `name = "rnic0"`, "name = \"rnic1\"", 1), "uplink.rnic1, uplink.rnic0"},
	} {
		write(now.text)
		if now.key != "" {
			s.Expect(t, 1, `level=ERROR msg="not reloaded" error="`+now.key+
				`: uplinks change at a restart only"`)
		} else {
			s.Expect(
				t, 1, `level=ERROR msg="not reloaded" error=".*program.uplink: missing: there are several"`)
		}
	}
	s.end(t)
}

// A program that is killed under load, again and again, costs the others neither an octet nor a
// connection, and the switch nothing: no descriptor, no mapping, no buffer, no memory. 100 times,
// or a few in a short run.
func TestSwitchedProgramsKilled(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	text, socket := switchOfGuide(t)
	s := newSwitched(t, text+"[[program]]\nname = \"pair\"\nid = 5\naddresses = [\"10.9.0.5\"]\n",
		socket)
	sink := s.program(t, "serve --region 512MiB --idle-timeout 1s", 1, "10.9.0.1/24")
	store := s.program(t, "serve --region 64MiB --dial-ports 50000-50999", 3, "10.9.0.9/24")
	for _, p := range []*process{sink, store} {
		p.Expect(t, 1, "^ready ")
	}
	f := randomFile(t, 16<<20)
	over, wrote := make(chan struct{}), make(chan int, 1)
	go func() { // another pair, all the while
		for n := 0; ; n++ {
			p := s.program(t, "put --timeout 60s", 5, "10.9.0.5/24", f.path, "10.9.0.9:7174")
			if p.Wait(t) != 0 || len(p.Lines("^sha256 +"+f.sum+"$")) != 1 {
				t.Errorf("transfer %d of the pair: %s", n, p)
				wrote <- n
				return
			}
			select {
			case <-over:
				wrote <- n + 1
				return
			default:
			}
		}
	}()
	zero := zeros(t, 64<<20)
	kill := func() {
		t.Helper()
		before := s.counter(t, "program writer", "received")
		victim := s.program(t, "put", 2, "10.9.0.2/24", zero, "10.9.0.1:7174")
		for s.counter(t, "program writer", "received") < before+3000 {
			require.Empty(t, victim.Lines("^(rnicd|sha256)"), "%s", victim)
		}
		victim.Signal(t, syscall.SIGKILL)
		require.Equal(t, 128+9, victim.Wait(t))
	}
	for range 2 {
		kill()
	}
	rss, fds, maps := usage(t, s.PID())
	n := sample.Count(3, 100)
	for range n {
		kill()
	}
	close(over)
	transfers := <-wrote
	require.NotZero(t, transfers)
	last := s.program(t, "put --timeout 60s", 2, "10.9.0.2/24", f.path, "10.9.0.1:7174")
	succeeded(t, last, f, s.process)
	s.Expect(t, n+3, "msg=detached program=writer")
	rssAfter, fdsAfter, mapsAfter := usage(t, s.PID())
	t.Logf("%d kills, %d transfers of the pair; RSS %d to %d KiB, %d to %d descriptors, %d to %d "+
		"memfd mappings", n, transfers, rss, rssAfter, fds, fdsAfter, maps, mapsAfter)
	// Programs that were attached at the time of the first look, or the last, may be as many as two.
	require.LessOrEqual(t, fdsAfter, fds+4)
	require.LessOrEqual(t, mapsAfter, maps+4)
	require.Less(t, rssAfter, rss+32<<10, "KiB")
	require.Equal(t, 1, len(s.Lines("msg=attached program=left")), "store has stayed")
	require.Zero(t, s.counter(t, "thread 0", "no-buffer"))
	s.end(t)
}

// usage is a process' memory in KiB, its descriptors, and its mappings of other processes' memory.
func usage(t testing.TB, pid int) (rss, fds, maps int) {
	t.Helper()
	status := readFile(t, fmt.Sprintf("/proc/%d/status", pid))
	m := regexp.MustCompile(`RssAnon:\s+(\d+)`).FindStringSubmatch(status)
	require.NotNil(t, m)
	rss = must(strconv.Atoi(m[1]))(t)
	dir := must(os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)))(t)
	text := readFile(t, fmt.Sprintf("/proc/%d/maps", pid))
	return rss, len(dir), strings.Count(text, "memfd:")
}

// DPDK's net_memif is a program as any other: testpmd answers the kernel's ARP and pings through
// the switch, with the MAC that both are given; with another one no program hears it.
func TestSwitchWithTestpmd(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	path, err := exec.LookPath("dpdk-testpmd")
	if err != nil {
		skip.Missing(t, "no dpdk-testpmd: install Debian's dpdk-dev")
	}
	text, socket := switchOfGuide(t)
	s := newSwitched(t, text+"[[program]]\nname = \"dpdk\"\nid = 7\nsecret = \"psst\"\nmac = "+
		"\"02:00:00:00:00:07\"\naddresses = [\"10.9.0.7\"]\n", socket)
	for i, mac := range []string{"02:00:00:00:00:07", "02:00:00:00:00:08"} {
		cmd := exec.Command(path, "--no-huge", "-m", "256", "--no-pci", "--no-telemetry", "--no-shconf",
			"--file-prefix", filepath.Base(filepath.Dir(socket))+mac[15:], "-l", "0,1", "--vdev",
			fmt.Sprintf("net_memif0,role=client,id=7,socket-abstract=no,secret=psst,socket=%s,mac=%s",
				socket, mac), "--", "--forward-mode=icmpecho", "--auto-start", "--no-flush-rx",
			"--total-num-mbufs=8192", "--no-mlockall")
		stdin, err := cmd.StdinPipe() // it goes on until somebody presses Enter
		require.NoError(t, err)
		pmd := s.Start(t, cmd)
		s.Expect(t, i+1, "msg=attached program=dpdk")
		if i == 0 {
			s.Run(t, "ping", "-c", "3", "-i", "0.2", "-W", "30", "10.9.0.7")
			require.Contains(t, s.Run(t, "ip", "neigh", "show", "10.9.0.7"), mac)
			s.Run(t, "ip", "neigh", "flush", "all")
		} else {
			ping := s.Start(t, exec.Command("ping", "-c", "1", "-W", "1", "10.9.0.7"))
			require.Equal(t, 1, ping.Wait(t), "%s", ping)
			require.NotZero(t, s.counter(t, "program dpdk", "spoofed-mac"))
		}
		pmd.Signal(t, syscall.SIGKILL)
		pmd.Wait(t)
		_ = stdin.Close()
		s.Expect(t, i+1, "msg=detached program=dpdk")
	}
	s.end(t)
}
