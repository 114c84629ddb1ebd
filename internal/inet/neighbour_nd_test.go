package inet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	macA = MAC{2, 0, 0, 0, 0, 1}
	macB = MAC{2, 0, 0, 0, 0, 2}
)

// asked drains Tick: "all" for a multicast question, else the MAC's last octet.
func asked(n *Neighbours[int], now int64) string {
	var got []string
	for range 100 {
		_, mac, ok := n.Tick(now)
		if !ok {
			return strings.Join(got, " ")
		}
		if mac == Broadcast {
			got = append(got, "all")
		} else {
			got = append(got, fmt.Sprint(mac[5]))
		}
	}
	panic("no end")
}

func state(n *Neighbours[int], ip Addr) neighbourState {
	i := n.table.find(&ip)
	if i < 0 {
		return 255
	}
	return n.table.entries[i].state
}

// entry gives a table with six1 at macA in a state.
func entry(t *testing.T, s neighbourState) *Neighbours[int] {
	n := NewNeighbours[int](NeighbourConfig{})
	switch s {
	case neighbourIncomplete:
		n.Lookup(0, six1, 1)
	case neighbourReachable:
		n.Learn(0, six1, macA, true)
	default:
		n.Solicit(0, six1, macA)
	}
	if s == neighbourDelay || s == neighbourProbing {
		n.Lookup(0, six1, 1)
	}
	if s == neighbourProbing {
		asked(n, delayNs)
	}
	require.Equal(t, s, state(n, six1))
	return n
}

// The table of RFC 4861, 7.2.5 and appendix C.
// req: 4861-7.2-4
func TestAdvertisementTable(t *testing.T) {
	const incomplete, reachable, stale, probing, delay = neighbourIncomplete, neighbourReachable,
		neighbourStale, neighbourProbing, neighbourDelay
	for _, c := range []struct {
		before neighbourState
		mac    MAC
		s, o   bool
		after  neighbourState
		at     MAC
	}{
		{incomplete, macA, true, false, reachable, macA},
		{incomplete, macA, true, true, reachable, macA},
		{incomplete, macA, false, false, delay, macA}, // STALE, and the packet that waited was sent to it
		{incomplete, MAC{}, true, true, incomplete, MAC{}},
		{reachable, macA, true, false, reachable, macA},
		{stale, macA, true, false, reachable, macA},
		{probing, macA, true, false, reachable, macA},
		{delay, macA, true, false, reachable, macA},
		{stale, macA, false, false, stale, macA},
		{stale, macA, false, true, stale, macA},
		{probing, macA, false, true, probing, macA},
		{reachable, macB, true, false, stale, macA},
		{reachable, macB, false, false, stale, macA},
		{stale, macB, true, false, stale, macA},
		{probing, macB, true, false, probing, macA},
		{delay, macB, false, false, delay, macA},
		{reachable, macB, true, true, reachable, macB},
		{stale, macB, true, true, reachable, macB},
		{probing, macB, true, true, reachable, macB},
		{reachable, macB, false, true, stale, macB},
		{stale, macB, false, true, stale, macB},
		{probing, macB, false, true, delay, macB}, // in use: STALE that the next packet makes DELAY
		{stale, MAC{}, true, false, reachable, macA},
		{reachable, MAC{}, false, false, reachable, macA},
	} {
		n := entry(t, c.before)
		n.Advertise(delayNs, &ND{Target: six1, MAC: c.mac, HasMAC: c.mac != MAC{}, Solicited: c.s,
			Override: c.o})
		require.Equal(t, c.after, state(n, six1), "%+v", c)
		i := n.table.find(&six1)
		require.Equal(t, c.at, n.table.entries[i].mac, "%+v", c)
	}
	n := NewNeighbours[int](NeighbourConfig{})
	n.Advertise(0, &ND{Target: six1, MAC: macA, HasMAC: true, Solicited: true, Override: true})
	require.Zero(t, n.Stats().Entries, "no entry is made")
}

// Three questions a second apart, then it is over.
// req: 4861-7.2-2
func TestSolicitationsAreThree(t *testing.T) {
	const s = scriptSecond
	n := NewNeighbours[int](NeighbourConfig{})
	_, known, queued, ask := n.Lookup(0, six1, 7)
	require.Equal(t, []bool{false, true, true}, []bool{known, queued, ask})
	require.Equal(t, "", asked(n, s-1))
	require.Equal(t, "all", asked(n, s))
	require.Equal(t, "all", asked(n, 2*s))
	require.Equal(t, "", asked(n, 3*s))
	frame, ok := n.TakeDropped()
	require.True(t, ok)
	require.Equal(t, 7, frame)
	ip, ok := n.TakeLost()
	require.True(t, ok)
	require.Equal(t, six1, ip)
	_, ok = n.TakeLost()
	require.False(t, ok)
}

// REACHABLE for 15 to 45 s, STALE until used, DELAY 5 s, three unicast questions a second apart.
// req: 4861-7.3-1
func TestUnreachabilityDetection(t *testing.T) {
	const s = scriptSecond
	for range 50 {
		n := NewNeighbours[int](NeighbourConfig{})
		n.Learn(0, six1, macA, true)
		end := n.Deadline()
		require.GreaterOrEqual(t, end, int64(15*s))
		require.Less(t, end, int64(45*s))
		n.Lookup(end-1, six1, 1)
		require.Equal(t, "", asked(n, end))
		require.Equal(t, neighbourStale, state(n, six1), "used or not")
		mac, known, _, ask := n.Lookup(end+1, six1, 2)
		require.Equal(t, []any{macA, true, false}, []any{mac, known, ask})
		require.Equal(t, neighbourDelay, state(n, six1))
		at := end + 1 + 5*s
		require.Equal(t, "", asked(n, at-1))
		require.Equal(t, "1", asked(n, at))
		require.Equal(t, "1", asked(n, at+s))
		require.Equal(t, "1", asked(n, at+2*s))
		require.Equal(t, "", asked(n, at+3*s))
		require.Equal(t, neighbourState(255), state(n, six1))
	}
}

// The transport's progress keeps an entry Reachable without a question; what tells nothing of
// reachability does not.
// req: 4861-7.3-1
func TestConfirm(t *testing.T) {
	const s = scriptSecond
	n := entry(t, neighbourDelay)
	n.Confirm(4*s, six1)
	require.Equal(t, neighbourReachable, state(n, six1))
	for at := int64(4 * s); at < 300*s; at += 10 * s {
		n.Confirm(at, six1)
		n.Lookup(at, six1, 1)
		require.Equal(t, "", asked(n, at+9*s))
	}
	n = entry(t, neighbourProbing)
	n.Confirm(6*s, six1)
	require.Equal(t, neighbourReachable, state(n, six1))
	n = entry(t, neighbourIncomplete)
	n.Confirm(1, six1)
	require.Equal(t, neighbourIncomplete, state(n, six1), "there is no address to confirm")
	n.Confirm(1, six2)
	require.Equal(t, neighbourState(255), state(n, six2))

	n = entry(t, neighbourStale)
	n.Solicit(1, six1, macA)
	require.Equal(t, neighbourStale, state(n, six1), "a solicitation confirms nothing")
	n = entry(t, neighbourReachable)
	n.Solicit(1, six1, macB)
	require.Equal(t, neighbourStale, state(n, six1))
}

// Negative advice leads to a question at once, of both families.
func TestSuspect(t *testing.T) {
	for _, ip := range []Addr{six1, ip4(10, 0, 0, 9)} {
		n := NewNeighbours[int](NeighbourConfig{})
		n.Learn(0, ip, macA, true)
		n.Suspect(5, ip)
		require.Equal(t, int64(5), n.Deadline())
		require.Equal(t, "1", asked(n, 5))
		n.Suspect(6, ip)
		require.Equal(t, "", asked(n, 6), "it is being asked already")
		n.Suspect(6, ip4(10, 0, 0, 8))
		require.Equal(t, 1, n.Stats().Entries)
		n.Learn(7, ip, macA, false)
		require.Equal(t, neighbourReachable, state(n, ip))
	}
}

func TestSetTimes(t *testing.T) {
	const s = scriptSecond
	n := NewNeighbours[int](NeighbourConfig{})
	n.SetTimes(10*s, 2*s)
	n.SetTimes(0, 0)
	n.SetTimes(7200*s, 0)
	n.Learn(0, six1, macA, true)
	require.LessOrEqual(t, n.Deadline(), int64(15*s))
	n.Lookup(0, six2, 1)
	require.Equal(t, int64(2*s), n.Deadline())
	n.SetTimes(0, 1)
	require.Equal(t, int64(s/10), n.retry6Ns, "no flood, whatever a router says")
}

// How long confirmations last follows from the Seed, where one is given.
func TestNeighbourSeed(t *testing.T) {
	lengths := func(seed uint64) (all [20]int64) {
		for i := range all {
			n := NewNeighbours[int](NeighbourConfig{Seed: seed})
			for range i {
				n.Learn(0, six1, macA, true)
			}
			all[i] = n.Deadline()
		}
		return all
	}
	require.Equal(t, lengths(1), lengths(1))
	require.NotEqual(t, lengths(2), lengths(1<<40))
	require.NotEqual(t, lengths(0), lengths(0))
}

// RetriesMax counts for both families; without it an ARP request is sent four times, and a
// solicitation three.
//
// req: 4861-7.2-2
func TestRetriesMax(t *testing.T) {
	const s = 1e9
	asked := func(ip Addr, cfg NeighbourConfig) int {
		table := NewNeighbours[int](cfg)
		table.Lookup(0, ip, 1)
		n := 1
		for now := int64(s); now < 100*s; now += s {
			for _, _, ok := table.Tick(now); ok; _, _, ok = table.Tick(now) {
				n++
			}
		}
		require.EqualValues(t, 1, table.Stats().Unreachable)
		return n
	}
	require.Equal(t, 4, asked(AddrFrom4([4]byte{10, 0, 0, 1}), NeighbourConfig{}))
	require.Equal(t, 3, asked(six1, NeighbourConfig{}))
	require.Equal(t, 8, asked(AddrFrom4([4]byte{10, 0, 0, 1}), NeighbourConfig{RetriesMax: 7}))
	require.Equal(t, 8, asked(six1, NeighbourConfig{RetriesMax: 7}))
}
