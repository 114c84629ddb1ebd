package tcp

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// wantRecovery says what the sender is at, and how many octets are in flight, SACKed, lost,
// delivered, and segments sent again.
func (s *script) wantRecovery(r RecoveryState, flight, sacked, lost, delivered, resent int) {
	s.t.Helper()
	st := s.c.Stats()
	require.Equal(s.t, r.String(), st.Recovery.String())
	require.Equal(s.t, []int{flight, sacked, lost, delivered, resent},
		[]int{st.Flight, st.Sacked, st.Lost, int(st.Delivered), st.Resent},
		"flight, sacked, lost, delivered, resent")
}

// What Stats says of a connection on its way through a reordering, a fast recovery and a timeout.
func TestStatsOfRecovery(t *testing.T) {
	s := opened(t, sackOnly(), "mss 1000 sackOK", 10*ms)
	s.wantRecovery(RecoveryOpen, 0, 0, 0, 0, 0)
	require.Equal(t, Established, s.c.Stats().State)
	s.fill()
	s.sent()
	s.wantRecovery(RecoveryOpen, 10_000, 0, 0, 0, 0)
	require.False(t, s.c.Stats().ReorderingSeen)

	s.advance(10 * ms)
	s.in(". 1 ack 1 sack 1001:2001")
	s.wantRecovery(RecoveryDisorder, 10_000, 1000, 0, 1000, 0)
	s.in(". 1 ack 2001") // it was late
	s.wantRecovery(RecoveryOpen, 8000, 0, 0, 2000, 0)
	require.True(t, s.c.Stats().ReorderingSeen)
	require.Equal(t, []int64{10 * ms, 10 * ms / 4},
		[]int64{s.c.Stats().MinRTTNs, s.c.Stats().ReoWndNs})

	s.in(". 1 ack 2001 sack 3001:9001")
	s.advance(15 * ms) // the window for reordering is over
	s.wantRecovery(RecoveryFast, 8000, 6000, 0, 8000, 1)
	require.Less(t, s.c.Stats().Ssthresh, 10_000)
	s.in(". 1 ack 10001")
	s.wantRecovery(RecoveryOpen, 0, 0, 0, 10_000, 0)

	s.sent()
	require.Zero(t, s.c.Stats().Backoff)
	s.push(1000, 1000, 1000)
	s.advance(800 * ms)
	s.wantRecovery(RecoveryLoss, 3000, 0, 2000, 10_000, 1)
	st := s.c.Stats()
	require.Positive(t, st.Backoff)
	require.Equal(t, st.RTONs, (st.SRTTNs+max(200*ms, 4*st.RTTVarNs))<<st.Backoff)
	require.Positive(t, st.Retransmits)
}

// Segment sizes, windows and the rate.
func TestStatsOfThePath(t *testing.T) {
	cfg := Config{MSS: 1400, ReceiveWindow: 20_000, Pacing: true, NoDelay: true}
	s := newScript(t, cfg)
	s.accept("S 0:1 win 60000 mss 1300 sackOK ts 1,0")
	s.advance(20 * ms)
	s.in(". 1 ack 1")
	st := s.c.Stats()
	require.Equal(t, []int{1300, 1288, 20_000, 60_000},
		[]int{st.PeerMSS, st.EMSS, st.RcvWnd, st.SndWnd})
	require.Equal(t, 20*ms, st.SRTTNs)
	require.Equal(t, 10*ms, st.RTTVarNs)
	require.InEpsilon(t, 2*float64(st.Cwnd)/0.020, st.PacingRate, 0.01,
		"slow start: two windows in a round trip")

	s.in(". 1:1201 ack 1")
	s.in(". 2401:3001 ack 1")
	st = s.c.Stats()
	require.Equal(t, []int{1200, 600, 18_800}, []int{st.RcvMSS, st.Held, st.RcvWnd})
	require.Equal(t, "?", RecoveryState(9).String())
}

// Counts has each tally under its own name. UrgentIn is the one whose name differs.
func TestCountsByName(t *testing.T) {
	var n counts
	flow := traffic{segsIn: 1001, segsOut: 1002, bytesIn: 1003, bytesOut: 1004}
	want := map[string]uint64{"segsin": 1001, "segsout": 1002, "bytesin": 1003, "bytesout": 1004}
	tallies := reflect.ValueOf(&n).Elem()
	for i := range tallies.NumField() {
		name := tallies.Type().Field(i).Name
		if name == "urgent" {
			name = "urgentin"
		}
		*(*tally)(tallies.Field(i).Addr().UnsafePointer()) = tally(i + 1)
		want[strings.ToLower(name)] = uint64(i + 1)
	}
	public := reflect.ValueOf(n.public(&flow))
	require.Equal(t, len(want), public.NumField())
	for i := range public.NumField() {
		name := public.Type().Field(i).Name
		value, ok := want[strings.ToLower(name)]
		require.True(t, ok, name)
		require.Equal(t, value, public.Field(i).Uint(), name)
	}
}

// Each field of Stats has a value that no other has. Backoff, ReoWndNs and ReorderingSeen are in
// TestStatsOfRecovery, what did not happen here in TestCountsByName.
func TestStatsFieldByField(t *testing.T) {
	s := opened(t, Config{MSS: 1400, ReceiveWindow: 50_000, NoDelay: true, Pacing: true},
		"mss 1300 sackOK ts 1,0", 10*ms)
	s.advance(7 * ms)
	s.in(". 1:1001 ack 1 win 30000")
	s.in(". 2001:2701 ack 1 win 30000") // beyond a gap
	for range 8 {
		s.push(700)
	}
	s.advance(23 * ms)
	s.in(". 1001:1002 ack 701 win 29000 sack 1401:2101,2801:4201")
	require.Equal(t, Stats{
		Counts: Counts{SegsIn: 5, SegsOut: 10, BytesIn: 1701, BytesOut: 6300, Retransmits: 1,
			FastRetransmits: 1, OOOSegs: 1, LossProbes: 1},
		SRTTNs: 10_203_125, RTONs: 210_203_125, RTTVarNs: 5_250_000, MinRTTNs: 10 * ms,
		Cwnd: 4200, Ssthresh: 9016, Flight: 4900, SndWnd: 29_000, State: Established,
		Recovery: RecoveryFast,
		EMSS:     1288, PeerMSS: 1300, RcvMSS: 1000, RcvWnd: 49_999, Sacked: 2100, Lost: 1400,
		Resent: 1, Held: 700,
		Delivered: 2800, PacingRate: 823_277,
	}, s.c.Stats())
}

// Octets are outstanding because they are repaired as long as the peer acknowledges whole segments
// of what is sent again. A few octets are none; silence, and a shut window, are the peer's own.
func TestRepairing(t *testing.T) {
	const stall = 5 * sc
	s := ten(t, plain())
	repairing := func(at int64) bool { return s.c.Repairing(s.now+at, stall) }
	s.advance(sc)
	require.Equal(t, RecoveryLoss, s.c.Stats().Recovery)
	require.False(t, repairing(0), "nothing was answered")
	s.in(". 1 ack 901")
	require.False(t, repairing(0), "less than a segment")
	s.in(". 1 ack 1001")
	require.True(t, repairing(0))
	require.True(t, repairing(stall))
	require.False(t, repairing(stall+1))
	s.in(". 1 ack 1001 win 0")
	require.False(t, repairing(0), "window shut")
	s.in(". 1 ack 1002 win 60000")
	require.True(t, repairing(0))

	for s.c.Stats().RTONs < 4*sc {
		s.advance(s.c.Deadline() - s.now)
		s.drain()
	}
	require.False(t, s.c.Repairing(s.now, 0), "it was silent since")
	s.in(". 1 ack 2001")
	rto := s.c.Stats().RTONs
	require.True(t, repairing(0))
	s.advance(rto) // the next is lost,
	s.advance(2 * rto)
	require.Equal(t, 4*rto, s.c.Stats().RTONs)
	require.True(t, repairing(rto), "four times as long as the timeout was then")
	require.False(t, repairing(rto+1))
	s.in(". 1 ack 10001")
	require.False(t, repairing(0), "all is repaired")
}

// So it is in fast recovery.
func TestRepairingInFastRecovery(t *testing.T) {
	s := ten(t, plain())
	for range 3 {
		s.in(". 1 ack 1")
	}
	s.expect(". 1:1001 ack 1 rtx")
	require.False(t, s.c.Repairing(s.now, sc))
	s.in(". 1 ack 1001")
	require.Equal(t, RecoveryFast, s.c.Stats().Recovery)
	require.True(t, s.c.Repairing(s.now, sc))
}
