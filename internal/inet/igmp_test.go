package inet

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

var fourGroup = ip4(239, 1, 2, 3)

// goldenIGMP is the packet's header, its options and its message.
func goldenIGMP(t testing.TB, name string) (IPv4, []byte, []byte) {
	t.Helper()
	_, packet, d := ParseEthernet(golden(t, name))
	require.Equal(t, DropNone, d)
	h, message, d := ParseIPv4(packet, false)
	require.Equal(t, DropNone, d)
	require.EqualValues(t, ProtoIGMP, h.Proto)
	return h, clipped(packet[IPv4Len:h.HdrLen]), clipped(message)
}

// What Linux sends is read as what MLD would say; a part of it is not, with whatever checksum.
func TestIGMPOfLinux(t *testing.T) {
	for name, want := range map[string]MLD{
		"igmp-query3": {Type: MLDQuery, Version: 2, MaxDelayNs: listenSecond, Robustness: 2,
			IntervalSec: 125},
		"igmp-query2":  {Type: MLDQuery, Version: 1, MaxDelayNs: listenSecond},
		"igmp-report2": {Type: MLDReport1, Version: 1, Group: fourGroup},
		"igmp-leave2":  {Type: MLDDone, Version: 1, Group: fourGroup},
	} {
		h, options, b := goldenIGMP(t, name)
		var m MLD
		require.Equal(t, DropNone, ParseIGMP(&h, options, b, &m), name)
		require.Zero(t, m.Sources())
		want.four, m.sources = true, nil
		require.Equal(t, want, m, name)
		for n := range b {
			cut := clipped(b[:n])
			if n >= igmpLen {
				cut[2], cut[3] = 0, 0
				binary.BigEndian.PutUint16(cut[2:], Checksum(cut, 0))
			}
			if got := ParseIGMP(&h, options, cut, &m); n == igmpLen { // version 2's is its beginning
				require.Equal(t, DropNone, got)
			} else {
				require.Equal(t, DropBadIGMP, got, "%s: %d octets", name, n)
			}
		}
		b[5] ^= 1
		require.Equal(t, DropChecksum, ParseIGMP(&h, options, b, &m), name)
	}
	h, options, b := goldenIGMP(t, "igmp-report3") // for routers
	require.Equal(t, DropBadIGMP, ParseIGMP(&h, options, b, &MLD{}))
}

// Every reason to discard a Query.
func TestIGMPValidity(t *testing.T) {
	const alert = "94040000"
	for name, c := range map[string]struct {
		text, options string
		dst           Addr
		ttl           uint8
		want          Drop
	}{
		"general":              {"11 0a 0000 00000000 02 7d 0000", alert, AllNodes4, 1, DropNone},
		"other options":        {"11 0a 0000 00000000", "01 07 03 00" + alert, AllNodes4, 1, DropNone},
		"for a group":          {"11 0a 0000 ef010203", alert, fourGroup, 1, DropNone},
		"for sources":          {"11 0a 0000 ef010203 027d 0001 0a000009", alert, fourGroup, 1, DropNone},
		"octets after that":    {"11 0a 0000 ef010203 02 7d 0000 0102", alert, fourGroup, 1, DropNone},
		"TTL 2":                {"11 0a 0000 00000000 02 7d 0000", alert, AllNodes4, 2, DropBadIGMP},
		"no alert":             {"11 0a 0000 00000000 02 7d 0000", "", AllNodes4, 1, DropBadIGMP},
		"an option of 0":       {"11 0a 0000 00000000", "0700" + alert, AllNodes4, 1, DropBadIGMP},
		"an option too long":   {"11 0a 0000 00000000", "0705 0000", AllNodes4, 1, DropBadIGMP},
		"an option cut":        {"11 0a 0000 00000000", "010101 94", AllNodes4, 1, DropBadIGMP},
		"after the end":        {"11 0a 0000 00000000", "00000000" + alert, AllNodes4, 1, DropBadIGMP},
		"general to a group":   {"11 0a 0000 00000000 02 7d 0000", alert, fourGroup, 1, DropBadIGMP},
		"a group's to another": {"11 0a 0000 ef010203", alert, AllNodes4, 1, DropBadIGMP},
		"for no group":         {"11 0a 0000 0a010203", alert, ip4(10, 1, 2, 3), 1, DropBadIGMP},
		"version 1":            {"11 00 0000 00000000", alert, AllNodes4, 1, DropBadIGMP},
		"11 octets":            {"11 0a 0000 00000000 027d00", alert, AllNodes4, 1, DropBadIGMP},
		"a source too few":     {"11 0a 0000 ef010203 02 7d 0001", alert, fourGroup, 1, DropBadIGMP},
		"65535 sources":        {"11 0a 0000 ef010203 02 7d ffff", alert, fourGroup, 1, DropBadIGMP},
		"a Report elsewhere":   {"16 00 0000 ef010203", alert, AllNodes4, 1, DropBadIGMP},
		"another type":         {"13 00 0000 ef010203", alert, fourGroup, 1, DropBadIGMP},
	} {
		b := hexed(t, c.text)
		binary.BigEndian.PutUint16(b[2:], Checksum(b, 0))
		var m MLD
		h := IPv4{TTL: c.ttl, Dst: c.dst}
		require.Equal(t, c.want, ParseIGMP(&h, hexed(t, c.options), b, &m), name)
		if name == "for sources" {
			require.Equal(t, ip4(10, 0, 0, 9), m.Source(0))
		}
	}
	b := hexed(t, "11 ff 0000 ef010203 0f ff 0000")
	binary.BigEndian.PutUint16(b[2:], Checksum(b, 0))
	var m MLD
	h := IPv4{TTL: 1, Dst: fourGroup}
	require.Equal(t, DropNone, ParseIGMP(&h, hexed(t, alert), b, &m))
	require.EqualValues(t, 31744*igmpTickNs, m.MaxDelayNs)
	require.EqualValues(t, 31744, m.IntervalSec)
	require.Equal(t, 7, m.Robustness)
}

// A switch without an address is the querier of 0.0.0.0; nothing else comes from there.
func TestIGMPFromNoAddress(t *testing.T) {
	b := golden(t, "igmp-query3")[EthernetLen:]
	copy(b[12:16], make([]byte, 4))
	_, _, d := ParseIPv4(b, true)
	require.Equal(t, DropNone, d)
	b[9] = ProtoUDP
	_, _, d = ParseIPv4(b, true)
	require.Equal(t, DropSource, d)
}

// A Listener of IPv4 says octet for octet what Linux says, of either version.
func TestListenerSaysWhatLinuxSaysInIGMP(t *testing.T) {
	host := ip4(10, 7, 0, 1)
	out := make([]byte, IGMPHeaderLen+ListenerRoom)
	says := func(l *Listener, now int64, name string) {
		t.Helper()
		dst, n := l.Output(now, out[IGMPHeaderLen:])
		require.NotZero(t, n, name)
		PutIGMPHeader(out, host, dst, n)
		f := golden(t, name)
		require.Equal(t, f[EthernetLen:], out[:IGMPHeaderLen+n], name)
		require.Equal(t, MAC(f), dst.GroupMAC(), name)
	}
	l := NewListener(1, true)
	l.SetSource(0, host)
	l.Join(0, fourGroup)
	says(l, 0, "igmp-report3")
	l.Leave(0, fourGroup)
	says(l, 0, "igmp-report3-left")

	l = NewListener(1, true)
	l.SetSource(0, host)
	h, options, b := goldenIGMP(t, "igmp-query2")
	var m MLD
	require.Equal(t, DropNone, ParseIGMP(&h, options, b, &m))
	l.Input(0, &m)
	l.Join(0, fourGroup)
	says(l, 0, "igmp-report2")
	l.Leave(0, fourGroup)
	says(l, 0, "igmp-leave2")

	l = NewListener(1, true) // and of sources, as RFC 3376, 4.2 has it
	l.SetSource(0, host)
	l.Join(0, fourGroup)
	for now := l.Deadline(); now < listenNever; now = l.Deadline() {
		l.Output(now, out)
	}
	q := hexed(t, "11 0a 0000 ef010203 02 7d 0002 0a000009 0a000008")
	binary.BigEndian.PutUint16(q[2:], Checksum(q, 0))
	require.Equal(t, DropNone, ParseIGMP(&IPv4{TTL: 1, Dst: fourGroup}, options, q, &m))
	l.Input(100*listenSecond, &m)
	dst, n := l.Output(l.Deadline(), out)
	require.Equal(t, AllIGMPRouters, dst)
	require.Zero(t, Checksum(out[:n], 0))
	out[2], out[3] = 0, 0
	require.Equal(t, hexed(t, "2200 0000 0000 0001 01 00 0002 ef010203 0a000009 0a000008"), out[:n])
}

// No Query makes a Listener fail, or speak for ever.
func FuzzIGMP(f *testing.F) {
	for _, name := range []string{"igmp-query3", "igmp-query2", "igmp-report2", "igmp-leave2"} {
		_, packet, _ := ParseEthernet(golden(f, name))
		f.Add(packet)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 0 {
			b[0] = b[0]&15 | 0x40
		}
		h, message, d := ParseIPv4(clipped(b), true)
		if d != DropNone {
			return
		}
		h.TTL = MLDHopLimit
		if len(message) >= igmpLen {
			message[2], message[3] = 0, 0
			binary.BigEndian.PutUint16(message[2:], Checksum(message, 0))
		}
		var m MLD
		if ParseIGMP(&h, b[IPv4Len:h.HdrLen], message, &m) != DropNone {
			return
		}
		l := NewListener(1, true)
		l.Join(0, fourGroup)
		l.Join(0, ip4(239, 1, 2, 4))
		l.Input(0, &m)
		out := make([]byte, ListenerRoom)
		for sent := 0; l.Deadline() < listenNever; sent++ {
			require.Less(t, sent, 100, "it comes to an end")
			_, n := l.Output(l.Deadline(), out)
			require.Zero(t, Checksum(out[:n], 0))
		}
	})
}
