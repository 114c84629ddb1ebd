package inet

import (
	"math"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func route(prefix, gateway string) Route {
	r := Route{Prefix: netip.MustParsePrefix(prefix)}
	if gateway != "" {
		r.Gateway = netip.MustParseAddr(gateway)
	}
	return r
}

func hop(t *testing.T, r *Routes, now int64, dst string) string {
	t.Helper()
	h, ok := r.Lookup(now, AddrFrom(netip.MustParseAddr(dst)))
	if !ok {
		return "none"
	}
	return h.String()
}

// The longest prefix; on the link without a gateway; nothing without a route.
// req: 1122-3.3.1-1
func TestRoutes(t *testing.T) {
	r := NewRoutes()
	require.Equal(t, "none", hop(t, r, 0, "10.0.0.9"))
	for _, x := range []Route{
		route("10.0.0.0/24", ""), route("0.0.0.0/0", "10.0.0.1"), route("10.1.0.0/16", "10.0.0.2"),
		route("10.1.2.0/24", "10.0.0.3"),
		route("fd77::/64", ""), route("::/0", "fe80::1"), route("fd78::/32", "fd77::3"),
	} {
		require.True(t, r.Add(x))
	}
	for dst, want := range map[string]string{
		"10.0.0.9": "10.0.0.9", "10.0.1.9": "10.0.0.1", "10.1.9.9": "10.0.0.2", "10.1.2.9": "10.0.0.3",
		"8.8.8.8": "10.0.0.1",
		"fd77::5": "fd77::5", "fd78:0:1::5": "fd77::3", "2001:db8::1": "fe80::1",
	} {
		require.Equal(t, want, hop(t, r, 0, dst), dst)
	}
	require.True(t, r.OnLink(0, six1))
	require.False(t, r.OnLink(0, ip4(10, 1, 2, 3)))

	// An IPv6 default route is none for IPv4.
	r = NewRoutes()
	r.Add(route("::/0", "fe80::1"))
	require.Equal(t, "none", hop(t, r, 0, "10.0.0.9"))
	for range RoutesMax - 1 {
		require.True(t, r.Add(route("10.0.0.0/24", "")))
	}
	require.False(t, r.Add(route("10.0.0.0/24", "")), "full")
}

// A gateway that died is passed over for a minute while another lives.
// req: 1122-3.3.1.4-1
func TestDeadGateway(t *testing.T) {
	r := NewRoutes()
	r.Add(route("10.0.0.0/24", ""))
	r.Add(route("0.0.0.0/0", "10.0.0.1"))
	r.Add(route("0.0.0.0/0", "10.0.0.2"))
	require.False(t, r.Dead(0, ip4(10, 0, 0, 9)), "a host is no gateway")
	require.True(t, r.Dead(0, ip4(10, 0, 0, 1)))
	require.True(t, r.IsDead(1, ip4(10, 0, 0, 1)))
	require.Equal(t, "10.0.0.2", hop(t, r, 1, "8.8.8.8"))
	require.True(t, r.Dead(2, ip4(10, 0, 0, 2)))
	require.Equal(t, "10.0.0.1", hop(t, r, 3, "8.8.8.8"), "when all are dead, the first")
	require.Equal(t, "10.0.0.1", hop(t, r, gatewayRestNs, "8.8.8.8"))
	require.False(t, r.IsDead(gatewayRestNs, ip4(10, 0, 0, 1)))
}

// req: 4861-6.3-1
func TestLearnedRoutes(t *testing.T) {
	r := NewRoutes()
	router := LinkLocal(macA)
	require.True(t, r.Learn(0, Addr{}, 0, router, 1800))
	require.Equal(t, router.String(), hop(t, r, 5, "2001:db8::1"))
	require.True(t, r.Learn(10, Addr{}, 0, router, 3600), "renewed")
	require.Equal(t, int64(3600), r.Deadline())
	require.Equal(t, "none", hop(t, r, 3600, "2001:db8::1"))
	require.True(t, r.Expire(3600))
	require.Equal(t, int64(math.MaxInt64), r.Deadline())

	r.Learn(0, Addr{}, 0, router, 100)
	require.True(t, r.Learn(50, Addr{}, 0, router, 50), "lifetime 0")
	require.Equal(t, "none", hop(t, r, 51, "2001:db8::1"))
	require.True(t, r.Learn(50, Addr{}, 0, router, 50), "of one that is unknown, too")
	r.Learn(0, Addr{}, 0, router, 100)
	require.True(t, r.Forget(router))
	require.False(t, r.Forget(router))

	r.Add(route("fd77::/64", ""))
	require.True(t, r.Learn(0, six1, 64, Addr{}, 10))
	require.False(t, r.Expire(100), "what is configured stays")
	require.Equal(t, "fd77::9", hop(t, r, 100, "fd77::9"))
}

// Identifications of one destination do not repeat within half a revolution, nor tell those of
// another.
// req: 791-3.2-3
func TestIdentification(t *testing.T) {
	x := NewIdentification()
	a, b := ip4(10, 0, 0, 1), ip4(10, 0, 0, 2)
	seen := map[uint16]bool{}
	steps := map[uint32]bool{}
	last := x.Next(a, b, ProtoICMP)
	for range 8000 {
		id := x.Next(a, b, ProtoICMP)
		require.False(t, seen[uint16(id)])
		seen[uint16(id)] = true
		require.LessOrEqual(t, id-last-1, uint32(7))
		steps[id-last] = true
		last = id
	}
	require.Len(t, steps, 8, "steps are random")
	apart := map[uint16]bool{}
	for i := range 200 {
		apart[uint16(x.Next(a, ip4(10, 0, 1, byte(i)), ProtoICMP))] = true
	}
	require.Greater(t, len(apart), 150, "each destination begins elsewhere")
	y := NewIdentification()
	same := 0
	for i := range 50 {
		if uint16(x.Next(a, ip4(10, 0, 2, byte(i)), 1)) == uint16(y.Next(a, ip4(10, 0, 2, byte(i)), 1)) {
			same++
		}
	}
	require.Less(t, same, 5, "and in each process")
}
