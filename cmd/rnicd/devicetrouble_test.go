package main

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A TAP that takes no frames, as it is down or in another network namespace, is told by a daemon
// and by a switch: in the log, once, and when it takes frames again; in status, top and metrics
// as long as it is so; by doctor, too. So is one that a bridge loses at a restart, and what
// control groups leave of the CPUs.
func TestDeviceTroubleIsTold(t *testing.T) {
	for name, tc := range map[string]struct{ text, metric string }{
		"serve": {"[[port]]\nname = \"rnic0\"\naddresses = [\"10.9.0.1/24\"]\n[[service]]\nname = " +
			"\"p\"\ntype = \"perf\"\nlisten = 7001\n", `rnicd_device_trouble\{port="rnic0",`},
		"switch": {"[switch]\nsocket = \"SOCKET\"\n[[uplink]]\nname = \"rnic0\"\n[[program]]\nname = " +
			"\"one\"\naddresses = [\"10.9.0.1\"]\n",
			`rnicd_switch_device_trouble\{kind="uplink",port="rnic0",queue="0",`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := newNamespace(t)
			text, asked := seenAt(
				t, strings.Replace(tc.text, "SOCKET", filepath.Join(t.TempDir(), "switch.sock"), 1))
			file := configured(t, text)
			p := ns.rnicd(t, name, "--config", file)
			p.Expect(t, 1, "msg=ready ")
			ns.Run(t, "ip", "link", "add", "br0", "type", "bridge")
			ns.Run(t, "ip", "link", "set", "rnic0", "master", "br0")
			const line = `level=\w+ msg="the device .*=rnic0`
			shown := func(n int, log, trouble, kind string) {
				t.Helper()
				require.Regexp(t, log, p.Expect(t, n, line))
				seen := ns.ask(t, 0, "--socket", asked) + ns.ask(t, 0, "--json", "--socket", asked)
				metrics := ns.scrape(t, "127.0.0.1:9175")
				require.Contains(t, seen, `"throttled_seconds"`)
				require.Regexp(t, `(?m)^rnicd_cpu_throttled_periods_total \d+$`, metrics)
				if kind == "" {
					require.NotContains(t, seen, "trouble: ")
					require.NotRegexp(t, `(?m)^`+tc.metric+`trouble="\w+"\} 1$`, metrics)
					return
				}
				require.Contains(t, seen, "trouble: "+trouble)
				require.Regexp(t, `(?m)^`+tc.metric+`trouble="`+kind+`"\} 1$`, metrics)
				top := ns.exits(t, 0, "top", "--once", "--socket", asked)
				require.Contains(t, top.String(), "trouble: rnic0: "+trouble)
				doctor := ns.rnicd(t, "doctor", "--config", file)
				status, verdict := doctor.Wait(t), "lack"
				if kind == "bridge" {
					verdict = "warn" // and something else may lack
				} else {
					require.Equal(t, 1, status, "%s", doctor)
				}
				doctor.Expect(t, 1, `^`+verdict+`  places       port rnic0: `+trouble)
			}
			shown(1, "level=WARN .* leaves its bridge at a restart", "rnic0 is in a bridge, ", "bridge")

			ns.Run(t, "ip", "link", "set", "rnic0", "nomaster")
			ns.Run(t, "ip", "link", "set", "rnic0", "down")
			shown(2, `level=ERROR .* takes no frames"`, "rnic0 is down: ", "down")
			ns.Run(t, "ip", "link", "set", "rnic0", "up")
			shown(3, `level=INFO .* takes frames again"`, "", "")

			other := newNamespace(t)
			var holder *exec.Cmd
			other.Do(func() {
				holder = exec.Command("sleep", "infinity")
				require.NoError(t, holder.Start())
			})
			defer func() {
				require.NoError(t, holder.Process.Kill())
				_ = holder.Wait()
			}()
			ns.Run(t, "ip", "link", "set", "rnic0", "netns", strconv.Itoa(holder.Process.Pid))
			shown(4, `level=ERROR .* takes no frames" .*in another network namespace`,
				"rnic0 is in another network namespace", "moved")
			ns.stop(t, p)
			require.Len(t, p.Lines(line), 4, "%s", p)
		})
	}
}
