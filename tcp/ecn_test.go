package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/cc"
)

// Between two turns of output more changes of the mark than are kept, or no place to keep any: no
// mark goes unsaid.
func TestManyChangesOfTheMark(t *testing.T) {
	cfg := plain()
	cfg.Congestion = exactReno{}
	t.Run("more than are kept", func(t *testing.T) { manyChanges(t, accepted2(t, cfg)) })
	t.Run("no place", func(t *testing.T) {
		s := accepted2(t, cfg)
		s.c.mem.marks = nil
		manyChanges(t, s)
		s.wantNoMarks()
	})
}

// A connection that ends while changes of the mark are still to be told gives their place back: the
// next one tells its own exactly.
func TestMarksAreGivenBackAtTheEnd(t *testing.T) {
	cfg := plain()
	cfg.Congestion = exactReno{}
	m := NewMemory(cfg, 1)
	c := new(Conn)
	c.Init(m)
	for range 2 {
		s := newScript(t, cfg)
		s.c = c
		s.accept("SEW 0:1 win 60000 mss 1000")
		s.expect("SE. 0:1 ack 1")
		s.in(". 1 ack 1")
		s.in(". 1:101 ack 1 ect")
		s.in(". 101:201 ack 1 ce")
		s.expect(". 1 ack 101", "E. 1 ack 201")
		s.in(". 201:301 ack 1 ect")
		s.in(". 301:401 ack 1 ce")
		require.Empty(t, m.marks, "no change of the mark is kept")
		s.in("R 401")
		s.wantState(Closed)
	}
}

func (s *script) wantNoMarks() {
	s.t.Helper()
	require.Nil(s.t, s.c.runs, "a place for marks out of nothing")
	require.Empty(s.t, s.c.mem.marks, "a place for marks out of nothing")
}

func manyChanges(t *testing.T, s *script) {
	for i := range 20 {
		seg := ". " + seqSpan(1+100*i, 100) + " ack 1 ect"
		if i%2 == 1 {
			seg = ". " + seqSpan(1+100*i, 100) + " ack 1 ce"
		}
		s.in(seg)
	}
	said, acked := 0, 1
	for _, x := range s.sent() {
		ack := int(int32(x.Ack - s.irs))
		if x.Flags&ECE != 0 {
			said += ack - acked
		}
		acked = ack
	}
	require.False(t, acked != 2001 && s.c.timers.delackAt == never)
	require.GreaterOrEqual(t, said, 1000)
}

// accepted2 is accepted with ECN.
func accepted2(t *testing.T, cfg Config) *script {
	t.Helper()
	s := newScript(t, cfg)
	s.accept("SEW 0:1 win 60000 mss 1000 sackOK")
	s.expect("SE. 0:1 ack 1")
	s.in(". 1 ack 1")
	s.expect()
	return s
}

func seqSpan(from, n int) string { return itoa(from) + ":" + itoa(from+n) }

// counter is a congestion control that notes what it is told.
type counter struct {
	cc.NewReno
	calls *[]string
	last  *cc.Sample
}

func (x counter) Reduce(w *cc.State, why cc.Cause, now int64, flight, smss int) {
	*x.calls = append(*x.calls, map[cc.Cause]string{cc.Loss: "loss", cc.Mark: "mark"}[why])
	x.NewReno.Reduce(w, why, now, flight, smss)
}

func (x counter) Acked(w *cc.State, a cc.Sample) {
	*x.last = a
	x.NewReno.Acked(w, a)
}

// What an ACK with ECE covers is told to the congestion control, and once per window that it is to
// reduce.
//
// req: 3168-6.1.2-1
func TestMarksAreTold(t *testing.T) {
	var calls []string
	var last cc.Sample
	cfg := plain()
	cfg.ECN = ECNPassive
	cfg.Congestion = counter{calls: &calls, last: &last}
	s := accepted2(t, cfg)
	s.fill()
	s.in("E. 1 ack 2001")
	require.Equal(t, 2000, last.Marked)
	require.True(t, last.Recovering)
	s.in(". 1 ack 3001")
	require.Zero(t, last.Marked)
	require.False(t, last.Recovering)
	s.in("E. 1 ack 4001")
	require.Equal(t, []string{"mark"}, calls)
}

// req: 9293-MAY-18
func TestSetCongestionKeepsTheWindow(t *testing.T) {
	s := ten(t, sackOnly())
	s.in(". 1 ack 1 sack 1001:4001")
	s.sent()
	s.advance(10 * ms)
	s.in(". 1 ack 10001")
	s.wantCong(5000, 5000)
	var calls []string
	var last cc.Sample
	s.c.SetCongestion(counter{calls: &calls, last: &last})
	s.wantCong(5000, 5000)
	s.push(1000)
	s.in(". 1 ack 11001")
	require.Equal(t, 1000, last.Acked)
}
