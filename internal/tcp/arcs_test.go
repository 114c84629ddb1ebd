package tcp

import (
	"strings"
	"testing"
)

// play runs lines: "connect", "accept SYN", "close", "abort", "wait N" (seconds), "< segment in",
// "> segment out" (all that is sent up to the next line of another kind), "= STATE".
func (s *script) play(lines ...string) {
	s.t.Helper()
	for i := 0; i < len(lines); i++ {
		verb, arg, _ := strings.Cut(lines[i], " ")
		switch verb {
		case "connect":
			s.connect()
		case "accept":
			s.accept(arg)
		case "close":
			s.c.CloseSend(s.now)
		case "abort":
			s.c.Abort(s.now)
		case "wait":
			s.advance(60 * sc)
		case "<":
			s.in(arg)
		case ">":
			out := []string{arg}
			for ; i+1 < len(lines) && strings.HasPrefix(lines[i+1], "> "); i++ {
				out = append(out, lines[i+1][2:])
			}
			s.expect(out...)
		case "=":
			s.expect()
			if s.c.State().String() != arg {
				s.t.Fatalf("line %d: state %v, want %s", i, s.c.State(), arg)
			}
		default:
			s.t.Fatalf("line %q", lines[i])
		}
	}
}

// Every arc of the state diagram (RFC 9293 section 3.3.2, figure 5), and what the text adds to it.
//
// req: 9293-MUST-10, 9293-MUST-11, 9293-MUST-12, 9293-MUST-13, 9293-3.6-2, 9293-3.10.7.4-6
func TestStateArcs(t *testing.T) {
	open := []string{"accept S 0:1 win 60000 mss 1000", "> S. 0:1 ack 1", "< . 1 ack 1",
		"= ESTABLISHED"}
	with := func(lines ...string) []string { return append(append([]string(nil), open...), lines...) }
	closing := with("close", "> F. 1:2 ack 1", "< F. 1:2 ack 1", "> . 2 ack 2", "= CLOSING")
	lastAck := with("< F. 1:2 ack 1", "> . 1 ack 2", "= CLOSE-WAIT", "close", "> F. 1:2 ack 2",
		"= LAST-ACK")
	finWait2 := with("close", "> F. 1:2 ack 1", "= FIN-WAIT-1", "< . 1 ack 2", "= FIN-WAIT-2")
	then := func(first []string, lines ...string) []string {
		return append(append([]string(nil), first...), lines...)
	}
	both := []string{"connect", "> S 0:1", "< S 0:1 win 60000 mss 1000", "> S. 0:1 ack 1",
		"= SYN-RECEIVED"}
	for name, lines := range map[string][]string{
		"active open": {"connect", "> S 0:1", "= SYN-SENT"},
		"active open, answered": {"connect", "> S 0:1", "< S. 0:1 ack 1 mss 1000",
			"> . 1 ack 1", "= ESTABLISHED"},
		"active open, closed":  {"connect", "> S 0:1", "close", "= CLOSED"},
		"active open, aborted": {"connect", "> S 0:1", "abort", "= CLOSED"},
		"active open, refused": {"connect", "> S 0:1", "< R. 0 ack 1", "= CLOSED"},
		"simultaneous open, by SYN,ACK": then(both, "< S. 0:1 ack 1 win 60000 mss 1000",
			"= ESTABLISHED"),
		"simultaneous open, by ACK": then(both, "< . 1 ack 1", "= ESTABLISHED"),
		"simultaneous open, by data": then(both, "< P. 1:11 ack 1", "> . 1 ack 11",
			"= ESTABLISHED"),
		"simultaneous open, by SYN,ACK with data": then(both, "< S. 0:11 ack 1", "= ESTABLISHED",
			"< . 1:11 ack 1", "> . 1 ack 11", "= ESTABLISHED"),
		"simultaneous open, SYN again": then(both, "< S 0:1 mss 1000",
			"> S. 0:1 ack 1 rtx", "< . 1 ack 1", "= ESTABLISHED"),
		"simultaneous open, closed": then(both, "close", "= SYN-RECEIVED",
			"< . 1 ack 1", "> F. 1:2 ack 1", "= FIN-WAIT-1"),
		"simultaneous open, refused": then(both, "< R 1", "= CLOSED"),
		"simultaneous open, aborted": then(both, "abort", "> R. 1 ack 1", "= CLOSED"),
		"simultaneous open, FIN": then(both, "< F. 1:2 ack 1", "> . 1 ack 2",
			"= CLOSE-WAIT"),
		"passive open, closed before the ACK": {"accept S 0:1 mss 1000", "> S. 0:1 ack 1",
			"close", "= SYN-RECEIVED", "< . 1 ack 1", "> F. 1:2 ack 1", "= FIN-WAIT-1"},
		"passive open, FIN with the ACK": {"accept S 0:1 mss 1000", "> S. 0:1 ack 1",
			"< F. 1:2 ack 1", "> . 1 ack 2", "= CLOSE-WAIT"},
		"passive open, reset": {"accept S 0:1 mss 1000", "> S. 0:1 ack 1",
			"< R 1", "= CLOSED"},
		"passive open, aborted": {"accept S 0:1 mss 1000", "> S. 0:1 ack 1",
			"abort", "> R. 1 ack 1", "= CLOSED"},
		"reset":   with("< R 1", "= CLOSED"),
		"aborted": with("abort", "> R. 1 ack 1", "= CLOSED"),
		"FIN-WAIT-1, FIN and its ACK": with("close", "> F. 1:2 ack 1", "< F. 1:2 ack 2",
			"> . 2 ack 2", "= TIME-WAIT"),
		"FIN-WAIT-1, reset": with("close", "> F. 1:2 ack 1", "< R 1",
			"= CLOSED"),
		"FIN-WAIT-1, aborted": with("close", "> F. 1:2 ack 1", "abort",
			"> R. 2 ack 1", "= CLOSED"),
		"FIN-WAIT-2, FIN": then(finWait2, "< F. 1:2 ack 2", "> . 2 ack 2",
			"= TIME-WAIT"),
		"FIN-WAIT-2, data": then(finWait2, "< P. 1:1001 ack 2",
			"< P. 1001:2001 ack 2", "> . 2 ack 2001", "= FIN-WAIT-2"),
		"FIN-WAIT-2, reset": then(finWait2, "< R 1", "= CLOSED"),
		"FIN-WAIT-2, aborted": then(finWait2, "abort", "> R. 2 ack 1",
			"= CLOSED"),
		"CLOSING": then(closing, "< . 2 ack 2", "= TIME-WAIT", "wait",
			"= CLOSED"),
		"CLOSING, its FIN again": then(closing, "< F. 1:2 ack 1", "> . 2 ack 2",
			"= CLOSING"),
		"CLOSING, FIN again with our ACK": then(closing, "< F. 1:2 ack 2", "> . 2 ack 2",
			"= CLOSING", "< . 2 ack 2", "= TIME-WAIT"),
		"CLOSING, reset":   then(closing, "< R 2", "= CLOSED"),
		"CLOSING, aborted": then(closing, "abort", "= CLOSED"),
		"simultaneous close with data before the FIN": with("close", "> F. 1:2 ack 1", "< F. 1:102 ack 1",
			"> . 2 ack 102", "= CLOSING", "< . 102 ack 2", "= TIME-WAIT"),
		"simultaneous close, FIN before its data": with("close", "> F. 1:2 ack 1",
			"< F. 101:102 ack 1", "> . 2 ack 1", "= FIN-WAIT-1", "< . 1:101 ack 1", "> . 2 ack 102",
			"= CLOSING"),
		"CLOSE-WAIT, reset": with("< F. 1:2 ack 1", "> . 1 ack 2",
			"= CLOSE-WAIT", "< R 2", "= CLOSED"),
		"CLOSE-WAIT, aborted": with("< F. 1:2 ack 1", "> . 1 ack 2", "abort",
			"> R. 1 ack 2", "= CLOSED"),
		"LAST-ACK": then(lastAck, "< . 2 ack 2", "= CLOSED"),
		"LAST-ACK, FIN again": then(lastAck, "< F. 1:2 ack 1", "> . 2 ack 2",
			"= LAST-ACK"),
		"LAST-ACK, reset":   then(lastAck, "< R 2", "= CLOSED"),
		"LAST-ACK, aborted": then(lastAck, "abort", "= CLOSED"),
		"TIME-WAIT, reset": then(finWait2, "< F. 1:2 ack 2", "> . 2 ack 2",
			"< R 2", "= CLOSED"),
		"TIME-WAIT, over": then(finWait2, "< F. 1:2 ack 2", "> . 2 ack 2",
			"= TIME-WAIT", "wait", "= CLOSED"),
	} {
		t.Run(name, func(t *testing.T) { newScript(t, plain()).play(lines...) })
	}
}

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
				if err := c.broken(); err != nil {
					t.Fatal(err)
				}
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

// req: 9293-REC-1
func TestWindowsBeyond16Bits(t *testing.T) {
	cfg := plain()
	cfg.NoWindowScale, cfg.InitialWindow, cfg.ReceiveWindow, cfg.SentMax = false, 5000, 1<<24, 4096
	s := accepted(t, cfg, "wscale 8")
	s.in(". 1 ack 1 win 16384") // 4 MiB
	sent := 1000 * s.fill()
	if sent != 4092*1000 {
		t.Errorf("%d octets into a window of 4 MiB and a ring of 4096", sent)
	}
	s.sent()
	s.in(". 1 ack " + itoa(sent+1) + " win 15625") // 4,000,000
	s.release()
	if n := 1000 * s.fill(); n != 4_000_000 {
		t.Errorf("%d octets into a window of 4,000,000", n)
	}
	s.sent()
	s.in(". 16000001:16001001 ack " + itoa(sent+1)) // far out in our own
	s.wantArrival(16_000_000, 16_001_000)
	s.in(". 16777216:16778216 ack " + itoa(sent+1))
	s.wantDrop(DropNone)
	s.wantArrival(16_777_215, 16_777_216)
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
	if s.c.Edge() != 800 {
		t.Errorf("edge %d", s.c.Edge())
	}
}

// req: 9293-MAY-15
func TestPushMayBeAskedFor(t *testing.T) {
	s := accepted(t, plain(), "")
	for i, psh := range []bool{true, false} {
		pushOne(s.c, s.now, Handle(i), 10, psh)
		s.drain()
	}
	s.expect("P. 1:11 ack 1", ". 11:21 ack 1")
}
