package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Two Conns that open towards each other, and close, at the same moment: the segments cross, in
// whatever order they are then delivered, and any one of them may be lost.
//
// req: 9293-MUST-10, 9293-3.6-2
func TestBothAtOnce(t *testing.T) {
	const lossesMax = 40
	for lost := range lossesMax {
		for order := range 2 {
			p := &couple{now: 1000 * sc, a: NewConn(Config{}), b: NewConn(Config{})}
			p.a.Connect(p.now, simID(false), 100, 0)
			p.b.Connect(p.now, simID(true), 1<<31, 0)
			count := 0
			closed := false
			for step := 0; p.a.State() != TimeWait || p.b.State() != TimeWait; step++ {
				if step > 200 {
					t.Fatalf("lost %d, order %d: a %v, b %v", lost, order, p.a.State(), p.b.State())
				}
				if !closed && p.a.State() == Established && p.b.State() == Established {
					closed = true
					p.a.CloseSend(p.now)
					p.b.CloseSend(p.now)
				}
				if p.cross(order == 1, &count, lost) {
					p.now += ms
					continue
				}
				p.now = max(p.now, min(p.a.Deadline(), p.b.Deadline()))
				p.a.Expire(p.now)
				p.b.Expire(p.now)
			}
			for _, c := range [...]*Conn{p.a, p.b} {
				require.NoError(t, c.broken())
				if ev := c.TakeEvents(); ev&(EvReset|EvRefused|EvTimeout) != 0 ||
					ev&(EvEstablished|EvPeerClosed) != EvEstablished|EvPeerClosed {
					t.Fatalf("lost %d, order %d: events %b", lost, order, ev)
				}
			}
		}
	}
}

// cross takes all that both have to send before any of it is delivered, the segment with number
// lost not.
func (p *couple) cross(bFirst bool, count *int, lost int) bool {
	ends := [2]*Conn{p.a, p.b}
	var out [2][]Transmit
	for i, c := range ends {
		for c.Next(p.now, 1, &p.t) {
			out[i] = append(out[i], p.t)
		}
	}
	for i := range ends {
		if bFirst {
			i = 1 - i
		}
		for _, p.t = range out[i] {
			if *count++; *count != lost {
				p.deliver(ends[1-i])
			}
		}
	}
	return len(out[0])+len(out[1]) > 0
}

// What has been SACKed stays held, whatever becomes of memory: every block goes on being reported
// until the edge passes.
//
// req: 2018-8-2
func TestNothingSACKedIsDiscarded(t *testing.T) {
	cfg := sackOnly()
	cfg.SpansMax, cfg.RangesMax = 2*spansMin, 64
	_, ss := shared(t, cfg, 3)
	s := ss[0]
	for i := range spansMin {
		s.in(". " + itoa(101+200*i) + ":" + itoa(201+200*i) + " ack 1")
	}
	ss[1].in(". 1001:2001 ack 1")
	s.sent()
	for range 3 { // no memory is left
		s.in(". 3001:3101 ack 1")
		s.wantDrop(DropNoMemory)
		s.expect(". 1 ack 1 sack 701:801,501:601,301:401,101:201")
	}
	s.in(". 1:101 ack 1")
	s.expect(". 1 ack 201 sack 701:801,501:601,301:401")
	s.in(". 201:301 ack 1")
	s.in(". 401:501 ack 1")
	s.in(". 601:701 ack 1")
	require.EqualValues(t, 800, s.c.Edge())
}
