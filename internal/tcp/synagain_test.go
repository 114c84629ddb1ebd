package tcp

import "testing"

// The answer to a SYN that has come again echoes its timestamp and not the first one's, by which
// the peer would measure how long it waited for the SYN,ACK that was lost. What is older, or no SYN
// of this connection, changes nothing.
//
// req: 7323-4.3-1
func TestSynAgainIsEchoed(t *testing.T) {
	for _, tt := range []struct {
		again string
		echo  uint32
		bare  bool // without timestamps
	}{
		{"S 0:1 win 60000 mss 1000 ts 1077,0", 1077, false},
		{"S 0:1 win 60000 mss 1000 ts 76,0", 77, false},
		{"S 0:1 win 60000 mss 1000 ts 1077,0", 77, true},
		{"S -1:0 win 60000 mss 1000 ts 1077,0", 77, false},
		{"S. 0:1 ack 1 win 60000 mss 1000 ts 1077,5", 77, false},
	} {
		s := newScript(t, Config{MSS: 1000})
		syn := s.parse("S 0:1 win 60000 mss 1000 ts 77,0")
		h := NewHalf(s.iss, 0, &syn)
		template := NewConn(Config{MSS: 1000})
		var out Transmit
		h.SynAck(s.now, simID(true), template, true, &out)
		again := s.parse(tt.again)
		again.Options.HasTimestamps = !tt.bare
		if got := h.Judge(&template.mem.cfg, &again); got != HalfAgain {
			t.Errorf("%s: judged %v", tt.again, got)
		}
		h.SynAck(s.now, simID(true), template, false, &out)
		if out.Options.TSecr != tt.echo {
			t.Errorf("%s: a Half echoes %d, want %d", tt.again, out.Options.TSecr, tt.echo)
		}
	}

	s := newScript(t, Config{MSS: 1000})
	s.accept("S 0:1 win 60000 mss 1000 ts 77,0")
	s.expect("S. 0:1 ack 1 ts 1000000,77")
	s.in("S 0:1 win 60000 mss 1000 ts 1077,0")
	s.expect("S. 0:1 ack 1 ts 1000000,1077")
	s.in("S 0:1 win 60000 mss 1000 ts 76,0")
	s.expect("S. 0:1 ack 1 ts 1000000,1077")
}

// A peer whose first SYN was answered in vain measures the path by the second.
func TestRoundTripOfASynThatCameAgain(t *testing.T) {
	client, server := newScript(t, Config{MSS: 1000}), newScript(t, Config{MSS: 1000})
	client.connect()
	client.sent()
	server.accept("S 0:1 win 60000 mss 1000 ts 1000000,0")
	server.sent() // lost
	client.advance(sc)
	client.sent()
	server.in("S 0:1 win 60000 mss 1000 ts 1001000,0")
	client.advance(10 * ms)
	client.in("S. 0:1 ack 1 win 60000 mss 1000 ts 77," + itoa(int(server.sent()[0].Options.TSecr)))
	client.wantState(Established)
	if got := client.c.Stats().SRTTNs; got != 10*ms {
		t.Errorf("SRTT %d us", got/us)
	}
}

// A peer that takes our SYN for one of an old connection has our RST first, and the SYN again
// after a quarter of a round trip, 2 ms at least. It was not lost: the window and the timer begin
// as after one SYN. A second answer of that kind hurries nothing.
//
// req: 9293-3.5.2-3
func TestSynAfterAReset(t *testing.T) {
	for _, tt := range []struct {
		trip, wait int64
	}{{100 * us, 2 * ms}, {8 * ms, 2 * ms}, {400 * ms, 100 * ms}} {
		s := newScript(t, sackOnly())
		s.connect()
		s.expect("S 0:1")
		s.advance(tt.trip)
		s.in(". 5000 ack 777")
		s.wantDrop(DropAckUnsent)
		s.expect("R 777")
		s.advance(tt.wait - 1)
		s.expect()
		s.advance(1)
		s.expect("S 0:1 rtx")
		s.in(". 5000 ack 777")
		s.expect("R 777")
		s.advance(sc - 1)
		s.expect()
		s.advance(1)
		s.expect("S 0:1 rtx")
	}

	s := newScript(t, sackOnly())
	s.connect()
	s.sent()
	s.in(". 5000 ack 777")
	s.sent()
	s.advance(2 * ms)
	s.sent()
	s.in("S. 0:1 ack 1 win 60000 mss 1000 sackOK")
	s.wantState(Established)
	s.expect(". 1 ack 1")
	if n := s.fill(); n != 10 {
		t.Errorf("%d segments in the first window, want 10", n)
	}
	if at := s.c.Deadline() - s.now; at != sc {
		t.Errorf("retransmission after %d ms, want 1000", at/ms)
	}
}

// A dial to a peer that answers only so takes as long as any to give up, one SYN more.
func TestSynsAfterResetsGiveUp(t *testing.T) {
	cfg := sackOnly()
	cfg.SynRetries = 3
	s := newScript(t, cfg)
	s.connect()
	begin, syns := s.now, 0
	for s.c.State() == SynSent {
		for _, out := range s.sent() {
			if out.Flags&SYN != 0 {
				syns++
				s.in(". 5000 ack 777")
			}
		}
		s.advance(s.c.Deadline() - s.now)
	}
	if took := s.now - begin; syns != 5 || took != 15*sc+2*ms {
		t.Errorf("%d SYNs in %d ms, want 5 in 15002", syns, took/ms)
	}
}
