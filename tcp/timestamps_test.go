package tcp

import "testing"

func stamped(t *testing.T) *script {
	t.Helper()
	cfg := sackOnly()
	cfg.NoTimestamps = false
	s := accepted(t, cfg, "sackOK ts 100,0")
	s.ts = true
	return s
}

// req: 7323-3.2-5, 7323-5.4-1
func TestTimestampsEcho(t *testing.T) {
	s := stamped(t) // the ACK of our SYN,ACK carried 1000000
	s.advance(5 * ms)
	s.push(10)
	s.expect(". 1:11 ack 1 ts 1000005,1000000")
}

// The examples of RFC 7323 section 4.3: delayed ACKs echo the first segment, gaps the last in
// order, gap fill the filler.
//
// req: 7323-4.3-1
func TestEchoOfDelayedAckGapAndFill(t *testing.T) {
	s := stamped(t)
	s.in(". 1:101 ack 1 ts 1000001,0")
	s.in(". 101:201 ack 1 ts 1000002,0")
	s.in(". 201:301 ack 1 ts 1000003,0")
	s.advance(40 * ms)
	s.expect(". 1 ack 301 ecr 1000001")

	s.in(". 301:401 ack 1 ts 1000004,0")
	s.advance(40 * ms)
	s.expect(". 1 ack 401 ecr 1000004")
	s.in(". 501:601 ack 1 ts 1000006,0")
	s.expect(". 1 ack 401 ecr 1000004")
	s.in(". 401:501 ack 1 ts 1000007,0")
	s.expect(". 1 ack 601 ecr 1000007")
}

// req: 7323-5.3-1, 7323-3.2-5
func TestPAWS(t *testing.T) {
	s := stamped(t)
	s.in(". 1:101 ack 1 ts 1000010,0")
	s.wantArrival(0, 100)
	s.advance(40 * ms)
	s.sent()
	s.in(". 101:201 ack 1 ts 1000009,0")
	s.wantDrop(DropPAWS)
	s.wantNothing()
	s.expect(". 1 ack 101")
	s.in(". 101:201 ack 1 ts 1000010,0")
	s.wantArrival(100, 200)
}

// req: 7323-5.3-2
func TestPAWSIsNotAppliedToHeldOctets(t *testing.T) {
	s := stamped(t)
	s.in(". 101:201 ack 1 ts 1000001,0")
	s.in(". 1:101 ack 1 ts 1000009,0")
	if s.c.Edge() != 200 {
		t.Errorf("edge %d", s.c.Edge())
	}
}

// req: 7323-5.5-1
func TestPAWSForgetsAfter24Days(t *testing.T) {
	s := stamped(t)
	s.advance(25 * 86400 * sc)
	s.in(". 1:101 ack 1 ts 1,0")
	s.wantArrival(0, 100)
}

// req: 7323-5.2-2
func TestResetIsNotSubjectToPAWS(t *testing.T) {
	s := stamped(t)
	s.in("R 1 ts 1,0")
	s.wantState(Closed)
}

// req: 7323-3.2-3
func TestMissingTimestampsDoNotAbort(t *testing.T) {
	s := stamped(t)
	s.in(". 1:101 ack 1 nots")
	s.wantArrival(0, 100)
	s.wantState(Established)
}

// req: 7323-3.2-4
func TestUnsolicitedTimestampsAreIgnored(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in(". 1:101 ack 1 ts 500,1")
	s.in(". 101:201 ack 1 ts 400,1")
	s.wantArrival(100, 200)
	s.advance(40 * ms)
	s.expect(". 1 ack 201 no ts")
}

// Karn's ambiguity is resolved by the echo; without timestamps there is no sample.
//
// req: 6298-3-1, 7323-4.1-2
func TestRTTOfARetransmission(t *testing.T) {
	s := accepted(t, plain(), "")
	s.push(100)
	s.advance(250 * ms)
	before := s.c.Stats().SRTTNs
	s.in(". 1 ack 101")
	if got := s.c.Stats().SRTTNs; got != before {
		t.Errorf("SRTT moved from %d to %d by an ambiguous ACK", before, got)
	}

	s = stamped(t)
	s.push(100)
	s.advance(250 * ms) // sent again at 200 ms
	s.in(". 1 ack 101 ts 1000250,1000200")
	if got := s.c.rtt.srtt; got < 5*ms || got > 8*ms { // 0 from the handshake, then 50 ms
		t.Errorf("SRTT %d us", got/us)
	}
}

// req: 7323-4.1-2
func TestDuplicateAckGivesNoSample(t *testing.T) {
	s := stamped(t)
	s.push(100)
	before := s.c.Stats().SRTTNs
	s.advance(100 * ms)
	s.in(". 1 ack 1 ts 1000100,1000000")
	if got := s.c.Stats().SRTTNs; got != before {
		t.Errorf("SRTT %d", got)
	}
}

// req: 7323-4.3-1
func TestPAWSBeyondAGap(t *testing.T) { runScenario(t, "paws_beyond_a_gap") }

// In a gap that lasts, what timestamps are compared with is never more than 2^30 octets old.
func TestPAWSGuardFollows(t *testing.T) {
	var p paws
	p.start(0, 100)
	const step = 1 << 20
	for at := uint64(step); at < 1<<34; at += step {
		ts := 100 + uint32(at/step)
		p.advance(int64(at), ts, at, true)
		if behind := uint64(ts-p.guard) * step; behind > 1<<30 {
			t.Fatalf("%d octets behind at %d", behind, at)
		}
	}
	if p.guard == 100 || !p.old(1<<34, 100) || p.old(1<<34, p.guard) {
		t.Errorf("%+v", p)
	}
	p.advance(1<<34, 1<<20, 1<<34, false)
	if p.guard != 1<<20 {
		t.Errorf("no gap, and yet the guard is %d", p.guard)
	}
}

// A segment in sequence whose ACK field is not acceptable moves nothing: not the timestamp that
// is echoed, nor what PAWS compares the next segments with.
//
// req: 7323-4.3-1, 5961-5.2-1
func TestUnacceptableAckDoesNotMoveTSRecent(t *testing.T) {
	for name, tt := range map[string]struct {
		segment string
		drop    Drop
	}{
		"of octets never sent": {". 1:101 ack 5000 ts 2000000,0", DropAckUnsent},
		"empty, the same":      {". 1 ack 5000 ts 2000000,0", DropAckUnsent},
		"too old":              {". 1:101 ack -65000 ts 2000000,0", DropAckUnsent},
		"no ACK":               {"- 1:101 ts 2000000,0", DropNoACK},
		"a SYN":                {"S. 1:2 ack 1 ts 2000000,0", DropSYNChallenge},
	} {
		t.Run(name, func(t *testing.T) {
			s := stamped(t)
			s.in(tt.segment)
			s.wantDrop(tt.drop)
			s.wantNothing()
			s.sent()
			s.push(10)
			s.expect(". 1:11 ack 1 ecr 1000000")
			s.in(". 1:101 ack 1 ts 1000001,0")
			s.wantArrival(0, 100)
			s.push(10)
			s.expect(". 11:21 ack 101 ecr 1000001")
		})
	}
}

// The same while the handshake's last ACK is awaited.
//
// req: 7323-4.3-1
func TestUnacceptableAckOfASynAckDoesNotMoveTSRecent(t *testing.T) {
	cfg := plain()
	cfg.NoTimestamps = false
	s := newScript(t, cfg)
	s.accept("S 0:1 win 60000 mss 1000 ts 100,0")
	s.expect("S. 0:1 ack 1 ecr 100")
	s.in(". 1 ack 77 ts 5000,0")
	s.wantDrop(DropAckUnsent)
	s.sent()
	s.in(". 1 ack 1 ts 101,0")
	s.wantState(Established)
	s.push(10)
	s.expect(". 1:11 ack 1 ecr 101")
}

// SEG.TSval >= TS.Recent: after a gap PAWS lets older segments in, which must not turn TS.Recent
// back.
//
// req: 7323-4.3-1
func TestTSRecentNeverGoesBack(t *testing.T) {
	s := stamped(t)
	s.in(". 201:301 ack 1 ts 1000002,0") // a gap: PAWS keeps to what was before it
	s.expect(". 1 ack 1 ecr 1000000")
	s.in(". 1:101 ack 1 ts 1000020,0") // a part of it is filled, later
	s.expect(". 1 ack 101 ecr 1000020")
	s.in(". 101 ack 1 ts 1000010,0") // sent before that, and late
	s.wantDrop(DropNone)
	s.push(10)
	s.expect(". 1:11 ack 101 ecr 1000020")
	s.in(". 101 ack 1 ts 1000020,0") // equal is fine
	s.in(". 101 ack 1 ts 1000021,0")
	s.push(10)
	s.expect(". 11:21 ack 101 ecr 1000021")
}
