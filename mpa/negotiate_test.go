package mpa

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

const hexRtr = "4D 50 41 20 49 44 20 52 74 72 20 46 72 61 6D 65"

// req: P2P-5, P2P-10, P2P-11, P2P-12, P2P-13
func TestRtrFrame(t *testing.T) {
	req, rep := Frame{Kind: Request, Rev: 1, S: true, Markers: true, CRC: false},
		Frame{Kind: Reply, Rev: 1, S: true, CRC: true}
	f := RtrFrame(&req, &rep)
	require.Equal(t, unhex(t, hexRtr+"C0 01 0000"), f.Append(nil),
		"M as in the Request, C as in the Reply, S, R and Res zero")
	rep.CRC = false
	f = RtrFrame(&req, &rep)
	f.S, f.Reject = true, true
	require.Equal(t, unhex(t, hexRtr+"80 01 0000"), f.Append(nil))

	for _, flags := range []byte{0, 0x0f, 0x10, 0x20, 0x3f} { // ignored on receipt
		b := unhex(t, hexRtr+"C0 01 0002 1234")
		b[16] |= flags
		for cut := range b {
			_, n, err := ParseFrame(b[:cut], Rtr, PrivateDataMax)
			require.NoError(t, err)
			require.Zero(t, n)
		}
		got, n, err := ParseFrame(b, Rtr, PrivateDataMax)
		require.NoError(t, err)
		require.Equal(t, len(b), n)
		require.Equal(
			t, Frame{Kind: Rtr, Rev: 1, Markers: true, CRC: true, PrivateData: []byte{0x12, 0x34}}, got)
	}
}

// The proposal's text and its hex disagree in one octet: both are taken, the text's is sent
// (DECISIONS 1).
//
// req: P2P-6
func TestRtrKeyOfThePrintedHex(t *testing.T) {
	b := unhex(t, "4D 50 41 20 49 44 20 52 74 52 20 46 72 61 6D 65 40 01 0000")
	f, n, err := ParseFrame(b, Rtr, 0)
	require.NoError(t, err)
	require.Equal(t, FrameLen, n)
	require.Equal(t, unhex(t, hexRtr+"40 01 0000"), f.Append(nil))
	b[9] = 'x'
	_, _, err = ParseFrame(b, Rtr, 0)
	require.ErrorIs(t, err, ErrKey)
	for _, kind := range []FrameKind{Request, Reply} {
		_, _, err = ParseFrame(unhex(t, hexRtr+"40 01 0000"), kind, 0)
		require.ErrorIs(t, err, ErrKey)
	}
}

// The S bit is mask 0x10, and means what the Rev says.
//
// req: P2P-7, 6581-6-1
func TestSBit(t *testing.T) {
	f, _, err := ParseFrame(unhex(t, hexRequest+"10 01 0004 80010001"), Request, 512)
	require.NoError(t, err)
	require.True(t, f.S && !f.IsEnhanced())
	f.Rev = 2
	require.True(t, f.IsEnhanced())
	f.S = false
	require.False(t, f.IsEnhanced())
}

// req: 6581-9-1, 6581-9.2-2, 6581-9.1-10
func TestEnhancedData(t *testing.T) {
	for _, g := range []struct {
		hex string
		e   Enhanced
	}{
		{"0000 0000", Enhanced{}},
		{"0001 0002", Enhanced{IRD: 1, ORD: 2}},
		{"3FFF 3FFF", Enhanced{IRD: DepthULP, ORD: DepthULP}},
		{"8001 C001", Enhanced{PeerToPeer: true, RTR: RTRWrite | RTRRead, IRD: 1, ORD: 1}},
		{"8001 8001", Enhanced{PeerToPeer: true, RTR: RTRWrite, IRD: 1, ORD: 1}},
		{"C000 0000", Enhanced{PeerToPeer: true, RTR: RTRSend}},
		{"BFFF 7FFE", Enhanced{PeerToPeer: true, RTR: RTRRead, IRD: DepthULP, ORD: DepthMax}},
	} {
		b := unhex(t, g.hex)
		require.Equal(t, append([]byte{7}, b...), g.e.Append([]byte{7}), g.hex)
		require.Equal(t, g.e, parseEnhanced(b), g.hex)
	}
	require.Equal(t, Enhanced{IRD: 1, ORD: 2}, parseEnhanced(unhex(t, "4001 C002")),
		"B, C and D do not count without A")
	require.Equal(t, unhex(t, "0001 0002"), Enhanced{RTR: AllRTR, IRD: 1, ORD: 2}.Append(nil),
		"nor are they sent")
	require.Panics(t, func() { Enhanced{IRD: DepthULP + 1}.Append(nil) })
}

// PD_Length includes the enhanced data; less than that is no well formed frame; with S=0 all of
// it is the ULP's.
//
// req: 6581-6-4, 6581-6-5
func TestEnhancedPrivateData(t *testing.T) {
	p := Party{CRC: true, RTR: AllRTR, IRD: 3, ORD: 4}
	for n := range 10 {
		private := []byte("123456789")[:n]
		f := p.Request(RFC6581, private)
		require.Equal(t, append(unhex(t, hexRequest+"50 02"), byte(0), byte(4+n), 0, 3, 0, 4),
			f.Append(nil)[:FrameLen+4])
		e, rest, err := f.Enhanced()
		require.NoError(t, err)
		require.Equal(t, Enhanced{IRD: 3, ORD: 4}, e)
		require.Equal(t, append([]byte{}, private...), append([]byte{}, rest...))

		plain := p.Request(RFC5044, private)
		require.Equal(t, append(unhex(t, hexRequest+"40 01"), append([]byte{0, byte(n)}, private...)...),
			plain.Append(nil))
	}
	for n := range EnhancedLen {
		f := Frame{Kind: Request, Rev: 2, S: true, PrivateData: make([]byte, n)}
		_, _, err := f.Enhanced()
		require.ErrorIs(t, err, ErrEnhanced)
	}
	f := Frame{Kind: Request, Rev: 2, PrivateData: []byte{1, 2}}
	_, rest, err := f.Enhanced()
	require.NoError(t, err)
	require.Equal(t, []byte{1, 2}, rest)
}

// req: 6581-9.2-1, 6581-9.2-2, 6581-10-2, 6581-6-2, P2P-8
func TestRequestOfEachDialect(t *testing.T) {
	p := Party{Markers: true, CRC: true, PeerToPeer: true, RTR: RTRWrite | RTRSend, IRD: 16, ORD: 2}
	for _, c := range []struct {
		d    Dialect
		want string
	}{
		{RDDP01, "C0 00 0002 6869"},
		{RFC5044, "C0 01 0002 6869"},
		{RTR, "D0 01 0002 6869"},
		{RFC6581, "D0 02 0006 C010 8002 6869"},
	} {
		f := p.Request(c.d, []byte("hi"))
		require.Equal(t, unhex(t, hexRequest+c.want), f.Append(nil), "%v", c.d)
	}
	p.PeerToPeer = false
	f := p.Request(RFC6581, nil)
	require.Equal(t, unhex(t, hexRequest+"D0 02 0004 0010 0002"), f.Append(nil))
	p.Markers, p.CRC = false, false
	f = p.Request(RDDP01, nil)
	require.Equal(t, unhex(t, hexRequest+"C0 00 0000"), f.Append(nil),
		"markers and CRC whatever is wished (DECISIONS 7)")
}

// Which dialect answers a Request, and what is said to one that none serves.
//
// req: 6581-10-1, 6581-10-3, 6581-6-3, 5044-C.2-2
func TestServe(t *testing.T) {
	frame := func(rev uint8, s bool) *Frame { return &Frame{Kind: Request, Rev: rev, S: s} }
	for _, c := range []struct {
		served  Dialects
		req     *Frame
		want    Dialect
		refusal uint8
	}{
		{FramedDialects, frame(0, false), RDDP01, 0},
		{FramedDialects, frame(1, false), RFC5044, 0},
		{FramedDialects, frame(1, true), RTR, 0},
		{FramedDialects, frame(2, true), RFC6581, 0},
		{FramedDialects, frame(2, false), RFC6581, 0},
		{FramedDialects, frame(3, true), 0, 2},
		{DialectsOf(RFC5044), frame(1, true), RFC5044, 0}, // S is reserved there
		{DialectsOf(RFC5044), frame(0, false), 0, 1},
		{DialectsOf(RFC5044), frame(2, true), 0, 1},
		{DialectsOf(RFC5044, RFC6581), frame(0, false), 0, 1},
		{DialectsOf(RFC6581), frame(1, false), 0, 2},
		{DialectsOf(RTR), frame(1, false), 0, 1},
		{DialectsOf(RDDP01), frame(1, false), 0, 0},
	} {
		d, ok := c.served.Serve(c.req)
		require.Equal(t, c.want, d, "%v, %+v", c.served, c.req)
		require.Equal(t, c.want != 0, ok)
		if !ok {
			f, ok := c.served.Refusal(c.req)
			require.True(t, ok)
			require.Equal(t, Frame{Kind: Reply, Rev: c.refusal, CRC: true, Markers: c.refusal == 0,
				Reject: true}, f)
		}
	}
	_, ok := DialectsOf(Culley02).Refusal(frame(1, false))
	require.False(t, ok)
}

func TestDialectNames(t *testing.T) {
	for d := Culley02; d <= RFC6581; d++ {
		got := must(ParseDialect(d.String()))(t)
		require.Equal(t, d, got)
	}
	_, err := ParseDialect("rfc9999")
	require.ErrorContains(t, err, "culley-02, rddp-01, rfc5044, rtr, rfc6581")
	require.Equal(t, "dialect 9", Dialect(9).String())
	require.Equal(t, "culley-02,rtr", DialectsOf(RTR, Culley02).String())
	require.Equal(t, "Send,Read", (RTRSend | RTRRead).String())
	require.False(t, FramedDialects.Has(Culley02) || FramedDialects.Has(0) || FramedDialects.Has(77))
}

// req: 6581-9-2, 5044-7.1.1-7, D01-6.1.1-17
func TestPrivateDataOfEachDialect(t *testing.T) {
	for d, want := range map[Dialect]int{Culley02: 0, RDDP01: 65535, RFC5044: 512, RTR: 512,
		RFC6581: 508} {
		require.Equal(t, want, d.PrivateDataMax(), "%v", d)
		if d == Culley02 {
			continue
		}
		p := Party{RTR: AllRTR}
		f := p.Request(d, make([]byte, want))
		_, n, err := ParseFrame(f.Append(nil), Request, privateDataMaxRev0)
		require.NoError(t, err)
		require.Equal(t, FrameLen+want+map[bool]int{true: EnhancedLen}[d == RFC6581], n)
		require.Panics(t, func() { f := p.Request(d, make([]byte, want+1)); f.Append(nil) })
	}
}

// answer runs both halves of the negotiation.
func answer(t *testing.T, i, r Party, d Dialect) (rep Frame, ti, tr Terms, err error) {
	t.Helper()
	req := i.Request(d, []byte("from the initiator"))
	rep, tr, err = r.Answer(&req, []byte("from the responder"))
	require.NoError(t, err)
	require.Equal(t, "from the initiator", string(tr.PrivateData))
	require.True(t, i.Accepts(&req, &rep))
	ti, err = i.Conclude(&req, &rep)
	if err == nil {
		require.Equal(t, "from the responder", string(ti.PrivateData))
	}
	return rep, ti, tr, err
}

// Depths by the rules of RFC 6581 section 9.1, for any two ends: neither has more Read Requests
// under way than the other serves, and both know what the other said.
//
// req: 6581-9.1-1, 6581-9.1-2, 6581-9.1-3, 6581-9.1-7, 6581-9.2-3, 6581-10-1
func TestReadDepthsOfAnyPair(t *testing.T) {
	rng := rand.New(rand.NewPCG(6581, 9))
	depth := func() uint16 { return uint16(rng.IntN([]int{3, 20, DepthMax + 1}[rng.IntN(3)])) }
	kinds := func() RTRKinds { return RTRKinds(1 + rng.IntN(7)) }
	for range 20000 {
		i := Party{Dialects: DialectsOf(RFC6581), IRD: depth(), ORD: depth(),
			PeerToPeer: rng.IntN(2) == 0, RTR: kinds()}
		r := Party{Dialects: FramedDialects, IRD: depth(), ORD: depth(), RTR: kinds()}
		rep, ti, tr, err := answer(t, i, r, RFC6581)
		require.True(t, rep.IsEnhanced())
		require.Equal(t, i.PeerToPeer, tr.PeerToPeer)
		require.LessOrEqual(t, tr.ORD, i.IRD)
		require.LessOrEqual(t, tr.IRD, max(r.IRD, 1))
		if i.PeerToPeer && i.RTR&r.RTR == 0 {
			require.Equal(t, ErrRTR, err)
			require.Equal(t, r.RTR, tr.RTR, "its own kinds, for want of common ones")
			continue
		}
		require.NoError(t, err)
		require.LessOrEqual(t, ti.ORD, tr.IRD)
		require.LessOrEqual(t, tr.ORD, ti.IRD)
		require.Equal(t, Enhanced{PeerToPeer: i.PeerToPeer, RTR: tr.Peer.RTR, IRD: i.IRD, ORD: i.ORD},
			tr.Peer)
		require.Equal(t, ti.Peer.IRD, tr.IRD)
		require.Equal(t, ti.Peer.ORD, tr.ORD)
		require.Equal(t, i.PeerToPeer, ti.PeerToPeer)
		if i.PeerToPeer {
			require.Equal(t, i.RTR, tr.Peer.RTR)
			require.Equal(t, i.RTR&r.RTR, tr.RTR)
			require.NotZero(t, ti.RTR&tr.RTR, "the one that will come is among those awaited")
		} else {
			require.Zero(t, ti.RTR|tr.RTR|ti.Peer.RTR)
		}
	}
}

// req: 6581-9.1-4, 6581-9.1-10, 6581-9.1-11, 6581-9.1-12, 6581-9.1-13
func TestReadDepthsTable(t *testing.T) {
	const u = DepthULP
	for _, c := range []struct {
		name                   string
		iIRD, iORD, rIRD, rORD uint16
		read                   bool // peer-to-peer with the Read RTR
		repIRD, repORD         uint16
		ti, tr                 [2]uint16 // IRD, ORD
	}{
		{"the Responder has more", 4, 4, 8, 8, false, 4, 4, [2]uint16{4, 4}, [2]uint16{4, 4}},
		{"the Responder has less", 8, 8, 2, 3, false, 2, 3, [2]uint16{8, 2}, [2]uint16{2, 3}},
		{"no Reads", 0, 0, 8, 8, false, 0, 0, [2]uint16{0, 0}, [2]uint16{0, 0}},
		{"no Reads but the RTR", 0, 0, 0, 0, true, 1, 0, [2]uint16{0, 0}, [2]uint16{1, 0}},
		{"Initiator's ORD is the ULP's", 4, u, 8, 8, false, u, 4, [2]uint16{4, u}, [2]uint16{8, 4}},
		{"Initiator's IRD is the ULP's", u, 4, 8, 8, false, 4, u, [2]uint16{u, 4}, [2]uint16{4, 8}},
		{"both are", u, u, 8, 7, false, u, u, [2]uint16{u, u}, [2]uint16{8, 7}},
		{"Responder's IRD is the ULP's", 4, 5, u, 2, false, u, 2, [2]uint16{4, 5}, [2]uint16{u, 2}},
		{"Responder's ORD is the ULP's", 4, 5, 3, u, false, 3, u, [2]uint16{4, 3}, [2]uint16{3, u}},
	} {
		i := Party{IRD: c.iIRD, ORD: c.iORD, RTR: AllRTR, PeerToPeer: c.read}
		r := Party{Dialects: FramedDialects, IRD: c.rIRD, ORD: c.rORD, RTR: RTRRead}
		rep, ti, tr, err := answer(t, i, r, RFC6581)
		require.NoError(t, err, c.name)
		said, _, err := rep.Enhanced()
		require.NoError(t, err)
		require.Equal(t, [2]uint16{c.repIRD, c.repORD}, [2]uint16{said.IRD, said.ORD}, c.name)
		require.Equal(t, c.ti, [2]uint16{ti.IRD, ti.ORD}, c.name)
		require.Equal(t, c.tr, [2]uint16{tr.IRD, tr.ORD}, c.name)
	}
}

// A Responder that needs more than the Initiator serves says so in a rejecting Reply.
//
// req: 6581-9.1-5, 6581-9.1-6
func TestResponderNeedsMore(t *testing.T) {
	i := Party{IRD: 2, ORD: 1, RTR: AllRTR}
	r := Party{Dialects: FramedDialects, IRD: 4, ORD: 8, ORDMin: 5, RTR: AllRTR}
	req := i.Request(RFC6581, nil)
	rep, _, err := r.Answer(&req, []byte("sorry"))
	require.ErrorIs(t, err, ErrORDShort)
	require.True(t, rep.Reject)
	e, private, err := rep.Enhanced()
	require.NoError(t, err)
	require.Equal(t, Enhanced{IRD: 1, ORD: 5}, e)
	require.Equal(t, "sorry", string(private))
	i.IRD = 5
	req = i.Request(RFC6581, nil)
	rep, _, err = r.Answer(&req, nil)
	require.NoError(t, err)
	require.False(t, rep.Reject)
}

// The kinds a Responder answers: those of the Initiator's that it has; else all of its own.
//
// req: 6581-9.2-4, 6581-9.2-5, 6581-9.2-6, 6581-1.1-2
func TestRTRKindsOfAnyPair(t *testing.T) {
	for offered := RTRKinds(1); offered <= AllRTR; offered++ {
		for own := RTRKinds(1); own <= AllRTR; own++ {
			i := Party{PeerToPeer: true, RTR: offered}
			r := Party{Dialects: FramedDialects, RTR: own}
			rep, ti, tr, err := answer(t, i, r, RFC6581)
			said, _, _ := rep.Enhanced()
			require.NotZero(t, said.RTR)
			require.Equal(t, said.RTR, tr.RTR)
			if offered&own == 0 {
				require.Equal(t, own, said.RTR)
				require.Equal(t, ErrRTR, err)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, offered&own, said.RTR)
			require.Equal(t, (offered & own).choose(), ti.RTR)
		}
	}
	require.Equal(t, RTRWrite, AllRTR.choose())
	require.Equal(t, RTRRead, (RTRRead | RTRSend).choose())
	require.Equal(t, RTRSend, RTRSend.choose())
}

// Replies that a Responder may not, or need not, send.
//
// req: 6581-9.2-7, 6581-9.2-9, 6581-9.1-8, 6581-9.3-1, 6581-12-1
func TestConclude(t *testing.T) {
	reply := func(rev uint8, e Enhanced) Frame {
		return Frame{Kind: Reply, S: true, Rev: rev, CRC: true, PrivateData: e.Append(nil)}
	}
	p2p := Party{PeerToPeer: true, RTR: RTRWrite, IRD: 4, ORD: 4}
	cs := Party{RTR: AllRTR, IRD: 4, ORD: 4}
	for _, c := range []struct {
		name string
		p    Party
		rep  Frame
		want *Error
		code ErrorCode
	}{
		{"kinds that were not offered do no harm", p2p, reply(2, Enhanced{PeerToPeer: true, RTR: AllRTR}),
			nil, 0},
		{"no common kind", p2p, reply(2, Enhanced{PeerToPeer: true, RTR: RTRSend | RTRRead}), ErrRTR, 7},
		{"no kind at all", p2p, reply(2, Enhanced{PeerToPeer: true}), ErrRTR, 7},
		{"A is not echoed", p2p, reply(2, Enhanced{}), ErrModel, 5},
		{"A was not asked for", cs, reply(2, Enhanced{PeerToPeer: true, RTR: AllRTR}), ErrModel, 5},
		{"ORD above our IRD", cs, reply(2, Enhanced{IRD: 4, ORD: 5}), ErrIRD, 6},
		{"ORD at our IRD", cs, reply(2, Enhanced{IRD: 4, ORD: 4}), nil, 0},
		{"not enhanced", cs, Frame{Kind: Reply, Rev: 2}, ErrPlain, 4},
		{"enhanced and short", cs, Frame{Kind: Reply, Rev: 2, S: true, PrivateData: []byte{0, 0, 0}},
			ErrEnhanced, 4},
	} {
		req := c.p.Request(RFC6581, nil)
		terms, err := c.p.Conclude(&req, &c.rep)
		if c.want == nil {
			require.NoError(t, err, c.name)
			require.True(t, terms.Enhanced)
			continue
		}
		require.ErrorIs(t, err, c.want, c.name)
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, c.code, e.Code, c.name)
	}
}

// A Responder that serves no Read cannot be sent one as RTR message, whatever its flags say: the
// Initiator takes another kind, and without one it says that there is none. A Responder that means
// it serves one, or leaves that to the ULPs.
//
// req: 6581-9.1-4, 6581-9.1-7, 6581-9.2-8, 6581-9.2-9
func TestReadAsRTRNeedsItsPlace(t *testing.T) {
	for _, c := range []struct {
		name         string
		own, offered RTRKinds
		ird          uint16
		want         RTRKinds // 0: ErrRTR
	}{
		{"a place", RTRRead | RTRSend, RTRRead | RTRSend, 1, RTRRead},
		{"the ULPs' affair", RTRRead | RTRSend, RTRRead | RTRSend, DepthULP, RTRRead},
		{"none, and a Send will do", RTRRead | RTRSend, RTRRead | RTRSend, 0, RTRSend},
		{"none, and a Write is preferred anyway", AllRTR, AllRTR, 0, RTRWrite},
		{"none, and the Initiator can do nothing else", RTRRead, AllRTR, 0, 0},
		{"none, and the Responder offers nothing else", AllRTR, RTRRead, 0, 0},
	} {
		p := Party{PeerToPeer: true, RTR: c.own, ORD: 4}
		req := p.Request(RFC6581, nil)
		e := Enhanced{PeerToPeer: true, RTR: c.offered, IRD: c.ird}
		terms, err := p.Conclude(&req, &Frame{Kind: Reply, S: true, Rev: 2, PrivateData: e.Append(nil)})
		if c.want == 0 {
			require.ErrorIs(t, err, ErrRTR, c.name)
			continue
		}
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, terms.RTR, c.name)
	}
}

// The S bit of Rev 1 on both sides, on one, on none.
//
// req: P2P-8, P2P-9, P2P-14, P2P-15, P2P-3
func TestSBitOfBothEnds(t *testing.T) {
	i := Party{CRC: true, PeerToPeer: true}
	for _, c := range []struct {
		asked             Dialect
		served            Dialects
		repS, rtr         bool
		initiator, answer Dialect
	}{
		{RTR, FramedDialects, true, true, RTR, RTR},
		{RTR, DialectsOf(RFC5044), false, false, RFC5044, RFC5044},
		{RFC5044, FramedDialects, false, false, RFC5044, RFC5044},
	} {
		r := Party{Dialects: c.served, CRC: true}
		rep, ti, tr, err := answer(t, i, r, c.asked)
		require.NoError(t, err)
		require.Equal(t, c.repS, rep.S)
		require.Equal(t, c.rtr, ti.RtrFrame)
		require.Equal(t, c.rtr, tr.RtrFrame)
		require.Equal(t, c.rtr, ti.PeerToPeer && tr.PeerToPeer)
		require.Equal(t, c.initiator, ti.Dialect)
		require.Equal(t, c.answer, tr.Dialect)
		require.False(t, ti.UnaskedS)
	}
	// DECISIONS 3: nobody asked for it.
	req := i.Request(RFC5044, nil)
	ti := must(i.Conclude(&req, &Frame{Kind: Reply, Rev: 1, S: true}))(t)
	require.True(t, ti.UnaskedS)
	require.False(t, ti.RtrFrame || ti.PeerToPeer)
	// DECISIONS 2: at Rev 0, too, where rtr is enabled.
	r := Party{Dialects: FramedDialects}
	rep, tr, err := r.Answer(&Frame{Kind: Request, S: true, Markers: true, CRC: true}, nil)
	require.NoError(t, err)
	require.True(t, rep.S && tr.RtrFrame)
	require.EqualValues(t, 0, tr.Version)
}

// Figures 15 to 17 of RFC 5044 in the frames of both ends: which end goes on with which, and in
// which version.
//
// req: 5044-C.1-1, 5044-C.2-1, 5044-C.2-4, 5044-C.3-1
func TestFiguresOfAppendixC(t *testing.T) {
	type rnic struct {
		name   string
		asks   Dialect
		party  Party
		served Dialects
	}
	rdmac := rnic{"RDMAC", RDDP01, Party{Dialects: DialectsOf(RDDP01), Markers: true, CRC: true},
		DialectsOf(RDDP01)}
	var all []rnic
	all = append(all, rdmac)
	for _, markers := range []bool{false, true} {
		all = append(all,
			rnic{"non-permissive", RFC5044, Party{Dialects: DialectsOf(RFC5044), Markers: markers},
				DialectsOf(RFC5044)},
			rnic{"permissive", RFC5044, Party{Dialects: DialectsOf(RFC5044, RDDP01), Markers: markers},
				DialectsOf(RFC5044, RDDP01)})
	}
	for _, i := range all {
		for _, r := range all {
			req := i.party.Request(i.asks, nil)
			// An RDMAC Responder answers a Rev 1 Request with Rev 0 (section C.2.5): its supporting entity
			// does not look.
			var rep Frame
			var tr Terms
			if r.name == "RDMAC" {
				rep = Preferences{Rev: 0}.Frame(Reply, nil)
				tr = Terms{Agreement: agree(rep, req)}
			} else {
				r.party.Dialects = r.served
				if _, ok := r.served.Serve(&req); !ok {
					require.True(t, i.name == "RDMAC" && r.name == "non-permissive")
					f, ok := r.served.Refusal(&req)
					require.True(t, ok)
					require.EqualValues(t, 1, f.Rev)
					require.False(t, i.party.Accepts(&req, &f))
					continue
				}
				var err error
				rep, tr, err = r.party.Answer(&req, nil)
				require.NoError(t, err)
			}
			if !i.party.Accepts(&req, &rep) {
				require.True(t, i.name == "non-permissive" && r.name == "RDMAC")
				continue
			}
			ti := must(i.party.Conclude(&req, &rep))(t)
			require.Equal(t, ti.Version, tr.Version)
			consortium := i.name == "RDMAC" || r.name == "RDMAC"
			require.Equal(t, !consortium, ti.Version == 1)
			require.Equal(t, consortium || i.party.Markers, ti.Receive.Markers)
			require.Equal(t, consortium || r.party.Markers, ti.Send.Markers)
			if r.name != "RDMAC" { // whose own view is its own affair
				require.Equal(t, ti.Send, tr.Receive)
				require.Equal(t, ti.Receive, tr.Send)
			}
			if consortium {
				require.True(t, ti.Send.CRC && ti.Receive.CRC)
			}
		}
	}
}

// Acknowledged mode of rnic is agreed by two bits that RFC 5044 reserves: one in an enhanced
// Request of an end that wants it, the other in the Reply to that of one that does. Elsewhere they
// are sent as zero, and not looked at.
func TestAcknowledgedMode(t *testing.T) {
	for _, asks := range []bool{false, true} {
		for _, serves := range []bool{false, true} {
			initiator := Party{RTR: AllRTR, PeerToPeer: true, Acknowledged: asks}
			responder := Party{Dialects: FramedDialects, RTR: AllRTR, Acknowledged: serves}
			for _, d := range []Dialect{RDDP01, RFC5044, RTR, RFC6581} {
				req := initiator.Request(d, []byte("asks"))
				sent := req.Append(nil)
				require.Equal(t, asks && d == RFC6581, sent[keyLen]&0x01 != 0)
				require.Zero(t, sent[keyLen]&0x0e)
				req, _, err := ParseFrame(sent, Request, PrivateDataMax)
				require.NoError(t, err)
				rep, served, err := responder.Answer(&req, []byte("answers"))
				require.NoError(t, err)
				sent = rep.Append(nil)
				both := asks && serves && d == RFC6581
				require.Equal(t, map[bool]byte{true: 0x02}[both], sent[keyLen]&0x0f)
				require.Equal(t, both, served.Acknowledged)
				rep, _, err = ParseFrame(sent, Reply, PrivateDataMax)
				require.NoError(t, err)
				concluded := must(initiator.Conclude(&req, &rep))(t)
				require.Equal(t, both, concluded.Acknowledged)
				require.Equal(t, "answers", string(concluded.PrivateData))
			}
		}
	}
}

// A Reply that grants what was not asked for, and the other reserved bits, say nothing.
func TestReservedBitsSayNothing(t *testing.T) {
	initiator := Party{RTR: AllRTR, PeerToPeer: true}
	req := initiator.Request(RFC6581, nil)
	for bits := byte(0); bits < 16; bits++ {
		sent := req.Append(nil)
		sent[keyLen] |= bits
		responder := Party{Dialects: FramedDialects, RTR: AllRTR, Acknowledged: true}
		asked, _, err := ParseFrame(sent, Request, PrivateDataMax)
		require.NoError(t, err)
		rep, served, err := responder.Answer(&asked, nil)
		require.NoError(t, err)
		require.Equal(t, bits&3 == 1, served.Acknowledged)
		rep.Acknowledged = bits&1 != 0
		got := must(initiator.Conclude(&req, &rep))(t)
		require.False(t, got.Acknowledged)
	}
}

// siw answers with the reserved bits of the Request: that grants nothing.
func TestEchoGrantsNothing(t *testing.T) {
	initiator := Party{RTR: AllRTR, PeerToPeer: true, Acknowledged: true}
	foreign := Party{Dialects: FramedDialects, RTR: AllRTR}
	req := initiator.Request(RFC6581, nil)
	rep, _, err := foreign.Answer(&req, nil)
	require.NoError(t, err)
	for bits := byte(0); bits < 16; bits++ {
		sent := rep.Append(nil)
		sent[keyLen] |= bits
		got, _, err := ParseFrame(sent, Reply, PrivateDataMax)
		require.NoError(t, err)
		concluded := must(initiator.Conclude(&req, &got))(t)
		require.Equal(t, bits&3 == 2, concluded.Acknowledged, "%#x", bits)
	}
}
