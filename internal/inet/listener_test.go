package inet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// listening is a Listener in virtual time: the test language of this file.
//
//	l := newListening(t)                // with a link-local source
//	l.Join(l.now, group1)
//	l.says("to-ex 1")                   // what is sent now
//	l.hears(query2(group1, 1000))       // a Query
//	at := l.next("is-ex 1")             // what is sent next, and when
//	l.quiet()                           // nothing is due
type listening struct {
	t testing.TB
	*Listener
	now int64
}

func newListening(t testing.TB) *listening {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	l := &listening{t: t, Listener: NewListener(seed, false), now: 1000 * listenSecond}
	l.SetSource(l.now, LinkLocal(stationMAC))
	return l
}

// joined is one that has been in groups for a while.
func joined(t testing.TB, groups ...Addr) *listening {
	l := newListening(t)
	for _, g := range groups {
		l.Join(l.now, g)
	}
	l.pass(10 * listenSecond)
	return l
}

// groupN is the n-th group of these tests, group1 and group2 with them.
func groupN(n int) Addr { return Addr{0xfd, 14: byte(n >> 8), 15: byte(n)}.SolicitedNode() }

func number(g Addr) int { return int(g[14])<<8 | int(g[15]) }

// sent is what is sent now, a message a string.
func (l *listening) sent() (all []string) {
	l.t.Helper()
	b := make([]byte, ListenerRoom)
	for range 100 {
		dst, n := l.Output(l.now, b)
		if n == 0 {
			require.Greater(l.t, l.Deadline(), l.now)
			return all
		}
		require.Equal(l.t, hexed(l.t, "3a 00 0502 0000 0100"), b[:RouterAlertLen])
		m := b[RouterAlertLen:n]
		require.Zero(l.t, Checksum(m, PseudoSum(l.Source(), dst, ProtoICMPv6, len(m))))
		all = append(all, l.words(dst, m))
	}
	l.t.Fatal("it never ends")
	return nil
}

var recordWords = [...]string{1: "is-in", 2: "is-ex", 3: "to-in", 4: "to-ex"}

func (l *listening) words(dst Addr, m []byte) string {
	l.t.Helper()
	switch group := Addr(m[8:]); m[0] {
	case MLDReport1:
		require.Equal(l.t, group, dst)
		return fmt.Sprintf("report %d", number(group))
	case MLDDone:
		require.Equal(l.t, AllRouters, dst)
		return fmt.Sprintf("done %d", number(group))
	}
	require.EqualValues(l.t, MLDReport2, m[0])
	require.Equal(l.t, AllMLDRouters, dst)
	var words []string
	for _, r := range readRecords(l.t, m) {
		s := fmt.Sprintf("%s %d", recordWords[r.typ], number(r.group))
		for _, a := range r.sources {
			s += fmt.Sprintf(" from %d", a[15])
		}
		words = append(words, s)
	}
	return strings.Join(words, ", ")
}

func (l *listening) says(want ...string) {
	l.t.Helper()
	require.Equal(l.t, want, l.sent())
}

func (l *listening) quiet() {
	l.t.Helper()
	require.EqualValues(l.t, listenNever, l.Deadline())
	require.Empty(l.t, l.sent())
}

// next waits for what is said next and returns after how long.
func (l *listening) next(want ...string) int64 {
	l.t.Helper()
	require.Less(l.t, l.Deadline(), int64(listenNever), "nothing is due")
	was := l.now
	l.now = max(l.now, l.Deadline())
	l.says(want...)
	return l.now - was
}

// pass lets d pass and returns what was said.
func (l *listening) pass(d int64) (all []string) {
	l.t.Helper()
	end := l.now + d
	for l.Deadline() <= end {
		l.now = max(l.now, l.Deadline())
		all = append(all, l.sent()...)
	}
	l.now = end
	return all
}

func (l *listening) hears(m MLD) { l.Input(l.now, &m) }

// query1 and query2 are Queries; ms is the Maximum Response Delay.
func query1(group Addr, ms int64) MLD {
	return MLD{Type: MLDQuery, Version: 1, Group: group, MaxDelayNs: ms * 1_000_000}
}

func query2(group Addr, ms int64, sources ...byte) MLD {
	m := MLD{Type: MLDQuery, Version: 2, Group: group, MaxDelayNs: ms * 1_000_000, Robustness: 2,
		IntervalSec: 125}
	for _, s := range sources {
		m.sources = append(m.sources, make([]byte, 15)...)
		m.sources = append(m.sources, s)
	}
	return m
}

func report1(group Addr) MLD { return MLD{Type: MLDReport1, Version: 1, Group: group} }

var all Addr // of groups: a General Query's

// What we send is what Linux sends, octet for octet.
// req: 3810-5.2-1, 3810-5-1, 3810-5.2.14-1, 2710-3-1, 2710-4-1
func TestListenerSaysWhatLinuxSays(t *testing.T) {
	host := LinkLocal(MAC{0x82, 0xb0, 0x0a, 0xfe, 0x96, 0xf7})
	out := make([]byte, ListenerRoom)
	for name, source := range map[string]Addr{"mld-report2-anonymous": {}, "mld-report2": host} {
		l := NewListener(1, false)
		l.SetSource(0, source)
		l.Join(0, group1)
		l.Join(0, host.SolicitedNode())
		dst, n := l.Output(0, out)
		require.Equal(t, golden(t, name)[54:], out[:n], name)
		require.Equal(t, AllMLDRouters, dst)
	}
	l := NewListener(1, false)
	l.SetSource(0, LinkLocal(MAC{0xf6, 0xd4, 0xcd, 0xdb, 0xc4, 0x99}))
	m := query1(group1, 0)
	l.Input(0, &m)
	l.Join(0, group1)
	dst, n := l.Output(0, out)
	require.Equal(t, golden(t, "mld-report1")[54:], out[:n])
	require.Equal(t, group1, dst)
	l.Leave(0, group1)
	dst, n = l.Output(0, out)
	require.Equal(t, golden(t, "mld-done")[54:], out[:n])
	require.Equal(t, AllRouters, dst)
}

// A change is said at once and once more within a second; two at a time in one Report.
// req: 3810-6.1-1, 3810-6.1-2, 4861-7.2.1-1
func TestListenerJoin(t *testing.T) {
	l := newListening(t)
	l.quiet()
	l.Join(l.now, group1)
	l.Join(l.now, group2)
	l.says("to-ex 1, to-ex 2")
	require.LessOrEqual(t, l.next("to-ex 1, to-ex 2"), listenSecond)
	l.quiet()
	l.Leave(l.now, group1)
	l.says("to-in 1")
	require.LessOrEqual(t, l.next("to-in 1"), listenSecond)
	l.quiet()
	l.Leave(l.now, group1) // it is none
	l.quiet()
	require.EqualValues(t, 4, l.Stats(l.now).Reports)
}

// The Querier's Robustness Variable says how often.
// req: 3810-6.1-2
func TestListenerRobustness(t *testing.T) {
	for _, robustness := range []int{1, 2, 7} {
		l := newListening(t)
		m := query2(groupN(9), 0)
		m.Robustness = robustness
		l.hears(m)
		l.Join(l.now, group1)
		require.Equal(t, slices.Repeat([]string{"to-ex 1"}, robustness), l.pass(10*listenSecond))
	}
}

// Two addresses may have one group: it is joined once and left once.
func TestListenerCountsUsers(t *testing.T) {
	l := newListening(t)
	l.Join(l.now, group1)
	l.Join(l.now, group1)
	require.Equal(t, []string{"to-ex 1", "to-ex 1"}, l.pass(10*listenSecond))
	l.Leave(l.now, group1)
	l.quiet()
	l.Leave(l.now, group1)
	require.Equal(t, []string{"to-in 1", "to-in 1"}, l.pass(10*listenSecond))
}

// A later change takes the place of an earlier one.
// req: 3810-6.1-2
func TestListenerChangesItsMind(t *testing.T) {
	l := newListening(t)
	l.Join(l.now, group1)
	l.says("to-ex 1")
	l.Leave(l.now, group1)
	l.says("to-in 1")
	l.Join(l.now, group1)
	require.Equal(t, []string{"to-ex 1", "to-ex 1"}, l.pass(10*listenSecond))
	l.Renew(l.now, group1)
	l.Renew(l.now, group2) // which is not wanted
	require.Equal(t, []string{"to-ex 1", "to-ex 1"}, l.pass(10*listenSecond))
}

// Reports from :: are said again when there is an address, once.
// req: 3590-4-1, 3810-5.2.13-1
func TestListenerWithoutAnAddress(t *testing.T) {
	l := newListening(t)
	l.SetSource(l.now, Addr{})
	l.Join(l.now, group1)
	l.Join(l.now, group2)
	l.Leave(l.now, group2)
	require.NotEmpty(t, l.pass(10*listenSecond))
	l.SetSource(l.now, LinkLocal(stationMAC))
	require.Equal(t, []string{"to-ex 1", "to-ex 1"}, l.pass(10*listenSecond))
	l.SetSource(l.now, LinkLocal(stationMAC))
	l.quiet()
}

// A General Query is answered once, within its delay, at random.
// req: 3810-6.2-2, 3810-6.2-3, 3810-6-1
func TestListenerGeneralQuery(t *testing.T) {
	early, late := 0, 0
	for range 100 {
		l := joined(t, group1, group2)
		l.hears(query2(all, 1000))
		at := l.next("is-ex 1, is-ex 2")
		require.LessOrEqual(t, at, listenSecond)
		l.quiet()
		if at < listenSecond/2 {
			early++
		} else {
			late++
		}
	}
	require.Greater(t, min(early, late), 10, "at random")
	l := newListening(t)
	l.hears(query2(all, 1000))
	require.Empty(t, l.pass(10*listenSecond), "no group, no answer")
}

// A second Query finds the answer scheduled; one that wants it sooner has it sooner.
// req: 3810-6.2-2
func TestListenerSecondQuery(t *testing.T) {
	l := joined(t, group1)
	l.hears(query2(all, 10_000))
	l.hears(query2(all, 0))
	require.Zero(t, l.next("is-ex 1"))
	l.quiet()

	l.now += listenSecond
	l.hears(query2(all, 1))
	l.hears(query2(all, 10_000_000))
	l.hears(query2(group1, 10_000_000))
	require.LessOrEqual(t, l.next("is-ex 1"), int64(1_000_000))
	l.quiet()
}

// A Query for one group is answered for that one, if it is ours.
// req: 3810-6.2-2, 3810-6.2-4
func TestListenerGroupQuery(t *testing.T) {
	l := joined(t, group1, group2)
	l.hears(query2(group2, 1000))
	require.LessOrEqual(t, l.next("is-ex 2"), listenSecond)
	l.quiet()
	l.hears(query2(groupN(3), 1000))
	l.quiet()
	l.Leave(l.now, group2)
	l.hears(query2(group2, 1000))
	require.Equal(t, []string{"to-in 2", "to-in 2"}, l.pass(10*listenSecond), "left is left")
}

// Sources that are asked for are wanted, each of them once. A Query for the whole group, before or
// after, is answered for the whole.
// req: 3810-6.2-2, 3810-6.2-5
func TestListenerSourceQuery(t *testing.T) {
	l := joined(t, group1, group2)
	l.hears(query2(group1, 1000, 7, 8))
	l.hears(query2(group1, 1000, 8, 9))
	require.LessOrEqual(t, l.next("is-in 1 from 7 from 8 from 9"), listenSecond)
	l.quiet()

	l.hears(query2(group1, 1000, 7))
	l.next("is-in 1 from 7")
	for _, order := range [][]MLD{
		{query2(group1, 1000, 7), query2(group1, 1000)},
		{query2(group1, 1000), query2(group1, 1000, 7)},
	} {
		l.now += listenSecond
		l.hears(order[0])
		l.hears(order[1])
		l.next("is-ex 1")
		l.quiet()
	}

	l.now += listenSecond
	l.hears(query2(group1, 0, 7))
	l.hears(query2(group2, 0, 8))
	require.Zero(t, l.next("is-in 1 from 7, is-in 2 from 8"))
}

// Sources beyond those that are remembered are not compared, not even if they are the same again: a
// Query costs no more than ListenSourcesMax sources of it.
func TestListenerLooksAtFewSources(t *testing.T) {
	l := joined(t, group1)
	l.hears(query2(group1, 1000, make([]byte, ListenSourcesMax)...))
	require.Zero(t, l.Stats(l.now).Overflows)
	l.next("is-in 1 from 0")
	l.now += listenSecond
	l.hears(query2(group1, 1000, make([]byte, ListenSourcesMax+1)...))
	require.EqualValues(t, 1, l.Stats(l.now).Overflows)
	l.next("is-ex 1")
	l.quiet()
}

// More sources than there is room for are answered for the whole group; answers that do not fit one
// Report come in two.
// req: 3810-5.2.15-1
func TestListenerManySources(t *testing.T) {
	most := make([]byte, ListenSourcesMax)
	for i := range most {
		most[i] = byte(i + 1)
	}
	l := joined(t, group1, group2)
	l.hears(query2(group1, 1000, append(most, 99)...))
	l.next("is-ex 1")
	require.EqualValues(t, 1, l.Stats(l.now).Overflows)
	l.quiet()

	l.now += listenSecond
	l.hears(query2(group1, 0, most...))
	l.hears(query2(group2, 0, most...))
	from := ""
	for _, s := range most {
		from += fmt.Sprintf(" from %d", s)
	}
	require.Zero(t, l.next("is-in 1"+from)) // a frame has no room for both
	require.EqualValues(t, listenAnswerGapNs, l.next("is-in 2"+from))
	l.quiet()
}

// So it is with many groups, each asked for again and again, with all its sources: frames of
// answers are apart, and each group has its turn.
func TestListenerFloodOfManyGroups(t *testing.T) {
	var groups []Addr
	for n := range ListenMax {
		groups = append(groups, groupN(n+1))
	}
	most := make([]byte, ListenSourcesMax)
	for i := range most {
		most[i] = byte(i + 1)
	}
	for name, ask := range map[string]func(Addr) MLD{
		"MLDv1": func(a Addr) MLD { return query1(a, 0) },
		"MLDv2": func(a Addr) MLD { return query2(a, 0, most...) },
	} {
		l := joined(t, groups...)
		l.hears(ask(groups[0]))
		l.pass(listenSecond)
		frames, answered := 0, map[string]bool{}
		for range 1000 {
			for _, g := range groups {
				l.hears(ask(g))
			}
			for _, words := range l.pass(listenSecond / 1000) {
				frames++
				for record := range strings.SplitSeq(words, ", ") {
					answered[strings.Join(strings.Fields(record)[:2], " ")] = true
				}
			}
		}
		require.LessOrEqual(t, frames, 101, name)
		require.Greater(t, frames, 90, name)
		require.Len(t, answered, ListenMax, name)
	}
}

// One group more than there may be is the caller's mistake. Those that were left give way. What
// does not fit one Report follows in others: an answer's after a while, whatever is left meanwhile.
func TestListenerBounds(t *testing.T) {
	l := newListening(t)
	for i := range ListenMax {
		l.Join(l.now, groupN(i))
	}
	require.Len(t, l.sent(), (ListenMax+23)/24)
	l.pass(10 * listenSecond)
	l.hears(query2(all, 0))
	first := l.sent()
	require.Len(t, first, 1)
	require.Equal(t, 24, strings.Count(first[0], "is-ex"))
	l.Leave(l.now, groupN(3))
	rest := strings.Join(l.pass(10*listenSecond), ", ")
	require.Equal(t, ListenMax-24, strings.Count(rest, "is-ex"))
	require.Equal(t, 2, strings.Count(rest, "to-in 3"))
	l.Join(l.now, groupN(3))
	l.pass(10 * listenSecond)
	require.Panics(t, func() { l.Join(l.now, groupN(100)) })
	l.Leave(l.now, groupN(4))
	l.Leave(l.now, groupN(5))
	l.Join(l.now, groupN(100))
	l.says("to-in 5, to-ex 100")
	require.EqualValues(t, 1, l.Stats(l.now).Overflows)
}

// A Query of MLDv1 makes us speak MLDv1, until none has come for the robustness variable times the
// query interval and ten seconds. What was to be said by then is not said.
// req: 3810-8.2.1-1, 3810-8.2.1-2, 3810-8.2.1-3, 3810-9.12-1
func TestListenerOlderQuerier(t *testing.T) {
	l := newListening(t)
	l.Join(l.now, group1)
	l.says("to-ex 1")
	l.hears(query2(all, 10_000))
	l.hears(query1(all, 1000))
	require.True(t, l.Stats(l.now).Older)
	require.LessOrEqual(t, l.next("report 1"), listenSecond)
	l.quiet()
	l.hears(query2(group1, 1000)) // by another router: still MLDv1
	l.next("report 1")

	m := query2(all, 1000)
	m.Robustness, m.IntervalSec = 3, 20
	l.hears(m)
	l.next("report 1")
	l.hears(query1(groupN(9), 0)) // of any group
	l.pass(70*listenSecond - 1)
	l.Join(l.now, group2)
	l.says("report 2")
	require.True(t, l.Stats(l.now).Older)
	l.now++
	l.Join(l.now, groupN(3))
	l.says("to-ex 3")
	require.False(t, l.Stats(l.now).Older)
	require.NotContains(t, strings.Join(l.pass(100*listenSecond), " "), "2",
		"the Report of group 2 is not repeated")
	l.hears(query2(all, 1000))
	l.next("is-ex 1, is-ex 2, is-ex 3")
}

// In MLDv1 a join is reported and repeated within ten seconds, a leave is said once; a Query is
// answered for each group at a time of its own.
// req: 2710-4-1, 2710-4-2, 2710-4-4
func TestListenerMLDv1(t *testing.T) {
	l := newListening(t)
	l.hears(query1(all, 0))
	l.Join(l.now, group1)
	l.Join(l.now, group2)
	l.says("report 1", "report 2")
	words := l.pass(10 * listenSecond)
	slices.Sort(words)
	require.Equal(t, []string{"report 1", "report 2"}, words)
	l.quiet()
	l.hears(query1(all, 1000))
	first := l.Deadline()
	words = l.pass(listenSecond + listenAnswerGapNs)
	slices.Sort(words)
	require.Equal(t, []string{"report 1", "report 2"}, words)
	require.Less(t, first, l.now)
	l.hears(query1(group2, 1000))
	l.next("report 2")
	l.Leave(l.now, group2)
	l.says("done 2")
	l.quiet()
}

// Another host's Report of MLDv1 makes ours needless, and our Done; in MLDv2 it is nothing.
// req: 2710-4-3, 2710-4-4, 3810-8.2.2-1
func TestListenerIsSuppressed(t *testing.T) {
	l := joined(t, group1, group2)
	l.hears(query2(all, 1000))
	l.hears(report1(group1))
	l.next("is-ex 1, is-ex 2")
	require.Zero(t, l.Stats(l.now).Suppressed)

	l.hears(query1(all, 1000))
	l.hears(report1(group1))
	l.hears(report1(groupN(9)))
	require.Equal(t, []string{"report 2"}, l.pass(10*listenSecond))
	require.EqualValues(t, 1, l.Stats(l.now).Suppressed)
	l.Leave(l.now, group1)
	require.Empty(t, l.sent(), "another host will say so")
	l.quiet()
	l.Leave(l.now, group2)
	l.says("done 2")
}

// Whatever happens, a group that is wanted is known to the Querier of MLDv2 after its next General
// Query, none that is not, and all comes to rest.
func TestListenerRandomly(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	l := newListening(t)
	users := map[Addr]int{}
	for range 20_000 {
		g := groupN(rng.IntN(20))
		switch rng.IntN(12) {
		case 0, 1:
			l.Join(l.now, g)
			users[g]++
		case 2, 3:
			l.Leave(l.now, g)
			users[g] = max(0, users[g]-1)
		case 4:
			l.Renew(l.now, g)
		case 5:
			l.hears(query1(g, rng.Int64N(10_000)))
		case 6:
			l.hears(query2(g, rng.Int64N(10_000), make([]byte, rng.IntN(40))...))
		case 7:
			l.hears(report1(g))
		case 8:
			l.SetSource(l.now, Addr{})
		case 9:
			l.SetSource(l.now, LinkLocal(stationMAC))
		default:
			l.pass(rng.Int64N(20 * listenSecond))
		}
	}
	l.pass(400 * listenSecond)
	l.quiet()
	l.hears(query2(all, 1000))
	var want []string
	for g, n := range users {
		if n > 0 {
			want = append(want, fmt.Sprintf("is-ex %d", number(g)))
		}
	}
	var got []string
	for _, s := range l.pass(listenSecond) {
		got = append(got, strings.Split(s, ", ")...)
	}
	require.ElementsMatch(t, want, got)
}

// Nothing that a host on the link sends makes us allocate.
func TestListenerAllocations(t *testing.T) {
	l := newListening(t)
	for i := range ListenMax {
		l.Join(l.now, groupN(i))
	}
	l.sent()
	queries := []MLD{query2(all, 0)}
	for i := range ListenMax {
		queries = append(queries, query2(groupN(i), 0, make([]byte, ListenSourcesMax)...))
		for s := range ListenSourcesMax {
			queries[1+i].sources[s*16] = byte(s)
		}
	}
	room := make([]byte, ListenerRoom)
	allocs := 1.0
	for i := 0; i < 5 && allocs > 0; i++ { // the runtime allocates now and then, too
		allocs = testing.AllocsPerRun(1, func() {
			for i := range queries {
				l.Input(l.now, &queries[i])
			}
			for range ListenMax/24 + 1 {
				l.now += listenSecond
				l.Output(l.now, room)
			}
		})
	}
	require.Zero(t, allocs)
	l.quiet()
}
