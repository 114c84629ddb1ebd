package tcp

import (
	"testing"

	"github.com/rnicd/rnicd/internal/sample"
	"github.com/stretchr/testify/require"
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
		require.True(t, s.c.Stats().Timeouts <= probesMax)
		s.advance(s.c.Deadline() - s.now)
	}
	require.Equal(t, baseMSS, s.c.EMSS())
	return s
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
		require.NoError(t, s.a.output())
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

// After an idle time Room goes by the restart window: for the segments of a vector, and for a probe
// of the path, which Push then takes.
//
// req: 5681-4.1-1
func TestRoomAfterAnIdleTime(t *testing.T) {
	const cwnd = 1 << 20
	for _, probing := range []bool{false, true} {
		s := large(t)
		c := s.c
		if c.limitMSS = 3000; probing {
			c.limitMSS = baseMSS
		}
		c.setEMSS()
		c.cong.Cwnd, c.sndWnd = cwnd, cwnd
		require.True(t, c.provideRecord())
		s.now += 10_000 * ms
		n, octets := c.Room(s.now, 64)
		require.LessOrEqual(t, n*octets, c.initialWindow())
		require.Equal(t, c.initialWindow(), c.cong.Cwnd)
		if probing {
			require.Greater(t, octets, c.EMSS())
		} else {
			require.Greater(t, n, 1)
		}
		pieces := make([]Piece, n)
		for i := range pieces {
			pieces[i] = Piece{Handle: Handle(i), Len: int32(octets)}
		}
		c.Push(s.now, pieces)
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
		require.Equal(t, 12, s.c.optionsLen())
		s.c.limitMSS, s.c.mtu.fellFor, s.c.mtu.excused = baseMSS, tc.fellFor, true
		s.c.largeArrived(&record{len: tc.len}, tc.ahead)
		require.Equal(t, tc.want, s.c.limitMSS, "%+v", tc)
		require.False(t, s.c.mtu.excused, "%+v", tc)
		require.Equal(t, tc.want != baseMSS, s.c.events&EvRoom != 0, "%+v", tc)
	}
}
