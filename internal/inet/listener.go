package inet

import (
	"math"
	"slices"
)

// ListenMax is how many groups a Listener has room for, those that it has left and still has to say
// so included. ListenSourcesMax is how many sources of a Query are remembered for each; a Query for
// more is answered for all sources.
const (
	ListenMax        = 88
	ListenSourcesMax = 24
)

// ListenerRoom is what Output wants at least: a Report on some groups, which is longer than one on
// a group with all its sources.
const ListenerRoom = RouterAlertLen + mldReportLen + 24*mldRecordLen

// The numbers of RFC 3810, 9 and RFC 2710, 7.
const (
	listenRobustness  = 2
	listenIntervalNs  = 125 * listenSecond // Query Interval
	listenResponseNs  = 10 * listenSecond  // Query Response Interval
	listenRepeatNs    = listenSecond       // Unsolicited Report Interval
	listenRepeat1Ns   = 10 * listenSecond  // of MLDv1
	listenAnswerGapNs = listenSecond / 100 // between frames of answers, whatever Queries demand
	listenSecond      = int64(1_000_000_000)
	listenNever       = math.MaxInt64
)

// Listener is the host's part of multicast listener discovery on one link: it tells routers, and
// the switches that listen to that, which groups its host wants (RFC 3810, 6). While a router that
// speaks MLDv1 is there it speaks MLDv1 (RFC 3810, 8.2.1; RFC 2710). All groups are wanted from
// every source (filter mode EXCLUDE, no source). All-nodes is never reported (RFC 3810, 6).
//
// Of IPv4 the same is IGMPv3 (RFC 3376), and IGMPv2 (RFC 2236) takes the place of MLDv1.
//
//	Join, Leave, Renew ─► change: Report at once, and again at random ─┐
//	Query ──────────────► answer: Report after a random delay ─────────┴─► Output
//
// It has neither clock nor I/O: time is an argument in nanoseconds. One goroutine.
type Listener struct {
	four       bool // of IPv4: IGMP
	groups     []listened
	source     Addr
	anonymous  bool // Reports were sent without a source
	robustness int
	intervalNs int64 // of Queries
	olderTo    int64 // an MLDv1 router is taken to be present until then; 0: there is none
	answerAt   int64 // to a General Query, in MLDv2
	answerFrom int   // groups before this one are in that answer already
	answeredAt int64
	rng        uint64
	stats      ListenerStats
}

// ListenerStats counts. All grow except the gauge at the end.
type ListenerStats struct {
	Reports    uint64 // packets with Reports, and Dones
	Queries    uint64
	Suppressed uint64 // answers that another host's MLDv1 Report made needless
	Overflows  uint64 // Queries for more sources than are remembered; groups left that gave way
	Older      bool   // gauge: MLDv1, or IGMPv2, is spoken, of some group
}

// listened is a group, and what is to be said of it.
type listened struct {
	group    Addr
	users    int   // 0: it was left
	changes  int   // Reports of its change still to be sent
	changeAt int64 // the next
	answerAt int64 // to a Query for it; in MLDv1 to any
	sources  []Addr
	last     bool // in MLDv1, we were the last to report it
}

// NewListener is a Listener of no group, of IPv4 or IPv6. seed is of its random delays.
func NewListener(seed uint64, four bool) *Listener {
	groups := make([]listened, ListenMax)
	for i := range groups {
		groups[i].sources = make([]Addr, 0, ListenSourcesMax)
	}
	return &Listener{
		four: four, groups: groups[:0], robustness: listenRobustness, intervalNs: listenIntervalNs,
		answerAt: listenNever, answeredAt: -listenSecond, rng: seed | 1,
	}
}

// Add counts those of b, too.
func (s *ListenerStats) Add(b ListenerStats) {
	s.Reports += b.Reports
	s.Queries += b.Queries
	s.Suppressed += b.Suppressed
	s.Overflows += b.Overflows
	s.Older = s.Older || b.Older
}

// Stats is what has happened.
func (l *Listener) Stats(now int64) ListenerStats {
	l.stats.Older = l.olderTo > now && len(l.groups) > 0
	return l.stats
}

// Join wants group; it is called once for each user of it. A group that was not wanted before is
// reported at once (RFC 3810, 6.1). More than
// ListenMax: panic.
func (l *Listener) Join(now int64, group Addr) {
	l.heedTime(now)
	if g := l.find(group); g != nil {
		if g.users++; g.users == 1 {
			l.changed(now, g)
		}
		return
	}
	if len(l.groups) == ListenMax { // the group that was left first gives way
		i := slices.IndexFunc(l.groups, func(g listened) bool { return g.users == 0 })
		if i < 0 {
			panic("inet: Listener.Join: ListenMax groups are wanted")
		}
		l.stats.Overflows++
		l.forget(i)
	}
	l.groups = l.groups[:len(l.groups)+1]
	g := &l.groups[len(l.groups)-1]
	*g = listened{group: group, users: 1, answerAt: listenNever, sources: g.sources[:0]}
	l.changed(now, g)
}

// Renew reports group, which is wanted, as if it had been joined now: the link was connected anew.
func (l *Listener) Renew(now int64, group Addr) {
	l.heedTime(now)
	if g := l.find(group); g != nil && g.users > 0 {
		l.changed(now, g)
	}
}

// Leave takes one Join back. With the last one the group is not wanted any more, which is said at
// once.
func (l *Listener) Leave(now int64, group Addr) {
	l.heedTime(now)
	g := l.find(group)
	if g == nil || g.users == 0 {
		return
	}
	if g.users--; g.users == 0 {
		g.answerAt, g.sources = listenNever, g.sources[:0]
		l.changed(now, g)
	}
}

// changed begins the Reports of a change, which take the place of those of an earlier one.
func (l *Listener) changed(now int64, g *listened) { g.changes, g.changeAt = l.robustness, now }

// SetSource gives the address that messages come from: a link-local one that may be used, or ::
// while there is none (RFC 3590, 4; RFC 3810, 5.2.13). As routers do not hear Reports from ::, all
// groups are reported anew when there is an address for the first time.
func (l *Listener) SetSource(now int64, source Addr) {
	l.source = source
	if source.IsUnspecified() || !l.anonymous {
		return
	}
	l.anonymous = false
	for i := range l.groups {
		if l.groups[i].users > 0 {
			l.changed(now, &l.groups[i])
		}
	}
}

// Source is the address that SetSource gave.
func (l *Listener) Source() Addr { return l.source }

// Input takes a message that ParseMLD found valid.
func (l *Listener) Input(now int64, m *MLD) {
	l.heedTime(now)
	switch m.Type {
	case MLDReport1:
		l.reported(m.Group)
	case MLDQuery:
		l.query(now, m)
	}
}

// query schedules answers (RFC 3810, 6.2; RFC 2710, 4).
func (l *Listener) query(now int64, m *MLD) {
	l.stats.Queries++
	if m.Robustness != 0 {
		l.robustness = m.Robustness
	}
	if m.IntervalSec != 0 {
		l.intervalNs = int64(m.IntervalSec) * listenSecond
	}
	if m.Version == 1 {
		if l.olderTo == 0 {
			l.cancel()
		}
		l.olderTo = now + int64(l.robustness)*l.intervalNs + listenResponseNs
	}
	general := m.Group.IsUnspecified()
	if l.olderTo != 0 {
		for i := range l.groups {
			if g := &l.groups[i]; g.users > 0 && (general || g.group == m.Group) {
				g.answerAt = min(g.answerAt, l.answerTime(now, m))
			}
		}
		return
	}
	at := l.answerTime(now, m)
	switch g := l.find(m.Group); {
	case l.answerAt <= at: // that answer will do
	case general:
		l.answerAt = at
	case g != nil && g.users > 0:
		l.ask(g, at, m)
	}
}

// ask schedules the answer to a Query for g: the third to the fifth rule of RFC 3810, 6.2.
func (l *Listener) ask(g *listened, at int64, m *MLD) {
	first := g.answerAt == listenNever
	g.answerAt = min(g.answerAt, at)
	n := m.Sources()
	if n == 0 || !first && len(g.sources) == 0 {
		g.sources = g.sources[:0]
		return
	}
	if n > ListenSourcesMax { // not looked at: each would be compared with all that are remembered
		l.overflow(g)
		return
	}
	for i := range n {
		switch s := m.Source(i); {
		case slices.Contains(g.sources, s):
		case len(g.sources) == ListenSourcesMax:
			l.overflow(g)
			return
		default:
			g.sources = append(g.sources, s)
		}
	}
}

// overflow has a Query for g answered for all sources.
func (l *Listener) overflow(g *listened) {
	l.stats.Overflows++
	g.sources = g.sources[:0]
}

// reported is called when another host has reported group by MLDv1: what we were about to say is
// said (RFC 2710, 4).
func (l *Listener) reported(group Addr) {
	g := l.find(group)
	if l.olderTo == 0 || g == nil || g.users == 0 {
		return
	}
	if g.answerAt != listenNever || g.changes > 0 {
		l.stats.Suppressed++
	}
	g.answerAt, g.changes, g.last = listenNever, 0, false
}

// heedTime returns to MLDv2 when the MLDv1 router has not been heard for long enough.
func (l *Listener) heedTime(now int64) {
	if l.olderTo != 0 && l.olderTo <= now {
		l.olderTo = 0
		l.cancel()
	}
}

// cancel drops all that is to be said, as the version changes (RFC 3810, 8.2.1).
func (l *Listener) cancel() {
	l.answerAt, l.answerFrom = listenNever, 0
	for i := len(l.groups) - 1; i >= 0; i-- {
		g := &l.groups[i]
		if g.users == 0 {
			l.forget(i)
			continue
		}
		g.changes, g.answerAt, g.sources, g.last = 0, listenNever, g.sources[:0], false
	}
}

// Deadline is when Output has something to send; math.MaxInt64: not before something happens.
func (l *Listener) Deadline() int64 {
	answer, change := l.answerAt, int64(listenNever)
	for i := range l.groups {
		g := &l.groups[i]
		answer = min(answer, g.answerAt)
		if g.changes > 0 {
			change = min(change, g.changeAt)
		}
	}
	return min(max(answer, l.answeredAt+listenAnswerGapNs), change)
}

// Output writes the next message that is due into b, which has room for ListenerRoom octets at
// least, and returns its destination and length; 0: nothing is due. The hop limit is MLDHopLimit.
// MLD's has the Hop-by-Hop header in front of it; with IGMP's, the IP header has the Router Alert.
func (l *Listener) Output(now int64, b []byte) (dst Addr, n int) {
	l.heedTime(now)
	if l.Deadline() > now {
		return dst, 0
	}
	at := 0
	if !l.four {
		at = RouterAlertLen
	}
	if l.olderTo != 0 {
		dst, n = l.output1(now, b[at:])
	} else {
		dst, n = l.output2(now, b[at:])
	}
	if n == 0 {
		return dst, 0
	}
	if !l.four {
		putRouterAlert(b)
	}
	l.anonymous = l.anonymous || l.source.IsUnspecified()
	l.stats.Reports++
	return dst, at + n
}

// output1 writes a Report or a Done of MLDv1: one group each.
func (l *Listener) output1(now int64, b []byte) (dst Addr, n int) {
	for i := 0; i < len(l.groups); i++ {
		g := &l.groups[i]
		switch {
		case g.changes == 0 || g.changeAt > now:
		case g.users == 0:
			group, last := g.group, g.last
			l.forget(i)
			if last && l.four {
				return AllRouters4, putIGMP2(b, MLDDone, group)
			} else if last {
				return AllRouters, putMLD1(b, MLDDone, l.source, AllRouters, group)
			}
			i--
		default:
			g.changes--
			g.changeAt = now + l.draw(listenRepeat1Ns)
			return l.report1(now, g, b)
		}
	}
	if g := l.asked(now); g != nil {
		return l.report1(now, g, b)
	}
	return dst, 0
}

func (l *Listener) report1(now int64, g *listened, b []byte) (dst Addr, n int) {
	if g.answerAt <= now {
		l.answeredAt = now
	}
	g.answerAt, g.last = listenNever, true
	if l.four {
		return g.group, putIGMP2(b, MLDReport1, g.group)
	}
	return g.group, putMLD1(b, MLDReport1, l.source, g.group, g.group)
}

// asked is the group that has been due for an answer for longest; nil: none is, or it is too soon
// for another answer.
func (l *Listener) asked(now int64) (first *listened) {
	if l.answeredAt+listenAnswerGapNs > now {
		return nil
	}
	return l.longestDue(now)
}

func (l *Listener) longestDue(now int64) (first *listened) {
	for i := range l.groups {
		if g := &l.groups[i]; g.answerAt <= now && (first == nil || g.answerAt < first.answerAt) {
			first = g
		}
	}
	return first
}

// output2 writes a Report of MLDv2: of changes, else the answer to a General Query, else answers to
// others, longest due first. What finds no room stays due.
func (l *Listener) output2(now int64, b []byte) (dst Addr, n int) {
	r := reportWriter{b: b, n: mldReportLen, four: l.four}
	l.putChanges(now, &r)
	soon := l.answeredAt+listenAnswerGapNs > now
	if r.records == 0 && !soon && l.answerAt <= now {
		l.answeredAt = now
		if l.putState(&r) {
			l.answerAt = listenNever
		}
	}
	if r.records == 0 && !soon {
		l.putAnswers(now, &r)
	}
	if r.records == 0 {
		return dst, 0
	}
	if l.four {
		putIGMPReport(b[:r.n], r.records)
		return AllIGMPRouters, r.n
	}
	putMLDReport(b[:r.n], r.records, l.source)
	return AllMLDRouters, r.n
}

// putChanges writes the records of State Change Reports that are due.
func (l *Listener) putChanges(now int64, r *reportWriter) {
	next := now + l.draw(listenRepeatNs)
	for i := 0; i < len(l.groups); i++ {
		g := &l.groups[i]
		typ := uint8(recordToExclude)
		if g.users == 0 {
			typ = recordToInclude
		}
		if g.changes == 0 || g.changeAt > now || !r.put(typ, g.group, nil) {
			continue
		}
		if g.changes, g.changeAt = g.changes-1, next; g.changes == 0 && g.users == 0 {
			l.forget(i)
			i--
		}
	}
}

// putState writes a record for each group; false: there was no room for some, which are to follow.
func (l *Listener) putState(r *reportWriter) bool {
	for ; l.answerFrom < len(l.groups); l.answerFrom++ {
		g := &l.groups[l.answerFrom]
		if g.users > 0 && !r.put(recordIsExclude, g.group, nil) {
			return false
		}
	}
	l.answerFrom = 0
	return true
}

// putAnswers writes a Current State Record of each group that was asked for. Where sources were
// asked for, we want each of them (RFC 3810, 6.2: A-B of mode EXCLUDE, with B empty).
func (l *Listener) putAnswers(now int64, r *reportWriter) {
	for g := l.longestDue(now); g != nil; g = l.longestDue(now) {
		typ := uint8(recordIsExclude)
		if len(g.sources) > 0 {
			typ = recordIsInclude
		}
		if !r.put(typ, g.group, g.sources) {
			return
		}
		g.answerAt, g.sources, l.answeredAt = listenNever, g.sources[:0], now
	}
}

// reportWriter collects the records of a Report.
type reportWriter struct {
	b       []byte
	n       int
	records int
	four    bool
}

// put appends a record; false: there is no room.
func (r *reportWriter) put(typ uint8, group Addr, sources []Addr) bool {
	switch room := len(r.b) - r.n; {
	case r.four && igmpRecordLen+len(sources)*addr4Len <= room:
		r.n += putIGMPRecord(r.b[r.n:], typ, group, sources)
	case !r.four && mldRecordLen+len(sources)*addrLen <= room:
		r.n += putMLDRecord(r.b[r.n:], typ, group, sources)
	default:
		return false
	}
	r.records++
	return true
}

// answerTime is when a Query is answered: at random within its delay.
func (l *Listener) answerTime(now int64, m *MLD) int64 {
	return max(now+l.draw(m.MaxDelayNs), l.answeredAt+listenAnswerGapNs)
}

// draw is a random time from 0 to most.
func (l *Listener) draw(most int64) int64 {
	l.rng ^= l.rng << 13
	l.rng ^= l.rng >> 7
	l.rng ^= l.rng << 17
	return int64(l.rng % uint64(most+1))
}

func (l *Listener) find(group Addr) *listened {
	for i := range l.groups {
		if l.groups[i].group == group {
			return &l.groups[i]
		}
	}
	return nil
}

// forget drops group i, and keeps the memory of its sources for another.
func (l *Listener) forget(i int) {
	if i < l.answerFrom {
		l.answerFrom--
	}
	last := len(l.groups) - 1
	sources := l.groups[i].sources
	copy(l.groups[i:], l.groups[i+1:])
	l.groups[last] = listened{sources: sources}
	l.groups = l.groups[:last]
}
