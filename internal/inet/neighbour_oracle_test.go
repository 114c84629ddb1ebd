package inet

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// oracleNeighbours is the same table by the simplest means, for a capacity that is never reached.
type oracleNeighbours struct {
	cfg     NeighbourConfig
	entries map[Addr]*oracleNeighbour
	ready   []string
	dropped []string
}

type oracleNeighbour struct {
	state           string
	mac             MAC
	asks            int
	used, confirmed int64
	at              int64
	waiting         []int
}

func (o *oracleNeighbours) lookup(now int64, ip Addr, frame int) string {
	e := o.entries[ip]
	ask := e == nil
	if e == nil {
		e = &oracleNeighbour{state: "incomplete", asks: 1, at: now + o.cfg.RetryNs}
		o.entries[ip] = e
	}
	e.used = now
	if e.state == "stale" {
		e.state, e.asks, e.at = "probing", 0, now
	}
	if e.state != "incomplete" {
		return fmt.Sprint(e.mac, true, false, false)
	}
	e.waiting = append(e.waiting, frame)
	if len(e.waiting) > o.cfg.QueueMax {
		o.dropped = append(o.dropped, fmt.Sprint(e.waiting[0]))
		e.waiting = e.waiting[1:]
	}
	return fmt.Sprint(MAC{}, false, true, ask)
}

func (o *oracleNeighbours) learn(now int64, ip Addr, mac MAC, create bool) {
	e := o.entries[ip]
	if e == nil {
		if !create {
			return
		}
		e = &oracleNeighbour{used: math.MinInt64}
		o.entries[ip] = e
	}
	for _, f := range e.waiting {
		e.used = now
		o.ready = append(o.ready, fmt.Sprint(f, mac))
	}
	e.waiting = nil
	e.state, e.mac, e.asks, e.confirmed, e.at = "reachable", mac, 0, now, now+o.cfg.ReachableNs
}

func (o *oracleNeighbours) tick(now int64) (asks []string) {
	for ip, e := range o.entries {
		if e.at > now {
			continue
		}
		if e.state == "reachable" && e.used < e.confirmed {
			e.state, e.at = "stale", now+o.cfg.ReachableNs
			continue
		}
		if e.state == "reachable" {
			e.state = "probing"
		}
		if e.state == "stale" || e.asks > o.cfg.RetriesMax {
			for _, f := range e.waiting {
				o.dropped = append(o.dropped, fmt.Sprint(f))
			}
			delete(o.entries, ip)
			continue
		}
		e.asks++
		e.at = now + o.cfg.RetryNs
		to := e.mac
		if e.state == "incomplete" {
			to = Broadcast
		}
		asks = append(asks, fmt.Sprint(ip, to))
	}
	slices.Sort(asks)
	return asks
}

func (o *oracleNeighbours) deadline() int64 {
	at := int64(math.MaxInt64)
	for _, e := range o.entries {
		at = min(at, e.at)
	}
	return at
}

// Random events, each answer compared with the oracle's.
func TestNeighbourOracle(t *testing.T) {
	r := dice(t)
	cfg := NeighbourConfig{EntriesMax: 64, QueueMax: 3, FramesMax: 1 << 12, ReachableNs: 300,
		RetryNs: 10, RetriesMax: 2}
	n := NewNeighbours[int](cfg)
	o := &oracleNeighbours{cfg: cfg, entries: map[Addr]*oracleNeighbour{}}
	var now int64
	for step := range 60000 {
		now += int64(r.IntN(4))
		if r.IntN(500) == 0 {
			now += int64(r.IntN(1000))
		}
		ip := ip4(10, 0, 0, byte(1+r.IntN(64)))
		switch r.IntN(8) {
		case 0, 1, 2:
			m, known, queued, ask := n.Lookup(now, ip, step)
			require.Equal(t, o.lookup(now, ip, step), fmt.Sprint(m, known, queued, ask))
		case 3:
			m, create := MAC{2, 5: byte(r.IntN(3))}, r.IntN(2) == 0
			n.Learn(now, ip, m, create)
			o.learn(now, ip, m, create)
		case 4, 5:
			var asks []string
			for ip, m, ok := n.Tick(now); ok; ip, m, ok = n.Tick(now) {
				asks = append(asks, fmt.Sprint(ip, m))
			}
			slices.Sort(asks)
			require.Equal(t, o.tick(now), asks)
		case 6:
			var ready []string
			for f, m, ok := n.Take(); ok; f, m, ok = n.Take() {
				ready = append(ready, fmt.Sprint(f, m))
			}
			require.Equal(t, o.ready, ready)
			o.ready = nil
		case 7:
			var dropped []string
			for f, ok := n.TakeDropped(); ok; f, ok = n.TakeDropped() {
				dropped = append(dropped, fmt.Sprint(f))
			}
			// Which of two entries due at once goes first is not promised.
			slices.Sort(dropped)
			slices.Sort(o.dropped)
			require.Equal(t, o.dropped, dropped)
			o.dropped = nil
		}
		require.Equal(t, o.deadline(), n.Deadline())
		require.Equal(t, len(o.entries), n.Stats().Entries)
	}
	s := n.Stats()
	require.NotZero(t, s.Unreachable)
	require.NotZero(t, s.Expired)
	require.NotZero(t, s.Displaced)
	require.NotZero(t, s.Moved)
	require.Zero(t, s.Refused+s.Evicted+s.FramesFull)
}

// In a table far too small, under random load: an entry used lately and confirmed is never lost, no
// destination is asked for twice within RetryNs, and every frame that went in comes out once.
func TestNeighbourPressure(t *testing.T) {
	r := dice(t)
	cfg := NeighbourConfig{EntriesMax: 16, QueueMax: 2, FramesMax: 10, ReachableNs: 300, RetryNs: 50,
		RetriesMax: 2}
	n := NewNeighbours[int](cfg)
	inside := map[int]bool{}
	asked := map[Addr]int64{}
	usedAt := map[Addr]int64{} // found then, so it must be found for ReachableNs after its last Learn
	learnedAt := map[Addr]int64{}
	kept := 0
	var now int64
	ask := func(ip Addr) {
		if last, ok := asked[ip]; ok {
			require.GreaterOrEqual(t, now-last, cfg.RetryNs, "asked again too soon")
		}
		asked[ip] = now
	}
	out := func(f int) {
		require.True(t, inside[f], "frame %d came out twice or never went in", f)
		delete(inside, f)
	}
	for step := range 80000 {
		now += int64(r.IntN(3))
		ip := ip4(10, 0, 0, byte(1+r.IntN(40)))
		switch r.IntN(6) {
		case 0, 1:
			_, known, queued, asks := n.Lookup(now, ip, step)
			if _, ok := usedAt[ip]; ok && now-learnedAt[ip] < cfg.ReachableNs {
				require.True(t, known, "an entry in use was lost")
				kept++
			}
			delete(usedAt, ip)
			if known {
				usedAt[ip] = now
			}
			if queued {
				inside[step] = true
			}
			if asks {
				ask(ip)
			}
		case 2:
			n.Learn(now, ip, MAC{2, 5: ip[15]}, r.IntN(2) == 0)
			if _, ok := usedAt[ip]; !ok || now-learnedAt[ip] < cfg.ReachableNs {
				learnedAt[ip] = now
			}
		case 3:
			for ip, _, ok := n.Tick(now); ok; ip, _, ok = n.Tick(now) {
				ask(ip)
			}
		case 4:
			for f, m, ok := n.Take(); ok; f, m, ok = n.Take() {
				require.NotZero(t, m)
				out(f)
			}
		case 5:
			for f, ok := n.TakeDropped(); ok; f, ok = n.TakeDropped() {
				out(f)
			}
		}
		s := n.Stats()
		require.LessOrEqual(t, s.Entries, cfg.EntriesMax)
		require.LessOrEqual(t, s.Frames, cfg.FramesMax)
		require.Equal(t, len(inside), s.Frames)
	}
	s := n.Stats()
	require.NotZero(t, s.Evicted)
	require.NotZero(t, s.Refused)
	require.NotZero(t, s.FramesFull)
	require.NotZero(t, kept)
	n.Clear()
	for f, _, ok := n.Take(); ok; f, _, ok = n.Take() {
		out(f)
	}
	for f, ok := n.TakeDropped(); ok; f, ok = n.TakeDropped() {
		out(f)
	}
	require.Empty(t, inside)
	require.Zero(t, n.Stats().Frames)
}

// FuzzNeighbours plays octets as events; the table's invariants hold after each.
func FuzzNeighbours(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 64, 65, 128, 129, 192, 255})
	f.Fuzz(func(t *testing.T, events []byte) {
		n := NewNeighbours[int](NeighbourConfig{EntriesMax: 4, QueueMax: 2, FramesMax: 5, ReachableNs: 20,
			RetryNs: 5, RetriesMax: 1})
		var now int64
		in, out := 0, 0
		for _, x := range events {
			ip := ip4(10, 0, 0, 1+x>>3&7)
			switch x & 7 {
			case 0, 1:
				if _, known, queued, _ := n.Lookup(now, ip, 0); queued {
					require.False(t, known)
					in++
				}
			case 2, 3:
				n.Learn(now, ip, MAC{2, 5: x >> 6}, x&1 == 0)
			case 4:
				for _, _, ok := n.Tick(now); ok; _, _, ok = n.Tick(now) {
				}
				require.Greater(t, n.Deadline(), now)
			case 5:
				for _, _, ok := n.Take(); ok; _, _, ok = n.Take() {
					out++
				}
			case 6:
				for _, ok := n.TakeDropped(); ok; _, ok = n.TakeDropped() {
					out++
				}
			case 7:
				now += int64(x >> 3)
			}
			require.Equal(t, in-out, n.Stats().Frames)
			checkTable(t, &n.table)
		}
	})
}
