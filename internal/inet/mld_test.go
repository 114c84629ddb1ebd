package inet

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	querier = LinkLocal(MAC{0x8a, 0x98, 7, 0x85, 5, 0x5f})
	group1  = six1.SolicitedNode()
	group2  = six2.SolicitedNode()
)

// goldenMLD returns the IPv6 header, the ICMPv6 part and whether the Router Alert is there.
func goldenMLD(t testing.TB, name string) (IPv6, []byte, bool) {
	t.Helper()
	_, packet, d := ParseEthernet(golden(t, name))
	require.Equal(t, DropNone, d)
	h, payload, d := ParseIPv6(packet)
	require.Equal(t, DropNone, d)
	c, d := WalkIPv6(payload, h.NextHeader, IPv6Len, false)
	require.Equal(t, DropNone, d)
	require.EqualValues(t, ProtoICMPv6, c.Proto)
	return h, clipped(payload[c.Off:]), c.Alert
}

// What Linux sends is read; any part of it is not, with whatever checksum.
// req: 3810-5.1.3-1, 3810-5.1.9-1, 3810-8.1-1
func TestMLDOfLinux(t *testing.T) {
	for name, want := range map[string]MLD{
		"mld-query2-general": {Type: MLDQuery, Version: 2, MaxDelayNs: listenSecond, Robustness: 2,
			IntervalSec: 125},
		"mld-query1-general": {Type: MLDQuery, Version: 1, MaxDelayNs: listenSecond},
		"mld-query2-group": {Type: MLDQuery, Version: 2, MaxDelayNs: listenSecond, Robustness: 2,
			IntervalSec: 125, Group: group1},
		"mld-query1-group": {Type: MLDQuery, Version: 1, MaxDelayNs: listenSecond, Group: group1},
		"mld-report1":      {Type: MLDReport1, Version: 1, Group: group1},
		"mld-done":         {Type: MLDDone, Version: 1, Group: group1},
	} {
		h, b, alert := goldenMLD(t, name)
		require.True(t, alert, name)
		var m MLD
		require.Equal(t, DropNone, ParseMLD(b, h.Src, h.Dst, h.HopLimit, alert, &m), name)
		require.Zero(t, m.Sources())
		m.sources = nil
		require.Equal(t, want, m, name)
		for n := range b {
			cut := clipped(b[:n])
			if n >= 4 {
				cut[2], cut[3] = 0, 0
				putSum(cut, h.Src, h.Dst)
			}
			got := ParseMLD(cut, h.Src, h.Dst, h.HopLimit, alert, &m)
			if n == mld1Len { // MLDv2's begins as MLDv1's does
				require.Equal(t, DropNone, got, name)
				continue
			}
			require.Equal(t, DropBadMLD, got, "%s: %d octets", name, n)
		}
		b[9] ^= 1
		require.Equal(t, DropChecksum, ParseMLD(b, h.Src, h.Dst, h.HopLimit, alert, &m), name)
	}
}

// mldMessage makes a message with a good checksum.
func mldMessage(t testing.TB, text string, src, dst Addr) []byte {
	b := hexed(t, text)
	putSum(b, src, dst)
	return b
}

// Every reason to discard a message, and what is none.
// req: 3810-5.1.14-1, 3810-6.2-1, 3810-8.1-1, 3810-5.1.12-1, 3810-5.1.15-1
func TestMLDValidity(t *testing.T) {
	const (
		general = "82 00 0000 03e8 0000 00000000000000000000000000000000"
		group   = "82 00 0000 03e8 0000 ff0200000000000000000001ff000001"
		v2      = " 02 7d 0000"
		one     = " 02 7d 0001 fd770000000000000000000000000009"
	)
	for name, c := range map[string]struct {
		text     string
		src, dst Addr
		hop      uint8
		alert    bool
		want     Drop
	}{
		"general":              {general + v2, querier, AllNodes, 1, true, DropNone},
		"to a unicast address": {general + v2, querier, six1, 1, true, DropNone},
		"general to a group":   {general, querier, group1, 1, true, DropNone},
		"code 7, reserved octets": {"82 07 0000 03e8 abcd 00000000000000000000000000000000 " +
			"f2 7d 0000", querier, AllNodes, 1, true, DropNone},
		"octets after the last source": {group + one + "0123456789", querier, group1, 1, true, DropNone},
		"hop limit 255":                {general + v2, querier, AllNodes, 255, true, DropBadMLD},
		"hop limit 2":                  {general, querier, AllNodes, 2, true, DropBadMLD},
		"hop limit 0":                  {general, querier, AllNodes, 0, true, DropBadMLD},
		"no Router Alert":              {general + v2, querier, AllNodes, 1, false, DropBadMLD},
		"from ::":                      {general + v2, Addr{}, AllNodes, 1, true, DropBadMLD},
		"from a global address":        {general + v2, six1, AllNodes, 1, true, DropBadMLD},
		"25 octets":                    {general + "02", querier, AllNodes, 1, true, DropBadMLD},
		"27 octets":                    {general + "027d00", querier, AllNodes, 1, true, DropBadMLD},
		"a source too few": {group + " 02 7d 0002 fd770000000000000000000000000009", querier,
			group1, 1, true, DropBadMLD},
		"65535 sources": {group + " 02 7d ffff", querier, group1, 1, true, DropBadMLD},
		"for a unicast address": {"82 00 0000 03e8 0000 fd770000000000000000000000000001", querier,
			AllNodes, 1, true, DropBadMLD},
		"for an IPv4 group": {"82 00 0000 03e8 0000 00000000000000000000ffffe0000001", querier,
			AllNodes, 1, true, DropBadMLD},
		"for 0.0.0.0": {"82 00 0000 03e8 0000 00000000000000000000ffff00000000", querier,
			AllNodes, 1, true, DropBadMLD},
		"a Report of no group": {"83" + general[2:], querier, group1, 1, true, DropBadMLD},
		"a Report of an IPv4 group": {"83 00 0000 0000 0000 00000000000000000000ffffe0000001", querier,
			group1, 1, true, DropBadMLD},
		"a Report from ::": {"83" + group[2:], Addr{}, group1, 1, true, DropBadMLD},
		"a Report of MLDv2": {"8f 00 0000 0000 0001 04000000 ff0200000000000000000001ff000001",
			querier, AllMLDRouters, 1, true, DropBadMLD},
	} {
		var m MLD
		b := clipped(mldMessage(t, c.text, c.src, c.dst))
		require.Equal(t, c.want, ParseMLD(b, c.src, c.dst, c.hop, c.alert, &m), name)
	}
	var m MLD
	b := mldMessage(t, group+one, querier, group1)
	require.Equal(t, DropNone, ParseMLD(b, querier, group1, 1, true, &m))
	require.Equal(t, 1, m.Sources())
	require.Equal(t, Addr{0xfd, 0x77, 15: 9}, m.Source(0))
}

// req: 3810-5.1.3-1, 3810-5.1.9-1
func TestMLDFloat(t *testing.T) {
	for code, want := range map[uint32]uint32{0: 0, 1: 1, 32767: 32767, 0x8000: 32768, 0x8001: 32776,
		0x9000: 65536, 0xffff: 8387584} {
		require.Equal(t, want, mldFloat(code, 12), "%#x", code)
	}
	for code, want := range map[uint32]uint32{0: 0, 127: 127, 0x80: 128, 0x81: 136, 0x9f: 496,
		0xff: 31744} {
		require.Equal(t, want, mldFloat(code, 4), "%#x", code)
	}
}

// Only the option of RFC 2711 with the value for MLD, hop by hop, is the Router Alert.
// req: 3810-6.2-1
func TestRouterAlert(t *testing.T) {
	for text, want := range map[string]bool{
		"3a 00 0502 0000 0100":                    true,
		"3a 00 0100 0502 0000":                    true,
		"3a 00 0000 0502 0000":                    true,
		"3a 01 0104 00000000 0502 0000 0102 0000": true,
		"3a 00 0502 0001 0100":                    false, // RSVP
		"3a 00 0501 00 000000":                    false,
		"3a 00 0503 000000 00":                    false,
		"3a 00 0104 00000000":                     false,
	} {
		b := append(hexed(t, text), make([]byte, 24)...)
		c, _ := WalkIPv6(b, ProtoHopByHop, IPv6Len, false)
		require.Equal(t, want, c.Alert, text)
		c, _ = WalkIPv6(b, extDestination, IPv6Len, false)
		require.False(t, c.Alert, text)
	}
}

func FuzzParseMLD(f *testing.F) {
	for _, name := range []string{"mld-query2-general", "mld-query1-group", "mld-report1", "mld-done",
		"mld-report2"} {
		_, b, _ := goldenMLD(f, name)
		f.Add(b, uint64(7))
	}
	f.Add(mldMessage(f, "82 00 0000 0000 0000 ff0200000000000000000001ff000001 07 ff 0001 "+
		"fd770000000000000000000000000009", querier, group1), uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		if len(b) < 4 {
			return
		}
		b = clipped(b)
		b[2], b[3] = 0, 0
		putSum(b, querier, group1)
		var m MLD
		if ParseMLD(b, querier, group1, 1, true, &m) != DropNone {
			return
		}
		for i := range m.Sources() {
			_ = m.Source(i)
		}
		l := NewListener(seed, false)
		l.Join(0, group1)
		l.Join(0, group2)
		l.SetSource(0, LinkLocal(stationMAC))
		l.Input(0, &m)
		out := make([]byte, ListenerRoom)
		for sent := 0; l.Deadline() < listenNever; sent++ {
			require.Less(t, sent, 100, "it comes to an end")
			now := l.Deadline()
			for dst, n := l.Output(now, out); n > 0; dst, n = l.Output(now, out) {
				message := out[RouterAlertLen:n]
				require.Zero(t, Checksum(message, PseudoSum(l.Source(), dst, ProtoICMPv6, len(message))))
				if message[0] == MLDReport2 {
					require.NotEmpty(t, readRecords(t, message))
				}
			}
		}
	})
}

// record is a Multicast Address Record, read by this test's own reader.
type record struct {
	typ     uint8
	group   Addr
	sources []Addr
}

func readRecords(t testing.TB, message []byte) (all []record) {
	t.Helper()
	b := message[8:]
	for range binary.BigEndian.Uint16(message[6:8]) {
		require.Zero(t, b[1], "no auxiliary data")
		r := record{typ: b[0], group: Addr(b[4:20])}
		n := int(binary.BigEndian.Uint16(b[2:4]))
		for i := range n {
			r.sources = append(r.sources, Addr(b[20+16*i:]))
		}
		b = b[20+16*n:]
		all = append(all, r)
	}
	require.Empty(t, b, "nothing after the last record")
	return all
}
