package doctor

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/capture"
	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/port"
)

// What is held, taken or missing is a lack: the daemon would not start. A daemon that runs with
// this configuration has its own.
func TestPlaces(t *testing.T) {
	taken := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	_, tcp, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	tap := "[[port]]\nname = \"rplaces\"\naddresses = [\"10.9.0.1/24\"]\n"
	kernel := func(addr, listen string) string {
		return fmt.Sprintf("[[port]]\nname = \"k\"\ndriver = \"kernel\"\naddresses = "+
			"[%q]\n[[service]]\nname = \"p\"\ntype = \"perf\"\nlisten = %s\n", addr, listen)
	}
	socket := func(path string) string { return fmt.Sprintf("[control]\nsocket = %q\n", path) }
	held := "@" + filepath.Join(t.TempDir(), "held")
	server := must(net.Listen("unixpacket", held))(t)
	defer server.Close()
	memif := func(n int, role, socket string) string {
		return fmt.Sprintf("[[port]]\nname = \"m%d\"\ndriver = \"memif\"\nrole = %q\nsocket = %q\nid = "+
			"%d\naddresses = [\"10.%d.0.1/24\"]\n",
			n, role, socket, n, n)
	}
	for name, tc := range map[string]struct {
		text string
		more map[string]string
		want string
	}{
		"free": {tap, nil, ""},
		"no TAP": {tap, map[string]string{"sys/class/net/rplaces/flags": "0x1003"},
			"port rplaces: rplaces is there, and is no TAP"},
		"a TUN": {tap, map[string]string{"sys/class/net/rplaces/tun_flags": "0x1801"},
			"port rplaces: rplaces is there, and is no TAP"},
		"one queue": {tap + "queues = 2\n",
			map[string]string{"sys/class/net/rplaces/tun_flags": "0x1802"},
			"port rplaces: the TAP rplaces has one queue, 2 are wanted"},
		"queues": {tap, map[string]string{"sys/class/net/rplaces/tun_flags": "0x1902"},
			"port rplaces: the TAP rplaces was made for several queues"},
		"both queues": {tap + "queues = 2\n",
			map[string]string{"sys/class/net/rplaces/tun_flags": "0x1902"}, ""},
		"metrics of ours": {"[metrics]\nlisten = \"10.9.0.254:9\"\n" + tap +
			"host_address = \"10.9.0.254/24\"\n", nil, ""},
		"capture": {tap + "capture = \"/run/x.pcapng\"\n", nil, ""},
		"over a capture": {tap + "capture = \"/run/x.pcapng\"\n",
			map[string]string{"run/x.pcapng": "old"}, ""},
		"over a folder": {tap + "capture = \"/run/rnicd\"\n", nil, "capture: open "},
		"over a link": {tap + "capture = \"/run/x.pcapng\"\n",
			map[string]string{"run/x.pcapng": "->rnicd/x"}, "capture: "},
		"over a loose link": {tap + "capture = \"/run/x.pcapng\"\n",
			map[string]string{"run/x.pcapng": "->nowhere"}, "capture: "},
		"no socket": {socket("/run/x.sock") + tap, map[string]string{"run/x.sock": ""},
			"/run/x.sock is there, and is no socket"},
		"linked lock": {socket("/run/x.sock") + tap,
			map[string]string{"run/x.sock.lock": "->rnicd/x"}, "open /run/x.sock.lock: too many levels"},
		"memif's file": {memif(1, "server", "/run/m.sock"), map[string]string{"run/m.sock": ""},
			"memif: /run/m.sock is there, and is no socket"},
		"memif's name": {memif(1, "server", held), nil, "memif: " + held + " is another server's"},
		"served below": {memif(1, "server", "@doctor-own") + memif(2, "client", "@doctor-own"), nil,
			""},
		"free TAP": {tap, map[string]string{"sys/class/net/rplaces/tun_flags": "0x1802",
			"sys/class/net/rplaces/carrier": "0", "sys/class/net/rplaces/flags": "0x1003"}, ""},
		"held, down": {tap, map[string]string{"sys/class/net/rplaces/tun_flags": "0x1102",
			"sys/class/net/rplaces/flags": "0x1002"}, "port rplaces: another process holds the TAP rplaces"},
		"held, lasting": {tap, map[string]string{"sys/class/net/rplaces/tun_flags": "0x1802",
			"sys/class/net/rplaces/carrier": "1"}, "port rplaces: another process holds the TAP rplaces"},
		"down, no right": {tap, map[string]string{"sys/class/net/rplaces/tun_flags": "0x1802",
			"sys/class/net/rplaces/flags": "0x1002", "proc/self/status": "CapEff:\t0\n"},
			"port rplaces: the TAP rplaces is down"},
		"held TAP": {tap, map[string]string{"sys/class/net/rplaces/tun_flags": "0x1002",
			"sys/class/net/rplaces/carrier": "1"}, "port rplaces: another process holds the TAP rplaces"},
		"taken port": {kernel("127.0.0.1", tcp), nil,
			"127.0.0.1:" + tcp + " is another process's"},
		"taken metrics": {"[metrics]\nlisten = \"127.0.0.1:" + tcp + "\"\n" + tap, nil,
			"127.0.0.1:" + tcp + " is another process's"},
		"late address": {kernel("192.0.2.77", "7001"), nil,
			"192.0.2.77:7001: no interface has this address now"},
		"folder": {tap + "capture = \"/var/nowhere/x.pcapng\"\n", nil,
			"no folder /var/nowhere, for x.pcapng"},
		"control folder": {socket("/nowhere/deep/control.sock") + tap, nil,
			"no folder /nowhere, for deep"},
		"socket folder": {strings.Replace(tap, "addresses",
			"driver = \"memif\"\nrole = \"server\"\nsocket = \"/none/deep/m.sock\"\naddresses", 1), nil,
			"no folder /none, for deep"},
		"no server": {strings.Replace(tap, "addresses",
			"driver = \"memif\"\nsocket = \"/none/m.sock\"\naddresses", 1), nil,
			"port rplaces: no server at /none/m.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			files := good()
			for path, text := range tc.more {
				files[path] = text
			}
			if !strings.Contains(tc.text, "[control]") {
				tc.text = socket("off") + tc.text
			}
			c := must(config.Parse("rnicd.toml", []byte(tc.text), port.Builtin()))(t)
			m := Machine{Root: plant(t, files), Config: c}
			found := m.places()
			require.Len(t, found, 1)
			if tc.want == "" {
				require.Equal(t, OK, found[0].Verdict, "%+v", found[0])
				return
			}
			require.Equal(t, Lack, found[0].Verdict)
			text := strings.ReplaceAll(found[0].Text, m.Root, "")
			require.True(t, strings.HasPrefix(text, tc.want), "%+v", found[0])
		})
	}
}

// A TAP that is down is set up by a daemon that may.
func TestTAPThatIsDown(t *testing.T) {
	files := good()
	files["sys/class/net/rplaces/tun_flags"], files["sys/class/net/rplaces/flags"] = "0x1802", "0x1002"
	text := "[control]\nsocket = \"off\"\n[[port]]\nname = \"rplaces\"\naddresses = " +
		"[\"10.9.0.1/24\"]\n"
	c := must(config.Parse("rnicd.toml", []byte(text), port.Builtin()))(t)
	m := Machine{Root: plant(t, files), Config: c}
	found := m.places()
	require.Len(t, found, 1)
	require.Equal(t, Warn, found[0].Verdict)
	require.Equal(t, "ip link set rplaces up", found[0].Fix)
}

// A daemon, or a switch, that runs says what its devices' trouble is: a lack where no frame
// passes, a warning of a bridge that is lost at a restart.
func TestTroublesOfARunningDaemon(t *testing.T) {
	for answer, want := range map[string][]Verdict{
		`{"ports":[{"name":"one"},{"name":"two","trouble":{"kind":"bridge","text":"two is in a bridge"}}]}`:                                                                     {OK, Warn},
		`{"ports":[{"name":"one","trouble":{"kind":"down","text":"two is down"}},{"name":"two","trouble":{"kind":"moved","text":"two is gone"}}]}`:                              {OK, Lack, Lack},
		`{"uplinks":[{"name":"two","queue":0,"trouble":{"kind":"link","text":"two has no link"}},{"name":"two","queue":1,"trouble":{"kind":"link","text":"two has no link"}}]}`: {OK, Lack},
		`{"ports":[]}`: {OK},
		`nothing`:      {OK, Warn},
	} {
		path := filepath.Join(t.TempDir(), "control.sock")
		s := must(control.Listen(path, 0o600))(t)
		s.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, answer)
		})
		s.Serve()
		c, err := config.Parse("rnicd.toml",
			[]byte(fmt.Sprintf("[control]\nsocket = %q\n[[port]]\nname = \"rplaces\"\naddresses = "+
				"[\"10.9.0.1/24\"]\n", path)), port.Builtin())
		require.NoError(t, err)
		var have []Verdict
		for _, f := range (&Machine{Root: "/", Config: c}).places() {
			have = append(have, f.Verdict)
			require.True(t, f.Verdict == OK || strings.HasPrefix(f.Text, "port ") ||
				strings.HasPrefix(f.Text, "it does not say"), "%+v", f)
		}
		require.Equal(t, want, have, answer)
		require.NoError(t, s.Close())
	}
}

// A daemon with another configuration that answers on the control socket keeps this one from
// starting; one that runs with the same file, by whatever name, is this one.
func TestAnotherDaemonAnswers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "control.sock")
	text := fmt.Sprintf("[control]\nsocket = %q\n[[port]]\nname = \"k\"\ndriver = \"kernel\"\n", path)
	ours, theirs, link := filepath.Join(dir, "ours.toml"), filepath.Join(dir, "theirs.toml"),
		filepath.Join(dir, "link.toml")
	for _, file := range []string{ours, theirs} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	require.NoError(t, os.Symlink(ours, link))
	wd := must(os.Getwd())(t)
	relative := must(filepath.Rel(wd, ours))(t)
	var answer string
	s := must(control.Listen(path, 0o600))(t)
	s.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"config":%q}`, answer)
	})
	s.Serve()
	c := must(config.Load(ours, port.Builtin()))(t)
	m := Machine{Root: "/", Config: c}
	for _, answer = range []string{"", ours, link, relative} {
		found := m.places()
		require.Len(t, found, 1, answer)
		require.Equal(t, OK, found[0].Verdict, answer)
	}
	for _, answer = range []string{theirs, "/nowhere.toml", "ours.toml"} {
		found := m.places()
		require.Len(t, found, 1, answer)
		require.Equal(t, Lack, found[0].Verdict)
		require.Contains(t, found[0].Text,
			fmt.Sprintf("process %d answers on the control socket %s, of a daemon with the configuration %s",
				os.Getpid(), path, answer))
	}
	require.NoError(t, s.Close())
}

// A capture is not written over a file that has another name, or that another writes to.
func TestCapturesOfOthers(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "x.pcapng")
	c, err := config.Parse("rnicd.toml", []byte(fmt.Sprintf(
		"[control]\nsocket = \"off\"\n[[port]]\nname = \"rplaces\"\naddresses = "+
			"[\"10.9.0.1/24\"]\ncapture = %q\n", file)), port.Builtin())
	require.NoError(t, err)
	m := Machine{Root: "/", Config: c}
	require.Empty(t, m.files())
	writer := must(capture.Create(file, capture.Config{}))(t)
	require.Len(t, m.files(), 1)
	require.Contains(t, m.files()[0].Text, "another capture writes to")
	require.NoError(t, writer.Close())
	require.Empty(t, m.files())
	require.NoError(t, os.Link(file, filepath.Join(dir, "second")))
	require.Len(t, m.files(), 1)
	require.Contains(t, m.files()[0].Text, "has another name as well")
}

// A quota that spinning Pollers use up is told.
func TestQuota(t *testing.T) {
	c, err := config.Parse("rnicd.toml",
		[]byte("[[port]]\nname = \"one\"\naddresses = [\"10.9.0.1/24\"]\nqueues = 2\nidle = \"spin\"\n"),
		port.Builtin())
	require.NoError(t, err)
	for cpus, want := range map[string]Verdict{"max 100000": OK, "300000 100000": OK,
		"200000 100000": Warn, "50000 100000": Warn} {
		files := good()
		files["proc/self/cgroup"], files["sys/fs/cgroup/cpu.max"] = "0::/\n", cpus+"\n"
		m := Machine{Root: plant(t, files), Config: c}
		require.Equal(t, want, m.quota()[0].Verdict, cpus)
	}
}
