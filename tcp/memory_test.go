package tcp

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// The oracle is the set of units that were handed out.
func TestBuddyAgainstNaive(t *testing.T) {
	type run struct {
		at    uint32
		order int
	}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 5))
		units := 1 + rng.IntN(300)
		var b buddy
		b.init(units)
		used := make([]bool, units)
		free := units
		var out []run
		for step := range 2000 {
			if rng.IntN(2) == 0 || len(out) == 0 {
				order := rng.IntN(6)
				at, ok := b.take(order)
				if !ok {
					require.False(t, order == 0 && free > 0, "seed %d step %d: no unit of %d", seed, step, units)
					continue
				}
				if int(at)%(1<<order) != 0 || int(at)+1<<order > units {
					t.Fatalf("seed %d step %d: run of 2^%d at %d of %d", seed, step, order, at, units)
				}
				for i := at; i < at+1<<order; i++ {
					if used[i] {
						t.Fatalf("seed %d step %d: unit %d twice", seed, step, i)
					}
					used[i] = true
				}
				free -= 1 << order
				out = append(out, run{at, order})
			} else {
				i := rng.IntN(len(out))
				r := out[i]
				out[i] = out[len(out)-1]
				out = out[:len(out)-1]
				b.give(r.at, r.order)
				for i := r.at; i < r.at+1<<r.order; i++ {
					used[i] = false
				}
				free += 1 << r.order
			}
			require.Equal(t, free, b.free, "seed %d step %d", seed, step)
		}
		for _, r := range out {
			b.give(r.at, r.order)
		}
		largest := 0
		for 1<<(largest+1) <= units {
			largest++
		}
		if _, ok := b.take(largest); !ok { // all merged again
			t.Fatalf("seed %d: no run of 2^%d in %d free units", seed, largest, units)
		}
	}
}

// shared is n connections on one Memory, opened as accepted does.
func shared(t *testing.T, cfg Config, n int) (*Memory, []*script) {
	m := NewMemory(cfg, n)
	ss := make([]*script, n)
	for i := range ss {
		s := newScript(t, cfg)
		s.c = new(Conn)
		s.c.Init(m)
		s.accept("S 0:1 win 60000 mss 1000 sackOK")
		s.expect("S. 0:1 ack 1")
		s.in(". 1 ack 1")
		s.wantEvents(EvEstablished)
		ss[i] = s
	}
	return m, ss
}

func wantAllFree(t *testing.T, m *Memory) {
	t.Helper()
	if st := m.Stats(); st.RecordsFree != st.Records || st.SpansFree != st.Spans ||
		len(m.marks) != cap(m.marks) {
		t.Fatalf("%+v, places for marks %d", st, len(m.marks))
	}
}

func (s *script) release() {
	for {
		if _, ok := s.c.Release(); !ok {
			return
		}
	}
}

func TestIdleConnHoldsNoMemory(t *testing.T) {
	m, ss := shared(t, sackOnly(), 1)
	s := ss[0]
	wantAllFree(t, m)
	require.Equal(t, 1000, roomOf(s.c, s.now), "no room")
	wantAllFree(t, m) // to ask is not to take
	s.push(100)
	s.in(". 1001:2001 ack 1")
	if st := m.Stats(); st.Records-st.RecordsFree != recordsMin || st.Spans-st.SpansFree != spansMin {
		t.Fatalf("%+v", st)
	}
	s.in(". 1:1001 ack 101")
	s.release()
	wantAllFree(t, m)
	s.inRefused(". 4001:5001 ack 101")
	wantAllFree(t, m)
	s.in(". 4001:5001 ack 101")
	s.push(100)
	s.c.Abort(s.now)
	s.drain()
	s.release()
	wantAllFree(t, m)
}

// The ring grows under what is in flight, up to SentMax, and keeps it in order.
func TestRingGrows(t *testing.T) {
	cfg := sackOnly()
	cfg.InitialWindow, cfg.SentMax = 1000, 128
	m, ss := shared(t, cfg, 1)
	s := ss[0]
	s.in(". 1 ack 1 win 65535")
	s.c.sndWnd = 1 << 20
	var want []Handle
	for n := s.fill(); len(want) < n; {
		want = append(want, Handle(len(want)))
	}
	require.Len(t, want, 128-splitReserve)
	if st := m.Stats(); st.Records-st.RecordsFree != 128 {
		t.Fatalf("%+v", st)
	}
	s.sent()
	s.in(". 1 ack " + itoa(1+1000*len(want)))
	s.wantReleased(want...)
	wantAllFree(t, m)
}

// A connection with nothing in flight gets nothing and says so; one with something goes on; what
// is freed serves the first.
func TestWaitingConnGoesOnWhenMemoryIsFreed(t *testing.T) {
	cfg := sackOnly()
	cfg.RecordsMax = 2 * recordsMin
	m, ss := shared(t, cfg, 3)
	ss[0].push(100)
	ss[1].push(100)
	s := ss[2]
	if roomOf(s.c, s.now) != 0 || !s.c.WaitsForMemory() || m.RunsFree() != 0 {
		t.Fatal("room without memory")
	}
	s.wantState(Established)
	ss[0].push(100, 100)
	ss[0].sent()
	ss[0].in(". 1 ack 301")
	require.Zero(t, m.RunsFree(), "freed before Release")
	ss[0].release()
	if m.RunsFree() != 1 || roomOf(s.c, s.now) != 1000 || s.c.WaitsForMemory() {
		t.Fatal("no room with memory")
	}
	s.push(100)
	s.expect(". 1:101 ack 1")
	require.NotZero(t, m.Stats().RecordsShort, "not counted")
}

// A FIN that finds no record waits, and is not lost; nor is what the peer does meanwhile.
func TestFINWaitsForMemory(t *testing.T) {
	cfg := sackOnly()
	cfg.RecordsMax = 2 * recordsMin
	_, ss := shared(t, cfg, 3)
	ss[0].push(100)
	ss[1].push(100)
	s := ss[2]
	s.c.CloseSend(s.now)
	s.expect()
	require.True(t, s.c.WaitsForMemory(), "it does not wait for memory")
	require.Zero(t, roomOf(s.c, s.now), "it does not wait for memory")
	s.wantState(Established)
	s.in("F. 1:2 ack 1")
	s.wantState(CloseWait)
	s.expect(". 1 ack 2")
	ss[1].c.Abort(s.now)
	ss[1].drain()
	ss[1].release()
	s.expect("F. 1:2 ack 2")
	s.wantState(LastAck)
	require.False(t, s.c.WaitsForMemory(), "it still waits for memory")
	s.in(". 2 ack 2")
	s.wantState(Closed)
}

// Few Conns that send without end leave a quarter to those that begin.
func TestLastQuarterIsForNewRuns(t *testing.T) {
	cfg := sackOnly()
	cfg.InitialWindow = 1000
	cfg.RecordsMax = 64 * recordsMin
	m, ss := shared(t, cfg, 16+4)
	for _, s := range ss[:4] {
		s.c.sndWnd = 1 << 20
		s.fill()
	}
	require.GreaterOrEqual(t, m.RunsFree(), 16)
	for _, s := range ss[4:] {
		s.push(100)
	}
}

// Spans are dropped for want of memory, counted, and the peer's retransmission finds a place later.
func TestSpansWithoutMemory(t *testing.T) {
	cfg := sackOnly()
	cfg.SpansMax = 2 * spansMin
	m, ss := shared(t, cfg, 3)
	ss[0].in(". 1001:2001 ack 1")
	ss[1].in(". 1001:2001 ack 1")
	s := ss[2]
	s.in(". 1001:2001 ack 1")
	s.wantDrop(DropNoMemory)
	s.expect(". 1 ack 1")
	if m.Stats().SpansShort != 1 {
		t.Errorf("%+v", m.Stats())
	}
	s.in(". 1:1001 ack 1") // in order needs none
	s.wantArrival(0, 1000)
	ss[0].in(". 1:1001 ack 1")
	s.in(". 3001:4001 ack 1")
	s.wantArrival(3000, 4000)
}

// A second run that cannot be had leaves the first as it is.
func TestSpansCannotGrow(t *testing.T) {
	cfg := sackOnly()
	cfg.SpansMax = 2 * spansMin
	_, ss := shared(t, cfg, 2)
	ss[1].in(". 1001:2001 ack 1")
	s := ss[0]
	for i := range spansMin {
		at := 101 + 200*i
		s.in(". " + itoa(at) + ":" + itoa(at+100) + " ack 1")
		s.wantArrival(at-1, at+99)
	}
	s.in(". 2001:2101 ack 1")
	s.wantDrop(DropNoMemory)
	s.in(". 801:901 ack 1") // a span that is there may grow
	s.wantArrival(800, 900)
}

// Two hosts share a Memory that is too small for both: everything still arrives, and all is given
// back.
func TestSimulatedLinkWithScarceMemory(t *testing.T) {
	first, short := anySeed(t), uint64(0)
	for i := range max(64, uint64(*simSeeds)/2) { // memory is short in every second seed
		seed := first + i
		s := simOf(seed)
		cfg := s.a.c.mem.cfg
		cfg.RecordsMax, cfg.SpansMax = 3*recordsMin, 3*spansMin
		m := NewMemory(cfg, 2)
		for _, h := range [...]*simHost{s.a, s.b} {
			h.c = new(Conn)
			h.c.Init(m)
		}
		s.a.c.Connect(s.now, simID(false), Seq(s.rng.Uint32()), s.rng.Uint32())
		require.NoError(t, s.run(2_000_000), "seed %d", seed)
		for _, h := range [...]*simHost{s.a, s.b} {
			h.c.EndTimeWait()
			h.c.Release()
		}
		wantAllFree(t, m)
		short += m.Stats().RecordsShort + m.Stats().SpansShort
	}
	require.NotZero(t, short, "memory was never short")
}

func TestMemoryDefaults(t *testing.T) {
	for _, conns := range []int{1, 1024, 4096, 100_000} {
		st := NewMemory(Config{}, conns).Stats()
		if conns > 1 && conns <= 4096 &&
			(st.Spans/4 < spansMin*conns || st.Records/4 < recordsMin*min(conns, 2048)) {
			t.Errorf("%d Conns: others can take the first run of one: %+v", conns, st)
		}
		require.GreaterOrEqual(t, st.Records, min(conns*1024, 64*1024), "%d Conns", conns)
		require.GreaterOrEqual(t, st.Spans, min(conns*64, 64*64), "%d Conns", conns)
		octets := 40*st.Records + 24*st.Spans + int(unsafe.Sizeof(inFlight{}))*st.Records/recordsMin +
			int(unsafe.Sizeof(ranges{}))*st.Spans/spansMin
		require.False(t, conns > 1 && octets/conns > 5600)
		require.False(t, conns == 100_000 && octets/conns > 100)
	}
}

// A Memory has at least what was asked for, in whole units, and no unit more than that takes.
func TestPoolRoundsUp(t *testing.T) {
	for n := 1; n < 40; n++ {
		for unit := 1; unit <= 16; unit *= 2 {
			var p pool[int]
			p.init(n, unit)
			if got := len(p.items); got < n || got >= n+unit || got%unit != 0 || p.buddy.free*unit != got {
				t.Fatalf("%d in units of %d: %d items, %d units free", n, unit, got, p.buddy.free)
			}
		}
	}
}
