package daemon

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const firstOfTwo = `
[[service]]
name = "first"
type = "region"
size = "1MiB"
page = "normal"
listen = 7001
`

const two = firstOfTwo + `
[[service]]
name = "second"
type = "perf"
listen = 7002
`

const third = `
[[service]]
name = "third"
type = "region"
size = "1MiB"
page = "normal"
`

// A reload adds, removes and changes services. Connections of services that stay, or whose limits
// alone change, are not touched; those of the others are drained.
func TestReload(t *testing.T) {
	r := start(t, two)
	require.Equal(t, "nothing has changed", r.reload(cable+two).String())
	end := r.holding(at(7001), 1)

	// First gets limits, second is removed, third is added.
	changes := r.reload(cable + `
[limits]
poller_stall = "1s"
drain = "1h"
[log]
level = "warn"
` + firstOfTwo + "connections = 1\n" + third + "listen = 7003\n")
	require.Equal(t, "added: third; removed: second; limits: first", changes.String())
	require.Len(t, r.d.listeners, 2)
	require.Equal(t, slog.LevelWarn, r.d.level.Level())
	require.Equal(t, int64(time.Hour), r.d.drain.Load())
	require.Equal(t, int64(time.Second), r.d.dog.limit.Load())
	require.Len(t, r.d.Connections(), 1)
	require.ErrorContains(t, r.put(r.dev, at(7001), 1000), "1 other clients are being served")
	require.Error(t, r.measure(at(7002), 1))
	require.NoError(t, r.put(r.dev, at(7003), 1000))
	served, _ := r.log.lines("msg=served service=third")
	require.Empty(t, served, "the level is warn")

	// First becomes another service on its port, while its client goes on; third gets another port.
	changes = r.reload(cable + `
[limits]
drain = "1h"
[[service]]
name = "first"
type = "perf"
listen = 7001
` + third + "listen = 7004\n")
	require.Equal(t, "changed: first, third", changes.String())
	require.NoError(t, r.measure(at(7001), 1))
	require.NoError(t, r.put(r.dev, at(7004), 1000))
	require.Error(t, r.put(r.dev, at(7003), 1000))
	left, _ := r.log.lines("msg=\"taken out\" service=first")
	require.Empty(t, left, "its client is there")
	require.Equal(t, []error{nil}, end())
	require.Contains(t, r.log.await(t, 1, "msg=\"taken out\" service=first"), "reset=0")

	// The port is opened again for another type, and for other dialects.
	changes = r.reload(cable + `
[mpa]
dialects = ["rfc6581"]
[[service]]
name = "first"
type = "stream"
mode = "echo"
listen = 7001
` + third + "listen = 7004\n")
	require.Equal(t, "changed: first, third", changes.String())
	require.Error(t, r.put(r.dev, at(7004), 1000), "put asks in rfc5044")
	require.Empty(t, r.reload(cable).Added)
	require.Empty(t, r.d.Services())
}

// A configuration that cannot be applied changes nothing, also if a part of it could be applied.
func TestReloadIsAtomic(t *testing.T) {
	taken := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	lo := cable + "[[port]]\nname = \"lo\"\ndriver = \"kernel\"\naddresses = [\"127.0.0.1\"]\n"
	one := fmt.Sprintf("%slisten = %d\n", region, freePort(t))
	r := start(t, lo[len(cable):]+one)
	end := r.holding(at(r.listen("region")), 1)
	for name, bad := range map[string]string{
		"a port of others": lo + fmt.Sprintf("[[service]]\nname = \"new\"\ntype = \"perf\"\nlisten = "+
			"7009\n[[service]]\nname = \"bad\"\ntype = \"perf\"\nlisten = %d\n",
			taken.Addr().(*net.TCPAddr).Port),
		"memory that is not there": lo + one +
			"[[service]]\nname = \"new\"\ntype = \"region\"\nlisten = 7009\nsize = \"64KiB\"\npage = " +
			"\"normal\"\n" +
			"[[service]]\nname = \"bad\"\ntype = \"region\"\nlisten = 7010\nsize = \"1000TiB\"\n",
		"another kind at its place": lo +
			fmt.Sprintf("[[service]]\nname = \"region\"\ntype = \"stream\"\nmode = \"sink\"\n"+
				"listen = %d\n[[service]]\nname = \"bad\"\ntype = \"perf\"\nlisten = %d\n",
				r.listen("region"), taken.Addr().(*net.TCPAddr).Port),
	} {
		t.Run(name, func(t *testing.T) {
			r.awaitConnections(1)
			for range 16 { // places are opened in any order
				_, err := r.d.Reload(r.ctx, r.parse(bad))
				require.ErrorContains(t, err, `service "bad"`)
			}
			require.Len(t, r.d.Services(), 1)
			require.Len(t, r.d.Connections(), 1)
			require.NoError(t, r.put(r.dev, at(r.listen("region")), 1000), "it serves as it did")
			require.Error(t, r.put(r.dev, at(7009), 1))
			require.EqualValues(t, 1, r.d.held.Load(), "what was made is given back")
		})
	}
	end()
}

// listen is where a service of the configuration listens.
func (r *rig) listen(name string) int {
	for _, s := range r.d.Services() {
		if s.Name() == name {
			return int(s.Config().Listen)
		}
	}
	return 0
}

// A reload names the keys that need a restart, and applies the others.
func TestReloadNamesWhatNeedsARestart(t *testing.T) {
	r := start(t, "")
	changes := r.reload(`
[log]
format = "json"
[tcp]
rto_min = "5ms"
[[port]]
name = "cable"
driver = "cable"
addresses = ["10.9.0.1/24"]
dad = "off"
page = "normal"
mtu = 9000
[[port]]
name = "new"
driver = "kernel"
[[service]]
name = "measure"
type = "perf"
listen = 7001
[[service]]
name = "elsewhere"
type = "perf"
ports = ["new"]
`)
	require.Equal(t, []string{"log.format", "port.cable.mtu", "port.cable.tcp.rto_min", "port.new",
		"service.measure on port new", "service.elsewhere on port new"}, changes.Restart)
	require.Equal(t, []string{"measure"}, changes.Added)
	require.NoError(t, r.measure(at(7001), 1))
	require.Contains(t, r.reload("[[port]]\nname = \"lo\"\ndriver = \"kernel\"\n").Restart,
		"port.cable")
}

// A port whose name changes in the file runs until the restart, and what is served on all ports, or
// on none that runs, is served there, without a break.
func TestReloadServesOnPortsThatTheFileLacks(t *testing.T) {
	service := "[[service]]\nname = \"measure\"\ntype = \"perf\"\nlisten = 7001\n"
	for _, ports := range []string{"", "ports = [\"cable\"]\n"} {
		r := start(t, service+ports)
		changes := r.reload(strings.Replace(cable, `"cable"`, `"other"`, 1) + service +
			strings.Replace(ports, "cable", "other", 1))
		require.Equal(t, Changes{Restart: []string{"port.other", "port.cable",
			"service.measure on port other"}}, changes)
		require.NoError(t, r.measure(at(7001), 1))
		require.Equal(t, "removed: measure; needs a restart: port.other, port.cable",
			r.reload(strings.Replace(cable, `"cable"`, `"other"`, 1)).String())
	}
}

// A service that names several ports, of which the file renames one, stays on that one, too; where
// it listens on another TCP port from now on, it leaves.
func TestReloadServesOnSomePortsThatTheFileLacks(t *testing.T) {
	tcp := freePort(t)
	lo := "[[port]]\nname = \"lo\"\ndriver = \"kernel\"\naddresses = [\"127.0.0.1\"]\n"
	service := func(cable string, tcp int) string {
		return fmt.Sprintf("[[service]]\nname = \"measure\"\ntype = \"perf\"\nlisten = %d\n"+
			"ports = [\"lo\", %q]\n", tcp, cable)
	}
	r := start(t, lo+service("cable", tcp))
	require.Equal(t, "nothing has changed", r.reload(cable+lo+service("cable", tcp)).String())
	renamed := strings.Replace(cable, `"cable"`, `"other"`, 1) + lo
	restart := []string{"port.other", "port.cable", "service.measure on port other"}
	require.Equal(t, Changes{Restart: restart}, r.reload(renamed+service("other", tcp)))
	require.NoError(t, r.measure(at(tcp), 1))
	require.Equal(t, Changes{Restart: restart, Limits: []string{"measure"}},
		r.reload(renamed+service("other", tcp)+"connections = 7\n"))
	require.NoError(t, r.measure(at(tcp), 1))
	require.Equal(t, Changes{Restart: restart, Changed: []string{"measure"}},
		r.reload(renamed+service("other", freePort(t))))
	require.Error(t, r.measure(at(tcp), 1))
	// what the file takes away without another port for it is left
	require.Equal(t, Changes{Changed: []string{"measure"}},
		r.reload(cable+lo+service("cable", tcp)))
	require.Equal(t, Changes{Changed: []string{"measure"}}, r.reload(
		cable+lo+strings.Replace(service("", tcp), `, ""`, "", 1)))
	require.Error(t, r.measure(at(tcp), 1))
}

// A reload of the same configuration reads a changed file again.
func TestReloadReadsFilesAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("before"), 0o600))
	text := "[[service]]\nname = \"image\"\ntype = \"file\"\npage = \"normal\"\npath = \"" +
		path + "\"\n"
	r := start(t, text)
	require.NoError(t, os.WriteFile(path, []byte("afterwards"), 0o600))
	require.Equal(t, "changed: image", r.reload(cable+text).String())
	require.Equal(t, "nothing has changed", r.reload(cable+text).String())
}

// What a reload does not change stays: memory on its pages, and what is in it, when a service gets
// another timeout or quota; counters only grow, also over a service that was away.
func TestReloadKeepsMemoryAndCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("content"), 0o600))
	both := func(more string) string {
		return "[[service]]\nname = \"kept\"\ntype = \"region\"\nsize = \"1MiB\"\npage = " +
			"\"normal\"\nlisten = 7001\n" + more +
			"[[service]]\nname = \"file\"\ntype = \"file\"\npage = \"normal\"\nlisten = 7002\npath = \"" +
			path + "\"\n" + more
	}
	r := start(t, both(""))
	held := func() (all []*holding) {
		for _, s := range r.d.Services() {
			all = append(all, s.memory)
		}
		return all
	}
	was := held()
	require.NoError(t, r.put(r.dev, at(7001), 1000))
	accepted := func() uint64 { return r.d.Status(r.ctx).Services[0].Accepted }
	require.EqualValues(t, 1, accepted())
	for i, more := range []string{"idle_timeout = \"7s\"\n", "crc = false\n",
		"idle_timeout = \"8s\"\nmarkers = false\n"} {
		require.Equal(t, "changed: kept, file", r.reload(cable+both(more)).String())
		require.Equal(t, was, held(), more)
		require.NoError(t, r.put(r.dev, at(7001), 1000))
		require.EqualValues(t, i+2, accepted())
	}
	small := strings.Replace(both(""), "listen = 7001\n", "listen = 7001\nquota = 999\n", 1)
	require.Equal(t, "changed: kept, file", r.reload(cable+small).String())
	require.Equal(t, was, held())
	require.ErrorContains(t, r.put(r.dev, at(7001), 1000), "a client may hold 999 of the region")
	require.Equal(t, "removed: kept, file", r.reload(cable).String())
	require.Equal(t, "added: kept, file", r.reload(cable+both("")).String())
	for i, now := range held() {
		require.NotSame(t, was[i], now, "the memory was given back")
	}
	require.EqualValues(t, 5, accepted())
}

// A reload that fails is told of until one succeeds: in status, to systemd, with all mistakes.
func TestFailedReloadIsTold(t *testing.T) {
	r := start(t, "")
	file := filepath.Join(t.TempDir(), "rnicd.toml")
	run := &runner{Daemon: r.d, file: file, drivers: r.drivers}
	begun := r.d.Status(r.ctx)
	require.Empty(t, begun.ReloadError)
	require.False(t, begun.Loaded.IsZero())

	require.NoError(t, os.WriteFile(file, []byte(cable+`
[limits]
drain = "soon"
[[service]]
name = "x"
type = "pref"
listen = 7001
`), 0o600))
	run.reload()
	s := r.d.Status(r.ctx)
	require.Contains(t, s.ReloadError, "limits.drain")
	require.Contains(t, s.ReloadError, "service.type", "every mistake is told")
	require.Equal(t, begun.Loaded, s.Loaded)
	require.Contains(t, statusLine(r.d), "NOT RELOADED")

	require.NoError(t, os.WriteFile(file, []byte(cable), 0o600))
	run.reload()
	s = r.d.Status(r.ctx)
	require.Empty(t, s.ReloadError)
	require.True(t, s.Loaded.After(begun.Loaded))
}
