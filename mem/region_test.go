package mem

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/sample"
)

// req: DDP-10.3-3, 5041-8.3.1-4, 5040-3.2-1
func TestRegionLife(t *testing.T) {
	table := NewTable(2)
	pd := table.AllocDomain()
	b := make([]byte, 8)
	m := register(t, table, pd, b, RegionOptions{Access: RemoteWrite, Base: 5, Stream: 3})
	require.Equal(t, uint64(5), m.Base())
	require.Equal(t, 8, m.Len())
	require.Same(t, &b[0], &m.Bytes()[0])
	require.Equal(t, pd, m.Domain())
	require.Equal(t, StreamID(3), m.Stream())
	require.Equal(t, LocalRead|RemoteWrite, m.Access())
	first := m.STag()
	require.Equal(t, CheckOK, verdict(table, pd, 3, first, 5, 8))

	m.Revoke()
	m.Revoke()
	require.False(t, m.Valid())
	require.Equal(t, CheckInvalidSTag, verdict(table, pd, 3, first, 5, 8))
	require.Equal(t, 1, table.Len())

	second := m.Revalidate()
	require.Equal(t, second, m.STag())
	require.True(t, m.Valid())
	require.Equal(t, CheckInvalidSTag, verdict(table, pd, 3, first, 5, 8))
	require.Equal(t, CheckOK, verdict(table, pd, 3, second, 5, 8))

	third := m.Revalidate() // of a valid region: the old STag dies
	require.Equal(t, CheckInvalidSTag, verdict(table, pd, 3, second, 5, 8))
	require.Equal(t, CheckOK, verdict(table, pd, 3, third, 5, 8))

	m.Deregister()
	m.Deregister()
	require.Equal(t, CheckInvalidSTag, verdict(table, pd, 3, third, 5, 8))
	require.Equal(t, third, m.STag())
	require.Zero(t, table.Len())
	require.Panics(t, func() { m.Revalidate() })
}

// The key comes round only after 256 lives.
func TestKeyRotates(t *testing.T) {
	table := NewTable(1)
	m := register(t, table, 1, make([]byte, 1), RegionOptions{Access: RemoteWrite})
	first := m.STag()
	seen := map[STag]bool{first: true}
	for range 255 {
		m.Revoke()
		stag := m.Revalidate()
		require.False(t, seen[stag])
		require.Equal(t, first.Index(), stag.Index())
		seen[stag] = true
		require.Equal(t, CheckInvalidSTag, verdict(table, 1, 1, first, 0, 1))
	}
	require.Equal(t, first, m.Revalidate())
}

// req: 5042-6.3.2-1, 5042-A-2
func TestRegisterZero(t *testing.T) {
	table := NewTable(2)
	b := []byte("stale secret")
	register(t, table, 1, b, RegionOptions{Access: RemoteRead})
	require.Equal(t, "stale secret", string(b))
	m := register(t, table, 1, b[:5], RegionOptions{Access: RemoteRead, Zero: true})
	got, res := table.Check(1, 1, m.STag(), 0, 5, RemoteRead)
	require.Equal(t, CheckOK, res)
	require.Equal(t, make([]byte, 5), got)
	require.Equal(t, " secret", string(b[5:]))
}

// req: 5040-5.3-7, 5040-8.1.1-2
func TestPeerInvalidates(t *testing.T) {
	table := NewTable(8)
	tied := register(t, table, 1, make([]byte, 8), RegionOptions{Access: RemoteWrite, Stream: 3})
	shared := register(t, table, 1, make([]byte, 8), RegionOptions{Access: RemoteWrite})
	local := register(t, table, 1, make([]byte, 8), RegionOptions{Access: LocalWrite, Stream: 3})
	r := table.NewReader()
	r.Enter() // must not wait for the caller's own burst

	require.Equal(t, CheckInvalidSTag, table.Invalidate(1, 3, tied.STag()+1))
	require.Equal(t, CheckNotAssociated, table.Invalidate(2, 3, tied.STag()))
	require.Equal(t, CheckNotAssociated, table.Invalidate(1, 4, tied.STag()))
	require.Equal(t, CheckNotAssociated, table.Invalidate(1, AnyStream, tied.STag()))
	require.Equal(t, CheckAccess, table.Invalidate(1, 3, shared.STag()), "shared by several streams")
	require.Equal(t, CheckAccess, table.Invalidate(1, 3, local.STag()))
	for _, m := range []*MemoryRegion{tied, shared, local} {
		require.True(t, m.Valid())
	}
	require.Equal(t, CheckOK, table.Invalidate(1, 3, tied.STag()))
	require.False(t, tied.Valid())
	require.Equal(t, CheckInvalidSTag, verdict(table, 1, 3, tied.STag(), 0, 8))
	require.Equal(t, CheckInvalidSTag, table.Invalidate(1, 3, tied.STag()))
	require.Equal(t, CheckOK, verdict(table, 1, 3, tied.Revalidate(), 0, 8),
		"Revalidate must not wait for this burst")
	r.Exit()
	tied.Deregister()
}

// The goroutine that places for a region's stream takes it back without waiting for other
// Readers, and so without a barrier of all threads. The entry is another's at once.
func TestDeregisterHere(t *testing.T) {
	table := NewTable(1)
	table.fence = func() { t.Error("a barrier of all threads") }
	other := table.NewReader()
	other.Enter() // and stays there
	for range 3 {
		var room RegionRoom
		b := make([]byte, 8)
		allocs := 1.0
		for i := 0; i < 5 && allocs > 0; i++ { // the runtime allocates now and then, too
			allocs = testing.AllocsPerRun(1, func() {
				room = RegionRoom{}
				require.NoError(
					t, table.RegisterIn(&room, 1, b, RegionOptions{Access: LocalWrite, Stream: 3, Fresh: true}))
				room.DeregisterHere()
			})
		}
		require.Zero(t, allocs)
		room = RegionRoom{}
		require.NoError(
			t, table.RegisterIn(&room, 1, b, RegionOptions{Access: LocalWrite, Stream: 3, Fresh: true}))
		got, res := table.Check(1, 3, room.STag(), 0, 8, LocalWrite)
		require.Equal(t, CheckOK, res)
		require.Same(t, &b[0], &got[0])
		require.ErrorAs(t, table.RegisterIn(new(RegionRoom), 1, b, RegionOptions{}), new(*TableFullError))
		room.DeregisterHere()
		room.DeregisterHere()
		require.False(t, room.Valid())
		require.Equal(t, CheckInvalidSTag, verdict(table, 1, 3, room.STag(), 0, 8))
		require.Zero(t, table.Len())
	}
	shared := register(t, table, 1, make([]byte, 8), RegionOptions{})
	require.PanicsWithValue(t, fmt.Sprintf("mem: DeregisterHere of a region of all streams, STag %08x",
		uint32(shared.STag())), shared.DeregisterHere)
	require.True(t, shared.Valid())
}

func TestReaderMisusePanics(t *testing.T) {
	table := NewTable(1)
	r := table.NewReader()
	require.Panics(t, func() { r.Exit() })
	r.Enter()
	require.Panics(t, func() { r.Enter() })
	require.Panics(t, func() { r.Close() })
	r.Exit()
	r.Close()
	require.Empty(t, table.readers)
}

// A Reader may be made, and closed, while Revoke waits for another.
func TestReadersComeAndGoDuringRevoke(t *testing.T) {
	table := NewTable(1)
	m := register(t, table, 1, make([]byte, 1), RegionOptions{Access: RemoteWrite})
	first, inside, last := table.NewReader(), table.NewReader(), table.NewReader()
	inside.Enter()
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Revoke()
	}()
	for m.Valid() {
		runtime.Gosched()
	}
	for range 1000 { // by now it most probably waits
		runtime.Gosched()
	}
	first.Close()
	table.NewReader().Close()
	inside.Exit()
	<-done
	inside.Close()
	last.Close()
	require.Empty(t, table.readers)
}

// Revoke waits for a burst that began before it, and for none that began after; so does all else
// that ends an STag.
func TestRevokeWaitsForTheBurst(t *testing.T) {
	for name, c := range map[string]struct {
		window bool // the burst reaches the region through a window
		revoke func(*MemoryRegion, *Window)
	}{
		"Revoke":     {false, func(m *MemoryRegion, _ *Window) { m.Revoke() }},
		"Deregister": {false, func(m *MemoryRegion, _ *Window) { m.Deregister() }},
		"Revalidate": {false, func(m *MemoryRegion, _ *Window) { m.Revalidate() }},
		"Unbind":     {true, func(_ *MemoryRegion, w *Window) { w.Unbind() }},
		"Free":       {true, func(_ *MemoryRegion, w *Window) { w.Free() }},
		"Bind again": {true, func(m *MemoryRegion, w *Window) {
			bind(t, w, m, WindowOptions{Len: 1, Access: RemoteWrite})
		}},
		"region Revoke":     {true, func(m *MemoryRegion, _ *Window) { m.Revoke() }},
		"region Deregister": {true, func(m *MemoryRegion, _ *Window) { m.Deregister() }},
	} {
		t.Run(name, func(t *testing.T) {
			table := NewTable(2)
			m := register(t, table, 1, make([]byte, 1), RegionOptions{Access: RemoteWrite})
			w := newWindow(t, table)
			stag := m.STag()
			if c.window {
				stag = bind(t, w, m, WindowOptions{Len: 1, Access: RemoteWrite})
			}
			inside, idle, closed := table.NewReader(), table.NewReader(), table.NewReader()
			defer idle.Close()
			closed.Close()
			inside.Enter()
			b, res := table.Check(1, 1, stag, 0, 1, RemoteWrite)
			require.Equal(t, CheckOK, res)
			var returned atomic.Bool
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.revoke(m, w)
				returned.Store(true)
				m.Bytes()[0] = 2 // -race: ordered after the write below
			}()
			limit := time.Now().Add(20 * time.Second)
			for verdict(table, 1, 1, stag, 0, 1) != CheckInvalidSTag {
				if runtime.Gosched(); time.Now().After(limit) {
					inside.Exit()
					t.Fatal("the STag stays")
				}
			}
			for range 1000 {
				runtime.Gosched()
			}
			require.False(t, returned.Load(), "the burst is under way")
			b[0] = 1
			for over, limit := false, time.After(20*time.Second); !over; {
				inside.Exit()
				// the next burst cannot find the entry: not waited for, unless revoke only now looks
				inside.Enter()
				select {
				case <-done:
					over = true
				case <-time.After(50 * time.Millisecond):
				case <-limit:
					t.Fatal("waits for bursts that began after it")
				}
			}
			require.EqualValues(t, 2, m.Bytes()[0])
			inside.Exit()
		})
	}
}

// ways to take memory back from a peer, and to grant it again: each returns the STag to write
// through.
var ways = []struct {
	name   string
	grant  func(t *testing.T, table *Table, m *MemoryRegion, w *Window) STag
	revoke func(m *MemoryRegion, w *Window)
}{
	{"Revoke", func(_ *testing.T, _ *Table, m *MemoryRegion, _ *Window) STag {
		return m.STag()
	}, func(m *MemoryRegion, _ *Window) { m.Revoke() }},
	{"Deregister", func(_ *testing.T, _ *Table, m *MemoryRegion, _ *Window) STag {
		return m.STag()
	}, func(m *MemoryRegion, _ *Window) { m.Deregister() }},
	{"Unbind", windowed, func(_ *MemoryRegion, w *Window) { w.Unbind() }},
	{"region Revoke", windowed, func(m *MemoryRegion, _ *Window) { m.Revoke() }},
	{"region Deregister", windowed, func(m *MemoryRegion, _ *Window) { m.Deregister() }},
}

func windowed(t *testing.T, _ *Table, m *MemoryRegion, w *Window) STag {
	return bind(t, w, m, WindowOptions{Len: m.Len(), Access: RemoteWrite})
}

// A Poller places through an STag as fast as it can while the owner takes it back, in every way
// there is: from the moment the call has returned the octets are the owner's alone. Under -race the
// detector proves the order as well.
// req: 5041-8.3.1-6, 5042-6.2.2-2
func TestNoOctetIsPlacedAfterRevoke(t *testing.T) {
	const octets = 64 << 10
	rounds := sample.Count(60, 300)
	deadline := time.Now().Add(3 * time.Second) // on a machine that is busy otherwise: fewer rounds
	table := NewTable(4)
	w := newWindow(t, table)
	var current, placed atomic.Uint64 // STag to write through; bursts that placed something
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		r := table.NewReader()
		defer r.Close()
		payload := bytes.Repeat([]byte{0xEE}, octets)
		for !stop.Load() {
			r.Enter()
			b, res := table.Check(1, 1, STag(current.Load()), 0, octets, RemoteWrite)
			if res == CheckOK {
				for range 8 { // long enough to be caught by one that does not wait
					copy(b, payload)
				}
				placed.Add(1)
			}
			r.Exit()
			if res != CheckOK {
				runtime.Gosched()
			}
		}
	})
	defer wg.Wait()
	defer stop.Store(true)
	b := make([]byte, octets)
	m := register(t, table, 1, b, RegionOptions{Access: RemoteWrite})
	round := 0
	for ; round < rounds && (round < 4*len(ways) || time.Now().Before(deadline)); round++ {
		way := ways[round%len(ways)]
		before := placed.Load()
		current.Store(uint64(way.grant(t, table, m, w)))
		for placed.Load() < before+2 {
			runtime.Gosched()
		}
		way.revoke(m, w)
		for i := range b {
			b[i] = byte(round)
		}
		runtime.Gosched()
		for i, v := range b {
			if v != byte(round) {
				t.Fatalf("round %d, %s: octet %d was placed afterwards", round, way.name, i)
			}
		}
		switch {
		case m.Valid():
		case table.Len() == 2: // the window and the region
			m.Revalidate()
		default:
			m = register(t, table, 1, b, RegionOptions{Access: RemoteWrite})
		}
	}
	t.Logf("%d rounds, %d bursts placed", round, placed.Load())
}

// Entries are recycled under the eyes of a goroutine that checks: what it gets is always the region
// of the STag it asked for, whole.
func TestCheckWhileEntriesAreRecycled(t *testing.T) {
	const rounds = 3000
	table := NewTable(2) // few slots, so that they are reused at once
	type shown struct {
		stag  STag
		base  uint64
		bytes []byte
	}
	var current atomic.Pointer[shown]
	var stop atomic.Bool
	var wg sync.WaitGroup
	var hits, misses atomic.Uint64
	wg.Go(func() {
		r := table.NewReader()
		defer r.Close()
		for !stop.Load() {
			s := current.Load()
			if s == nil {
				runtime.Gosched()
				continue
			}
			r.Enter()
			b, res := table.Check(1, 1, s.stag, s.base, len(s.bytes), RemoteWrite)
			switch {
			case res == CheckOK && &b[0] == &s.bytes[0] && len(b) == len(s.bytes):
				b[0]++
				hits.Add(1)
			case res == CheckInvalidSTag:
				misses.Add(1)
			default:
				t.Errorf("STag %08x: %v, %d octets", s.stag, res, len(b))
				stop.Store(true)
			}
			r.Exit()
			if res != CheckOK {
				runtime.Gosched()
			}
		}
	})
	for i := 0; (i < rounds || hits.Load() == 0) && !stop.Load(); i++ {
		b := make([]byte, 1+i%7)
		base := uint64(i%5) * 1000
		m := register(t, table, 1, b,
			RegionOptions{Access: RemoteWrite, Base: base, Stream: StreamID(i % 2)})
		current.Store(&shown{m.STag(), base, b})
		if i%8 == 0 {
			runtime.Gosched()
		}
		m.Deregister()
		b[0] = 0 // the owner's again
	}
	stop.Store(true)
	wg.Wait()
	t.Logf("%d hits, %d misses", hits.Load(), misses.Load())
}

// Any number of goroutines register and revoke at once; the count and the validity come out right.
func TestConcurrentOwners(t *testing.T) {
	table := NewTable(64)
	r := table.NewReader()
	defer r.Close()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			pd := table.AllocDomain()
			for range 200 {
				m, err := table.Register(pd, make([]byte, 4), RegionOptions{Access: RemoteRead, Stream: 1})
				if err != nil {
					t.Error(err)
					return
				}
				var inner sync.WaitGroup
				inner.Go(m.Revoke)
				inner.Go(func() { table.Invalidate(pd, 1, m.STag()) })
				inner.Go(m.Deregister)
				inner.Wait()
				if m.Valid() {
					t.Error("valid after Deregister")
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, table.Len())
}

// An error names the rights that somebody asked for, or the bits that are none, and numbers with
// their sign.
func TestRegionErrorText(t *testing.T) {
	for want, e := range map[string]*RegionError{
		"mem: region's Access is " + (LocalRead | RemoteWrite).String() + ", must be less": {"Access",
			uint64(LocalRead | RemoteWrite), "less"},
		"mem: region's Access is 0xf0, must be less": {"Access", 0xf0, "less"},
		"mem: window's Off is -8, must be more": {windowField +
			"Off", math.MaxUint64 - 7, "more"},
		"mem: region's Base is 18446744073709551608, must be less": {"Base",
			math.MaxUint64 - 7, "less"},
	} {
		require.EqualError(t, e, want)
	}
}

// Permit changes rights under the same STag; windows end with the old ones, and a region that is
// not valid becomes so.
func TestPermit(t *testing.T) {
	table := NewTable(3)
	pd := table.AllocDomain()
	m := register(t, table, pd, make([]byte, 8), RegionOptions{Access: RemoteWrite,
		Windows: RemoteRead, Base: 5})
	stag := m.STag()
	w := must(table.NewWindow())(t)
	bound := must(w.Bind(m, WindowOptions{Len: 8, Access: RemoteRead}))(t)
	check := func(stag STag, to uint64, need Access) CheckResult {
		_, res := table.Check(pd, 3, stag, to, 8, need)
		return res
	}
	require.Equal(t, CheckOK, check(bound, 0, RemoteRead))

	require.NoError(t, m.Permit(RemoteRead|LocalWrite, 0))
	require.Equal(t, stag, m.STag())
	require.Equal(t, LocalRead|RemoteRead|LocalWrite, m.Access())
	require.Equal(t, CheckOK, check(stag, 5, RemoteRead))
	require.Equal(t, CheckAccess, check(stag, 5, RemoteWrite))
	require.Equal(t, CheckAccess, check(stag, 5, RemoteRead|Refused), "a right that nothing grants")
	require.Equal(t, CheckInvalidSTag, check(bound, 0, RemoteRead))
	_, err := w.Bind(m, WindowOptions{Len: 8, Access: RemoteWrite})
	require.Error(t, err)

	require.Error(t, m.Permit(Refused, 0))
	require.Error(t, m.Permit(0, LocalWrite))
	require.Equal(t, CheckOK, check(stag, 5, RemoteRead), "as before")
	m.Revoke()
	require.NoError(t, m.Permit(RemoteWrite, 0))
	require.Equal(t, CheckOK, check(stag, 5, RemoteWrite))
	m.Deregister()
	require.Panics(t, func() { _ = m.Permit(0, 0) })
}
