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
