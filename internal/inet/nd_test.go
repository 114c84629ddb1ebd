package inet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

var stationMAC = MAC{2, 0, 0, 0, 0, 7}

// Ours, octet for octet.
// req: 4861-7.2-1, 4861-7.2-3
func TestNDGolden(t *testing.T) {
	b := make([]byte, 64)
	n := PutNeighbourSolicitation(b, stationMAC, six1, six2.SolicitedNode(), six2)
	require.Equal(t, hexed(t, "87 00 0000 00000000 fd770000000000000000000000000002 01 01 "+
		"020000000007"), zeroSum(b[:n]))
	n = PutNeighbourSolicitation(b, stationMAC, Addr{}, six2.SolicitedNode(), six2)
	require.Equal(t, hexed(t, "87 00 0000 00000000 fd770000000000000000000000000002"), zeroSum(b[:n]),
		"no option when checking for duplicates")
	n = PutNeighbourAdvertisement(b, stationMAC, six1, six2, six1)
	require.Equal(t, hexed(t, "88 00 0000 60000000 fd770000000000000000000000000001 02 01 "+
		"020000000007"), zeroSum(b[:n]))
	n = PutNeighbourAdvertisement(b, stationMAC, six1, AllNodes, six1)
	require.Equal(t, hexed(t, "88 00 0000 20000000 fd770000000000000000000000000001 02 01 "+
		"020000000007"), zeroSum(b[:n]))
	n = PutRouterSolicitation(b, stationMAC, LinkLocal(stationMAC))
	require.Equal(t, hexed(t, "85 00 0000 00000000 01 01 020000000007"), zeroSum(b[:n]))
}

// zeroSum clears a checksum, which the parsing tests verify.
func zeroSum(b []byte) []byte {
	b = append([]byte{}, b...)
	b[2], b[3] = 0, 0
	return b
}

// message makes the checksum of an ND message fit its addresses.
func ndMessage(t testing.TB, text string, src, dst Addr) []byte {
	b := hexed(t, text)
	b[2], b[3] = 0, 0
	putSum(b, src, dst)
	return b
}

func putSum(b []byte, src, dst Addr) {
	sum := Checksum(b, PseudoSum(src, dst, ProtoICMPv6, len(b)))
	b[2], b[3] = byte(sum>>8), byte(sum)
}

// req: 4861-6.3-1
func TestRouterAdvertisement(t *testing.T) {
	src := LinkLocal(stationMAC)
	text := `86 00 0000 40 00 0708 00007530 000003e8
		01 01 020000000007  05 01 0000 000005dc
		03 04 40 c0 00015180 00003840 00000000 fd770000000000000000000000000000  99 01 000000000000`
	b := ndMessage(t, text, src, AllNodes)
	var nd ND
	require.Equal(t, DropNone, ParseND(clipped(b), src, AllNodes, 255, &nd))
	want := ND{
		Type: NDRouterAdvertisement, MAC: stationMAC, HasMAC: true, HopLimit: 64, LifetimeSec: 1800,
		ReachableMs: 30000, RetransMs: 1000, MTU: 1500, PrefixesCount: 1,
	}
	want.Prefixes[0] = NDPrefix{Prefix: Addr{0xfd, 0x77}, Bits: 64, OnLink: true, Autoconf: true,
		Valid: 86400, Preferred: 14400}
	require.Equal(t, want, nd)
	require.Equal(t, DropBadND, ParseND(ndMessage(t, text, six1, AllNodes), six1, AllNodes, 255, &nd),
		"not from a link-local address")
}

// Every check of RFC 4861, 6.1 and 7.1.
// req: 4861-7.1-1
func TestNDValidity(t *testing.T) {
	const (
		ns = "87 00 0000 00000000 fd770000000000000000000000000002 01 01 020000000007"
		na = "88 00 0000 60000000 fd770000000000000000000000000001 02 01 020000000007"
	)
	group := six2.SolicitedNode()
	for name, c := range map[string]struct {
		text     string
		src, dst Addr
		hop      uint8
		want     Drop
	}{
		"NS":            {ns, six1, group, 255, DropNone},
		"NA":            {na, six1, six2, 255, DropNone},
		"hop limit 64":  {ns, six1, group, 64, DropBadND},
		"hop limit 254": {na, six1, six2, 254, DropBadND},
		"code 1":        {"87 01" + ns[5:], six1, group, 255, DropBadND},
		"multicast target": {"87 00 0000 00000000 ff020000000000000000000000000002", six1,
			group, 255, DropBadND},
		"multicast target of NA": {"88 00 0000 60000000 ff020000000000000000000000000002", six1,
			six2, 255, DropBadND},
		"mapped target": {"87 00 0000 00000000 00000000000000000000ffff0a000001", six1,
			group, 255, DropBadND},
		"option of length 0":        {ns + "0e 00 000000000000", six1, group, 255, DropBadND},
		"option beyond the end":     {ns + "0e 02 000000000000", six1, group, 255, DropBadND},
		"NS from :: with an option": {ns, Addr{}, group, 255, DropBadND},
		"NS from :: to unicast": {"87 00 0000 00000000 fd770000000000000000000000000002", Addr{},
			six2, 255, DropBadND},
		"NS from ::": {"87 00 0000 00000000 fd770000000000000000000000000002", Addr{},
			group, 255, DropNone},
		"solicited NA to a group": {na, six1, AllNodes, 255, DropBadND},
		"NA to a group": {"88 00 0000 20000000 fd770000000000000000000000000001", six1,
			AllNodes, 255, DropNone},
		"NS of 23 octets": {"87 00 0000 00000000 fd7700000000000000000000000000", six1,
			group, 255, DropBadND},
		"RS from :: with an option": {"85 00 0000 00000000 01 01 020000000007", Addr{}, AllRouters,
			255, DropBadND},
		"RA of 15 octets": {"86 00 0000 40 00 0708 00007530 0003e8", LinkLocal(stationMAC),
			AllNodes, 255, DropBadND},
		"Redirect": {"89 00 0000 00000000 fd770000000000000000000000000001 " +
			"fd770000000000000000000000000001", LinkLocal(stationMAC), six2, 255, DropBadND},
		"group as link-layer address":  {"87 00 0000 00000000 fd770000000000000000000000000002 01 01 330000000007", six1, group, 255, DropBadND},
		"unknown option is passed by":  {ns + "63 01 000000000000", six1, group, 255, DropNone},
		"option of the other function": {"87 00 0000 00000000 fd770000000000000000000000000002 02 01 020000000007", six1, group, 255, DropNone},
	} {
		var nd ND
		b := ndMessage(t, c.text, c.src, c.dst)
		require.Equal(t, c.want, ParseND(clipped(b), c.src, c.dst, c.hop, &nd), name)
		if c.want == DropNone {
			b[5] ^= 1
			require.Equal(t, DropChecksum, ParseND(b, c.src, c.dst, c.hop, &nd), name)
		}
	}
}

func FuzzParseND(f *testing.F) {
	f.Add(hexed(f, "87 00 0000 00000000 fd770000000000000000000000000002 01 01 020000000007"), true)
	f.Add(hexed(f, "86 00 0000 40 00 0708 00007530 000003e8 05 01 0000 000005dc 03 04 40 c0 "+
		"00015180 00003840 00000000 fd770000000000000000000000000000"), false)
	f.Fuzz(func(t *testing.T, b []byte, multicast bool) {
		if len(b) < 4 {
			return
		}
		src, dst := LinkLocal(stationMAC), six2
		if multicast {
			dst = AllNodes
		}
		b = clipped(b)
		b[2], b[3] = 0, 0
		putSum(b, src, dst)
		var nd ND
		if ParseND(b, src, dst, 255, &nd) == DropNone {
			require.False(t, nd.Target.IsMulticast() || nd.MAC.IsGroup())
			require.LessOrEqual(t, nd.PrefixesCount, NDPrefixesMax)
			for _, p := range nd.Prefixes {
				require.LessOrEqual(t, p.Bits, 128)
			}
		}
	})
}
