package tcp

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// req: 9293-MUST-21
func TestUserTimeoutIsPerConnection(t *testing.T) {
	for _, tt := range []struct {
		set, end int64
	}{{0, 100 * sc}, {5 * sc, 5 * sc}, {1000 * sc, 1000 * sc}} {
		s := accepted(t, plain(), "")
		s.c.SetUserTimeout(tt.set)
		s.push(100)
		s.advance(tt.end - 1)
		s.wantState(Established)
		s.advance(1)
		s.wantState(Closed)
		s.wantEvents(EvSuspect | EvTimeout | EvClosed)
	}
	s := accepted(t, plain(), "")
	s.c.SetUserTimeout(Forever)
	s.push(100)
	s.advance(30 * 86400 * sc)
	s.wantState(Established)
	s.sent()
	s.in(". 1 ack 101") // it was worth waiting
	s.wantReleased(0)
}

// A wait for pacing that our FIN has overtaken is not the end of FIN-WAIT-2, which only an orphan's
// has.
func TestPacingDoesNotEndFinWait2(t *testing.T) {
	cfg := plain()
	cfg.Pacing, cfg.PacingBurst = true, 1
	s := opened(t, cfg, "mss 1000", 100*ms)
	s.push(1000)
	s.drain()
	if roomOf(s.c, s.now) != 0 || s.c.timers.laterAt == never {
		t.Fatal("not paced")
	}
	s.c.CloseSend(s.now)
	s.drain()
	s.in(". 1 ack 1002")
	s.wantState(FinWait2)
	s.advance(1000 * sc)
	s.wantState(FinWait2)
	s.c.SetOrphaned(s.now)
	s.advance(60*sc - 1)
	s.wantState(FinWait2)
	s.advance(1)
	s.wantState(Closed)
}

// Where the RTO is long, 100 s are not the end before seven retransmissions are, and the time to
// answer the last. What the configuration or the application says of time holds as it is.
//
// req: 9293-SHLD-11, 9293-MUST-20
func TestRetriesAtALongRTO(t *testing.T) {
	configured := plain()
	configured.UserTimeoutNs = 100 * sc
	for name, tt := range map[string]struct {
		cfg       Config
		set, ends int64
		sent      int
	}{
		"default":     {plain(), 0, 2700*ms*31 + 60*3*sc, 1 + 7},
		"configured":  {configured, 0, 100 * sc, 1 + 5},
		"application": {plain(), 100 * sc, 100 * sc, 1 + 5},
	} {
		s := opened(t, tt.cfg, "", 900*ms) // an RTO of 2.7 s
		s.c.SetUserTimeout(tt.set)
		s.push(100)
		s.advance(tt.ends - 1)
		s.wantState(Established)
		if n := len(s.sent()); n != tt.sent {
			t.Errorf("%s: sent %d times, want %d", name, n, tt.sent)
		}
		s.advance(1)
		s.wantState(Closed)
	}
}

// Probes of a closed window that are not answered end after 100 s, whatever the RTO: nothing was
// lost that could be sent again.
func TestUnansweredProbesAtALongRTO(t *testing.T) {
	for name, prepare := range map[string]func(s *script){
		"closed before": func(s *script) {
			s.in(". 1 ack 1 win 0")
			s.push(100)
		},
		"closed over what is in flight": func(s *script) {
			s.push(100)
			s.in(". 1 ack 1 win 0")
		},
	} {
		s := opened(t, plain(), "", 900*ms)
		prepare(s)
		s.advance(100*sc - 1)
		if s.c.State() != Established {
			t.Errorf("%s: %v early", name, s.c.State())
		}
		s.advance(1)
		if s.c.State() != Closed {
			t.Errorf("%s: %v", name, s.c.State())
		}
	}
}

// A SYN is retransmitted for three minutes at least; the application may say otherwise.
//
// req: 9293-MUST-22, 9293-MUST-23, 9293-MUST-21
func TestSynTimeouts(t *testing.T) {
	s := newScript(t, plain())
	s.connect()
	start := s.now
	s.advance(400 * sc)
	s.wantState(Closed)
	s.wantEvents(EvSuspect | EvTimeout | EvClosed)
	out := s.sent()
	if last := out[len(out)-1].at - start; last < 180*sc {
		t.Errorf("last SYN after %d s", last/sc)
	}

	s = newScript(t, plain())
	s.connect()
	s.c.SetUserTimeout(10 * sc)
	s.advance(10*sc - 1)
	s.wantState(SynSent)
	s.advance(1)
	s.wantState(Closed)
	s.wantEvents(EvSuspect | EvTimeout | EvClosed)

	s = newScript(t, plain())
	s.connect()
	s.c.SetUserTimeout(Forever)
	s.advance(86400 * sc)
	s.wantState(SynSent)
	s.sent()
	s.in("S. 0:1 ack 1 win 60000 mss 1000")
	s.wantState(Established)
}

// R1: told at the third retransmission, once, and again only after there was progress.
//
// req: 9293-MUST-20, 9293-SHLD-9, 9293-SHLD-10
func TestSuspect(t *testing.T) {
	s := accepted(t, plain(), "")
	s.push(100)
	s.advance(700 * ms) // retransmissions after 200 and 600 ms
	s.wantEvents(0)
	s.advance(700 * ms) // and 1400
	s.wantEvents(EvSuspect)
	s.advance(20 * sc)
	s.wantEvents(0)
	s.sent()
	s.in(". 1 ack 101")
	s.wantEvents(EvAcked)
	s.release()
	s.push(100)
	for _, want := range []Events{0, 0, EvSuspect} { // the count is of those in a row: it begins anew
		for before := s.c.Stats().Timeouts; s.c.Stats().Timeouts == before; {
			s.advance(s.c.Deadline() - s.now)
		}
		s.wantEvents(want)
	}

	cfg := plain()
	cfg.SuspectRetries = 5
	s = newScript(t, cfg)
	s.connect()
	s.advance(30 * sc) // SYNs at 1, 3, 7 and 15 s
	s.wantEvents(0)
	s.advance(2 * sc)
	s.wantEvents(EvSuspect)
}

// SetFinWait2's time is in whole seconds, rounded up, 18 hours at most; 0 is the Config's again,
// and below 0 there is no wait.
func TestFinWait2OfOneConnection(t *testing.T) {
	for set, want := range map[int64]int64{
		0: 60 * sc, 1: sc, sc: sc, sc + 1: 2 * sc, 90 * sc: 90 * sc, math.MaxInt64: 65534 * sc,
		65534*sc + 1: 65534 * sc, -1: 0,
	} {
		s := accepted(t, plain(), "")
		s.c.SetFinWait2(7 * sc)
		s.c.SetFinWait2(set)
		s.c.SetOrphaned(s.now)
		s.c.CloseSend(s.now)
		s.sent()
		s.in(". 1 ack 2")
		s.wantState(FinWait2)
		if got := s.c.Deadline() - s.now; got != want {
			t.Errorf("%d: waits %d ns, want %d", set, got, want)
		}
		s.advance(want)
		s.wantState(Closed)
	}
}

// req: 9293-MAY-1
func TestOrphanDoesNotWaitForEver(t *testing.T) {
	for _, orphanFirst := range []bool{false, true} {
		s := accepted(t, plain(), "")
		if orphanFirst {
			s.c.SetOrphaned(s.now)
		}
		s.c.CloseSend(s.now)
		s.sent()
		s.in(". 1 ack 2")
		s.wantState(FinWait2)
		s.c.SetOrphaned(s.now)
		s.c.SetOrphaned(s.now)
		s.advance(60*sc - 1)
		s.wantState(FinWait2)
		s.advance(1)
		s.wantState(Closed)
		s.wantEvents(EvAcked | EvFinAcked | EvTimeout | EvClosed)
		s.expect()
	}

	// Who still reads waits as long as it likes.
	s := accepted(t, plain(), "")
	s.c.CloseSend(s.now)
	s.sent()
	s.in(". 1 ack 2")
	s.advance(86400 * sc)
	s.wantState(FinWait2)

	// The peer's FIN leads to an ordinary TIME-WAIT, of the ordinary length.
	s.c.SetOrphaned(s.now)
	s.advance(50 * sc)
	s.in("F. 1:2 ack 2")
	s.wantState(TimeWait)
	s.advance(60*sc - 1)
	s.wantState(TimeWait)
	s.advance(1)
	s.wantState(Closed)
	s.wantEvents(EvAcked | EvFinAcked | EvPeerClosed | EvClosed)
}

// New octets after a full close: RST, for they are lost.
//
// req: 9293-SHLD-3, 9293-MAY-1
func TestOctetsForAnOrphanDrawReset(t *testing.T) {
	open := func() *script { s := accepted(t, plain(), ""); s.in(". 1:11 ack 1"); s.sent(); return s }
	for name, tt := range map[string]struct {
		close func(s *script)
		reset string
	}{
		"ESTABLISHED": {func(s *script) {}, "R. 1 ack 11"},
		"FIN-WAIT-1":  {func(s *script) { s.c.CloseSend(s.now); s.sent() }, "R. 2 ack 11"},
		"FIN-WAIT-2": {func(s *script) {
			s.c.CloseSend(s.now)
			s.sent()
			s.in(". 11 ack 2")
		}, "R. 2 ack 11"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open()
			tt.close(s)
			s.c.SetOrphaned(s.now)
			s.in(". 1:11 ack 1") // what was taken before is no news
			s.wantDrop(DropDuplicate)
			s.sent()
			s.in(". 11:21 ack 1")
			s.wantDrop(DropOrphaned)
			s.wantNothing()
			s.expect(tt.reset)
			s.wantState(Closed)
			if ev := s.c.TakeEvents(); ev&(EvReset|EvClosed) != EvReset|EvClosed {
				t.Errorf("events %b", ev)
			}
		})
	}
}

// req: 7323-3.2-2, 7323-3.2-3
func TestStrictTimestamps(t *testing.T) {
	for _, strict := range []bool{false, true} {
		cfg := plain()
		cfg.NoTimestamps, cfg.StrictTimestamps = false, strict
		s := accepted(t, cfg, "ts 5,0")
		s.in(". 1:101 ack 1 nots")
		if strict {
			s.wantDrop(DropNoTimestamps)
			s.wantNothing()
			s.expect()
			s.in("R 1") // a RST needs none
		} else {
			s.wantArrival(0, 100)
			s.in("R 101")
		}
		s.wantState(Closed)
	}
}

// req: 9293-SHLD-4
func TestRedialable(t *testing.T) {
	cfg := plain()
	for _, stamps := range []bool{true, false} {
		cfg.NoTimestamps = !stamps
		s := newScript(t, cfg)
		s.connect()
		s.sent()
		s.in("S. 0:1 ack 1 win 60000 mss 1000 ts 5,0")
		if s.c.Redialable(s.now+1000*sc) || s.c.RedialableHeld() {
			t.Error("open")
		}
		s.c.CloseSend(s.now)
		s.drain()
		s.in("F. 1:2 ack 2")
		s.wantState(TimeWait)
		if s.c.RedialableHeld() != stamps {
			t.Errorf("held, timestamps %v", stamps)
		}
		if s.c.Redialable(s.now) || s.c.Redialable(s.now+sc) {
			t.Error("at once")
		}
		if s.c.Redialable(s.now+sc+1) != stamps {
			t.Errorf("timestamps %v", stamps)
		}
		if got := s.c.SndNxt(); got != s.iss+2 {
			t.Errorf("SND.NXT %d", got-s.iss)
		}
	}
}

// A user timeout beyond the end of time is none.
func TestLongestUserTimeouts(t *testing.T) {
	for name, configure := range map[string]func(cfg *Config, s *script){
		"Config, MaxInt64": func(cfg *Config, _ *script) { cfg.UserTimeoutNs = math.MaxInt64 },
		"Config, one less": func(cfg *Config, _ *script) { cfg.UserTimeoutNs = math.MaxInt64 - 1 },
		"connection, all but one": func(_ *Config, s *script) {
			if s != nil {
				s.c.SetUserTimeout(math.MaxInt64 - 1)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := plain()
			configure(&cfg, nil)
			s := opened(t, cfg, "mss 1000", 10*ms)
			configure(&cfg, s)
			s.push(1000)
			s.drain()
			for range 20 {
				s.advance(s.c.Deadline() - s.now)
				s.drain()
				s.wantState(Established)
			}
		})
	}
}

// Only the first SetOrphaned counts, and none once the connection is closed.
func TestOrphanedOnce(t *testing.T) {
	s := accepted(t, plain(), "")
	s.c.CloseSend(s.now)
	s.drain()
	s.in(". 1 ack 2")
	s.wantState(FinWait2)
	s.c.SetOrphaned(s.now)
	s.advance(59 * sc)
	s.c.SetOrphaned(s.now)
	s.advance(sc - 1)
	s.wantState(FinWait2)
	s.advance(1)
	s.wantState(Closed)
	closed := accepted(t, plain(), "")
	closed.in("R 1")
	closed.wantState(Closed)
	closed.c.SetOrphaned(closed.now)
	if closed.c.orphaned {
		t.Error("an orphan after its end")
	}
}

// Timeouts of a segment that has not left tell nothing of the next hop, and hide nothing of it: R1
// counts those after them, and is told once.
func TestR1CountsWhatHasLeft(t *testing.T) {
	for held := range 5 {
		s := ten(t, plain())
		for range held {
			s.now = s.c.Deadline()
			_, due := s.c.Timed(s.now)
			require.True(t, due)
			s.c.PutOff(s.now, s.now)
		}
		var told []int
		for i := range 8 {
			s.now = s.c.Deadline()
			s.c.Expire(s.now)
			if s.c.TakeEvents()&EvSuspect != 0 {
				told = append(told, i+1)
			}
			s.drain()
		}
		require.Equal(t, []int{s.c.mem.cfg.SuspectRetries}, told,
			"after %d timeouts of what had not left", held)
	}
}
