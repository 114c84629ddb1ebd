package vswitch

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
)

var unspecified4 = inet.AddrFrom4([4]byte{})

// Each frame comes unchanged to the programs that it is for, and to no others.
func TestWays(t *testing.T) {
	l := newLab(t, nil)
	router := inet.Addr{0xfe, 0x80, 15: 1}
	for name, c := range map[string]struct {
		from string
		f    []byte
		to   string
	}{
		"program to program":       {"one", segment(macTwo, macOne, ipOne, ipTwo, 1, 2), "two"},
		"program to program, IPv6": {"one", segment(macTwo, macOne, ip6One, ip6Two, 1, 2), "two"},
		"link-local": {"one",
			segment(macTwo, macOne, inet.LinkLocal(macOne), inet.LinkLocal(macTwo), 1, 2), "two"},
		"out":        {"one", segment(macOut, macOne, ipOne, ipOut, 1, 2), "out"},
		"routed out": {"one", segment(macOut, macOne, ipOne, addr("192.0.2.1"), 1, 2), "out"},
		"in":         {"out", segment(macOne, macOut, ipOut, ipOne, 1, 2), "one"},
		"in, not TCP": {"out",
			four(macOne, macOut, ipv4(ipOut, ipOne, inet.ProtoUDP, 0, udpOf())), "one"},
		"in, fragment": {"out",
			four(macOne, macOut, ipv4(ipOut, ipOne, inet.ProtoUDP, 9, udpOf())), "one"},
		"priority tag": {"out", ether(macOne, macOut, 0, inet.EtherTypeVLAN,
			append([]byte{0xe0, 0, 8, 0}, ipv4(ipOut, ipOne, inet.ProtoTCP, 0, tcpOf(1, 2))...)), "one"},
		"VLAN in": {"out", ether(macTagged, macOut, 5, etherTypeIPv4,
			ipv4(ipOut, ipTagged, inet.ProtoTCP, 0, tcpOf(1, 2))), "tagged"},
		"VLAN out": {"tagged", ether(macOut, macTagged, 5, etherTypeIPv4,
			ipv4(ipTagged, ipOut, inet.ProtoTCP, 0, tcpOf(1, 2))), "out"},
		"another's VLAN": {"out", ether(macTagged, macOut, 6, etherTypeIPv4,
			ipv4(ipOut, ipTagged, inet.ProtoTCP, 0, tcpOf(1, 2))), ""},
		"tagged station, untagged": {"out", four(macTagged, macOut,
			ipv4(ipOut, ipTagged, inet.ProtoTCP, 0, tcpOf(1, 2))), ""},
		"nobody's MAC":          {"out", segment(inet.MAC{2, 5: 77}, macOut, ipOut, ipOne, 1, 2), ""},
		"nobody's MAC, out":     {"one", segment(inet.MAC{2, 5: 77}, macOne, ipOne, ipOut, 1, 2), "out"},
		"another's address":     {"out", segment(macOne, macOut, ipOut, ipTwo, 1, 2), ""},
		"to itself":             {"one", segment(macOne, macOne, ipOne, ipOne, 1, 2), ""},
		"shared, first":         {"out", segment(macShared, macOut, ipOut, ipShared, 9, 1000), "left"},
		"shared, last":          {"out", segment(macShared, macOut, ipOut, ipShared, 9, 1999), "left"},
		"shared, other":         {"out", segment(macShared, macOut, ipOut, ipShared, 9, 2000), "right"},
		"shared, second range":  {"one", segment(macShared, macOne, ip6One, ip6Shared, 9, 3999), "right"},
		"shared, nobody's port": {"out", segment(macShared, macOut, ipOut, ipShared, 9, 4000), ""},
		"shared, out":           {"right", segment(macOut, macShared, ipShared, ipOut, 3000, 9), "out"},
		"shared to one":         {"left", segment(macOne, macShared, ipShared, ipOne, 1500, 9), "one"},
		"shared, error": {"out", four(macShared, macOut, ipv4(ipOut, ipShared, inet.ProtoICMP, 0,
			quoting(3, ipv4(ipShared, ipOut, 6, 0, tcpOf(3500, 9))))), "right"},
		"shared, error, IPv6": {"out", six(macShared, macOut, ipv6(ip6Out, ip6Shared, inet.ProtoICMPv6,
			quoting(2, ipv6(ip6Shared, ip6Out, 6, tcpOf(2000, 9))))), "right"},
		"shared, error of nobody": {"out",
			four(macShared, macOut, ipv4(ipOut, ipShared, inet.ProtoICMP, 0,
				quoting(3, ipv4(ipShared, ipOut, 6, 0, tcpOf(9, 3500))))), ""},
		"shared, error of UDP": {"out", four(macShared, macOut, ipv4(ipOut, ipShared, inet.ProtoICMP, 0,
			quoting(3, ipv4(ipShared, ipOut, 17, 0, udpOf())))), ""},
		"shared, ping": {"out", four(macShared, macOut, ipv4(ipOut, ipShared, inet.ProtoICMP, 0,
			echoOf())), "left"},
		"who has one": {"out", arpFrame(inet.Broadcast, inet.RequestARP(macOut, ipOut, ipOne)), "one"},
		"who has two": {"one", arpFrame(inet.Broadcast, inet.RequestARP(macOne, ipOne, ipTwo)), "two"},
		"who has out": {"one", arpFrame(inet.Broadcast, inet.RequestARP(macOne, ipOne, ipOut)), "out"},
		"who has another, from out": {"out",
			arpFrame(inet.Broadcast, inet.RequestARP(macOut, ipOut, addr("10.9.0.99"))), ""},
		"who has mine": {"one", arpFrame(inet.Broadcast, inet.ProbeARP(macOne, ipOne)), "out"},
		"reports groups, IPv4": {"one", four(inet.AllIGMPRouters.GroupMAC(), macOne,
			ipv4(ipOne, inet.AllIGMPRouters, inet.ProtoIGMP, 0, make16(0x22))), "two left right out"},
		"datagram to a group": {"one", four(inet.AllNodes4.GroupMAC(), macOne,
			ipv4(ipOne, inet.AllNodes4, inet.ProtoUDP, 0, udpOf())), "two left right out"},
		"datagram to a group, from out": {"out", four(inet.AllNodes4.GroupMAC(), macOut,
			ipv4(ipOut, inet.AllNodes4, inet.ProtoUDP, 0, udpOf())), "one two left right"},
		"announcement": {"one", arpFrame(inet.Broadcast, inet.AnnounceARP(macOne, ipOne)),
			"two left right out"},
		"announcement from out": {"out", arpFrame(inet.Broadcast, inet.AnnounceARP(macOut, ipOut)),
			"one two left right"},
		"announcement, shared": {"left",
			arpFrame(inet.Broadcast, inet.AnnounceARP(macShared, ipShared)), "one two out"},
		"one's address, announced": {"out", arpFrame(inet.Broadcast, inet.AnnounceARP(macOut, ipOne)),
			"one"},
		"one's address, replied": {"out", arpFrame(macTwo, inet.ARP{Op: 2, SenderMAC: macOut,
			SenderIP: ipOne, TargetMAC: macTwo, TargetIP: ipTwo}), "one"},
		"one's address, asking": {"out",
			arpFrame(inet.Broadcast, inet.RequestARP(macOut, ipOne, ipTwo)), "one"},
		"one's address, probed": {"out", arpFrame(inet.Broadcast, inet.ProbeARP(macOut, ipOne)), "one"},
		"shared's, announced": {"out", arpFrame(inet.Broadcast, inet.AnnounceARP(macOut, ipShared)),
			"left right"},
		"one's, advertised": {"out", six(macTwo, macOut, advert(ip6Out, ip6One, macOut, ip6Two)), "one"},
		"one's, soliciting": {"out", six(macTwo, macOut, solicit(ip6One, ip6Two, macOut, ip6Two)), "one"},
		"one's, routed":     {"out", segment(macTwo, macOut, ipOne, ipTwo, 1, 2), "two"},
		"reply": {"out", arpFrame(macOne, inet.ARP{Op: 2, SenderMAC: macOut, SenderIP: ipOut,
			TargetMAC: macOne, TargetIP: ipOne}), "one"},
		"reply to shared": {"out", arpFrame(macShared, inet.ARP{Op: 2, SenderMAC: macOut, SenderIP: ipOut,
			TargetMAC: macShared, TargetIP: ipShared}), "left right"},
		"unicast request": {"out", arpFrame(macOne, inet.RequestARP(macOut, ipOut, ipOne)), "one"},
		"shared looks for itself": {"left",
			arpFrame(inet.Broadcast, inet.ProbeARP(macShared, ipShared)), "out"},
		"solicitation": {"out", six(ip6One.SolicitedNode().GroupMAC(), macOut,
			solicit(ip6Out, ip6One, macOut, ip6One.SolicitedNode())), "one"},
		"solicitation, unicast": {"out",
			six(macOne, macOut, solicit(ip6Out, ip6One, macOut, ip6One)), "one"},
		"solicitation out": {"one", six(ip6Out.SolicitedNode().GroupMAC(), macOne,
			solicit(ip6One, ip6Out, macOne, ip6Out.SolicitedNode())), "out"},
		"advertisement to shared": {"out", six(macShared, macOut,
			advert(ip6Out, ip6Out, macOut, ip6Shared)), "left right"},
		"router's advertisement": {"out", six(inet.AllNodes.GroupMAC(), macOut,
			ipv6(router, inet.AllNodes, inet.ProtoICMPv6, []byte{134, 15: 0})), "one two left right"},
		"routed solicitation": {"out", withHop(six(ip6One.SolicitedNode().GroupMAC(), macOut,
			solicit(ip6Out, ip6One, macOut, ip6One.SolicitedNode())), 254), ""},
		"multicast": {"one", ether(inet.MAC{1, 0, 0x5e, 0, 0, 1}, macOne, 0, etherTypeIPv4,
			ipv4(ipOne, addr("224.0.0.1"), 2, 0, udpOf())), "two left right out"},
		"own MAC from out": {"out", segment(macTwo, macOne, ipOne, ipTwo, 1, 2), ""},
		"802.3":            {"out", ether(macOne, macOut, 0, 100, make([]byte, 50)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			l.t = t
			l.side(c.from).send(c.f)
			l.turn()
			got := l.got()
			require.Equal(t, c.to, names(got), "%v", l.drops(c.from))
			for _, frames := range got {
				require.Equal(t, c.f, frames[0])
			}
			l.requireWhole()
		})
	}
}

func withHop(f []byte, hop byte) []byte {
	f[14+7] = hop
	return f
}

// Whatever a program sends in the name of others is dropped, with a reason, and reaches no program.
func TestSpoofing(t *testing.T) {
	l := newLab(t, nil)
	all := inet.AllNodes.GroupMAC()
	fragment6 := func(next uint8, rest []byte) []byte {
		return append([]byte{next, 0, 0, 1, 0, 0, 0, 9}, rest...)
	}
	for name, c := range map[string]struct {
		from   string
		f      []byte
		reason Reason
	}{
		"MAC":                 {"one", segment(macTwo, macOut, ipOne, ipTwo, 1, 2), SpoofedMAC},
		"neighbour's MAC":     {"one", segment(macOut, macTwo, ipTwo, ipOut, 1, 2), SpoofedMAC},
		"group's MAC":         {"one", segment(macTwo, inet.MAC{3, 5: 1}, ipOne, ipTwo, 1, 2), Malformed},
		"address":             {"one", segment(macTwo, macOne, ipOut, ipTwo, 1, 2), SpoofedAddr},
		"neighbour's address": {"one", segment(macOut, macOne, ipTwo, ipOut, 1, 2), SpoofedAddr},
		"IPv6 address":        {"one", segment(macTwo, macOne, ip6Out, ip6Two, 1, 2), SpoofedAddr},
		"neighbour's link-local": {"one", segment(macOut, macOne, inet.LinkLocal(macTwo), ip6Out, 1,
			2), SpoofedAddr},
		"IPv4 in IPv6": {"one", six(macTwo, macOne, mapped(ipv6(ip6One, ip6Two, 6, tcpOf(1, 2)))),
			Malformed},
		"no address": {"one", four(macTwo, macOne, putSource(ipv4(ipOne, ipTwo, 6, 0, tcpOf(1, 2)),
			unspecified4)), SpoofedAddr},
		"VLAN": {"one",
			ether(macTagged, macOne, 5, etherTypeIPv4, ipv4(ipOne, ipTagged, 6, 0, tcpOf(1, 2))), Vlan},
		"no VLAN": {"tagged", segment(macOne, macTagged, ipTagged, ipOne, 1, 2), Vlan},
		"two tags": {"tagged", ether(macOut, macTagged, 5, inet.EtherTypeVLAN,
			append([]byte{0, 6, 8, 0}, ipv4(ipTagged, ipOut, 6, 0, tcpOf(1, 2))...)), Vlan},
		"ARP sender's MAC": {"one", ether(inet.Broadcast, macOne, 0, inet.EtherTypeARP,
			arpFrame(inet.Broadcast, inet.AnnounceARP(macTwo, ipOne))[14:]), SpoofedMAC},
		"ARP sender's address": {"one", arpFrame(inet.Broadcast, inet.AnnounceARP(macOne, ipTwo)),
			SpoofedAddr},
		"ARP reply": {"one", arpFrame(macOut, inet.ARP{Op: 2, SenderMAC: macOne, SenderIP: ipTwo,
			TargetMAC: macOut, TargetIP: ipOut}), SpoofedAddr},
		"ARP probe for another's": {"one", arpFrame(inet.Broadcast, inet.ProbeARP(macOne, ipTwo)),
			SpoofedAddr},
		"advertisement of another's": {"one", six(all, macOne, advert(ip6One, ip6Two, macOne,
			inet.AllNodes)), SpoofedAddr},
		"advertisement with a MAC": {"one",
			six(all, macOne, advert(ip6One, ip6One, macTwo, inet.AllNodes)), SpoofedMAC},
		"advertisement, short": {"one", six(all, macOne, ipv6(ip6One, inet.AllNodes, 58,
			[]byte{136, 0, 0, 0})), SpoofedAddr},
		"solicitation with a MAC": {"one",
			six(macOut, macOne, solicit(ip6One, ip6Out, macTwo, ip6Out)), SpoofedMAC},
		"solicitation, option of 0": {"one", six(macOut, macOne, ipv6(ip6One, ip6Out, 58,
			append(append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, ip6Out[:]...), make([]byte, 8)...))), Malformed},
		"looks for another's": {"one", six(ip6Two.SolicitedNode().GroupMAC(), macOne,
			solicit(inet.Addr{}, ip6Two, macOne, ip6Two.SolicitedNode())), SpoofedAddr},
		"advertises a router": {"one",
			six(all, macOne, ipv6(inet.LinkLocal(macOne), inet.AllNodes, 58, make16(134))), Router},
		"asks for groups": {"one",
			six(all, macOne, ipv6(inet.LinkLocal(macOne), inet.AllNodes, 58, make16(130))), Router},
		"asks for groups, by header": {"one", six(all, macOne, ipv6(inet.LinkLocal(macOne), inet.AllNodes,
			0, append([]byte{58, 0, 5, 2, 0, 0, 1, 0}, make16(130)...))), Router},
		"redirects": {"one", six(macTwo, macOne, ipv6(inet.LinkLocal(macOne), ip6Two, 58, make16(137))),
			Router},
		"asks for groups, IPv4": {"one", four(inet.AllNodes4.GroupMAC(), macOne,
			ipv4(ipOne, inet.AllNodes4, inet.ProtoIGMP, 0, make16(0x11))), Router},
		"redirects, IPv4": {"one", four(macTwo, macOne, ipv4(ipOne, ipTwo, 1, 0, make16(5))), Router},
		"hides in options": {"one", six(macTwo, macOne, ipv6(ip6One, ip6Two, 60,
			append([]byte{58, 0, 0x80, 0, 0, 0, 0, 0}, make16(136)...))), Extension},
		"after options": {"one", six(all, macOne, ipv6(ip6One, inet.AllNodes, 60,
			append([]byte{58, 0, 1, 4, 0, 0, 0, 0}, advert(ip6One, ip6Two, macOne, inet.AllNodes)[40:]...))),
			SpoofedAddr},
		"in fragments": {"one", six(macTwo, macOne, ipv6(ip6One, ip6Two, 44, fragment6(58, make16(136)))),
			Fragment},
		"in fragments, hidden": {"one", six(macTwo, macOne, ipv6(ip6One, ip6Two, 44,
			fragment6(60, make16(58)))), Fragment},
		"EtherType":     {"one", ether(macTwo, macOne, 0, 0x88cc, make([]byte, 40)), EtherType},
		"port":          {"left", segment(macOut, macShared, ipShared, ipOut, 2000, 9), SpoofedPort},
		"nobody's port": {"left", segment(macOut, macShared, ipShared, ipOut, 9999, 9), SpoofedPort},
		"port, to one":  {"right", segment(macOne, macShared, ip6Shared, ip6One, 1000, 9), SpoofedPort},
		"UDP of shared": {"left",
			four(macOut, macShared, ipv4(ipShared, ipOut, 17, 0, udpOf())), SpoofedPort},
		"error about another's": {"left", four(macOut, macShared,
			ipv4(ipShared, ipOut, 1, 0, quoting(3, ipv4(ipOut, ipShared, 6, 0, tcpOf(9, 2000))))),
			SpoofedPort},
		"fragment of shared": {"left", four(macOut, macShared, ipv4(ipShared, ipOut, 6, 0x2000,
			tcpOf(1000, 9))), Fragment},
		"later fragment of shared": {"left", four(macOut, macShared,
			ipv4(ipShared, ipOut, 6, 7, tcpOf(1000, 9))), Fragment},
		"not whole": {"one", four(macTwo, macOne, []byte{0x45, 0, 0xff, 0xff, 19: 0}), Malformed},
	} {
		t.Run(name, func(t *testing.T) {
			l.t = t
			before := l.stats(c.from).Drops
			l.side(c.from).send(c.f)
			l.turn()
			told := ""
			if probes[name] { // with another MAC than any program's: TestRefusedProbe
				told = c.from
			}
			require.Equal(t, told, names(l.got()))
			after := l.stats(c.from).Drops
			before[c.reason]++
			require.Equal(t, named(before), named(after))
			l.requireWhole()
		})
	}
}

// A program that looks whether it may have an address that is not its own hears that another has
// it, whatever MAC it takes; nobody else hears of that. What it may have nobody has.
func TestRefusedProbe(t *testing.T) {
	l := newLab(t, nil)
	foreign := inet.MAC{2, 5: 99}
	for _, c := range []struct {
		mac    inet.MAC
		target inet.Addr
	}{{macOne, ipTwo}, {macOne, ip6Two}, {macOne, ipOut}, {foreign, ipOne}, {foreign, ip6One},
		{foreign, inet.LinkLocal(foreign)}} {
		if c.target.Is4() {
			l.sides["one"].send(arpFrame(inet.Broadcast, inet.ProbeARP(c.mac, c.target)))
		} else {
			to := c.target.SolicitedNode()
			l.sides["one"].send(
				six(to.GroupMAC(), c.mac, solicit(inet.Addr{}, c.target, c.mac, to)))
		}
		l.turn()
		got := l.got()
		require.Equal(t, "one", names(got), "%v %v", c.mac, c.target)
		answer := got["one"][0]
		require.Equal(t, inet.SwitchMAC[:], answer[6:12])
		if c.target.Is4() {
			require.Equal(t, c.mac[:], answer[:6])
			a, drop := inet.ParseARP(answer[inet.EthernetLen:])
			require.Zero(t, drop)
			require.Equal(t, inet.ARP{Op: inet.ARPReply, SenderMAC: inet.SwitchMAC, SenderIP: c.target,
				TargetMAC: c.mac, TargetIP: unspecified4}, a)
		} else {
			require.Equal(t, advert(c.target, c.target, inet.SwitchMAC, inet.AllNodes),
				answer[inet.EthernetLen:])
		}
		l.requireWhole()
	}
	l.sides["one"].send(arpFrame(inet.Broadcast, inet.ProbeARP(macOne, ipOne)))
	l.turn()
	require.Equal(t, "out", names(l.got()))
}

// probes are the names above of what asks whether an address is free.
var probes = map[string]bool{"ARP probe for another's": true, "looks for another's": true}

// mapped has the addresses of IPv4 in a header of IPv6.
func mapped(p []byte) []byte {
	copy(p[8:24], ipOne[:])
	copy(p[24:40], ipTwo[:])
	return p
}

func make16(first byte) []byte { return append([]byte{first}, make([]byte, 23)...) }

func putSource(p []byte, a inet.Addr) []byte {
	copy(p[12:16], a[12:])
	return p
}

// The switch answers for a shared address while one of its programs is attached, to any port, and
// by the MAC that they share.
func TestSharedAddressIsAnsweredFor(t *testing.T) {
	l := newLab(t, nil)
	l.uplink.send(arpFrame(inet.Broadcast, inet.RequestARP(macOut, ipOut, ipShared)),
		arpFrame(macShared, inet.RequestARP(macOut, ipOut, ipShared)))
	l.sides["one"].send(arpFrame(inet.Broadcast, inet.RequestARP(macOne, ipOne, ipShared)))
	l.turn()
	got := l.got()
	require.Equal(t, "one 2xout", names(got))
	for who, mac := range map[string]inet.MAC{"out": macOut, "one": macOne} {
		e, payload, _ := inet.ParseEthernet(got[who][0])
		a, d := inet.ParseARP(payload)
		require.Equal(t, inet.DropNone, d)
		require.Equal(t, inet.Ethernet{Dst: mac, Src: macShared, Type: inet.EtherTypeARP}, e)
		require.Equal(t, inet.ARP{Op: inet.ARPReply, SenderMAC: macShared, SenderIP: ipShared,
			TargetMAC: mac, TargetIP: map[string]inet.Addr{"out": ipOut, "one": ipOne}[who]}, a)
	}
	group := ip6Shared.SolicitedNode()
	for src, wantDst := range map[inet.Addr]inet.Addr{ip6Out: ip6Out, {}: inet.AllNodes} {
		l.uplink.send(six(group.GroupMAC(), macOut, solicit(src, ip6Shared, macOut, group)))
		l.turn()
		got = l.got()
		require.Equal(t, "out", names(got), "%v", src)
		e, payload, _ := inet.ParseEthernet(got["out"][0])
		h, payload, d := inet.ParseIPv6(payload)
		require.Equal(t, inet.DropNone, d)
		var nd inet.ND
		require.Equal(t, inet.DropNone, inet.ParseND(payload, h.Src, h.Dst, h.HopLimit, &nd))
		require.Equal(t, wantDst, h.Dst)
		require.Equal(t, macShared, e.Src)
		require.Equal(t, ip6Shared, nd.Target)
		require.Equal(t, macShared, nd.MAC)
		if wantDst == inet.AllNodes {
			require.Equal(t, inet.AllNodes.GroupMAC(), e.Dst)
		} else {
			require.Equal(t, macOut, e.Dst)
		}
	}
	l.detach("left", "right")
	l.goes("", "out", arpFrame(inet.Broadcast, inet.RequestARP(macOut, ipOut, ipShared)))
	l.requireWhole()
}

// A later fragment goes where the first went, for a while; one whose first has not come goes
// nowhere, nor one from elsewhere.
func TestFragmentsOfSharedAddress(t *testing.T) {
	l := newLab(t, nil)
	first := four(macShared, macOut, ipv4(ipOut, ipShared, 6, 0x2000, tcpOf(9, 3000)))
	later := four(macShared, macOut, ipv4(ipOut, ipShared, 6, 4, make([]byte, 64)))
	elsewhere := four(macShared, macOne, ipv4(ipOne, ipShared, 6, 4, make([]byte, 64)))
	l.goes("", "out", later)
	l.goes("right", "out", first)
	l.goes("right", "out", later)
	l.goes("", "one", elsewhere)
	l.now += fragmentNs
	l.goes("", "out", later)
	require.Equal(t, map[string]uint64{"fragment-unknown": 2}, l.drops("out"))
	// One that floods the table with fragments of its own has them forgotten, and takes no more
	// memory.
	for i := range 3000 {
		f := four(macShared, macOut, ipv4(ipOut, ipShared, 6, 0x2000, tcpOf(9, 1000)))
		be.PutUint16(f[14+4:], uint16(i))
		l.uplink.send(f)
		if i%200 == 0 {
			l.turn()
			l.got()
		}
	}
	l.turn()
	l.got()
	l.goes("right", "out", first)
	l.goes("right", "out", later)
	ip6 := func(offset uint16, payload []byte) []byte {
		h := []byte{6, 0, byte(offset >> 8), byte(offset), 0, 0, 0, 5}
		return six(macShared, macOut, ipv6(ip6Out, ip6Shared, 44, append(h, payload...)))
	}
	l.goes("left", "out", ip6(1, tcpOf(9, 1500)))
	l.goes("left", "out", ip6(4<<3, tcpOf(9, 3000)))
	l.requireWhole()
}

func TestNamesOfReasons(t *testing.T) {
	seen := map[string]bool{}
	for r := range Reasons {
		require.NotEmpty(t, r.String())
		require.False(t, seen[r.String()])
		seen[r.String()] = true
	}
	require.Equal(t, []inet.Addr{ipOne}, AddrsOf(netip.MustParseAddr("10.9.0.1")))
}

// The tables have IPv4 addresses in IPv6's form. A solicitation for one is malformed, from any
// port and however it is addressed.
func TestSolicitationForAMappedAddress(t *testing.T) {
	l := newLab(t, nil)
	group := ip6Shared.SolicitedNode()
	ask := func(dst, src inet.MAC, from, to inet.Addr) []byte {
		f := six(dst, src, solicit(from, ip6Shared, src, to))
		copy(f[inet.EthernetLen+inet.IPv6Len+8:], ipShared[:])
		return f
	}
	l.uplink.send(ask(group.GroupMAC(), macOut, ip6Out, group),
		ask(macShared, macOut, ip6Out, ip6Shared))
	l.sides["one"].send(ask(group.GroupMAC(), macOne, ip6One, group),
		ask(macShared, macOne, ip6One, ip6Shared))
	l.turn()
	require.Empty(t, names(l.got()))
	require.Equal(t, map[string]uint64{"malformed": 2}, l.drops("out"))
	require.Len(t, l.drops("one"), 1)
	l.requireWhole()
}

// A host that chooses identifiers and addresses of fragments does not know which of them drive out
// those of others.
func TestFragmentsAreSpreadInSecret(t *testing.T) {
	var f, other fragments
	f.draw()
	other.draw()
	require.NotEqual(t, f.keys, other.keys)
	f.keys = [...]uint64{0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9,
		0x27d4eb2f165667c5, 0x85ebca77c2b2ae63, 0xd6e8feb86659fd93}
	m := &port{slot: 3, serial: 7}
	victim := headers{from: ipOut, to: ipShared, id: 77, proto: 6}
	f.add(1, &victim, m, 1)
	// were the words only combined with each other, all would be of one set
	for i := uint32(1); i < 16; i++ {
		h := victim
		h.id ^= i << 8
		be.PutUint32(h.from[4:], be.Uint32(h.from[4:])^i<<24)
		f.add(1, &h, m, 2+int64(i))
		h = victim
		be.PutUint32(h.from[12:], be.Uint32(h.from[12:])^i<<20)
		be.PutUint32(h.from[4:], be.Uint32(h.from[4:])^i<<4)
		f.add(1, &h, m, 2+int64(i))
	}
	require.NotNil(t, f.find(1, &victim, 20))
}
