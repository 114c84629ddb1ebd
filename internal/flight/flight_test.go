package flight

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSizes(t *testing.T) {
	require.EqualValues(t, 32, unsafe.Sizeof(Event{}))
	require.EqualValues(t, 2, unsafe.Sizeof(Log(0)))
}

// A Recorder has, of the connections that had events last, the last events of each.
func TestRecorder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "rings")
		r := New(n)
		logs := make([]Log, 8)
		want := map[int][]Event{}
		var order []int // latest last
		forget := func(i int) {
			delete(want, i)
			order = slices.DeleteFunc(order, func(k int) bool { return k == i })
		}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			i := rapid.IntRange(0, len(logs)-1).Draw(t, "connection")
			switch rapid.IntRange(0, 20).Draw(t, "what") {
			case 0:
				r.Release(&logs[i])
				forget(i)
			default:
				if _, ok := want[i]; !ok && len(want) == n {
					forget(order[0])
				}
				r.Now++
				e := Event{r.Now, Timeout, uint64(i), uint64(r.Now)}
				r.Record(&logs[i], e.Kind, e.A, e.B)
				want[i] = append(want[i], e)
				order = append(slices.DeleteFunc(order, func(k int) bool { return k == i }), i)
			}
			for k := range logs {
				got, before := r.Events(&logs[k])
				if len(want[k]) == 0 {
					if len(got) != 0 {
						t.Fatalf("connection %d: %v", k, got)
					}
					continue
				}
				first := max(0, len(want[k])-EventsMax)
				if !slices.Equal(got, want[k][first:]) {
					t.Fatalf("connection %d: %v, want %v", k, got, want[k][first:])
				}
				if before != uint64(first) {
					t.Fatalf("connection %d: %d before, want %d", k, before, first)
				}
			}
		}
	})
}

func TestNilRecordsNothing(t *testing.T) {
	var r *Recorder
	var l Log
	r.Record(&l, Timeout, 1, 2)
	r.Release(&l)
	all, _ := r.Events(&l)
	require.Empty(t, all)
}

func TestEveryKindHasWords(t *testing.T) {
	seen := map[string]bool{}
	for k := Kind(1); k < kinds; k++ {
		require.NotEmpty(t, k.String())
		require.False(t, seen[k.String()], k.String())
		seen[k.String()] = true
		require.NotContains(t, Event{Kind: k, A: 1, B: 2}.String(), "?")
		require.NotRegexp(t, `^\d`, Event{Kind: k}.String())
	}
	require.Equal(t, "MPA Reply received, which rejects: Rev 2, 7 octets of private data",
		Event{Kind: ReplyIn, A: Frame(2, true), B: 7}.String())
	require.Equal(t, "Terminate sent: layer 2, type 0, code 0x2",
		Event{Kind: TerminateSent, A: 2, B: 2}.String())
}

func TestRecordDoesNotAllocate(t *testing.T) {
	r, logs := New(4), make([]Log, 9)
	i := 0
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		r.Record(&logs[i%9], Timeout, 1, 2)
		i++
	}))
}

// shared is what a Recorder could be instead: one ring of all connections.
type shared struct {
	now    int64
	events []sharedEvent
	count  uint64
}

type sharedEvent struct {
	Event
	conn int
}

func (s *shared) record(conn int, k Kind, a, b uint64) {
	s.events[s.count%uint64(len(s.events))] = sharedEvent{Event{s.now, k, a, b}, conn}
	s.count++
}

func (s *shared) of(conn int) (n int) {
	for _, e := range s.events {
		if e.Kind != 0 && e.conn == conn {
			n++
		}
	}
	return n
}

// A connection that dies slowly, by timeouts twice as long each time, still has all its events when
// another one has retransmitted all the time. One ring for all, of as much memory, has hardly one
// left (ADR 0021).
func TestNoisyNeighbour(t *testing.T) {
	const conns, second = 256, int64(1e9)
	// an entry has 40 octets
	r, all, logs := New(conns), &shared{events: make([]sharedEvent, conns*EventsMax*4/5)},
		make([]Log, conns)
	record := func(conn int, k Kind) {
		all.now = r.Now
		r.Record(&logs[conn], k, 1, 2)
		all.record(conn, k, 1, 2)
	}
	for i := range conns {
		for range 5 {
			record(i, State)
		}
	}
	due, rto := second/5, second/5
	for r.Now = 0; r.Now < 26*second; r.Now += second / 10_000 {
		record(0, TailProbe)
		if r.Now >= due {
			record(1, Timeout)
			rto *= 2
			due += rto
		}
	}
	events, before := r.Events(&logs[1])
	require.Len(t, events, 5+7)
	require.Zero(t, before)
	require.Equal(t, 1, all.of(1))
}
