package config

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/vswitch"
)

const switchBase = `[switch]
socket = "@s"

[[uplink]]
name = "up"

[[program]]
name = "one"
id = 1
addresses = ["10.9.0.1"]
`

// inSwitch and atUplink put keys into these tables.
func inSwitch(keys string) string {
	return strings.Replace(switchBase, "[switch]", "[switch]\n"+keys, 1)
}

func atUplink(keys string) string {
	return strings.Replace(switchBase, "\"up\"", "\"up\"\n"+keys, 1)
}

func parseSwitch(text string) (*Switch, error) {
	return ParseSwitch("switch.toml", []byte(text), port.Builtin())
}

// Each mistake is told with its place, its key, and what would be right.
func TestMistakesInSwitches(t *testing.T) {
	another := "[[program]]\nname = \"two\"\nid = 2\naddresses = [\"10.9.0.2\"]\n"
	for text, want := range map[string]string{
		"":                                       "switch.toml:1:1: program: no program; a switch needs one",
		"[program]\nname = \"one\"\n":            "1:2: program: want double brackets, [[program]]",
		"program = 1\n":                          "1:11: program: want double brackets, [[program]]",
		switchBase + "adresses = 1\n":            "11:1: program.adresses: unknown key; did you mean",
		switchBase + "[log]\nlevel = \"loud\"\n": "12:1: log.level",
		strings.Replace(switchBase, "socket = \"@s\"", "",
			1): "program.socket: missing, and [switch] has none for all",
		inSwitch("mode = \"rw\""):  `2:1: switch.mode: "rw": want an octal number`,
		inSwitch("idle = \"x\""):   `2:1: switch.idle: "x": want adaptive or spin`,
		inSwitch("page = \"x\""):   "2:1: switch.page",
		inSwitch("cores = \"x\""):  `2:1: switch.cores: "x": want CPUs`,
		inSwitch("threads = 17"):   "2:1: switch.threads: 17: want 1 to 16",
		inSwitch("multicast = 0"):  "2:1: switch.multicast: 0: want 1",
		inSwitch("memory_max = 1"): "2:1: switch.memory_max: 1: want 65536",
		strings.Replace(switchBase, "name = \"up\"", "name = \"UP\"",
			1): `5:1: uplink.name: "UP": want a name`,
		switchBase + "uplink = \"down\"\n":          `11:1: program.uplink: "down": there is no such uplink`,
		switchBase + "[[uplink]]\nname = \"two\"\n": "7:3: program.uplink: missing: there are several",
		atUplink("driver = \"kernel\""):             `6:1: uplink.driver: "kernel": want tap, dpdk or memif`,
		atUplink("driver = \"memif\""):              "uplink: memif needs the socket of its server",
		atUplink("pci = \"0000:1:0.0\""):            "6:1: uplink.pci: of no use to the driver tap",
		atUplink("queues = 2"):                      "6:1: uplink.queues: 2: want 1 to 1",
		atUplink("mtu = 70000"):                     "6:1: uplink.mtu: 70000: want 576 to",
		atUplink("mac = \"x\""):                     `6:1: uplink.mac: "x"`,
		switchBase + "mtu = 1501\n":                 "11:1: program.mtu: 1501: want 576 to 1500, what its uplink has",
		switchBase + "thread = 1\n":                 "11:1: program.thread: 1: want 0 to 0",
		switchBase + "queues = 17\n":                "11:1: program.queues: 17: want 1 to 16",
		switchBase + "buffers = 1\n":                "11:1: program.buffers: 1: want 32 to 65536",
		switchBase + "send_rate = \"1TiB\"\n":       "11:1: program.send_rate: 1099511627776: want 0 to 137438953472",
		strings.Replace(switchBase, "10.9.0.1", "fd09::1", 1) +
			"mtu = 1279\n": "11:1: program.mtu: 1279: IPv6 wants 1280 or more",
		switchBase + "[[uplink]]\nname = \"a\"\nhost_address = \"10.9.0.1/24\"\n[[uplink]]\n" +
			"name = \"b\"\nhost_address = \"10.9.0.2/16\"\n": `16:1: uplink.host_address: 10.9.0.0/16: uplink "a" in line 13 has the network`,
		switchBase + "mac = \"01:00:00:00:00:01\"\n": `11:1: program.mac: "01:00:00:00:00:01": want the address of one station`,
		switchBase + "ports = [\"9-8\"]\n":           `11:1: program.ports: "9-8": want TCP ports`,
		switchBase + "secret = \"" + strings.Repeat("x", 25) +
			"\"\n": "11:1: program.secret: 25 octets; want 24 at most",
		strings.Replace(switchBase, "[\"10.9.0.1\"]", "[]",
			1): "10:1: program.addresses: missing: a program has an address",
		strings.Replace(switchBase, "10.9.0.1", "10.9.0.1/24", 1): "10:1: program.addresses: \"10.9.0.1/24\": want the address " +
			"of a host, without a prefix length",
		strings.Replace(switchBase, "10.9.0.1", "::ffff:10.9.0.1",
			1): `10:1: program.addresses: "::ffff:10.9.0.1"`,
		switchBase + strings.Replace(another, "id = 2", "id = 1",
			1): `13:1: program.id: 1 on @s is "one"'s; choose another`,
		switchBase + strings.Replace(another, "9.0.2", "9.0.1",
			1): `program.ports: "one" has the same addresses: each needs TCP ports of its own`,
		switchBase + strings.Replace(another, "\"two\"", "\"one\"",
			1): `12:1: program.name: "one": the program in line 8 has this name`,
	} {
		_, err := parseSwitch(text)
		require.ErrorContains(t, err, want, "%s", text)
	}
}

// What stands in a file is what is switched with; the rest has its defaults.
func TestSwitchOfFile(t *testing.T) {
	s, err := parseSwitch(inSwitch("cores = \"2,5\"\nmode = \"0660\"") + `uids = [0, 7]
ports = ["80", "100-200"]
send_rate = "10MiB"
receive_frames = 1000
vlan = 9
thread = 1

[[program]]
name = "two"
socket = "/run/two"
addresses = ["fd09::2", "10.9.0.2"]
mac = "02:00:00:00:00:02"
`)
	require.NoError(t, err)
	require.Equal(t, []int{2, 5}, s.Cores)
	require.Equal(t, os.FileMode(0o660), s.Vswitch.Sockets.Mode)
	require.True(t, s.Uplinks[0].Open.Promiscuous)
	require.True(t, s.Uplinks[0].Open.NoOffload)
	require.Equal(t, "up", s.Uplinks[0].Open.Device)
	one, two := s.Vswitch.Programs[0], s.Vswitch.Programs[1]
	require.Equal(t, vswitch.Program{
		Name: "one", Socket: "@s", ID: 1, UIDs: []uint32{0, 7}, VLAN: 9,
		MAC: port.MemifMAC(netip.MustParseAddr("10.9.0.1")), Core: 1,
		Addrs: vswitch.AddrsOf(netip.MustParseAddr("10.9.0.1")),
		Ports: []vswitch.PortRange{{First: 80, Last: 80}, {First: 100, Last: 200}},
		MTU:   1500, Queues: 1, Buffers: 512, Send: vswitch.Rate{Octets: 10 << 20},
		Receive: vswitch.Rate{Frames: 1000},
	}, one)
	require.Equal(t, "02:00:00:00:00:02", two.MAC.String())
	require.Equal(t, "/run/two", two.Socket)
	require.EqualValues(t, 2, one.MAC[0]&3, "locally administered, of one station")

	s, err = parseSwitch("[switch]\nthreads = 2\n[[program]]\nname = \"one\"\nsocket = " +
		"\"@s\"\naddresses = [\"10.9.0.1\"]\n")
	require.NoError(t, err)
	require.Equal(t, vswitch.NoUplink, s.Vswitch.Programs[0].Uplink)
	require.Equal(t, []int{port.NoCore, port.NoCore}, s.Cores)
}

// A file is known by its tables.
func TestIsSwitch(t *testing.T) {
	for text, want := range map[string]bool{
		switchBase: true, "\xef\xbb\xbf[switch]\n": true, "[[program]]\n": true, "[[uplink]]\n": true,
		base: false, "": false, "[[": false,
	} {
		require.Equal(t, want, IsSwitch([]byte(text)), "%q", text)
	}
}

// Each of the two kinds of configuration is refused by the other's command, which names it.
func TestWrongKind(t *testing.T) {
	for text, load := range map[string]func(string) error{
		switchBase: func(f string) error { _, err := Load(f, port.Builtin()); return err },
		base:       func(f string) error { _, err := LoadSwitch(f, port.Builtin()); return err },
	} {
		file := filepath.Join(t.TempDir(), "some.toml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		want := map[string]string{switchBase: "a switch: rnicd switch --config FILE",
			base: "a daemon: rnicd serve --config FILE"}[text]
		require.EqualError(t, load(file), file+": this is the configuration of "+want)
	}
}

// What a switch wants of a machine: its uplinks' devices on its CPUs, and its memory, all of it.
func TestNeeds(t *testing.T) {
	s, err := parseSwitch(inSwitch("cores = \"2,5\""))
	require.NoError(t, err)
	c := s.Needs()
	require.Len(t, c.Ports, 1)
	require.Equal(t, "tap", c.Ports[0].Driver)
	require.Equal(t, []int{2, 5}, c.Ports[0].Open.Cores)
	require.EqualValues(t, s.Vswitch.MemoryBytes(1500), c.Services[0].Size)
	s, err = parseSwitch("[[program]]\nname = \"one\"\nsocket = \"@s\"\naddresses = [\"10.9.0.1\"]\n")
	require.NoError(t, err)
	c = s.Needs()
	require.Equal(t, "memif", c.Ports[0].Driver)
	require.Empty(t, c.Ports[0].Open.Cores, "wherever the scheduler puts it")
}

// The reference has every key.
func TestSwitchReference(t *testing.T) {
	var b bytes.Buffer
	WriteSwitchReference(&b)
	const path = "../../../docs/reference/configuration-switch.md"
	if *update {
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(text), "run go test ./internal/daemon/config -update")
}
