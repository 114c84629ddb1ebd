package doctor

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/daemon/config"
	"github.com/rnicd/rnicd/daemon/control"
	"github.com/rnicd/rnicd/daemon/port"
)

// What is held, taken or missing is a lack: the daemon would not start. A daemon that runs with this
// configuration has its own.
func TestPlaces(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, tcp, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	tap := "[[port]]\nname = \"rplaces\"\naddresses = [\"10.9.0.1/24\"]\n"
	kernel := func(addr, listen string) string {
		return fmt.Sprintf("[[port]]\nname = \"k\"\ndriver = \"kernel\"\naddresses = [%q]\n[[service]]\nname = \"p\"\ntype = \"rping\"\nlisten = %s\n", addr, listen)
	}
	socket := func(path string) string { return fmt.Sprintf("[control]\nsocket = %q\n", path) }
	for name, tc := range map[string]struct {
		text string
		more map[string]string
		want string
	}{
		"free":           {tap, nil, ""},
		"free TAP":       {tap, map[string]string{"sys/class/net/rplaces/tun_flags": "0x1902", "sys/class/net/rplaces/carrier": "0", "sys/class/net/rplaces/flags": "0x1003"}, ""},
		"held, down":     {tap, map[string]string{"sys/class/net/rplaces/tun_flags": "0x1102", "sys/class/net/rplaces/flags": "0x1002"}, "port rplaces: another process holds the TAP rplaces"},
		"held, lasting":  {tap, map[string]string{"sys/class/net/rplaces/tun_flags": "0x1902", "sys/class/net/rplaces/carrier": "1"}, "port rplaces: another process holds the TAP rplaces"},
		"down, no right": {tap, map[string]string{"sys/class/net/rplaces/tun_flags": "0x1902", "sys/class/net/rplaces/flags": "0x1002", "proc/self/status": "CapEff:\t0\n"}, "port rplaces: the TAP rplaces is down"},
		"held TAP":       {tap, map[string]string{"sys/class/net/rplaces/tun_flags": "0x1002", "sys/class/net/rplaces/carrier": "1"}, "port rplaces: another process holds the TAP rplaces"},
		"taken port":     {kernel("127.0.0.1", tcp), nil, "127.0.0.1:" + tcp + " is another process's"},
		"taken metrics":  {"[metrics]\nlisten = \"127.0.0.1:" + tcp + "\"\n" + tap, nil, "127.0.0.1:" + tcp + " is another process's"},
		"late address":   {kernel("192.0.2.77", "7001"), nil, "192.0.2.77:7001: no interface has this address now"},
		"folder":         {tap + "capture = \"/var/nowhere/x.pcapng\"\n", nil, "no folder /var/nowhere, for x.pcapng"},
		"control folder": {socket("/nowhere/deep/control.sock") + tap, nil, "no folder /nowhere, for deep"},
		"socket folder":  {strings.Replace(tap, "addresses", "driver = \"memif\"\nrole = \"server\"\nsocket = \"/none/m.sock\"\naddresses", 1), nil, "no folder /none, for m.sock"},
		"no server":      {strings.Replace(tap, "addresses", "driver = \"memif\"\nsocket = \"/none/m.sock\"\naddresses", 1), nil, "port rplaces: no server at /none/m.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			files := good()
			for path, text := range tc.more {
				files[path] = text
			}
			if !strings.Contains(tc.text, "[control]") {
				tc.text = socket("off") + tc.text
			}
			c, err := config.Parse("rnicd.toml", []byte(tc.text), port.Builtin())
			require.NoError(t, err)
			m := Machine{Root: plant(t, files), Config: c}
			found := m.places()
			require.Len(t, found, 1)
			if tc.want == "" {
				require.Equal(t, OK, found[0].Verdict, "%+v", found[0])
				return
			}
			require.Equal(t, Lack, found[0].Verdict)
			require.True(t, strings.HasPrefix(found[0].Text, tc.want), "%+v", found[0])
		})
	}

	// A TAP that is down is set up by a daemon that may.
	files := good()
	files["sys/class/net/rplaces/tun_flags"], files["sys/class/net/rplaces/flags"] = "0x1902", "0x1002"
	c, err := config.Parse("rnicd.toml", []byte(socket("off")+tap), port.Builtin())
	require.NoError(t, err)
	m := Machine{Root: plant(t, files), Config: c}
	found := m.places()
	require.Len(t, found, 1)
	require.Equal(t, Warn, found[0].Verdict)
	require.Equal(t, "ip link set rplaces up", found[0].Fix)
}

// A daemon, or a switch, that runs says what its devices' trouble is: a lack where no frame passes, a
// warning of a bridge that is lost at a restart.
func TestTroublesOfARunningDaemon(t *testing.T) {
	for answer, want := range map[string][]Verdict{
		`{"ports":[{"name":"one"},{"name":"two","trouble":{"kind":"bridge","text":"two is in a bridge"}}]}`:                                                                     {OK, Warn},
		`{"ports":[{"name":"one","trouble":{"kind":"down","text":"two is down"}},{"name":"two","trouble":{"kind":"moved","text":"two is gone"}}]}`:                              {OK, Lack, Lack},
		`{"uplinks":[{"name":"two","queue":0,"trouble":{"kind":"link","text":"two has no link"}},{"name":"two","queue":1,"trouble":{"kind":"link","text":"two has no link"}}]}`: {OK, Lack},
		`{"ports":[]}`: {OK},
		`nothing`:      {OK, Warn},
	} {
		path := filepath.Join(t.TempDir(), "control.sock")
		s, err := control.Listen(path, 0o600)
		require.NoError(t, err)
		s.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
		s.Serve()
		c, err := config.Parse("rnicd.toml", []byte(fmt.Sprintf("[control]\nsocket = %q\n[[port]]\nname = \"rplaces\"\naddresses = [\"10.9.0.1/24\"]\n", path)), port.Builtin())
		require.NoError(t, err)
		var have []Verdict
		for _, f := range (&Machine{Root: "/", Config: c}).places() {
			have = append(have, f.Verdict)
			require.True(t, f.Verdict == OK || strings.HasPrefix(f.Text, "port ") || strings.HasPrefix(f.Text, "it does not say"), "%+v", f)
		}
		require.Equal(t, want, have, answer)
		require.NoError(t, s.Close())
	}
}

// A quota that spinning Pollers use up is told.
func TestQuota(t *testing.T) {
	c, err := config.Parse("rnicd.toml", []byte("[[port]]\nname = \"one\"\naddresses = [\"10.9.0.1/24\"]\nqueues = 2\nidle = \"spin\"\n"), port.Builtin())
	require.NoError(t, err)
	for cpus, want := range map[string]Verdict{"max 100000": OK, "300000 100000": OK, "200000 100000": Warn, "50000 100000": Warn} {
		files := good()
		files["proc/self/cgroup"], files["sys/fs/cgroup/cpu.max"] = "0::/\n", cpus+"\n"
		m := Machine{Root: plant(t, files), Config: c}
		require.Equal(t, want, m.quota()[0].Verdict, cpus)
	}
}
