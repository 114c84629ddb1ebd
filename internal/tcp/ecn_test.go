package tcp

import (
	"testing"

	"github.com/rnicd/rnicd/internal/cc"
)

// The SYN asks by both bits; only ECE alone is yes. Both are a peer that reflects what it does not
// know.
//
// req: 3168-6.1.1-1, 9293-SHLD-8
func TestECNIsAgreedOnByTheSynAck(t *testing.T) {
	for _, tt := range []struct {
		answer string
		on     bool
	}{{"S.", false}, {"SE.", true}, {"SW.", false}, {"SEW.", false}} {
		cfg := plain()
		cfg.ECN = ECNActive
		s := newScript(t, cfg)
		s.connect()
		s.expect("SEW 0:1 no ect")
		s.in(tt.answer + " 0:1 ack 1 win 60000 mss 1000")
		s.expect(". 1 ack 1 no ect")
		s.push(10)
		if s.c.ecn.on != tt.on || s.out[0].TOS&ecnMask != map[bool]uint8{true: ecnECT0}[tt.on] {
			t.Errorf("%s: on %v, ECN field %d", tt.answer, s.c.ecn.on, s.out[0].TOS)
		}
	}
}

// req: 3168-6.1.1-1, 3168-6.1.1-2
func TestECNOfAPassiveOpen(t *testing.T) {
	for _, tt := range []struct {
		mode         ECNMode
		syn, answer  string
		on, exactToo bool
	}{
		{ECNOff, "SEW", "S.", false, false},
		{ECNPassive, "SEW", "SE.", true, false},
		{ECNActive, "SEW", "SE.", true, false},
		{ECNPassive, "S", "S.", false, false},
		{ECNPassive, "SE", "S.", false, false},
		{ECNPassive, "SW", "S.", false, false},
		{ECNOff, "SEW", "SE.", true, true},
	} {
		cfg := plain()
		cfg.ECN = tt.mode
		if tt.exactToo {
			cfg.Congestion = exactReno{}
		}
		s := newScript(t, cfg)
		s.accept(tt.syn + " 0:1 win 60000 mss 1000")
		s.expect(tt.answer + " 0:1 ack 1 no ect")
		s.in(". 1 ack 1")
		if s.c.ecn.on != tt.on {
			t.Errorf("mode %d, %s: on %v", tt.mode, tt.syn, s.c.ecn.on)
		}
	}
}

// A middlebox may drop SYNs that ask. The third does not, and from then on no segment says ECT.
//
// req: 3168-6.1.1-1
func TestECNIsGivenUpAfterTwoSyns(t *testing.T) {
	cfg := plain()
	cfg.ECN = ECNActive
	s := newScript(t, cfg)
	s.connect()
	s.advance(4 * sc)
	s.expect("SEW 0:1", "SEW 0:1 rtx", "S 0:1 rtx")
	s.in("SE. 0:1 ack 1 win 60000 mss 1000")
	s.push(10)
	s.expect(". 1:11 ack 1 no ect")

	cfg.ECN = ECNPassive
	s = newScript(t, cfg)
	s.accept("SEW 0:1 win 60000 mss 1000")
	s.expect("SE. 0:1 ack 1")
	s.in("S 0:1 win 60000 mss 1000")
	s.expect("S. 0:1 ack 1 rtx")
}

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
		if len(m.marks) != 0 {
			t.Fatal("no change of the mark is kept")
		}
		s.in("R 401")
		s.wantState(Closed)
	}
}

func (s *script) wantNoMarks() {
	s.t.Helper()
	if s.c.runs != nil || len(s.c.mem.marks) != 0 {
		s.t.Error("a place for marks out of nothing")
	}
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
	if acked != 2001 && s.c.timers.delackAt == never || said < 1000 {
		t.Errorf("acknowledged to %d, %d octets as marked; 1000 of 2000 were", acked, said)
	}
}

// A mark on a segment out of order is told with the duplicate ACK, and one that does not move the
// edge is not forgotten.
func TestMarkOutOfOrder(t *testing.T) {
	cfg := sackOnly()
	cfg.Congestion = exactReno{}
	s := accepted2(t, cfg)
	s.in(". 1001:2001 ack 1 ce")
	s.in(". 2001:3001 ack 1 ect")
	s.expect("E. 1 ack 1 sack 1001:3001")
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
	if last.Marked != 2000 || !last.Recovering {
		t.Errorf("%+v", last)
	}
	s.in(". 1 ack 3001")
	if last.Marked != 0 || last.Recovering {
		t.Errorf("%+v", last)
	}
	s.in("E. 1 ack 4001")
	if len(calls) != 1 || calls[0] != "mark" {
		t.Errorf("%v", calls)
	}
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
	if last.Acked != 1000 {
		t.Errorf("%+v", last)
	}
}
