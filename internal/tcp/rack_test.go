package tcp

import "testing"

// The minimum of the last period or two: a path that has become longer is believed in time.
//
// req: 8985-6.2-1
func TestMinimumIsWindowed(t *testing.T) {
	var m minimum
	now := int64(0)
	add := func(after, v, want int64) {
		t.Helper()
		now += after
		m.add(now, v)
		if m.value() != want {
			t.Errorf("at %d s minimum %d, want %d", now/sc, m.value(), want)
		}
	}
	if m.value() != 0 {
		t.Error("a minimum of nothing")
	}
	add(0, 50, 50)
	add(sc, 40, 40)
	add(sc, 90, 40)
	for range 14 {
		add(10*sc, 90, 40)
	}
	add(10*sc, 90, 40) // a new period; the old one still counts
	add(minRTTPeriodMs*ms, 90, 90)
	add(sc, 70, 70)
	add(3*minRTTPeriodMs*ms, 80, 80)

	m = minimum{}
	seen := map[int64]int64{}
	// never above the least of the last period, never below that of the last two
	for i := range int64(5000) {
		now = i * sc / 2
		v := (i*7919)%1000 + 100
		seen[now] = v
		m.add(now, v)
		if i%50 != 0 {
			continue
		}
		one, two := int64(never), int64(never)
		for at, v := range seen {
			if now-at < minRTTPeriodMs*ms {
				one = min(one, v)
			}
			if now-at <= 2*minRTTPeriodMs*ms {
				two = min(two, v)
			}
		}
		if got := m.value(); got > one && got != m.this || got < two {
			t.Fatalf("at %d s: %d, of one period %d, of two %d", now/sc, got, one, two)
		}
	}
}

// 16 recoveries after the last D-SACK the window is a quarter of the round trip again.
//
// req: 8985-6.2-6
func TestReorderingWindowNarrowsAgain(t *testing.T) {
	s := ten(t, sackOnly())
	k := &s.c.reo
	s.c.adapt(true, false)
	s.c.sndUna = s.c.sndNxt
	s.c.adapt(true, false)
	if k.mult != 3 {
		t.Fatalf("multiplier %d after two round trips", k.mult)
	}
	for i := range reoWndPersistFull {
		if k.mult != 3 {
			t.Fatalf("multiplier %d after %d recoveries", k.mult, i)
		}
		s.c.adapt(false, true)
	}
	if k.mult != 1 {
		t.Errorf("multiplier %d", k.mult)
	}
	s.c.sndUna = 0
}

// Of the timers for reordering, probe, retransmission and zero window at most one runs: there is
// one deadline, with a kind.
//
// req: 8985-8-1
func TestOneLossTimer(t *testing.T) {
	s := ten(t, sackOnly())
	want := func(kind timerKind, in int64) {
		t.Helper()
		if tm := &s.c.timers; tm.kind != kind || tm.rtxAt-s.now != in || s.c.Deadline() != tm.rtxAt {
			t.Errorf("kind %d in %d us, want %d in %d", tm.kind, (tm.rtxAt-s.now)/us, kind, in/us)
		}
	}
	want(timerLossProbe, 10*ms)
	s.in(". 1 ack 1 sack 1001:2001")
	want(timerReorder, 2500*us)
	s.in(". 1 ack 2001")
	want(timerLossProbe, 20*ms)
	s.advance(20 * ms)
	want(timerRetransmit, 210*ms)
	s.in(". 1 ack 10001 win 0")
	s.push(1000)
	want(timerPersist, 210*ms)
}

// Without SACK there is neither RACK nor probe.
//
// req: 8985-4-1
func TestNoRACKWithoutSACK(t *testing.T) {
	s := ten(t, plain())
	s.in(". 1 ack 1 sack 1001:6001")
	s.advance(150 * ms)
	s.expect()
	if st := s.c.Stats(); st.LossProbes != 0 || s.c.sent.sacked != 0 || st.FastRetransmits != 0 {
		t.Errorf("%+v", st)
	}
}

// The retransmission timer runs from when the probe is sent, which may be long after it was due:
// the device may have taken nothing meanwhile.
//
// req: 8985-7.3-1
func TestTimeoutAfterALateProbe(t *testing.T) {
	s := opened(t, sackOnly(), "mss 1000 sackOK", 50*ms)
	s.push(1000, 1000)
	s.sent()
	s.now = s.c.Deadline()
	s.c.Expire(s.now)
	s.now += 100 * ms
	s.expect(". 1001:2001 ack 1 rtx")
	if at := s.now + s.c.rto(); s.c.Deadline() != at {
		t.Errorf("the timer fires at %d, want %d", s.c.Deadline()-s.now, at-s.now)
	}
}

// Of what one ACK SACKs, in whatever order its blocks come, the most recently sent is RACK.segment:
// sequence decides among those of one time.
//
// req: 8985-6.2-3
func TestLatestOfSeveralBlocks(t *testing.T) {
	for _, blocks := range []string{"1001:2001,8001:9001,4001:5001", "8001:9001,4001:5001,1001:2001",
		"4001:5001,1001:2001,8001:9001"} {
		s := ten(t, sackOnly())
		s.in(". 1 ack 1 sack " + blocks)
		if k := s.c.recovery.rack; k.endSeq != 9000 {
			t.Errorf("%s: RACK.segment ends at %d", blocks, k.endSeq)
		}
		if s.c.sent.lost != 6000 {
			t.Errorf("%s: %d octets lost, all that lies below 8001 and is not SACKed is", blocks,
				s.c.sent.lost)
		}
	}
}
