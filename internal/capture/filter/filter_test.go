package filter

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
)

// expressions are our filters, tshark's display filters and, where one has the same meaning,
// tcpdump's. tcpdump does not look past a VLAN tag by default. tshark looks into packets that ICMP
// quotes and into tunnels; no frame here has those.
var expressions = []struct{ ours, tshark, tcpdump string }{
	{"tcp", "tcp", ""},
	{"udp", "udp", ""},
	{"arp", "arp", "arp"},
	{"icmp", "icmp", "icmp"},
	{"icmp6", "icmpv6", ""},
	{"ip", "ip", "ip"},
	{"ip6", "ipv6", "ip6"},
	{"not tcp", "not tcp", ""},
	{"!arp && ! (ip or ip6)", "!(arp || ip || ipv6)", "not arp and not (ip or ip6)"},
	{"vlan", "vlan", ""},
	{"vlan 5", "vlan.id == 5", ""},
	{"vlan 7 and udp", "vlan.id == 7 and udp", ""},
	{"not vlan and tcp port 7174", "not vlan and tcp.port == 7174", "tcp port 7174"},
	{"host 10.9.0.1", "ip.addr == 10.9.0.1 or arp.src.proto_ipv4 == 10.9.0.1 or arp.dst.proto_ipv4 " +
		"== 10.9.0.1", ""},
	{"src host 10.9.0.1 and dst port 7174",
		"ip.src == 10.9.0.1 and (tcp.dstport == 7174 or udp.dstport == 7174)", ""},
	{"dst 10.9.0.2", "ip.dst == 10.9.0.2 or arp.dst.proto_ipv4 == 10.9.0.2", ""},
	{"ip host 10.9.0.2", "ip.addr == 10.9.0.2", ""},
	{"net 10.9.0.0/30", "ip.addr == 10.9.0.0/30 or arp.src.proto_ipv4 == 10.9.0.0/30 or " +
		"arp.dst.proto_ipv4 == 10.9.0.0/30", ""},
	{"src net 0.0.0.0/0", "ip or arp", "ip or arp"},
	{"host fd09::1", "ipv6.addr == fd09::1", ""},
	{"src net fd09::/64", "ipv6.src == fd09::/64", ""},
	{"port 7174", "tcp.port == 7174 or udp.port == 7174", ""},
	{"udp src port 4791", "udp.srcport == 4791", ""},
	{"ip6 and tcp dst port 7174", "ipv6 and tcp.dstport == 7174", ""},
	{"portrange 4000-5000", "tcp.port in {4000..5000} or udp.port in {4000..5000}", ""},
	{"ether 02:00:00:00:00:01", "eth.addr == 02:00:00:00:00:01", "ether host 02:00:00:00:00:01"},
	{"src ether 02:00:00:00:00:01", "eth.src == 02:00:00:00:00:01", "ether src 02:00:00:00:00:01"},
	{"tcp or udp and port 4791", "tcp or (udp and udp.port == 4791)", ""},
	{"(tcp or udp) and not port 4791", "(tcp or udp) and not (udp.port == 4791 or tcp.port == 4791)",
		""},
	{"not (host 10.9.0.1 and not (port 7174 or arp))",
		"not ((ip.addr == 10.9.0.1 or arp.src.proto_ipv4 == 10.9.0.1 or arp.dst.proto_ipv4 == " +
			"10.9.0.1) and not (tcp.port == 7174 or udp.port == 7174 or arp))", ""},
	{"host 192.168.1.1 or port 18515 or portrange 7000-7999",
		"ip.addr == 192.168.1.1 or arp.dst.proto_ipv4 == 192.168.1.1 or tcp.port == 18515 or tcp.port " +
			"in {7000..7999} or udp.port in {7000..7999}", ""},
}

var (
	macA = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	macB = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

// frames are of every kind the language knows, plain, tagged, and tagged twice.
func frames(t testing.TB) (all [][]byte) {
	add := func(kind layers.EthernetType, parts ...gopacket.SerializableLayer) {
		for _, tags := range [][]uint16{nil, {5}, {7, 5}} {
			for _, back := range []bool{false, true} {
				eth := &layers.Ethernet{SrcMAC: macA, DstMAC: macB, EthernetType: kind}
				if back {
					eth.SrcMAC, eth.DstMAC = macB, net.HardwareAddr{2, 0, 0, 0, 0, 3}
				}
				whole := []gopacket.SerializableLayer{eth}
				for i, id := range tags {
					tag := &layers.Dot1Q{VLANIdentifier: id, Priority: 3, Type: kind}
					if i == 0 {
						eth.EthernetType = layers.EthernetTypeDot1Q
					}
					if i+1 < len(tags) {
						tag.Type = layers.EthernetTypeDot1Q
					}
					whole = append(whole, tag)
				}
				b := gopacket.NewSerializeBuffer()
				require.NoError(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true,
					ComputeChecksums: true}, append(whole, parts...)...))
				all = append(all, bytes.Clone(b.Bytes()))
			}
		}
	}
	pay := gopacket.Payload("0123456789abcdef")
	for _, ip := range [][2]string{{"10.9.0.1", "10.9.0.2"}, {"10.9.0.2", "10.9.0.1"},
		{"10.9.0.77", "192.168.1.1"}} {
		src, dst := net.ParseIP(ip[0]).To4(), net.ParseIP(ip[1]).To4()
		head := func(p layers.IPProtocol) *layers.IPv4 {
			return &layers.IPv4{Version: 4, TTL: 64, Protocol: p, SrcIP: src, DstIP: dst}
		}
		for _, port := range [][2]int{{7174, 33000}, {33000, 7174}, {4500, 4501}} {
			tcp := &layers.TCP{SrcPort: layers.TCPPort(port[0]), DstPort: layers.TCPPort(port[1]),
				ACK: true, Window: 9}
			h := head(layers.IPProtocolTCP)
			h.Options = []layers.IPv4Option{{OptionType: 1}, {OptionType: 1}, {OptionType: 1},
				{OptionType: 0}}
			require.NoError(t, tcp.SetNetworkLayerForChecksum(h))
			add(layers.EthernetTypeIPv4, h, tcp, pay)
		}
		udp := &layers.UDP{SrcPort: 4791, DstPort: 7174}
		h := head(layers.IPProtocolUDP)
		require.NoError(t, udp.SetNetworkLayerForChecksum(h))
		add(layers.EthernetTypeIPv4, h, udp, pay)
		add(layers.EthernetTypeIPv4, head(layers.IPProtocolICMPv4),
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0)}, pay)
		add(layers.EthernetTypeIPv4, head(layers.IPProtocolSCTP), pay)
		add(layers.EthernetTypeARP, &layers.ARP{
			AddrType: 1, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
			Operation:       1,
			SourceHwAddress: macA, SourceProtAddress: src, DstHwAddress: make([]byte, 6),
			DstProtAddress: dst,
		})
	}
	for _, ip := range [][2]string{{"fd09::1", "fd09::2"}, {"fd10::5", "fd09::1"}} {
		head := func(p layers.IPProtocol) *layers.IPv6 {
			return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: p, SrcIP: net.ParseIP(ip[0]),
				DstIP: net.ParseIP(ip[1])}
		}
		h := head(layers.IPProtocolTCP)
		tcp := &layers.TCP{SrcPort: 33000, DstPort: 7174, ACK: true}
		require.NoError(t, tcp.SetNetworkLayerForChecksum(h))
		add(layers.EthernetTypeIPv6, h, tcp, pay)
		udp := &layers.UDP{SrcPort: 4791, DstPort: 4791}
		h = head(layers.IPProtocolIPv6Destination)
		require.NoError(t, udp.SetNetworkLayerForChecksum(h))
		opts := gopacket.Payload{17, 0, 1, 4, 0, 0, 0, 0} // PadN, then UDP
		add(layers.EthernetTypeIPv6, h, opts, udp, pay)
		h = head(layers.IPProtocolICMPv6)
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(128, 0)}
		require.NoError(t, icmp.SetNetworkLayerForChecksum(h))
		add(layers.EthernetTypeIPv6, h, icmp, gopacket.Payload{0, 1, 0, 2}, pay)
	}
	add(0x88b5, pay) // IEEE 802.1 local experimental
	return all
}

func matching(t testing.TB, text string, frames [][]byte) (list []string) {
	p, err := Compile(text)
	require.NoError(t, err, text)
	for i, b := range frames {
		if p.Match(b, true) {
			list = append(list, fmt.Sprint(i+1))
		}
	}
	return list
}

// tshark finds the same frames, of every kind and in captures of other RNICs.
func TestAgreesWithTshark(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		skip.Missing(t, "needs tshark")
	}
	files, err := filepath.Glob("../../../mpa/testdata/captures/*.pcap")
	require.NoError(t, err)
	require.Len(t, files, 8)
	all := frames(t)
	for _, file := range files {
		all = append(all, netlab.ReadPcap(t, file)...)
	}
	// a frame each second; the last one ends the table, and is not in it
	file := netlab.WritePcap(t, append(slices.Clone(all), all[0]), time.Second)
	const columns = 16
	for part := range slices.Chunk(expressions, columns) {
		// A table with a row for each second and a column for each filter says which frames match,
		// in one run.
		stat := "io,stat,1"
		for _, e := range part {
			stat += "," + e.tshark
		}
		out, err := exec.Command(tshark, "-n", "-r", file, "-q", "-z", stat).Output()
		require.NoError(t, err)
		got := make([][]bool, len(part))
		for line := range strings.Lines(string(out)) {
			if cells := strings.Split(strings.Trim(line, "|\n"), "|"); strings.Contains(cells[0], "<>") {
				require.Len(t, cells, 1+2*len(part))
				for i := range part {
					got[i] = append(got[i], strings.TrimSpace(cells[1+2*i]) == "1")
				}
			}
		}
		for i, e := range part {
			require.Len(t, got[i], len(all))
			p, err := Compile(e.ours)
			require.NoError(t, err)
			n := 0
			for k, frame := range all {
				require.Equal(t, got[i][k], p.Match(frame, true), "%s: frame %d: %x", e.ours, k, frame)
				if got[i][k] {
					n++
				}
			}
			require.NotZero(t, n, e.ours)
			require.NotEqual(t, len(all), n, e.ours)
		}
	}
}

// tcpdump, too, where both say the same.
func TestAgreesWithTcpdump(t *testing.T) {
	tcpdump, err := exec.LookPath("tcpdump")
	if err != nil {
		skip.Missing(t, "needs tcpdump")
	}
	var plain [][]byte
	for _, b := range frames(t) {
		if b[12] != 0x81 {
			plain = append(plain, b)
		}
	}
	file := netlab.WritePcap(t, plain, time.Second)
	tested := 0
	for _, e := range expressions {
		if e.tcpdump == "" {
			continue
		}
		tested++
		out := filepath.Join(t.TempDir(), "out.pcap")
		text, err := exec.Command(tcpdump, "-n", "-r", file, "-w", out, e.tcpdump).CombinedOutput()
		require.NoError(t, err, string(text))
		var ours [][]byte
		p, err := Compile(e.ours)
		require.NoError(t, err)
		for _, b := range plain {
			if p.Match(b, true) {
				ours = append(ours, b)
			}
		}
		require.Equal(t, netlab.ReadPcap(t, out), ours, e.ours)
	}
	require.Greater(t, tested, 8)
}

// Ports are those of the first fragment; what follows has none, and is TCP all the same.
func TestFragments(t *testing.T) {
	h := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: net.IP{10, 9, 0, 1},
		DstIP: net.IP{10, 9, 0, 2}, FragOffset: 3}
	b := gopacket.NewSerializeBuffer()
	require.NoError(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true,
		ComputeChecksums: true}, &layers.Ethernet{SrcMAC: macA, DstMAC: macB,
		EthernetType: layers.EthernetTypeIPv4}, h, gopacket.Payload{0x1c, 0x06, 0x1c, 0x06}))
	require.Len(t, matching(t, "tcp and host 10.9.0.1", [][]byte{b.Bytes()}), 1)
	require.Empty(t, matching(t, "port 7174", [][]byte{b.Bytes()}))

	six := append(append(append([]byte{}, macB...), macA...), 0x86, 0xdd, 0x60, 0, 0, 0, 0, 12, 44, 64)
	six = append(append(six, net.ParseIP("fd09::1")...), net.ParseIP("fd09::2")...)
	six = append(six, 6, 0, 0, 0, 0, 0, 0, 1, 0x1c, 0x06, 0x1c, 0x06) // first of a packet
	require.Len(t, matching(t, "tcp port 7174", [][]byte{six}), 1)
	six[14+40+3] = 8 // at offset 8
	require.Empty(t, matching(t, "tcp port 7174", [][]byte{six}))
	require.Len(t, matching(t, "tcp", [][]byte{six}), 1)
}

func TestDirection(t *testing.T) {
	for text, want := range map[string][2]bool{"inbound": {true, false}, "outbound": {false, true},
		"not inbound": {false, true}} {
		p, err := Compile(text)
		require.NoError(t, err)
		require.Equal(t, want, [2]bool{p.Match(nil, true), p.Match(nil, false)}, text)
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"": "filter: at its end: want what to look for, as tcp, " +
			"host 10.9.0.1 or port 7174",
		"tcp and": "filter: at its end: want what to look for, as tcp, " +
			"host 10.9.0.1 or port 7174",
		"tcp portt 80":    `filter: at character 5, "portt": want and, or, or the end`,
		"tpc":             `filter: at character 1, "tpc": no word of the language; did you mean tcp?`,
		"udp adn tcp":     `filter: at character 5, "adn": want and, or, or the end; did you mean and?`,
		"host 10.0.0.300": `filter: at character 6, "10.0.0.300": want an address, as 10.9.0.1 or fd09::1; names are not looked up`,
		"host":            "filter: at its end: want what comes after host",
		"10.9.0.1":        `filter: at character 1, "10.9.0.1": want a word before an address, as host or src`,
		"src tcp":         `filter: at character 5, "tcp": want host, net, port, portrange, ether or an address here`,
		"ether src":       `filter: at character 7, "src": want an Ethernet address, as 02:00:0a:09:00:01`,
		"src": "filter: at its end: want host, net, port, portrange, " +
			"ether or an address after src and dst",
		"net 10.9.0.1/24":       `filter: at character 5, "10.9.0.1/24": want a network, as 10.9.0.0/24 or fd09::/64, without bits after its length`,
		"port http":             `filter: at character 6, "http": want a port, up to 65535; services have no names here`,
		"tcp and (port 5 or 6)": `filter: at character 20, "6": no word of the language`,
		"portrange 9-5":         `filter: at character 11, "9-5": want two ports, the smaller one first, as 7000-7100`,
		"icmp port 5":           `filter: at character 6, "port": only TCP and UDP have ports`,
		"ip6 host 10.9.0.1":     `filter: at character 10, "10.9.0.1": an address of the other version of IP than what comes before it`,
		"vlan 4096":             `filter: at character 6, "4096": want the number of a VLAN, up to 4095`,
		"(tcp":                  `filter: at character 1, "(": this parenthesis is not closed`,
		"tcp)":                  `filter: at character 4, ")": no parenthesis is open`,
		"(tcp udp)":             `filter: at character 6, "udp": want and, or, or a closing parenthesis`,
		strings.Repeat(
			"!", 100): `filter: at character 65, "!": more than 64 parentheses and nots in each other`,
		strings.Repeat("tcp or ", 256) + "tcp": `filter: at character 1793, "tcp": more than 256 tests`,
		strings.Repeat(" ", 5000):              `filter: at character 4097, "…": longer than 4096 octets`,
	} {
		_, err := Compile(text)
		require.EqualError(t, err, want, text)
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	all := frames(t)
	p, err := Compile("(host 10.9.0.1 or net fd09::/64) and not (udp port 4791 or vlan 5)")
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		for _, b := range all {
			p.Match(b, false)
		}
	}))
}

// Whatever the text and the frame are, also one cut short, nothing panics; a Program's tests go
// forward only, so that it ends.
func FuzzFilter(f *testing.F) {
	all := frames(f)
	for i, e := range expressions {
		f.Add(e.ours, all[i*7%len(all)], 60)
	}
	f.Fuzz(func(t *testing.T, text string, frame []byte, n int) {
		p, err := Compile(text)
		if err != nil {
			return
		}
		for i, s := range p.tests {
			for _, to := range []int32{s.yes, s.no} {
				require.True(t, to == accept || to == reject || int(to) > i && int(to) < len(p.tests))
			}
		}
		p.Match(frame[:max(0, min(n, len(frame)))], true)
		require.NotEqual(t, p.Match(frame, true), func() bool {
			q, _ := Compile("not (" + text + ")")
			return q != nil && q.Match(frame, true)
		}())
	})
}
