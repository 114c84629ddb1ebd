package tcp

import "testing"

// ten is a connection with a round trip of 10 ms and ten segments of 1000 octets in flight,
// 1:10001, sent 10 ms ago.
func ten(t *testing.T, cfg Config) *script {
	t.Helper()
	options := ""
	if !cfg.NoSACK {
		options = "sackOK"
	}
	s := opened(t, cfg, "mss 1000 "+options, 10*ms)
	if n := s.fill(); n != 10 {
		t.Fatalf("%d segments", n)
	}
	s.sent()
	s.advance(10 * ms)
	return s
}

func (s *script) wantCong(cwnd, ssthresh int) {
	s.t.Helper()
	if st := s.c.Stats(); st.Cwnd != cwnd || st.Ssthresh != ssthresh {
		s.t.Fatalf("cwnd %d ssthresh %d, want %d %d", st.Cwnd, st.Ssthresh, cwnd, ssthresh)
	}
}

// req: 5681-3.2-3, 5681-3.2-5, 6675-5-2, 2018-5-1, 9937-6.4-1
func TestFastRetransmitWithSACK(t *testing.T) {
	s := ten(t, sackOnly())
	s.in(". 1 ack 1 sack 1001:2001")
	s.advance(us)
	s.in(". 1 ack 1 sack 1001:3001")
	s.expect()
	s.advance(us)
	s.in(". 1 ack 1 sack 1001:4001")
	s.expect(". 1:1001 ack 1 rtx")
	s.wantCong(7000, 5000) // PRR: pipe 6000 and one segment
	s.advance(10 * ms)
	s.in(". 1 ack 10001")
	s.expect()
	s.wantCong(5000, 5000)
	if st := s.c.Stats(); st.FastRetransmits != 1 || st.Retransmits != 1 || st.Timeouts != 0 {
		t.Errorf("%+v", st)
	}
}

// req: 2018-3-1
func TestBogusSACKBlocksAreIgnored(t *testing.T) {
	for _, blocks := range []string{"2001:1001", "10002:10003", "1001:10002", "-500:-400", "1001:1001",
		"9001:200001"} {
		s := ten(t, sackOnly())
		for range 5 {
			s.in(". 1 ack 1 sack " + blocks)
		}
		s.expect()
		if s.c.sent.sacked != 0 {
			t.Errorf("%s: %d octets SACKed", blocks, s.c.sent.sacked)
		}
	}
}

// req: 2018-3-1
func TestPartlyCoveredSegmentIsNotSACKed(t *testing.T) {
	s := ten(t, sackOnly())
	s.in(". 1 ack 1 sack 1500:3500")
	if s.c.sent.sacked != 1000 {
		t.Errorf("%d octets SACKed, want those of 2001:3001", s.c.sent.sacked)
	}
}

// req: 3042-2-1
func TestLimitedTransmit(t *testing.T) {
	for _, cfg := range []Config{plain(), sackOnly()} {
		s := ten(t, cfg)
		s.drainHandles()
		for i, sack := range []string{" sack 1001:2001", " sack 1001:3001"} {
			if cfg.NoSACK {
				sack = ""
			}
			s.in(". 1 ack 1" + sack)
			if n := s.fill(); n != 1 {
				t.Fatalf("NoSACK %v: %d new segments on duplicate ACK %d", cfg.NoSACK, n, i+1)
			}
		}
		if cfg.NoSACK {
			s.in(". 1 ack 1")
		} else {
			s.in(". 1 ack 1 sack 1001:4001")
		}
		if got := s.c.Stats().Ssthresh; got != 5000 {
			t.Errorf("ssthresh %d counts what limited transmit sent", got)
		}
	}
}

// req: 5681-2-1
func TestWhatIsNoDuplicateAck(t *testing.T) {
	s := ten(t, plain())
	s.in(". 1 ack 1 win 50000")
	s.in(". 1 ack 1 win 50001")
	s.in(". 1 ack 1 win 50002")
	s.win = 50002
	for seq := 1; seq < 4001; seq += 1000 {
		s.in(". " + span1000(seq) + " ack 1")
	}
	if got := s.c.Stats().DupAcksIn; got != 0 {
		t.Errorf("%d duplicate ACKs counted", got)
	}
	for _, x := range s.sent() {
		if x.Retransmit {
			t.Error("retransmission")
		}
	}
}

// req: 5681-3.2-6, 6582-3.2-1
func TestNewReno(t *testing.T) {
	s := ten(t, plain()) // lost: 1 and 5001
	s.in(". 1 ack 1")
	s.in(". 1 ack 1")
	s.expect()
	s.in(". 1 ack 1")
	s.expect(". 1:1001 ack 1 rtx")
	s.wantCong(8000, 5000)
	for range 5 {
		s.in(". 1 ack 1")
	}
	s.wantCong(13000, 5000)
	if n := s.fill(); n != 3 {
		t.Errorf("%d new segments, want 3", n)
	}
	s.sent()
	s.in(". 1 ack 5001") // partial
	s.wantCong(9000, 5000)
	s.expect(". 5001:6001 ack 1 rtx")
	s.in(". 1 ack 13001")
	s.wantCong(2000, 5000)
	s.expect()
	if st := s.c.Stats(); st.Timeouts != 0 || st.Retransmits != 2 {
		t.Errorf("%+v", st)
	}
}

// req: 6298-5-5, 5681-3.1-10, 5681-3.1-11, 6298-5-1
func TestTimeout(t *testing.T) {
	s := ten(t, plain())
	start := s.now - 10*ms
	s.advance(2 * sc)
	s.expectAt(". 1:1001 ack 1 rtx", start, ms, 210, 630, 1470)
	s.wantCong(1000, 5000) // ssthresh halved once, for one segment
}

// req: 5681-3.1-11, 6675-5.1-1, 6582-3.2-2
func TestSlowStartAfterTimeout(t *testing.T) {
	s := ten(t, plain())
	s.advance(200 * ms)
	s.expect(". 1:1001 ack 1 rtx")
	for range 4 {
		s.in(". 1 ack 1")
	}
	s.expect() // duplicates from before the timeout start no fast retransmit
	s.in(". 1 ack 1001")
	s.expect(". 1001:2001 ack 1 rtx", ". 2001:3001 ack 1 rtx")
	s.in(". 1 ack 10001")
	if st := s.c.Stats(); st.FastRetransmits != 0 || st.Flight != 0 {
		t.Errorf("%+v", st)
	}
}

// req: 2018-5-3, 2018-5-2
func TestRenegingPeerStillGetsAll(t *testing.T) {
	s := ten(t, sackOnly())
	s.in(". 1 ack 1 sack 1001:4001")
	s.expect(". 1:1001 ack 1 rtx")
	s.in(". 1 ack 1001") // 1001:4001 had been SACKed, and is not acknowledged
	s.sent()
	s.advance(sc)
	out := s.sent()
	if len(out) == 0 || s.match(&out[0].Transmit, ". 1001:2001 ack 1 rtx") != nil {
		t.Fatalf("after the timeout: %d segments", len(out))
	}
	if s.c.sent.sacked != 0 {
		t.Error("scoreboard kept")
	}
}

// Without timestamps only what was sent once gives a sample. In a long recovery the left edge
// passes nothing of that kind that SACK has not reported before, so the report counts: the timer
// is not doubled any more (RFC 6298 section 5).
//
// req: 6298-3-1, 6298-5-5
func TestSACKOfWhatWasSentOnceIsASample(t *testing.T) {
	s := ten(t, sackOnly()) // 10 ms ago
	s.advance(500 * ms)
	if s.c.rtt.backoff == 0 || s.c.Stats().SRTTNs != 10*ms {
		t.Fatalf("no timeout, or a sample of it: %+v", s.c.Stats())
	}
	s.in(". 1 ack 1 sack 9001:10001") // the probe's, sent twice
	if s.c.rtt.backoff == 0 {
		t.Error("a sample of what was sent twice")
	}
	s.sent()
	s.in(". 1 ack 1 sack 5001:6001,9001:10001")
	if s.c.rtt.backoff != 0 || s.c.Stats().SRTTNs <= 10*ms {
		t.Errorf("no sample: %+v", s.c.Stats())
	}
}

// A Poller takes in a burst of ACKs before it sends again: FlightSize is what stood before it, and
// what all of it delivered may be sent again in proportion.
//
// req: 5681-3.2-5, 6937-3-2, 9937-6.1-1
func TestBurstOfAcksCountsAsOne(t *testing.T) {
	one, several := ten(t, sackOnly()), ten(t, sackOnly())
	one.in(". 1 ack 5001 sack 6001:10001")
	for _, x := range []string{"1001", "3001", "5001", "5001 sack 6001:8001", "5001 sack 6001:10001"} {
		several.in(". 1 ack " + x)
	}
	for _, s := range []*script{one, several} {
		s.wantCong(5000, 5000)
		s.expect(". 5001:6001 ack 1 rtx")
		if n := s.fill(); n != 4 {
			t.Errorf("%d new segments", n)
		}
	}
}

// In a long recovery FlightSize grows beyond cwnd by what is SACKed; the next reduction is one of
// cwnd.
//
// req: 5681-3.2-5
func TestReductionOfCwndNotOfWhatIsSACKed(t *testing.T) {
	s := ten(t, sackOnly())
	s.in(". 1 ack 1 sack 1001:10001")
	s.expect(". 1:1001 ack 1 rtx")
	for s.fill() > 0 {
		s.sent()
		s.advance(us)
		nxt := int(s.c.sndNxt)
		s.in(". 1 ack 1 sack 1001:" + itoa(nxt+1))
		if nxt > 30000 {
			break
		}
	}
	s.c.recovery.phase = phaseOpen
	before := s.c.cong.Cwnd
	s.c.enterRecovery(s.now)
	if st := s.c.Stats(); st.Flight < 2*before || st.Ssthresh > max(before/2, 2000) {
		t.Errorf("cwnd was %d, ssthresh is %d, flight %d", before, st.Ssthresh, st.Flight)
	}
}

// Where segments are seen to overtake each other, cwnd grows by what arrives and not in the leaps
// of the left edge, and each octet counts once.
func TestGrowthWithReordering(t *testing.T) {
	s := ten(t, sackOnly())
	s.c.reo.seen = true
	for i, x := range []string{"1 sack 1001:2001", "1 sack 1001:3001", "1 sack 1001:4001",
		"4001", "5001"} {
		s.in(". 1 ack " + x)
		if want := 11000 + 1000*i; s.c.cong.Cwnd != want {
			t.Fatalf("ack %s: cwnd %d, want %d", x, s.c.cong.Cwnd, want)
		}
	}
}
