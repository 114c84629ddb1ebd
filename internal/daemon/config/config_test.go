package config

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/conf"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

var update = flag.Bool("update", false, "write docs/reference/configuration.md again")

const base = `[[port]]
name = "one"
addresses = ["10.9.0.1/24"]

[[service]]
name = "scratch"
type = "region"
size = "1MiB"
`

// parse reads a text with the drivers of this module and one more.
func parse(text string) (*Config, error) {
	slot := func(name, value string) error {
		if name != "slot" {
			return errors.New("unknown: want slot")
		}
		_, err := strconv.Atoi(value)
		return err
	}
	more := port.Driver{Name: "own", MTUMax: 9000, Option: slot,
		Open: func(*port.Config, *hugepages.Arena) (pmd.Port, error) { return nil, nil }}
	return Parse("rnicd.toml", []byte(text), port.Builtin().With(more))
}

// mistake is a configuration and the errors that it has, a line each.
type mistake struct{ name, text, want string }

// mistakesOfForm are of TOML, keys and the types of values.
var mistakesOfForm = []mistake{
	{"no TOML", "[[port]\n", "1:7: "},
	{"unknown key", base + "sise = 3\n", "9:1: service.sise: unknown key; did you mean size?"},
	{"a hyphen", "[limits]\npoller-stall = \"1s\"\n" + base,
		"2:1: limits.poller-stall: unknown key; did you mean poller_stall?"},
	{"unknown table", base + "[logging]\nlevel = \"info\"\n",
		"9:2: logging: unknown key; there are log, limits, control, metrics, tcp, mpa, port, service"},
	{"two unknown keys", "[log]\na = 1\nb = 2\n" + base, "2:1: log.a: unknown key" + "\n" +
		"3:1: log.b: unknown key"},
	{"twice", base + "size = 5\n", "9:1: "},
	{"text for a number", with("mtu = \"big\""), `3:7: port.mtu: want a whole number`},
	{"a number for tables", "port = 3\n",
		"1:8: port: want double brackets, [[port]]: there may be several"},
	{"a text in place of a table", "service = [\"scratch\"]\n",
		"1:12: service: want double brackets, [[service]]: there may be several"},
	{"a table for tables", "[port]\nname = \"one\"\n",
		"1:2: port: want double brackets, [[port]]: there may be several"},
	{"a negative number", with("vlan = -1"), "3:8: port.vlan: want a whole number from 0 to 65535"},
	{"a duration", base + "idle_timeout = \"soon\"\n",
		`9:16: service.idle_timeout: "soon" is no duration; write 500ms, 10s or 1m30s`},
	{"a number for a duration", base + "idle_timeout = 5\n",
		`9:1: service.idle_timeout: 5: want a duration, as "500ms", "10s" or "1m30s"`},
	{"a size", base + "quota = \"1XB\"\n",
		`9:9: service.quota: "1XB" is no size; write 4096, "64KiB", "256MiB" or "1.5GiB"`},
	{"a negative size", base + "quota = -1\n", `9:1: service.quota: -1: want 0 or more octets`},
	{"mistakes of several kinds", "[log]\nlevel = \"loud\"\nformt = \"text\"\n[limits]\n" +
		"drain = \"soon\"\npoller_stall = 5\n" + base + "idle_timeout = \"soon\"\nquota = \"2MiB\"\n" +
		"[[service]]\nname = \"x\"\ntype = \"pref\"\nlisten = \"7001\"\nmarkers = 1\n",
		`2:1: log.level: "loud": want debug, info, warn or error` + "\n" +
			"3:1: log.formt: unknown key; did you mean format?\n" +
			`5:9: limits.drain: "soon" is no duration; write 500ms, 10s or 1m30s` + "\n" +
			`6:1: limits.poller_stall: 5: want a duration, as "500ms", "10s" or "1m30s"` + "\n" +
			`15:16: service.idle_timeout: "soon" is no duration; write 500ms, 10s or 1m30s` + "\n" +
			"16:1: service.quota: 2MiB is more than the region's size, 1MiB\n" +
			`19:1: service.type: "pref": want region, file, perf or stream` + "\n" +
			"20:10: service.listen: want a whole number from 0 to 65535\n" +
			"21:11: service.markers: want true or false"},
	{"what follows from a mistake", base + "quota = \"512KiB\"\n" +
		"[[service]]\nname = \"y\"\ntype = \"region\"\nlisten = 8\nsize = \"1XB\"\nquota = \"2MiB\"\n" +
		"[[service]]\nname = \"z\"\ntype = \"file\"\nlisten = 9\npathh = \"/dev/null\"\n",
		`14:8: service.size: "1XB" is no size; write 4096, "64KiB", "256MiB" or "1.5GiB"` + "\n" +
			"20:1: service.pathh: unknown key; did you mean path?"},
	{"mistakes before what is no TOML", "[log]\nlevle = 3\n[limits]\ndrain = \"soon\"\n[[port]\n",
		"2:1: log.levle: unknown key; did you mean level?\n" +
			`4:9: limits.drain: "soon" is no duration; write 500ms, 10s or 1m30s` + "\n5:7: "},
	{"mistakes before an array without an end", "[log]\nlevle = 3\n[[port]]\naddresses = [\n\"a\",\n",
		"2:1: log.levle: unknown key; did you mean level?\n5:5: array is incomplete"},
	{"mistakes and a name that is none", "[limits]\ndrain = \"soon\"\n[[port]]\nname = 1\n" +
		"[[service]]\nname = \"x\"\ntype = \"perf\"\nports = [\"one\"]\n",
		`2:9: limits.drain: "soon" is no duration; write 500ms, 10s or 1m30s` + "\n" +
			`4:8: port.name: want a text, as "name"`},
}

var manyAddresses = func() (text string) {
	for i := range 200 {
		text += fmt.Sprintf("\"10.9.0.%d/24\", ", i+2)
	}
	return text
}()

// mistakesOfPorts are of ports and of the daemon as a whole.
var mistakesOfPorts = []mistake{
	{"a socket", "[control]\nsocket = \"here.sock\"\nmode = \"rw\"\n" + base,
		`2:1: control.socket: "here.sock": want a path that begins with /, or off` + "\n" +
			`3:1: control.mode: "rw": want permissions as 0600`},
	{"a long socket", "[control]\nsocket = \"/" + strings.Repeat("x", 107) + "\"\n" + base,
		`2:1: control.socket: 108 octets long; a socket's path has 107 at most`},
	{"metrics", "[metrics]\nlisten = \"9174\"\n" + base,
		`2:1: metrics.listen: "9174": want host and port, as 127.0.0.1:9174`},
	{"nothing", "", "1:1: port: no port; a daemon needs one: [[port]] with name and addresses"},
	{"no name", strings.Replace(base, `name = "one"`, "", 1),
		`1:3: port.name: missing: want a name of a to z`},
	{"an empty name", strings.Replace(base, `name = "one"`, `name = ""`, 1),
		`2:1: port.name: "": want a name of a to z`},
	{"a name of two", base + "[[service]]\nname = \"scratch\"\ntype = \"perf\"\nlisten = 1\n",
		`10:1: service.name: "scratch": the service in line 6 has this name; choose another`},
	{"driver", with("driver = \"xdp\""),
		`3:1: port.driver: "xdp": want tap, dpdk, memif, kernel or own`},
	{"no address", strings.Replace(base, "addresses = [\"10.9.0.1/24\"]", "", 1),
		`1:3: port.addresses: missing: our stack needs an address, as ["10.9.0.1/24"]`},
	{"no prefix length", strings.Replace(base, "10.9.0.1/24", "10.9.0.1", 1),
		`3:1: port.addresses: "10.9.0.1": want an address with its prefix length`},
	{"a network's address", strings.Replace(base, "10.9.0.1/24", "10.9.0.0/24", 1),
		`3:1: port.addresses: "10.9.0.0/24": the first and the last address of a network are no host's`},
	{"an address of two", base + "[[port]]\nname = \"two\"\naddresses = [\"10.9.0.1/16\"]\n",
		`11:1: port.addresses: 10.9.0.1: port "one" in line 3 has this address; each has its own`},
	{"host's address ours", with("host_address = \"10.9.0.1/24\""),
		`3:1: port.host_address: "10.9.0.1/24": that is our stack's own address`},
	{"host's address far", with("host_address = \"10.8.0.1/24\""),
		`3:1: port.host_address: "10.8.0.1/24": not in the network of addresses`},
	{"host's network of two", with("host_address = \"10.9.0.254/24\"") +
		"[[port]]\nname = \"two\"\naddresses = [\"10.9.0.2/24\"]\nhost_address = \"10.9.0.253/24\"\n",
		`13:1: port.host_address: 10.9.0.0/24: port "one" in line 3 has the network 10.9.0.0/24`},
	{"gateway", with("gateways = [\"10.8.0.1\", \"x\"]"),
		`3:1: port.gateways: "10.8.0.1": not on the link` + "\n" +
			`3:1: port.gateways: "x": want the address of a router`},
	{"MTU", with("mtu = 100"), `3:1: port.mtu: 100: want 576 to `},
	{"MTU of the driver", with("driver = \"own\"\nmtu = 9001"),
		`4:1: port.mtu: 9001: want 576 to 9000`},
	{"MTU of IPv6", strings.Replace(base, "addresses = [", "mtu = 1279\naddresses = [\"fd09::1/64\", ",
		1), `3:1: port.mtu: 1279: IPv6 wants 1280 or more`},
	{"VLAN and host's address", strings.Replace(base, "addresses",
		"vlan = 5\nhost_address = "+"\"10.9.0.254/24\"\naddresses", 1),
		`4:1: port.host_address: with vlan all frames have a tag`},
	{"host's network without us", with("host_address = \"10.9.0.254/30\""),
		`3:1: port.host_address: "10.9.0.254/30": its network has none of addresses`},
	{"address of another's host", with("host_address = \"10.9.0.254/24\"") +
		"[[port]]\nname = \"two\"\naddresses = [\"10.9.0.254/24\"]\n",
		`12:1: port.addresses: 10.9.0.254: host_address of port "one" in line 3 is this address`},
	{"gateway ours", with("gateways = [\"10.9.0.1\"]"),
		`3:1: port.gateways: gateway 10.9.0.1 is our own address`},
	{"gateway of IPv6 alone", with("gateways = [\"fe80::1\"]"),
		`3:1: port.gateways: gateway fe80::1 is not on 10.9.0.0/24`},
	{"too many addresses", strings.Replace(base, "addresses = [", "addresses = ["+manyAddresses, 1),
		`3:1: port.addresses: 201 addresses: at most 16`},
	{"interrupts and fault", strings.Replace(base, "addresses",
		"idle = \"interrupt\"\nfault = "+"\"drop=1%\"\naddresses", 1),
		`3:1: port.idle: with fault a device wakes no Poller`},
	{"no device's name", with("device = \"a/b\""),
		`3:1: port.device: "a/b": no name of a network device`},
	{"metrics where a service is", "[metrics]\nlisten = \"127.0.0.1:7174\"\n[[port]]\n" +
		"name = \"lo\"\n" +
		"driver = \"kernel\"\naddresses = [\"127.0.0.1\"]\n[[service]]\nname = \"p\"\ntype = \"perf\"\n" +
		"listen = 7174\n",
		`2:1: metrics.listen: 7174 on this host is that of the service "p" in line 8`},
	{"memif on the control socket", "[control]\nsocket = \"/x.sock\"\n" +
		with("driver = \"memif\"\nsocket = \"/x.sock\""),
		`6:1: port.socket: "/x.sock" is the control socket`},
	{"VLAN", with("vlan = 4095"), `3:1: port.vlan: 4095: want 0 to 4094`},
	{"MAC", with("mac = \"01:00:00:00:00:00\""),
		`3:1: port.mac: "01:00:00:00:00:00": want the address of one station`},
	{"ports to dial from", with("dial_ports = \"9-7\""),
		`3:1: port.dial_ports: "9-7": want TCP ports, as 7174 or 32768-40000`},
	{"DAD", with("dad = \"no\""), `3:1: port.dad: "no": want auto, quick, full or off`},
	{"page", with("page = \"3M\""), `3:1: port.page: "3M": want auto, 2M, 1G or normal`},
	{"idle", with("idle = \"nap\""), `3:1: port.idle: "nap": want adaptive, spin`},
	{"fault", with("fault = \"drop=2\""), `3:1: port.fault: fault: "drop=2"`},
	{"cores", with("cores = \"2-x\""), `3:1: port.cores: "2-x": want CPUs as 2-5 or 2,4,6`},
	{"a core twice", with("cores = \"2-3,3\""), `3:1: port.cores: "2-3,3": 3 twice`},
	{"cores and queues", with("cores = \"2-3\"\nqueues = 3"),
		`3:1: port.cores: 2 CPUs for 3 queues: want one for each`},
	{"queues", with("queues = 65"), `3:1: port.queues: 65: want 1 to 64`},
	{"a core of two", with("cores = \"2\"") +
		"[[port]]\nname = \"two\"\naddresses = [\"10.8.0.1/24\"]\ncores = \"1-2\"\n",
		`13:1: port.cores: CPU 2: port "one" in line 3 has it`},
	{"a capture of two", with("capture = \"/tmp/x/../a.pcapng\"") +
		"[[port]]\nname = \"two\"\naddresses = [\"10.8.0.1/24\"]\ncapture = \"/tmp/a.pcapng\"\n",
		`13:1: port.capture: port "one" in line 3 writes to the same file`},
	{"a device of two", base +
		"[[port]]\nname = \"two\"\ndevice = \"one\"\naddresses = [\"10.8.0.1/24\"]\n",
		`9:3: port: port "one" in line 1 has the same device`},
	{"a device's name", with("device = \"sixteen-letters.\""),
		`3:1: port.device: "sixteen-letters.": a device's name has 15 letters at most`},
	{"a key of another driver", with("pci = \"0000:01:00.0\""),
		`3:1: port.pci: of no use to the driver tap: it is for dpdk; leave it out`},
	{"options without a use", base + "[port.options]\n",
		`9:7: port.options: of no use to the driver tap`},
	{"options that are wrong", with("driver = \"own\"") +
		"[port.options]\nslot = \"x\"\nslots = \"1\"\n",
		`11:1: port.options.slot: strconv.Atoi: parsing "x"` + "\n" +
			`12:1: port.options.slots: unknown: want slot`},
	{"memif without a socket", with("driver = \"memif\""),
		`1:3: port.socket: missing: the server's, as /run/memif.sock or @memif`},
	{"memif's role", strings.Replace(base, "addresses",
		"driver = \"memif\"\nsocket = \"@m\"\nrole "+"= \"both\"\naddresses", 1),
		`5:1: port.role: "both": want client or server`},
	{"the kernel's MTU", strings.Replace(base, "addresses = [\"10.9.0.1/24\"]",
		"driver = \"kernel\"\nmtu = 1500", 1), `4:1: port.mtu: of no use to the driver kernel`},
	{"the kernel's address", with("driver = \"kernel\""),
		`4:1: port.addresses: "10.9.0.1/24": with the driver kernel want one address of this host, without a prefix length`},
	{"connections of one",
		strings.Replace(base, "addresses", "connections = 5\npeer_connections = "+"6\naddresses", 1),
		`4:1: port.peer_connections: 6: want 0 to 5`},
	{"congestion", base + "[tcp]\ncongestion = \"vegas\"\n",
		`10:1: tcp.congestion: congestion control "vegas" is not known; choose one of `},
	{"a port's timer", base + "[port.tcp]\nrto_min = \"1ns\"\n",
		`10:1: port.tcp.rto_min: 1ns: want 10µs to 1m0s`},
	{"log", base + "[log]\nlevel = \"loud\"\nformat = \"xml\"\n",
		`10:1: log.level: "loud": want debug, info, warn or error` + "\n" +
			`11:1: log.format: "xml": want text or json`},
	{"a watchdog that bites", base + "[limits]\npoller_stall = \"1ms\"\n",
		`10:1: limits.poller_stall: 1ms: want 50ms to 1h0m0s`},
	{"dialect", base + "[mpa]\ndialects = [\"rfc5044\", \"culley-02\"]\n",
		`10:1: mpa.dialects: "culley-02": want rddp-01, rfc5044, rtr or rfc6581`},
}

// mistakesOfServices are of services.
var mistakesOfServices = []mistake{
	{"type", strings.Replace(base, `"region"`, `"regoin"`, 1),
		`7:1: service.type: "regoin": want region, file, perf or stream`},
	{"a key of another type", base + "path = \"/\"\n",
		`9:1: service.path: of no use to a service of type region: it is for file; leave it out`},
	{"a port that is not there", base + "ports = [\"one\", \"two\"]\n",
		`9:1: service.ports: "two": no port has this name; there are one`},
	{"ports without a name", "[[port]]\ndriver = \"kernel\"\n" + base + "ports = [\"one\", \"two\"]\n",
		"1:3: port.name: missing: want a name of a to z, 0 to 9, - and _, 32 of them at most\n" +
			`11:1: service.ports: "two": no port has this name; there are one`},
	{"no place on a port", strings.Replace(base, "addresses",
		"connections = 0\npeer_connections = 1\naddresses", 1),
		`3:1: port.connections: 0: want 1 to 1048576`},
	{"no place", base + "connections = 0\npeer_connections = 1\n",
		`9:1: service.connections: 0: want 1 to 1048576`},
	{"no port", base + "ports = []\n",
		`9:1: service.ports: empty, so that it would be served nowhere`},
	{"nobody", base + "allow = []\n", `9:1: service.allow: empty, so that no client would be served`},
	{"a network", base + "allow = [\"10.9.0.1/24\", \"all\"]\n",
		`9:1: service.allow: "10.9.0.1/24": the address goes beyond the network; want 10.9.0.0/24` +
			"\n" + `9:1: service.allow: "all": want a network`},
	{"a network that nobody is in", base +
		"allow = [\"::ffff:10.9.0.2\", \"::ffff:10.9.0.0/120\", \"fe80::1%lo\", \"fe80::1%lo/64\"]\n",
		`9:1: service.allow: "::ffff:10.9.0.2": no peer has such an address; write the IPv4 one, as 10.9.0.2` + "\n" +
			`9:1: service.allow: "::ffff:10.9.0.0/120": no peer has such an address` + "\n" +
			`9:1: service.allow: "fe80::1%lo": want a network` + "\n" +
			`9:1: service.allow: "fe80::1%lo/64": want a network`},
	{"a TCP port of two", base + "[[service]]\nname = \"perf\"\ntype = \"perf\"\nlisten = 7174\n",
		`12:1: service.listen: 7174 on port "one" is that of the service "scratch" in line 6; choose another`},
	{"no size", strings.Replace(base, "size", "# ", 1), `5:3: service.size: missing: how much memory`},
	{"quota", base + "quota = \"2MiB\"\n",
		`9:1: service.quota: 2MiB is more than the region's size, 1MiB`},
	{"places of one", base + "connections = 3\npeer_connections = 4\n",
		`10:1: service.peer_connections: 4: want 0 to 3`},
	{"size_max", base + "[[service]]\nname = \"p\"\ntype = \"perf\"\nsize_max = \"1GiB\"\n",
		`12:1: service.size_max: 1073741824: want 1 to 67108864`},
	{"types and modes that there were", base + "[[service]]\nname = \"p\"\ntype = \"perftest\"\n" +
		"test = \"write bw\"\nqps = 2\n[[service]]\nname = \"q\"\ntype = \"rstream\"\n" +
		"[[service]]\nname = \"r\"\ntype = \"rping\"\n[[service]]\nname = \"s\"\n" +
		"type = \"stream\"\nmode = \"iperf3\"\n",
		`11:1: service.type: "perftest" is no type any more; run the program itself: rnicd run -- ib_send_lat -R` + "\n" +
			`16:1: service.type: "rstream" is no type any more; run the program itself: rnicd run -- rstream` + "\n" +
			`19:1: service.type: "rping" is no type any more; run the program itself: rnicd run -- rping -s` + "\n" +
			`23:1: service.mode: "iperf3" is no mode any more; run the program itself: iperf3 -s`},
	{"mode", base + "[[service]]\nname = \"s\"\ntype = \"stream\"\nmode = \"drain\"\n",
		`12:1: service.mode: "drain": want sink, source or echo`},
	{"no mode", base + "[[service]]\nname = \"s\"\ntype = \"stream\"\n",
		`9:3: service.mode: missing: sink, source or echo; iperf3 runs itself`},
}

// Each mistake is reported with file, line and column, its key, and what would be right.
func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	all := slices.Concat(mistakesOfForm, mistakesOfPorts, mistakesOfServices, []mistake{
		{"a file that is not there",
			fmt.Sprintf("%s[[service]]\nname = \"f\"\ntype = \"file\"\nlisten = 1\npath = %q\n", base,
				dir+"/none"), "13:1: service.path: stat " + dir + "/none: no such file"},
		{"a file that is none",
			fmt.Sprintf("%s[[service]]\nname = \"f\"\ntype = \"file\"\nlisten = "+"1\npath = %q\n", base,
				dir), "13:1: service.path: " + dir + ": want a regular file"},
	})
	for _, tc := range all {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parse(tc.text)
			require.Error(t, err)
			var es conf.Errors
			require.ErrorAs(t, err, &es)
			wants := strings.Split(tc.want, "\n")
			require.Len(t, es, len(wants), "%v", err)
			for i, want := range wants {
				require.True(t, strings.HasPrefix(es[i].Error(), "rnicd.toml:"+want), "%s\nwant %s", es[i],
					want)
			}
		})
	}
}

const valuesText = `
[log]
level = "debug"
[tcp]
rto_min = "5ms"
ecn = true
[mpa]
crc = false
dialects = ["rfc6581"]

[[port]]
name = "one"
addresses = ["10.9.0.1/24", "fd09::1/64"]
host_address = "10.9.0.254/24"
gateways = ["10.9.0.9", "fe80::9"]
cores = "4-5,9"
idle = "spin"
mtu = 9000
connections = 4
tcp = { rto_min = "7ms", congestion = "dctcp" }

[[port]]
name = "two"
driver = "kernel"
addresses = ["127.0.0.1"]

[[port]]
name = "three"
driver = "own"
addresses = ["10.7.0.1/24"]
dad = "off"
queues = 2
offload = false
[port.options]
slot = "3"

[[service]]
name = "scratch"
type = "region"
size = "1.5GiB"
allow = ["10.9.0.0/24", "fd09::7"]
ports = ["three", "one"]

[[service]]
name = "measure"
type = "perf"
listen = 9
markers = true
crc = true

[[service]]
name = "f"
type = "file"
listen = 10
path = %q
`

// A Config has the values of the file, and defaults of the other keys.
func TestValues(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	c, err := parse(fmt.Sprintf(valuesText, path))
	require.NoError(t, err)
	require.Equal(t, Log{"debug", "text"}, c.Log)
	require.Equal(t, Limits{conf.Duration(10 * time.Second), conf.Duration(100 * time.Millisecond)},
		c.Limits)
	one, three := &c.Ports[0].Open, &c.Ports[2].Open
	require.Equal(t, "tap", one.Driver.Name)
	require.Equal(t, "one", one.Device)
	require.Equal(
		t, []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24"), netip.MustParsePrefix("fd09::1/64")},
		one.Addrs)
	require.Equal(t, []int{4, 5, 9}, one.Cores)
	require.Equal(t, 3, one.QueueCount())
	require.Equal(t, stack.IdleSpin, one.Idle)
	require.Equal(t, 9000, one.MTU)
	require.Equal(t, 3, one.PeerMax)
	require.Equal(t, 7*time.Millisecond, one.RTOMin)
	require.Equal(t, time.Millisecond, one.PTOMin)
	require.True(t, one.ECN)
	require.Equal(t, "dctcp", one.Congestion.Name())
	require.True(t, c.Ports[1].Open.Driver.Sockets)
	require.Equal(t, port.DADNone, three.DAD)
	require.Equal(t, 5*time.Millisecond, three.RTOMin)
	require.Equal(t, map[string]string{"slot": "3"}, three.Options)
	require.True(t, three.NoOffload)
	require.Equal(t, 1500, three.MTU)

	region, measure, file := &c.Services[0], &c.Services[1], &c.Services[2]
	require.Equal(t, conf.Size(1610612736), region.Size)
	require.Equal(t, uint16(7174), region.Listen)
	require.Equal(t, []int{2, 0}, region.On)
	require.Equal(
		t, []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24"), netip.MustParsePrefix("fd09::7/128")},
		region.Networks)
	require.True(t, region.NoCRC)
	require.False(t, region.NoMarkers)
	require.Equal(t, []rnic.Dialect{rnic.RFC6581}, region.Dialects)
	require.Equal(t, []int{0, 1, 2}, measure.On)
	require.False(t, measure.NoCRC)
	require.False(t, measure.NoMarkers)
	require.Equal(t, conf.Size(64<<20), measure.SizeMax)
	require.Equal(t, path, file.Path)
}

// A file is read as it is, and one that is none is refused.
func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rnicd.toml")
	_, err := Load(path, port.Builtin())
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Load(t.TempDir(), port.Builtin())
	require.ErrorContains(t, err, "want a regular file")
	require.NoError(t, os.WriteFile(path, []byte(base), 0o600))
	c, err := Load(path, port.Builtin())
	require.NoError(t, err)
	require.Equal(t, path, c.File)
}

// No text makes the parser panic, and every mistake has a line of the file.
func FuzzParse(f *testing.F) {
	f.Add(base)
	f.Add("[[port]]\nname = \"x\"\n[port.tcp]\n[[service]]\nports = [{a = 1}]\n")
	f.Add("port = [{name = \"a\", tcp = {ecn = true}}, {name = \"b\"}]\na.b.c = 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := parse(text)
		es, ok := err.(conf.Errors)
		for _, e := range es {
			if ok && (e.Line < 1 || e.Line > 1+strings.Count(text, "\n") || e.Column < 1) {
				t.Fatalf("%v: a file of %d lines", e, 1+strings.Count(text, "\n"))
			}
		}
	})
}

// The reference is what the types say. With -update it is written.
func TestReference(t *testing.T) {
	const path = "../../../docs/reference/configuration.md"
	var b bytes.Buffer
	WriteReference(&b)
	if *update {
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(have),
		"go test ./internal/daemon/config -update writes it again")
}

// A byte order mark, and lines that end as on Windows, are as if they were not there; positions
// are those of the text.
func TestTextOfOtherEditors(t *testing.T) {
	text := "\xef\xbb\xbf" + strings.ReplaceAll(base, "\n", "\r\n")
	_, err := parse(text)
	require.NoError(t, err)
	_, err = parse(text + "sise = 1\r\n")
	require.ErrorContains(t, err, "rnicd.toml:9:1: service.sise: unknown key")
}
