package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The peer's MSS is rounded down to what a cookie can say.
func TestCookieClassRoundsDown(t *testing.T) {
	for mss, want := range map[uint16]uint16{0: 536, 1: 64, 64: 64, 535: 64, 536: 536, 1219: 536,
		1220: 1220, 1459: 1440, 1460: 1460, 8939: 4036, 65535: 8940} {
		h := Half{mss: mss}
		require.Equal(t, want, cookieMSS[h.Cookie(&Config{})], "MSS %d", mss)
	}
}

// Whatever is put in comes out, in the slot it was made and the one after, in no other.
func TestCookieRoundTrip(t *testing.T) {
	for i := range uint32(1000) {
		slot, class, mac := 5000+i%3, uint8(i%8), i*0x9e3779b9
		ack := Segment{Flags: ACK, Ack: cookie(slot, class, mac) + 1}
		for age := range uint32(4) {
			now := int64(slot+age)*cookieSlotNs + int64(i)
			gotSlot, gotClass := CookieOf(now, &ack)
			require.Equal(t, class, gotClass, "slot %d at age %d", slot, age)
			require.Equal(t, age < 2, gotSlot == slot, "slot %d at age %d", slot, age)
			require.Equal(t, gotSlot&1 == slot&1, CookieMatches(&ack, gotSlot, gotClass, mac),
				"slot %d at age %d", slot, age)
			require.False(t, CookieMatches(&ack, gotSlot, gotClass, mac^1<<(i%cookieMACBits)),
				"another MAC matches")
		}
	}
}

// The timestamp that carries options is never ahead of the clock, and less than 128 ms behind.
func TestCookieTimestamp(t *testing.T) {
	cfg := Config{}
	template := NewConn(cfg)
	for i := range int64(300) {
		syn := Segment{Flags: SYN | Flags(i&1)*(ECE|CWR)}
		syn.Options = Options{MSS: 1460, WindowScale: int8(i%16) - 1, SACKPermitted: i&2 != 0,
			HasTimestamps: true, TSval: 7}
		h := NewHalf(1, 0xffffff00, &syn)
		class := h.Cookie(&template.mem.cfg)
		h.SetCookie(1, class, 99)
		var x Transmit
		now := 1000*sc + i*ms
		h.CookieSynAck(now, simID(true), template, &x)
		if behind := int32(uint32(now/ms) + 0xffffff00 - x.Options.TSval); behind < 0 || behind >= 128 {
			t.Fatalf("%d ms behind", behind)
		}
		ack := Segment{Flags: ACK, Seq: syn.Seq + 1, Ack: x.Seq + 1}
		ack.Options = Options{WindowScale: -1, HasTimestamps: true, TSval: 8, TSecr: x.Options.TSval}
		back := FromCookie(h.tsOffset, &ack, class)
		if back.scale != h.scale || back.sack != h.sack || back.flags != h.flags || back.mss != 1460 ||
			back.iss != h.iss || back.irs != h.irs {
			t.Fatalf("%+v, want %+v", back, h)
		}
	}
}

// A round trip that was not measured is not taken for one.
func TestCookieConnHasNoSample(t *testing.T) {
	c := NewConn(Config{})
	ack := Segment{Flags: ACK, Seq: 101, Ack: 201, Window: 1000}
	ack.Options = Options{WindowScale: -1, HasTimestamps: true, TSval: 8, TSecr: 16}
	h := FromCookie(0, &ack, 5)
	c.Resume(1000*sc, simID(true), &h)
	a := c.Input(1000*sc, &ack)
	c.Commit(1000*sc, &a, false)
	if st := c.Stats(); c.State() != Established || st.SRTTNs != 0 || st.RTONs != sc ||
		st.Cwnd != 10*c.EMSS() {
		t.Errorf("%v %+v", c.State(), st)
	}
	if _, ok := c.Release(); ok || c.Deadline() != never {
		t.Error("something is owed")
	}
}

// From the cache, the SYN,ACK's round trip is measured, and a SYN,ACK that was lost is a loss (RFC
// 5681 section 3.1).
func TestResumeKnowsTheSynAck(t *testing.T) {
	for _, again := range []bool{false, true} {
		cfg := plain()
		template := NewConn(cfg)
		syn := Segment{Flags: SYN, Seq: 100, Window: 5000}
		syn.Options = Options{MSS: 1000, WindowScale: -1}
		h := NewHalf(200, 0, &syn)
		var x Transmit
		h.SynAck(10*sc, simID(true), template, true, &x)
		if again {
			h.SynAck(11*sc, simID(true), template, true, &x)
		}
		c := NewConn(cfg)
		now := 11*sc + 30*ms
		c.Resume(now, simID(true), &h)
		ack := Segment{Flags: ACK, Seq: 101, Ack: 201, Window: 5000}
		ack.Options.clear()
		c.Input(now, &ack)
		st := c.Stats()
		require.False(t, again && (st.SRTTNs != 0 || st.Cwnd != 1000 || st.RTONs != 3*sc))
		require.False(t, !again &&
			(st.SRTTNs != 1030*ms || st.Cwnd != 10000))
	}
}

// What a cookie cannot keep is not promised in its SYN,ACK: without timestamps neither SACK, nor
// window scaling, nor ECN.
func TestCookiePromisesWhatItKeeps(t *testing.T) {
	for _, tc := range []struct {
		name                  string
		peerTS, noTS, noSACK  bool
		scale                 int8
		ts, sack, ecn, scaled bool
	}{
		{name: "all", peerTS: true, scale: 7, ts: true, sack: true, ecn: true, scaled: true},
		{name: "no scale asked for", peerTS: true, scale: -1, ts: true, sack: true, ecn: true},
		{name: "the peer has no timestamps", scale: 7},
		{name: "we have none", peerTS: true, noTS: true, scale: 7},
		{name: "we have no SACK", peerTS: true, noSACK: true, scale: 7, ts: true, ecn: true,
			scaled: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := Config{NoTimestamps: tc.noTS, NoSACK: tc.noSACK, ECN: ECNPassive}
			template := NewConn(cfg)
			syn := Segment{Flags: SYN | ECE | CWR}
			syn.Options = Options{MSS: 1460, WindowScale: tc.scale, SACKPermitted: true,
				HasTimestamps: tc.peerTS, TSval: 7}
			h := NewHalf(1, 0, &syn)
			h.SetCookie(1, h.Cookie(&template.mem.cfg), 99)
			var x Transmit
			h.CookieSynAck(1000*sc, simID(true), template, &x)
			o := &x.Options
			if o.HasTimestamps != tc.ts || o.SACKPermitted != tc.sack || (o.WindowScale >= 0) != tc.scaled ||
				(x.Flags&ECE != 0) != tc.ecn {
				t.Errorf("%v %+v", x.Flags, o)
			}
		})
	}
}
