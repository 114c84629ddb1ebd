package tcp

import (
	"testing"

	"github.com/rnicd/rnicd/internal/sample"
)

// large is a connection whose ends would take segments of 3000 octets.
func large(t *testing.T) *script {
	t.Helper()
	cfg := sackOnly()
	cfg.MSS, cfg.InitialWindow = 3000, 20
	s := opened(t, cfg, "mss 3000 sackOK", 10*ms)
	s.expect()
	return s
}

// swallowed brings s to where three timeouts have shown that its large segments do not arrive.
func swallowed(t *testing.T) *script {
	t.Helper()
	s := large(t)
	s.push(3000, 3000)
	s.expect(". 1:3001 ack 1", ". 3001:6001 ack 1")
	for s.c.Stats().BlackHoles == 0 {
		if s.c.Stats().Timeouts > probesMax {
			t.Fatalf("%d timeouts", s.c.Stats().Timeouts)
		}
		s.advance(s.c.Deadline() - s.now)
	}
	if n := s.c.EMSS(); n != baseMSS {
		t.Fatalf("EMSS %d", n)
	}
	return s
}

// A path that carries small segments and swallows large ones: three timeouts, then the base, and
// all arrives.
//
// req: 8899-4.3-1
func TestBlackHole(t *testing.T) {
	s := swallowed(t)
	out := s.out
	for i := range out { // the last timeout's: in pieces, from the beginning
		if x := out[len(out)-1-i]; x.Len > baseMSS {
			t.Fatalf("%+v", x)
		} else if x.Seq == s.c.seqOf(0) {
			break
		}
	}
	if n := s.c.Stats().Timeouts; n != probesMax {
		t.Fatalf("%d timeouts", n)
	}
	s.out = nil
	for acked := baseMSS; acked < 6000; { // the rest comes in pieces of the base
		s.in(". 1 ack " + itoa(1+acked))
		s.drain()
		for _, x := range s.out {
			if x.Len > baseMSS {
				t.Fatalf("%d octets in one segment", x.Len)
			}
			acked = max(acked, x.Seq.Sub(s.iss+1)+x.Len)
		}
		s.out = nil
	}
	s.in(". 1 ack 6001")
	if s.c.AckedOffset() != 6000 {
		t.Fatalf("acknowledged %d", s.c.AckedOffset())
	}
}

// recovered is swallowed after everything has arrived in small segments.
func recovered(t *testing.T) *script {
	t.Helper()
	s := swallowed(t)
	s.out = nil
	s.in(". 1 ack 6001")
	s.drain()
	s.out = nil
	s.c.cong.Cwnd = 40_000
	return s
}

// probe pushes a segment of all that Room gives, which must be want octets, and three small ones
// after it.
func (s *script) probe(want int) (at int) {
	s.t.Helper()
	if n := roomOf(s.c, s.now); n != want {
		s.fatalf("room %d, want %d", n, want)
	}
	at = int(s.c.PushedOffset())
	s.push(want)
	for range 3 {
		if n := roomOf(s.c, s.now); n != s.c.EMSS() {
			s.fatalf("room %d beside a probe, EMSS %d", n, s.c.EMSS())
		}
		s.push(100)
	}
	if first := s.out[0]; first.Len != want || first.Retransmit {
		s.fatalf("probe: %s", s.show(&first.Transmit))
	}
	s.out = nil
	return at
}

// From the base up: the old size first, then between what passes and what does not. A lost probe is
// repaired in pieces, and neither cwnd nor ssthresh say that anything happened.
//
// req: 8899-3-2, 8899-3-3, 8899-3-1
func TestProbing(t *testing.T) {
	s := recovered(t)
	cwnd, ssthresh := s.c.cong.Cwnd, s.c.cong.Ssthresh
	for range probesMax {
		at := s.probe(3000)
		end := at + 3300
		s.advance(10 * ms)
		s.in(". 1 ack " + itoa(1+at) + " sack " + itoa(3001+at) + ":" + itoa(1+end))
		s.advance(20 * ms)
		total := 0
		for _, x := range s.out {
			if !x.Retransmit || x.Len > baseMSS {
				t.Fatalf("repair: %s", s.show(&x.Transmit))
			}
			total += x.Len
		}
		if total != 3000 {
			t.Fatalf("%d octets of the probe sent again", total)
		}
		s.out = nil
		s.in(". 1 ack " + itoa(1+end))
		s.expect()
	}
	if st := s.c.Stats(); st.FastRetransmits != 0 || s.c.cong.Cwnd < cwnd ||
		s.c.cong.Ssthresh != ssthresh {
		t.Fatalf("a lost probe was taken for congestion: %+v", st)
	}
	for _, step := range []struct {
		size int
		fits bool
	}{{2070, true}, {2535, false}, {2302, true}, {2418, false}, {2360, false}, {2331, false},
		{2316, true}} {
		for range probesMax {
			before := s.c.cong.Cwnd
			at := s.probe(step.size)
			end := at + step.size + 300
			s.advance(10 * ms)
			if step.fits {
				s.in(". 1 ack " + itoa(1+end))
				if n := s.c.EMSS(); n != step.size || s.c.cong.Cwnd > before+step.size+300 {
					t.Fatalf("EMSS %d, cwnd %d after a probe of %d", n, s.c.cong.Cwnd, step.size)
				}
				break
			}
			s.in(". 1 ack " + itoa(1+at) + " sack " + itoa(1+at+step.size) + ":" + itoa(1+end))
			s.advance(20 * ms)
			s.out = nil
			s.in(". 1 ack " + itoa(1+end))
			s.expect()
		}
	}
	if n := roomOf(s.c, s.now); n != 2316 {
		t.Fatalf("room %d: the search has come close enough", n)
	}
	s.advance(raiseAfterMs*ms - sc)
	if n := roomOf(s.c, s.now); n != 2316 {
		t.Fatalf("room %d before ten minutes", n)
	}
	s.advance(2 * sc)
	s.c.cong.Cwnd = 40_000
	if n := roomOf(s.c, s.now); n != 3000 {
		t.Fatalf("room %d after ten minutes", n)
	}
}

// What a router said holds for ten minutes.
//
// req: 1191-3-4
func TestNothingLargerAfterAReportForTenMinutes(t *testing.T) {
	s := large(t)
	s.c.SetEMSSLimit(2000)
	s.push(2000)
	s.expect(". 1:2001 ack 1")
	s.in(". 1 ack 2001")
	if n := roomOf(s.c, s.now); n != 2000 {
		t.Fatalf("room %d", n)
	}
	s.advance(raiseAfterMs*ms - 1)
	if n := roomOf(s.c, s.now); n != 2000 {
		t.Fatalf("room %d", n)
	}
	s.advance(1)
	if n := roomOf(s.c, s.now); n != 3000 {
		t.Fatalf("room %d after ten minutes", n)
	}
	s.push(2000) // a segment that does not fill it carries no probe
	s.push(500)
	s.expect(". 2001:4001 ack 1", ". 4001:4501 ack 1")
	if s.c.mtu.size != 0 {
		t.Fatal("a probe no larger than EMSS")
	}
}

// Links that drop what is larger than their MTU and do not tell: everything arrives, and
// at the end EMSS is close below what fits.
func TestBlackHoleLinks(t *testing.T) {
	all := make([]uint64, 60)
	for i := range all {
		all[i] = uint64(i)
	}
	for _, seed := range sample.Of(t, 15, all) {
		link := simLink{delay: 500_000, perOctet: 8, queueMax: 2_000_000, mss: 1200 + int(seed)*130}
		if seed%2 == 1 {
			link.loss = 0.002
		}
		cfg := Config{MSS: 8960, NoDelay: true}
		s := newSim(seed, link, cfg, cfg, 6<<20, 0)
		if err := s.a.output(); err != nil {
			t.Fatal(err)
		}
		for i := 0; s.a.c.AckedOffset() < s.a.total; i++ {
			if _, err := s.step(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if i > 3_000_000 {
				t.Fatalf("seed %d: no end", seed)
			}
		}
		st := s.a.c.Stats()
		if got := int(s.a.c.limitMSS); st.BlackHoles == 0 && link.mss < 8960 ||
			got > min(link.mss, 8960) || got < min(link.mss, 8960)-400 {
			t.Errorf("seed %d: EMSS limit %d on a link of %d (%d black holes, %d timeouts)", seed, got,
				link.mss, st.BlackHoles, st.Timeouts)
		}
	}
}

// A report, a new route or a black hole while a probe is queued or in flight: it is a segment as
// any other from then on, cut where it is too large, and its arrival tells nothing.
func TestProbeOvertakenByNewsOfThePath(t *testing.T) {
	for _, limit := range []int{1200, 3000} {
		s := recovered(t)
		s.probe(3000)
		s.c.SetEMSSLimit(limit)
		s.drain()
		s.in(". 1 ack " + itoa(int(1+s.c.PushedOffset())))
		if n := s.c.EMSS(); n != limit {
			t.Errorf("EMSS %d after a probe in flight, want %d", n, limit)
		}
	}
	s := recovered(t)
	pushOne(s.c, s.now, 99, roomOf(s.c, s.now), false)
	s.c.SetEMSSLimit(1200)
	s.expect(". 6001:7201 ack 1", ". 7201:8401 ack 1", ". 8401:9001 ack 1")
	s.in(". 1 ack 9001")
	if n := s.c.EMSS(); n != 1200 {
		t.Errorf("EMSS %d after a probe that was queued", n)
	}
}

// The window shrinks below a probe that is queued: what goes is no probe, and does not prove its
// size.
func TestProbeCutByTheWindow(t *testing.T) {
	s := recovered(t)
	pushOne(s.c, s.now, 99, roomOf(s.c, s.now), false)
	s.in(". 1 ack 6001 win 500")
	s.advance(300 * ms)
	s.expect(". 6001:6501 ack 1")
	s.in(". 1 ack 6501 win 60000")
	if n := s.c.EMSS(); n != baseMSS {
		t.Errorf("EMSS %d", n)
	}
}

// News of the path withdraw the probe, also where it is not the oldest in flight: its arrival
// raises nothing any more.
func TestProbeAfterOthersIsWithdrawn(t *testing.T) {
	s := recovered(t)
	s.push(100)
	s.drain()
	s.out = nil
	at := s.probe(3000)
	s.c.SetEMSSLimit(1200)
	s.in(". 1 ack " + itoa(1+at+3300))
	if n := s.c.EMSS(); n != 1200 {
		t.Fatalf("EMSS %d", n)
	}
	s.release()
	s.c.cong.Cwnd = 40_000
	if n := roomOf(s.c, s.now); n != 1200 {
		t.Fatalf("room %d: what a router said holds for ten minutes", n)
	}
}

// A peer that reneges on a probe and then holds it again.
func TestProbeRenegedOn(t *testing.T) {
	s := recovered(t)
	s.push(100) // SACKed, and never acknowledged
	s.advance(150 * ms)
	s.in(". 1 ack 6001 sack 6001:6101")
	s.advance(150 * ms)
	s.sent()
	at := s.probe(3000)
	s.in(". 1 ack 6001 sack " + itoa(at+1) + ":" + itoa(at+3001))
	if n := s.c.EMSS(); n != 3000 {
		t.Fatalf("EMSS %d", n)
	}
	for s.c.Stats().Timeouts == probesMax {
		s.advance(s.c.Deadline() - s.now)
	}
	s.in(". 1 ack 6101 sack " + itoa(at+1) + ":" + itoa(at+3001))
	if n := s.c.EMSS(); n != 3000 {
		t.Fatalf("EMSS %d when the probe arrived again", n)
	}
}

// A probe that is the last of a flight is lost: the tail loss probe repairs it, and that was no
// congestion either.
//
// req: 8899-3-2
func TestProbeLostAtTheTail(t *testing.T) {
	s := recovered(t)
	s.push(100)
	s.advance(10 * ms)
	s.in(". 1 ack 6101")
	s.sent()
	cwnd, ssthresh := s.c.cong.Cwnd, s.c.cong.Ssthresh
	s.push(roomOf(s.c, s.now))
	s.expect(". 6101:9101 ack 1")
	s.advance(100 * ms)
	s.in(". 1 ack 9101")
	s.advance(10 * ms)
	s.push(100, 100, 100)
	s.advance(10 * ms)
	s.in(". 1 ack 9401")
	s.advance(sc)
	if st := s.c.Stats(); st.Timeouts != probesMax || s.c.cong.Cwnd < cwnd ||
		s.c.cong.Ssthresh != ssthresh {
		t.Fatalf("cwnd %d of %d, ssthresh %d of %d, %+v", s.c.cong.Cwnd, cwnd, s.c.cong.Ssthresh,
			ssthresh, st)
	}
}

// stalled is a connection whose first of five large segments timed out three times; the peer holds
// what sack says, if anything.
func stalled(t *testing.T, sack string) *script {
	t.Helper()
	s := large(t)
	s.push(3000, 3000, 3000, 3000, 3000)
	s.advance(10 * ms)
	if sack != "" {
		s.in(". 1 ack 1 sack " + sack)
	}
	for s.c.Stats().Timeouts < probesMax {
		s.sent()
		s.advance(s.c.Deadline() - s.now)
	}
	return s
}

// Three timeouts in a row tell of a black hole: what arrives between them begins the count anew.
//
// req: 8899-4.3-1
func TestTimeoutsWithProgressAreNoBlackHole(t *testing.T) {
	s := large(t)
	for i := range 3 {
		s.push(3000)
		for s.c.Stats().Timeouts < uint64(2*(i+1)) {
			s.advance(s.c.Deadline() - s.now)
		}
		if n := s.c.EMSS(); n != 3000 {
			t.Fatalf("segment %d: EMSS %d", i, n)
		}
		s.in(". 1 ack " + itoa(3001+3000*i))
		s.release()
	}
	s.sent()
	s.push(3000)
	for s.c.Stats().Timeouts < 6+probesMax {
		s.advance(s.c.Deadline() - s.now)
	}
	if n := s.c.EMSS(); n != baseMSS {
		t.Fatalf("EMSS %d after %d timeouts in a row", n, probesMax)
	}
}

// News of the path begins the count anew, too: what timed out before was of another path.
//
// req: 8899-4.3-1
func TestTimeoutsBeforeAReportAreNoBlackHole(t *testing.T) {
	s := large(t)
	s.push(3000)
	for n := uint64(1); n < 2*probesMax-1; n++ {
		for s.c.Stats().Timeouts < n {
			s.advance(s.c.Deadline() - s.now)
		}
		if n == probesMax-1 {
			s.c.SetEMSSLimit(2500)
		}
	}
	if n := s.c.EMSS(); n != 2500 {
		t.Fatalf("EMSS %d after %d timeouts", n, probesMax-1)
	}
	for s.c.Stats().Timeouts < 2*probesMax-1 {
		s.advance(s.c.Deadline() - s.now)
	}
	if n := s.c.EMSS(); n != baseMSS {
		t.Fatalf("EMSS %d after %d timeouts", n, probesMax)
	}
}

// One segment that does not arrive, while one as large that was sent after it does, is no black
// hole: it alone is cut, and what is sent for the first time is whole.
//
// req: 8899-4.3-1
func TestArrivalDisprovesABlackHole(t *testing.T) {
	s := stalled(t, "3001:15001")
	// cwnd is one of 3000 octets
	s.expect(". 1:1141 ack 1 rtx", ". 1141:2281 ack 1 rtx", ". 2281:3001 ack 1 rtx")
	if n := s.c.EMSS(); n != 3000 || s.c.Stats().BlackHoles != 0 {
		t.Fatalf("EMSS %d", n)
	}
	s.in(". 1 ack 1141 sack 3001:15001")
	s.in(". 1 ack 15001")
	s.push(3000)
	s.expect(". 15001:18001 ack 1 fresh")
	s.advance(10 * ms)
	s.in(". 1 ack 18001")
	s.c.cong.Cwnd = 20_000
	s.push(3000, 3000) // and so the next time, since large ones have arrived
	s.advance(10 * ms)
	s.in(". 1 ack 18001 sack 21001:24001")
	for s.c.Stats().Timeouts < 2*probesMax {
		s.advance(s.c.Deadline() - s.now)
	}
	if n := s.c.EMSS(); n != 3000 || s.c.Stats().BlackHoles != 0 {
		t.Errorf("EMSS %d", n)
	}
}

// What is cut is cut into whole segments of the base: of two there is no third, which would be
// empty.
func TestCutIntoWholeSegments(t *testing.T) {
	s := large(t)
	s.push(2*baseMSS, 3000)
	s.advance(10 * ms)
	s.in(". 1 ack 1 sack 2281:5281")
	for s.c.Stats().Timeouts < probesMax {
		s.sent()
		s.advance(s.c.Deadline() - s.now)
	}
	s.expect(". 1:1141 ack 1 rtx", ". 1141:2281 ack 1 rtx")
	s.in(". 1 ack 5281")
	s.wantReleased(0, 1)
}

// What arrived was smaller than what did not, or nothing did: it is a black hole.
//
// req: 8899-4.3-1
func TestWhatDisprovesNoBlackHole(t *testing.T) {
	for _, small := range []bool{true, false} {
		s := large(t)
		s.push(3000, 2999)
		s.advance(10 * ms)
		if small {
			s.in(". 1 ack 1 sack 3001:6000")
		}
		for s.c.Stats().Timeouts < probesMax {
			s.advance(s.c.Deadline() - s.now)
		}
		if n := s.c.EMSS(); n != baseMSS || s.c.Stats().BlackHoles != 1 {
			t.Errorf("small %v: EMSS %d", small, n)
		}
	}
}

// The path became smaller after what arrived: that excuses one segment, and the next to stall
// tells.
//
// req: 8899-4.3-1
func TestBlackHoleAfterWhatArrived(t *testing.T) {
	s := stalled(t, "6001:9001")
	s.expect(". 1:1141 ack 1 rtx", ". 1141:2281 ack 1 rtx", ". 2281:3001 ack 1 rtx")
	s.in(". 1 ack 3001 sack 6001:9001")
	for s.c.Stats().Timeouts < 2*probesMax {
		s.sent()
		s.advance(s.c.Deadline() - s.now)
	}
	if n := s.c.EMSS(); n != baseMSS || s.c.Stats().BlackHoles != 1 {
		t.Errorf("EMSS %d, %d black holes", n, s.c.Stats().BlackHoles)
	}
}

// What was sent after the segment that stalled arrives when the black hole has been found: there is
// none, and no search is needed.
func TestLateArrivalDisprovesABlackHole(t *testing.T) {
	s := stalled(t, "")
	s.sent()
	if n := s.c.EMSS(); n != baseMSS {
		t.Fatalf("EMSS %d", n)
	}
	s.in(". 1 ack 1 sack 6001:9001")
	if n := s.c.EMSS(); n != 3000 {
		t.Fatalf("EMSS %d", n)
	}
	s.sent()
	s.in(". 1 ack 15001")
	s.push(3000)
	s.expect(". 15001:18001 ack 1 fresh")
}

// What was sent before the black hole was found may have arrived before the path changed, and what
// says so may have been lost, or there is no SACK: an ACK of it and all before it tells nothing.
func TestAckOfWhatArrivedBeforeTheBlackHole(t *testing.T) {
	for _, options := range []string{"mss 3000", "mss 3000 sackOK"} {
		cfg := sackOnly()
		cfg.MSS, cfg.InitialWindow = 3000, 20
		s := opened(t, cfg, options, 10*ms)
		s.expect()
		s.push(3000, 3000, 3000)
		for s.c.Stats().BlackHoles == 0 {
			s.sent()
			s.advance(s.c.Deadline() - s.now)
		}
		s.sent()
		s.in(". 1 ack 9001") // the first came in pieces now, the others long ago
		if n := s.c.EMSS(); n != baseMSS {
			t.Fatalf("%s: EMSS %d", options, n)
		}
		s.push(1000)
		s.expect(". 9001:10001 ack 1 fresh")
	}
}

// A probe goes only while all is well and the windows have room for it and two segments more: each
// condition alone holds it back. Where only the flight is in its way, waiting makes the room.
func TestProbeRoom(t *testing.T) {
	const rest = 20000
	for _, tc := range []struct {
		name   string
		change func(c *Conn)
		wait   bool
	}{
		{name: "nothing larger to be had", change: func(c *Conn) { c.limitMSS = 3000 }},
		{name: "no SACK", change: func(c *Conn) { c.useSACK = false }},
		{name: "recovery", change: func(c *Conn) { c.recovery.phase = phaseRecovery }},
		{name: "a loss", change: func(c *Conn) { c.sent.lost = 1 }},
		{name: "the loss probe is due", change: func(c *Conn) { c.due |= dueLossProbe }},
		{name: "a probe is out", change: func(c *Conn) { c.mtu.size = 2000 }},
		{name: "a small congestion window", change: func(c *Conn) { c.cong.Cwnd = 3000 + 2*baseMSS - 1 }},
		{name: "a small window", change: func(c *Conn) { c.sndWnd = 3000 + 2*baseMSS - 1 }},
		{name: "full", change: func(c *Conn) {
			c.sndWnd, c.sndNxt = rest, c.sndNxt+rest-2999
		}, wait: true},
	} {
		s := large(t)
		c := s.c
		c.limitMSS = baseMSS
		c.setEMSS()
		c.cong.Cwnd, c.sndWnd = rest, rest
		if n, wait := c.probeRoom(s.now); n != 3000 || wait {
			t.Fatalf("%d %v at rest", n, wait)
		}
		tc.change(c)
		if n, wait := c.probeRoom(s.now); n != 0 || wait != tc.wait {
			t.Errorf("%s: %d octets, wait %v", tc.name, n, wait)
		}
	}
	s := large(t)
	s.c.limitMSS = baseMSS
	s.c.setEMSS()
	s.c.cong.Cwnd, s.c.sndWnd = 3000+2*baseMSS, 3000+2*baseMSS
	if n, _ := s.c.probeRoom(s.now); n != 3000 {
		t.Errorf("%d octets, where there is just room", n)
	}
}

// What arrived ahead of a gap, above what the black hole left, is the new limit, header options
// included; but never more than what the search fell from.
func TestLargeArrivedSetsTheLimit(t *testing.T) {
	for _, tc := range []struct {
		len     int32
		ahead   bool
		fellFor uint16
		want    uint16
	}{
		{2000, true, 3000, 2012}, {2988, true, 3000, 3000}, {2995, true, 3000, 3000},
		{2000, false, 3000, baseMSS}, {2000, true, 0, baseMSS}, {baseMSS - 12, true, 3000, baseMSS},
		{baseMSS - 11, true, 3000, baseMSS + 1},
	} {
		cfg := sackOnly()
		cfg.MSS, cfg.NoTimestamps = 3000, false
		s := accepted(t, cfg, "sackOK ts 1,0")
		if n := s.c.optionsLen(); n != 12 {
			t.Fatalf("%d octets of options", n)
		}
		s.c.limitMSS, s.c.mtu.fellFor, s.c.mtu.excused = baseMSS, tc.fellFor, true
		s.c.largeArrived(&record{len: tc.len}, tc.ahead)
		if s.c.limitMSS != tc.want || s.c.mtu.excused ||
			(s.c.events&EvRoom != 0) != (tc.want != baseMSS) {
			t.Errorf("%+v: %d", tc, s.c.limitMSS)
		}
	}
}
