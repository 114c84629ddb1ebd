package stack

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// The key and the vectors of "Verifying the RSS Hash Calculation" (Microsoft, NDIS).
const verificationKey = "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa"

func TestToeplitzVectors(t *testing.T) {
	key := must(hex.DecodeString(verificationKey))(t)
	r := newRSS(&pmd.Caps{RSSKey: key, RSSTable: []uint16{0}}, 1)
	for _, c := range []struct {
		to, from string
		want     uint32
	}{
		{"161.142.100.80:1766", "66.9.149.187:2794", 0x51ccc178},
		{"65.69.140.83:4739", "199.92.111.2:14230", 0xc626b0ea},
		{"12.22.207.184:38024", "24.19.198.95:12898", 0x5c2b394a},
		{"209.142.163.6:2217", "38.27.205.30:48228", 0xafc7327f},
		{"202.188.127.2:1303", "153.39.163.191:44251", 0x10e828a2},
		{"[3ffe:2501:200:3::1]:1766", "[3ffe:2501:200:1fff::7]:2794", 0x40207d3d},
		{"[ff02::1]:4739", "[3ffe:501:8::260:97ff:fe40:efab]:14230", 0xdde51bbf},
		{"[fe80::200:f8ff:fe21:67cf]:38024", "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251", 0x02d1feef},
	} {
		to, from := netip.MustParseAddrPort(c.to), netip.MustParseAddrPort(c.from)
		id := tcp.ID{Local: inet.AddrFrom(to.Addr()), Remote: inet.AddrFrom(from.Addr()),
			LocalPort: to.Port(), RemotePort: from.Port()}
		require.Equal(t, c.want, r.hash(&id), "%s to %s", c.from, c.to)
	}
}

// A port that does not say how it spreads over just these members has its connections spread by the
// keyed hash.
func TestRSSThatTheGroupCannotUse(t *testing.T) {
	key := make([]byte, 40)
	for what, caps := range map[string]pmd.Caps{
		"no key":        {RSSTable: []uint16{0, 1}},
		"short key":     {RSSKey: key[:39], RSSTable: []uint16{0, 1}},
		"no table":      {RSSKey: key},
		"other queues":  {RSSKey: key, RSSTable: []uint16{0, 1, 2}},
		"no RSS at all": {},
	} {
		require.Nil(t, newRSS(&caps, 2), what)
	}
	require.NotNil(t, newRSS(&pmd.Caps{RSSKey: key, RSSTable: []uint16{0, 1}}, 2))
}

// toeplitzBits is the hash bit by bit, as the specification has it: our tables' oracle, and the
// device.
func toeplitzBits(key, in []byte) (h uint32) {
	for i := range len(in) * 8 {
		if in[i/8]&(0x80>>(i%8)) == 0 {
			continue
		}
		for b := range 32 {
			at := i + b
			h ^= uint32(key[at/8]>>(7-at%8)&1) << (31 - b)
		}
	}
	return h
}

// rssSteering is the queue a device with this key and table puts a frame on: TCP over IPv4 by its
// hash, all else on queue 0.
func rssSteering(key []byte, table []uint16) func(frame []byte) int {
	return func(f []byte) int {
		if len(f) < 54 || f[12] != 8 || f[13] != 0 || f[23] != inet.ProtoTCP {
			return 0
		}
		return int(table[toeplitzBits(key, f[26:38])%uint32(len(table))])
	}
}

// With a device that spreads by a Toeplitz hash no segment comes to the wrong Poller, whichever
// end opened the connection; and where it does not do what it says, all are handed over.
func TestGroupFollowsTheDevicesHash(t *testing.T) {
	key := slices.Repeat([]byte{0x6d, 0x5a}, 26)
	table := make([]uint16, 128)
	for i := range table {
		table[i] = uint16(i * 3 / len(table))
	}
	for _, honest := range []bool{true, false} {
		l := groupLabTuned(t, 3, func(cfg *Config) { cfg.Caps.RSSKey, cfg.Caps.RSSTable = key, table })
		if honest {
			l.b.nic.Queue.(*steered).steer = rssSteering(key, table)
		}
		for _, h := range l.hosts {
			l.listen(h, 7, 16, 20_000)
		}
		var dialled []*peer
		for i := range 24 {
			dialled = append(dialled, l.dial(l.a, l.b, 7, 30_000+i))
		}
		for _, h := range l.hosts[1:] {
			for i := range 3 {
				dialled = append(dialled, l.dial(h, l.a, 7, 10_000+i))
			}
		}
		l.until("all is sent and acknowledged", func() bool {
			return len(l.accepted) == len(dialled) &&
				!slices.ContainsFunc(append(slices.Clone(dialled), l.accepted...), func(u *peer) bool {
					return u.sent != u.toSend || u.acked != u.toSend
				})
		})
		strays := uint64(0)
		for i, h := range l.hosts[1:] {
			k := h.counters()
			strays += k.Strays
			require.NotZero(t, k.Accepted, "member %d", i)
			require.EqualValues(t, 3, k.Connected, "member %d", i)
			require.Zero(t, k.RSTSent)
		}
		require.Equal(t, honest, strays == 0, "%d segments came to the wrong Poller", strays)
	}
}
