package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/conf"

	"github.com/rnicd/rnicd/internal/port"
)

// with is base, with more keys of its port.
func with(keys string) string { return strings.Replace(base, "addresses", keys+"\naddresses", 1) }

// memifAt is a port over memif.
func memifAt(name, role, socket string, id int, addr string) string {
	return fmt.Sprintf("[[port]]\nname = %q\ndriver = \"memif\"\nrole = %q\nsocket = %q\nid = "+
		"%d\naddresses = [%q]\n",
		name, role, socket, id, addr)
}

// kernelAt is a port over the kernel's sockets, with no address where addr is empty.
func kernelAt(name, addr string) string {
	text := fmt.Sprintf("[[port]]\nname = %q\ndriver = \"kernel\"\n", name)
	if addr != "" {
		text += fmt.Sprintf("addresses = [%q]\n", addr)
	}
	return text
}

func dpdkPort(name, keys string, n int) string {
	return fmt.Sprintf("[[port]]\nname = %q\ndriver = \"dpdk\"\n%s\naddresses = [\"10.%d.0.1/24\"]\n",
		name, keys, n)
}

// parseBuilt is parse where DPDK is built in.
func parseBuilt(text string) error {
	drivers := port.Builtin()
	dpdk, err := drivers.ByName("dpdk")
	if err != nil {
		return err
	}
	dpdk.Check = nil
	if IsSwitch([]byte(text)) {
		_, err = ParseSwitch("switch.toml", []byte(text), drivers.With(dpdk))
	} else {
		_, err = Parse("rnicd.toml", []byte(text), drivers.With(dpdk))
	}
	return err
}

const perfOnAll = "[[service]]\nname = \"measure\"\ntype = \"perf\"\nlisten = 7174\n"

// A path, an address or a socket that no machine has, or that two have, is refused with its key.
func TestPlacesThatCannotBe(t *testing.T) {
	long := "/" + strings.Repeat("x", 107)
	metrics := func(at string) string { return fmt.Sprintf("[metrics]\nlisten = %q\n", at) }
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for text, want := range map[string]string{
		memifAt("m", "server", long, 0,
			"10.9.0.1/24"): "port.socket: 108 octets long; a socket's path has 107 at most",
		memifAt("m", "client", "@"+long, 0, "10.9.0.1/24"): "port.socket: 109 octets long",
		memifAt("m", "server", "@", 0, "10.9.0.1/24"):      `port.socket: "@": want a path, or @ and a name`,
		memifAt("m", "server", "/run/m/", 0,
			"10.9.0.1/24"): `port.socket: "/run/m/": that names a folder`,
		with("driver = \"memif\"\nsocket = \"/a\\u0000b\""): `port.socket: "/a\x00b": no path has a zero octet`,
		"[control]\nsocket = \"/run/rnicd/\"\n" +
			base: `control.socket: "/run/rnicd/": that names a folder`,
		"[control]\nsocket = \"/a\\u0000b\"\n" +
			base: `control.socket: "/a\x00b": no path has a zero octet`,
		with("capture = \"/tmp/\""):        `port.capture: "/tmp/": that names a folder`,
		with("capture = \"/tmp/\\u0000\""): `port.capture: "/tmp/\x00": no path has a zero octet`,
		with("capture = \"/" + strings.Repeat("x", 4095) +
			"\""): "port.capture: 4096 octets long; a path has 4095 at most",
		with("device = \"a\\u0000b\""): "port.device: \"a\\x00b\": no name of a network device",
		metrics("300.1.1.1:9") +
			base: `metrics.listen: "300.1.1.1:9": "300.1.1.1" is neither an address nor a host's name`,
		metrics("10.9.1:9") + base:                   `"10.9.1" is neither an address nor a host's name`,
		metrics("[1]:9") + base:                      `"1" is neither an address nor a host's name`,
		metrics("0x7f.0x1:9") + base:                 "is neither an address nor a host's name",
		metrics("a b:9") + base:                      "is neither an address nor a host's name",
		metrics("-a:9") + base:                       "is neither an address nor a host's name",
		metrics("a..b:9") + base:                     "is neither an address nor a host's name",
		metrics("127.0.0.1%lo:9") + base:             "is neither an address nor a host's name",
		metrics(strings.Repeat("a", 64)+":9") + base: "is neither an address nor a host's name",
		metrics("[fe80::1]:9") +
			base: "a link-local address is one of a link; name that, as fe80::1%eth0",
		metrics("[ff02::1%lo]:9") + base:    "want the unicast address of a host",
		metrics("224.0.0.5:9") + base:       "want the unicast address of a host",
		metrics("0.0.0.1:9") + base:         "want the unicast address of a host",
		metrics("255.255.255.255:9") + base: "want the unicast address of a host",
		metrics("127.0.0.1:65536") + base:   "want host and port",
		metrics("10.9.0.1:9") +
			base: `metrics.listen: 10.9.0.1 is our own stack's, of port "one" in line 5`,
		metrics("[::ffff:10.9.0.1]:9") + base: "10.9.0.1 is our own stack's",
		metrics("[::]:7174") + kernelAt("k", "10.9.0.1") +
			perfOnAll: `7174 on this host is that of the service "measure"`,
		kernelAt("k", "224.0.0.5"):  `port.addresses: "224.0.0.5": want the unicast address of a host`,
		kernelAt("k", "ff02::1%lo"): "want the unicast address of a host",
		kernelAt("a", "127.0.0.1") +
			kernelAt("b", "::ffff:127.0.0.1"): `127.0.0.1: port "a" in line 4 has this address`,
		kernelAt("a", "") + kernelAt("b", "127.0.0.1") +
			perfOnAll: `service.ports: 7174 on port "b" is that on port "a"`,
		kernelAt("a", "0.0.0.0") + kernelAt("b", "127.0.0.1") +
			perfOnAll: `7174 on port "b" is that on port "a"`,
		memifAt("a", "server", "@m", 0, "10.9.0.1/24") + memifAt("b", "server", "@m", 1,
			"10.8.0.1/24"): `port.socket: port "a" in line 5 serves this socket; each has its own`,
		memifAt("a", "server", "/x/y", 0, "10.9.0.1/24") + memifAt("b", "server", "/x/../x/y", 1,
			"10.8.0.1/24"): `port "a" in line 5 serves this socket`,
		memifAt("a", "client", "@m", 1, "10.9.0.1/24") + memifAt("b", "server", "@m", 0,
			"10.8.0.1/24"): `port.socket: port "b" in line 12 serves this socket, and is opened later`,
		"[control]\nsocket = \"/x.sock\"\n" + memifAt("a", "client", "/y/../x.sock", 1,
			"10.9.0.1/24"): "is the control socket; choose another path",
		"[control]\nsocket = \"/x.sock\"\n" +
			with("capture = \"/x.sock\""): `port.capture: "/x.sock" is the control socket`,
		memifAt("a", "server", "/m.sock", 0, "10.9.0.1/24") + strings.Replace(
			with("capture = \"/m.sock\""), "9.0", "8.0",
			1): `port.capture: "/m.sock" is the socket of port "a" in line 5`,
		with(fmt.Sprintf("capture = %q", file)) +
			fmt.Sprintf("[[service]]\nname = \"f\"\ntype = \"file\"\nlisten = 9\npath = %q\n",
				file): `is the file that service "f" in line 14 serves`,
		with("mtu = 1279\ngateways = [\"10.9.0.9\"]\nhost_address = \"fd09::1/64\""): "port.mtu: 1279: IPv6 wants 1280 or more (RFC 8200), and host_address is one of it",
		dpdkPort("a", `pci = "eth0"`, 9):                                             `port.pci: "eth0": want the address of a NIC, as 0000:01:00.0`,
		dpdkPort("a", `pci = "0000:01:00.0"`, 9) + dpdkPort("b", `pci = "01:00.0"`,
			8): `port: port "a" in line 1 has the device 0000:01:00.0; each has its own`,
		base + dpdkPort("b", `device = "one"`, 8): `port: port "one" in line 1 has the device one`,
		dpdkPort("a", `device = "net_af_packet0,iface=e"`, 9) + dpdkPort("b",
			`device = "net_af_packet1,iface=e"`, 8): `has the device e; each has its own`,
		dpdkPort("a", `eal = ["-m", "64"]`, 9) + dpdkPort("b", `eal = ["-m", "65"]`,
			8): `port.eal: DPDK's environment starts once, with the arguments of port "a" in line 1`,
		dpdkPort("a", "", 9) +
			dpdkPort("b", `pci = "01:00.0"`,
				8): `port.pci: DPDK's environment starts for port "a" in line 1, which has no NIC`,
	} {
		require.ErrorContains(t, parseBuilt(text), want, "%s", text)
	}
	t.Setenv("XDG_RUNTIME_DIR", long)
	v := newValidator(&Config{}, &conf.Check{Index: &conf.Index{}}, nil)
	v.control(&v.c.Control, func() string { return long + "/rnicd/control.sock" })
	require.Contains(t, fmt.Sprint(v.Errs), "127 octets long; a socket's path has 107 at most")
}

// What can be is not refused.
func TestPlacesThatCanBe(t *testing.T) {
	host := with("host_address = \"10.9.0.254/24\"")
	for _, text := range []string{
		"[metrics]\nlisten = \"10.9.0.254:9174\"\n" + host,
		memifAt("m", "server", "/"+strings.Repeat("x", 106), 0, "10.9.0.1/24"),
		memifAt("m", "client", "@"+strings.Repeat("x", 106), 0, "10.9.0.1/24"),
		memifAt("a", "server", "@m", 0, "10.9.0.1/24") + memifAt("b", "client", "@m", 1, "10.8.0.1/24"),
		kernelAt("a", "127.0.0.1") + kernelAt("b", "127.0.0.2") + perfOnAll,
		kernelAt("a", "0.0.0.0") + kernelAt("b", "::1") + perfOnAll,
		kernelAt("a", "::1") + "[metrics]\nlisten = \"127.0.0.1:7174\"\n" + perfOnAll,
		dpdkPort("a", `pci = "0000:01:00.0"`, 9) + dpdkPort("b", `pci = "01:00.1,x=1"`, 8) +
			dpdkPort("c", "", 7),
		dpdkPort("a", `eal = ["-a", "01:00.0"]`, 9) + dpdkPort("b", `pci = "01:00.0"`, 8),
	} {
		require.NoError(t, parseBuilt(text), "%s", text)
	}
	for _, at := range []string{":9", "localhost:9", "a_b.example.:9", "1a.example:9", "[::1]:9",
		"[fe80::1%eth0]:9", "0.0.0.0:0"} {
		require.NoError(t, parseBuilt(fmt.Sprintf("[metrics]\nlisten = %q\n", at)+base), at)
	}
}

// The same of a switch.
func TestPlacesOfSwitches(t *testing.T) {
	long := "/" + strings.Repeat("x", 107)
	memifUplink := "[[uplink]]\nname = \"two\"\ndriver = \"memif\"\nsocket = \"@m\"\n"
	alone := strings.Replace(switchBase, "id = 1", "id = 1\nuplink = \"up\"", 1)
	for text, want := range map[string]string{
		strings.Replace(switchBase, "@s", long,
			1): "switch.socket: 108 octets long; a socket's path has 107 at most",
		strings.Replace(switchBase, "@s", "/run/x/",
			1): `switch.socket: "/run/x/": that names a folder`,
		switchBase + fmt.Sprintf("socket = %q\n", long):                "program.socket: 108 octets long",
		atUplink(fmt.Sprintf("driver = \"memif\"\nsocket = %q", long)): "uplink.socket: 108 octets long",
		atUplink("driver = \"memif\"\nsocket = \"@s\""):                `uplink.socket: "@s" is a socket of programs of this switch`,
		atUplink("driver = \"memif\"\nsocket = \"@m\"\nsecret = \"" + long +
			"\""): "uplink.secret: 108 octets; want 24 at most",
		atUplink("driver = \"dpdk\"\npci = \"x\""):                             `uplink.pci: "x": want the address of a NIC`,
		atUplink("driver = \"dpdk\"\npci = \"01:00.0\"\nflow_control = \"x\""): `uplink.flow_control: "x": want none, rx, tx or full`,
		inSwitch("numa_node = 1024"):                                           "switch.numa_node: 1024: want -1 to 1023",
		"[metrics]\nlisten = \"300.1.1.1:9\"\n" +
			switchBase: `metrics.listen: "300.1.1.1:9"`,
		"[control]\nsocket = \"/c\"\n" + strings.Replace(switchBase, "@s", "/c",
			1): `switch.socket: "/c" is the control socket`,
		"[control]\nsocket = \"/c\"\n" + switchBase +
			"socket = \"/x/../c\"\n": `program.socket: "/c" is the control socket`,
		"[control]\nsocket = \"/c\"\n" +
			atUplink("driver = \"memif\"\nsocket = \"/c\""): `uplink.socket: "/c" is the control socket`,
		alone + "[[uplink]]\nname = \"two\"\ndevice = \"up\"\n": `uplink: uplink "up" in line 4 has the device up; each has its own`,
		alone + memifUplink + strings.Replace(memifUplink, "two", "three",
			1): `uplink.id: 0 on @m is uplink "two"'s; choose another`,
	} {
		require.ErrorContains(t, parseBuilt(text), want, "%s", text)
	}
	for _, text := range []string{
		alone + memifUplink + strings.Replace(memifUplink, "two", "three", 1) + "id = 1\n",
		"[metrics]\nlisten = \"10.9.0.254:9174\"\n" + atUplink("host_address = \"10.9.0.254/24\""),
	} {
		require.NoError(t, parseBuilt(text), "%s", text)
	}
}
