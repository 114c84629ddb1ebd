package tcp

import "testing"

// req: 5961-3.2-1, 9293-MUST-12
func TestResetPositions(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in("R 2")
	s.wantDrop(DropRSTChallenge)
	s.wantState(Established)
	s.expect(". 1 ack 1")
	s.in("R 0")
	s.wantDrop(DropWindow)
	s.in("R 20001")
	s.wantDrop(DropWindow)
	s.wantState(Established)
	s.expect()
	s.in("R 1")
	s.wantState(Closed)
	s.wantEvents(EvReset | EvClosed)
	s.expect()
}

// req: 9293-SHLD-2
func TestResetMayCarryData(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in("R. 1:101 ack 1")
	s.wantNothing()
	s.wantState(Closed)
}

// req: 5961-4.2-1
func TestSynInSynchronizedStateDrawsChallenge(t *testing.T) {
	s := accepted(t, plain(), "")
	for _, syn := range []string{"S 1:2", "S 500:501", "S -5000:-4999", "S. 100000:100001 ack 7"} {
		s.in(syn)
		s.wantDrop(DropSYNChallenge)
		s.expect(". 1 ack 1")
	}
	s.wantState(Established)
	s.in("R 1") // what a peer that has restarted answers
	s.wantState(Closed)
}

// req: 5961-7-1
func TestChallengesAreLimited(t *testing.T) {
	s := accepted(t, plain(), "")
	for range 50 {
		s.in("R 2")
		s.drain()
	}
	if n := len(s.sent()); n != 10 {
		t.Errorf("%d challenge ACKs", n)
	}
	s.advance(5 * sc)
	s.in("R 2")
	s.expect(". 1 ack 1")
	if got := s.c.Stats().ChallengeAcks; got != 11 {
		t.Errorf("counted %d", got)
	}
}

// Two ends that find each other's empty segments unacceptable do not go on for ever.
//
// req: 9293-3.5.2-2
func TestAnswersToEmptySegmentsAreLimited(t *testing.T) {
	s := accepted(t, plain(), "")
	for range 50 {
		s.in(". -10 ack 1")
		s.drain()
	}
	if n := len(s.sent()); n != 10 {
		t.Errorf("%d ACKs", n)
	}
	for range 20 {
		s.in(". -99:1 ack 1") // what carries octets is always answered
		s.expect(". 1 ack 1")
	}
}

// req: 9293-3.10.7.4-2
func TestAckOfUnsentIsAnswered(t *testing.T) {
	s := accepted(t, plain(), "")
	s.push(100)
	s.sent()
	s.in(". 1:51 ack 102")
	s.wantDrop(DropAckUnsent)
	s.wantNothing()
	s.expect(". 101 ack 1")
	if s.c.AckedOffset() != 0 {
		t.Error("acknowledged")
	}
}

// req: 5961-5.2-1, 9293-MAY-12
func TestTooOldAckIsAnswered(t *testing.T) {
	s := accepted(t, plain(), "")
	s.in(". 1:101 ack -59999") // SND.UNA - MAX.SND.WND
	s.wantArrival(0, 100)
	s.in(". 101:201 ack -60000")
	s.wantDrop(DropAckUnsent)
	s.wantNothing()
}
