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
