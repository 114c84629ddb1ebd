package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// couple is two established Conns with default options, and no link between: the test moves
// segments.
type couple struct {
	now  int64
	a, b *Conn
	t    Transmit
	seg  Segment
}

func newCouple(tb testing.TB, cfg Config) *couple {
	p := &couple{now: sc, a: NewConn(cfg), b: NewConn(cfg)}
	p.a.Connect(p.now, simID(false), 100, 0)
	require.True(tb, p.a.Next(p.now, 1, &p.t), "no SYN")
	p.move()
	p.b.Accept(p.now, simID(true), 200, 0, &p.seg)
	require.True(tb, p.b.Next(p.now, 1, &p.t), "no SYN,ACK")
	p.deliver(p.a)
	require.True(tb, p.a.Next(p.now, 1, &p.t), "no ACK")
	p.deliver(p.b)
	require.Equal(tb, Established, p.a.State(), "not established")
	require.Equal(tb, Established, p.b.State(), "not established")
	return p
}

// move makes what t says the segment that arrives.
func (p *couple) move() {
	t, s := &p.t, &p.seg
	s.Seq, s.Ack, s.Flags, s.Window, s.Len, s.Options = t.Seq, t.Ack, t.Flags, t.Window,
		t.Len, t.Options
}

func (p *couple) deliver(to *Conn) {
	p.move()
	a := to.Input(p.now, &p.seg)
	to.Commit(p.now, &a, false)
}

// exchange sends one full segment from a to b, and what b answers back.
func (p *couple) exchange() {
	p.now += 1000
	n := roomOf(p.a, p.now)
	pushOne(p.a, p.now, 1, n, false)
	if !p.a.Next(p.now, 1, &p.t) {
		panic("segment not sent")
	}
	p.deliver(p.b)
	if p.b.Next(p.now, 1, &p.t) {
		p.deliver(p.a)
		for {
			if _, ok := p.a.Release(); !ok {
				break
			}
		}
	}
}

func TestNoAllocation(t *testing.T) {
	p := newCouple(t, Config{NoDelay: true})
	require.Zero(t, testing.AllocsPerRun(1000, p.exchange))
	// A loss and its repair: of every burst the first segment is lost once.
	if n := testing.AllocsPerRun(200, func() {
		p.now += 1000
		for lost := false; ; {
			if n := roomOf(p.a, p.now); n > 0 {
				pushOne(p.a, p.now, 1, n, false)
			}
			if !p.a.Next(p.now, 1, &p.t) {
				break
			}
			if !lost {
				lost = true
				continue
			}
			p.deliver(p.b)
		}
		p.now += 1000
		for range 3 {
			for p.b.Next(p.now, 1, &p.t) {
				p.deliver(p.a)
			}
			for p.a.Next(p.now, 1, &p.t) {
				p.deliver(p.b)
			}
			p.now += 50 * ms
			p.a.Expire(p.now)
		}
		p.a.TakeEvents()
		for {
			if _, ok := p.a.Release(); !ok {
				break
			}
		}
	}); n != 0 {
		t.Errorf("with a loss: %v allocations", n)
	}
	require.NotZero(t, p.a.Stats().FastRetransmits, "nothing was repaired")
	// Close and use again.
	if n := testing.AllocsPerRun(20, func() {
		p.a.Abort(p.now)
		p.a.Next(p.now, 1, &p.t)
		p.a.TakeEvents()
		for {
			if _, ok := p.a.Release(); !ok {
				break
			}
		}
		p.a.Connect(p.now, simID(false), 1, 0)
	}); n != 0 {
		t.Errorf("reuse: %v allocations", n)
	}
}

// One full segment: pushed, sent, received, committed, and every second one acknowledged.
func BenchmarkExchange(b *testing.B) {
	p := newCouple(b, Config{NoDelay: true})
	b.ReportAllocs()
	for b.Loop() {
		p.exchange()
	}
}

// The receiver's share of a segment, in order.
func BenchmarkReceive(b *testing.B) {
	p := newCouple(b, Config{NoDelay: true})
	p.t = Transmit{Seq: p.a.seqOf(0), Ack: p.a.rcvNxt(), Flags: ACK, Window: 1000}
	p.t.Options.clear()
	p.t.Options.HasTimestamps, p.t.Options.TSval, p.t.Options.TSecr = true, 1000, 1000
	p.t.Len = 1448
	p.move()
	var out Transmit
	b.ReportAllocs()
	for b.Loop() {
		p.now += 1000
		a := p.b.Input(p.now, &p.seg)
		if a.Len != 1448 {
			b.Fatal(a)
		}
		p.b.Commit(p.now, &a, false)
		p.b.Next(p.now, 1, &out)
		p.seg.Seq += 1448
	}
}

// The sender's share of a segment; every second one is acknowledged.
func BenchmarkSend(b *testing.B) {
	p := newCouple(b, Config{NoDelay: true})
	ack := Segment{Seq: p.b.seqOf(0), Ack: p.a.seqOf(0), Flags: ACK, Window: 65535}
	ack.Options.clear()
	ack.Options.HasTimestamps, ack.Options.TSval, ack.Options.TSecr = true, 1000, 1000
	odd := false
	b.ReportAllocs()
	for b.Loop() {
		p.now += 1000
		pushOne(p.a, p.now, 1, roomOf(p.a, p.now), false)
		if !p.a.Next(p.now, 1, &p.t) {
			b.Fatal("not sent")
		}
		if odd = !odd; odd {
			continue
		}
		ack.Ack += 2 * 1448
		a := p.a.Input(p.now, &ack)
		p.a.Commit(p.now, &a, false)
		for {
			if _, ok := p.a.Release(); !ok {
				break
			}
		}
	}
}

func BenchmarkParse(b *testing.B) {
	wire := unhex(golden[2].wire)
	var s Segment
	b.ReportAllocs()
	for b.Loop() {
		if Parse(wire, &s) != DropNone {
			b.Fatal()
		}
	}
}

func BenchmarkPut(b *testing.B) {
	x := transmitOf(&golden[2].seg)
	buf := make([]byte, headerLenMax)
	b.ReportAllocs()
	for b.Loop() {
		x.Put(buf)
	}
}
