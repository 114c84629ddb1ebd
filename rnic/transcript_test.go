package rnic

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
)

// A transcript is a start-up, octet for octet, from the peer's side: "> " it says, "< " it is told,
// in hex and abbreviations; between these what our end does, which is the Initiator where the first
// line is its Request. Nothing else is said, delivered or written. The cases named siw are of Linux
// siw's captures (mpa/testdata/captures).
var transcripts = []struct {
	name   string
	conn   ConnParam
	script string
}{
	{"siw initiates, client-server", ConnParam{NoMarkers: true, NoCRC: true, IRD: 1, ORD: 1},
		`> REQ 1002 0004 0001 0001; accepts; < REP 1002 0004 0001 0001
		> 0022 41 43 00000000 00000000 00000001 00000000 000055f8ab8d5000 6d34000000004000 00000000
		receives 16`},
	{"siw initiates, peer-to-peer with CRC", // rping_crc_p2p.pcap, frames 4 to 9
		ConnParam{NoMarkers: true, RTR: RTRWrite, IRD: 1, ORD: 1},
		`> REQ 5002 0004 8001 c001; accepts; < REP 5002 0004 8001 8001
		> 000ec1400000000100000000 00000000ebd34c5f
		> 0022414300000000000000000000000100000000000055f0dd255ca065d2a40000000bb8b9a36c36; receives 16`},
	{"siw initiates, Rev 1", ConnParam{NoMarkers: true, NoCRC: true}, // neg_srvstd_cliv1.pcap
		`> REQ 0001 0000; accepts; < REP 0001 0000`},
	{"siw responds, peer-to-peer", // the capture from the other side: our octets are siw's
		ConnParam{PeerToPeer: true, RTR: RTRWrite | RTRRead, IRD: 1, ORD: 1, NoMarkers: true},
		`< REQ 5002 0004 8001 c001; > REP 5002 0004 8001 8001
		< 000ec1400000000100000000 00000000ebd34c5f`},
	{"siw rejects markers", ConnParam{}, // M is a No, whatever else the Request says
		`< REQ c001 0000; > REP 6001 0000; rejected`},

	// Figure 9 of the draft, 10 of RFC 5044
	{"figure 9, Responder", ConnParam{NoMarkers: true, PrivateData: []byte("xy")},
		`> REQ 4001 0003 "abc"; accepts abc; sends; < REP 4001 0002 "xy"
		> CRC 0010 c1 40 STAG 0000000000000000 abcd 0000; < SEND; written`},
	{"figure 9, Initiator, which then dislikes the Reply",
		ConnParam{NoMarkers: true, PrivateData: []byte("abc")},
		`< REQ 4001 0003 "abc"; > REP 4001 0002 "xy"; sends; < SEND; > SEND; receives 0; closes xy`},

	// what is no Request
	{"HTTP", ConnParam{}, `> "GET / HTTP/1.0" 0d0a0d0a; refuses key`},
	{"one octet of the key", ConnParam{}, `> "MPA ID Req FramE" 0001 0000; refuses key`},
	{"lower case frame", ConnParam{}, `> "MPA ID Req frame"; refuses key`},
	{"a Reply for a Request", ConnParam{}, `> REP 0001 0000; refuses respond`},
	{"513 octets of private data", ConnParam{}, `> REQ 0001 0201; refuses private`},
	{"enhanced data that is cut", ConnParam{}, `> REQ 5002 0003 800180; refuses enhanced`},
	// R and the reserved bits say nothing in a Request
	{"reserved bits", ConnParam{NoMarkers: true}, `> REQ 6f01 0000; accepts; < REP 4001 0000`},
	// what is no Reply
	{"wrong key", ConnParam{}, `< REQ c001 0000; > "MPA ID Rep frame...."; resets key`},
	{"both ends initiate", ConnParam{}, `< REQ c001 0000; > REQ 0001 0000; resets initiate`},
	{"65,535 octets of private data", ConnParam{}, `< REQ c001 0000; > REP 0001 ffff; resets private`},
	{"enhanced data that is missing", ConnParam{PeerToPeer: true},
		`< REQ d002 0004 c000 c000; > REP 5002 0003 800180; resets enhanced`},
	{"an answer that is not enhanced", ConnParam{PeerToPeer: true},
		`< REQ d002 0004 c000 c000; > REP 4002 0000; resets plain`},
	{"a rejection with half of the enhanced data", ConnParam{PeerToPeer: true},
		`< REQ d002 0004 c000 c000; > REP 7002 0001 80; resets enhanced`},
	// an Initiator that asks in Rev 0 wants Rev 0 back; one that named rfc5044, Rev 1
	{"Rev 0, answered with Rev 1", ConnParam{Dialect: RDDP01},
		`< REQ c000 0000; > REP c001 0000; revision 1`},
	{"Rev 1, answered with Rev 0", ConnParam{Dialect: RFC5044, NoMarkers: true},
		`< REQ 4001 0000; > REP c000 0000; revision 0`},
	{"Rev 1, answered with Rev 2", ConnParam{Dialect: RFC5044, NoMarkers: true},
		`< REQ 4001 0000; > REP c002 0000; revision 2`},
	// the Request says what the options want
	{"Request without CRC", ConnParam{NoCRC: true}, `< REQ 8001 0000`},
	{"sockets: Request without markers", ConnParam{PrivateData: []byte("hello")},
		`< REQ 4001 0005 "hello"; > REP 4001 0000; sends; < SEND`},

	// A valid FPDU opens the Responder's half, though it be empty, and no other.
	{"first FPDU", ConnParam{NoMarkers: true},
		`> REQ 4001 0000; accepts; sends; < REP 4001 0000; waits; > WRITE; < SEND`},
	{"invalid first FPDU", ConnParam{NoMarkers: true},
		`> REQ 4001 0000; accepts; sends; < REP 4001 0000; > BAD; fails crc`},
	{"garbage", ConnParam{}, `> REQ 4001 0000; accepts; < REP c001 0000; > ffff NOISE; fails`},
	// CRC is off only when both ends say so.
	{"theirs on, ours off", ConnParam{NoMarkers: true, NoCRC: true},
		`> REQ 4001 0000; accepts; < REP 4001 0000; > BAD; fails crc`},
	{"theirs off, ours on", ConnParam{NoMarkers: true},
		`> REQ 0001 0000; accepts; < REP 4001 0000; > BAD; fails crc`},
	{"both off", ConnParam{NoMarkers: true, NoCRC: true},
		`> REQ 0001 0000; accepts; < REP 0001 0000; > BAD; written`},
	// Revision 0: DDP and RDMAP of version 0, markers and CRC both ways
	{"Rev 0, Responder", ConnParam{NoMarkers: true, NoCRC: true, PrivateData: []byte("ho")},
		`> REQ c000 0002 "hi"; accepts hi; sends; < REP c000 0002 "ho"
		> CRC 00000000 0010 c0 00 STAG 0000000000000000 abcd 0000; written
		< CRC 00000000 0012 40 03 00000000 00000000 00000001 00000000`},
	{"Rev 0, Initiator", ConnParam{NoMarkers: true}, `< REQ 4001 0000; > REP c000 0000; sends
		< CRC 00000000 0012 40 03 00000000 00000000 00000001 00000000
		> CRC 00000000 0010 c0 00 STAG 0000000000000000 abcd 0000; written`},

	// FPDUs and markers of the Initiator's half are counted from after the Rtr frame
	{"rtr, Responder", ConnParam{}, `> REQ 5001 0000; accepts; sends; < REP d001 0000; waits
		> RTR 4001 0003 aabbcc CRC 00000000 0010 c1 40 STAG 0000000000000000 abcd 0000; < SEND; written`},
	{"rtr, Initiator", ConnParam{Dialect: RTR, NoMarkers: true, NoCRC: true},
		`< REQ 1001 0000; > REP 5001 0000; sends; < RTR 4001 0000 SEND`},
	{"rtr, a peer that waits for nothing", ConnParam{NoMarkers: true},
		`> REQ 5001 0002 "hi" RTR 4001 0000 CRC 0010 c1 40 STAG 0000000000000000 abcd 0000
		accepts hi; written; sends; < REP 5001 0000 SEND`},
	{"rtr, no S in the Reply: the order of version 1", ConnParam{Dialect: RTR, NoMarkers: true},
		`< REQ 5001 0000; > REP 4001 0000; waits; sends; < SEND`},
	{"S in the Reply alone", ConnParam{NoMarkers: true}, // DECISIONS 3
		`< REQ 4001 0000; > REP 5001 0000; sends; unasked; < SEND`},
	{"rtr, another frame", ConnParam{NoMarkers: true},
		`> REQ 5001 0000; accepts; < REP 5001 0000; > REQ 5001 0000; resets key`},
	// It was not meant, and where FPDUs begin is not known.
	{"rtr, revision 0", ConnParam{NoMarkers: true},
		`> REQ 5001 0000; accepts; < REP 5001 0000; > RTR 4000 0000; resets revision`},
	{"rtr, revision 2", ConnParam{NoMarkers: true},
		`> REQ 5001 0000; accepts; < REP 5001 0000; > RTR 4002 0000; resets revision`},
	{"rtr, revision 64", ConnParam{NoMarkers: true},
		`> REQ 5001 0000; accepts; < REP 5001 0000; > RTR 4040 0000; resets revision`},

	// each direction is its receiver's choice
	{"markers for the Responder alone", ConnParam{PeerToPeer: true, RTR: RTRWrite, NoMarkers: true},
		`< REQ 5002 0004 8000 8000; > REP d002 0004 8000 8000; sends
		< CRC 00000000 000e c1 40 00000001 0000000000000000; < SEND; > SEND; receives 0`},
	{"markers for the Initiator alone", ConnParam{NoMarkers: true},
		`> REQ d002 0004 8000 8000; accepts; sends; < REP 5002 0004 8000 8000; > WRITE
		< CRC 00000000 0012 41 43 00000000 00000000 00000001 00000000`},

	// each RTR message: before what was posted, no ULP's, and after it the Responder may begin
	{"RTR Write, Initiator", initiator(RTRWrite), `< REQ 5002 0004 8000 8000; > REP 5002 0004 8000 8000
		sends; < WRITE SEND; > SEND; receives 0`},
	{"RTR Write, Responder", responder(RTRWrite), `> REQ 5002 0004 8000 8000; accepts; sends
		< REP 5002 0004 8000 8000; waits; > WRITE; < SEND; > SEND; receives 0`},
	{"RTR Read, Initiator", initiator(RTRRead), `< REQ 5002 0004 8000 4000; > REP 5002 0004 8001 4000
		sends; < READ SEND; > ANSWER SEND; receives 0`},
	{"RTR Read, Responder", responder(RTRRead), `> REQ 5002 0004 8000 4000; accepts; sends
		< REP 5002 0004 8001 4000; waits; > READ; < ANSWER SEND; > SEND; receives 0`},
	{"RTR Send, Initiator", initiator(RTRSend), `< REQ 5002 0004 c000 0000; > REP 5002 0004 c000 0000
		sends; < SEND SEND2; > SEND; receives 0`},
	{"RTR Send, Responder", responder(RTRSend), `> REQ 5002 0004 c000 0000; accepts; sends
		< REP 5002 0004 c000 0000; waits; > SEND; < SEND; > SEND2; receives 0`},
}

func initiator(k RTRKinds) ConnParam {
	return ConnParam{Dialect: RFC6581, PeerToPeer: true, RTR: k, NoMarkers: true}
}

func responder(k RTRKinds) ConnParam { return ConnParam{RTR: k, NoMarkers: true} }

// transcribed is what some of them agree on.
var transcribed = map[string]Startup{
	"siw initiates, client-server": {Dialect: RFC6581, Version: 1, Enhanced: true, IRD: 1, ORD: 1,
		PeerIRD: 1, PeerORD: 1},
	"siw responds, peer-to-peer": {Dialect: RFC6581, Version: 1, PeerToPeer: true, Enhanced: true,
		IRD: 1, ORD: 1, PeerIRD: 1, PeerORD: 1},
	"Rev 0, Responder": {Dialect: RDDP01},
	"Rev 0, Initiator": {Dialect: RDDP01},
	"rtr, Responder":   {Dialect: RTR, Version: 1, PeerToPeer: true},
	"rtr, Initiator":   {Dialect: RTR, Version: 1, PeerToPeer: true},
	"rtr, no S in the Reply: the order of version 1": {Dialect: RFC5044, Version: 1},
}

// Start-up in all dialects that have frames, as it is on the wire.
//
// req: 6581-9.3-2, 6581-10-1, 5044-7.1.1-2, 5044-C.3-1, P2P-17, 5044-7.1.1-5
// req: P2P-1, P2P-2, P2P-4, P2P-5, P2P-9, P2P-11, P2P-12, P2P-13, P2P-14
// req: D01-6.1.3.2-1, P2P-19, D01-6.1-3, D01-6.1-24, D01-6.1-27
// req: 6581-1.1-1, 6581-5-1, 6581-9.2-8, 6581-9.1-4
// req: D01-6.1-14, D01-6.1-26, D01-6.1.1-4, D01-6.1.2-2, D01-6.1-32, D01-6.1-34, D01-7-7
// req: 5044-7.1.1-7, D01-6.1-22, D01-6.1.1-5, D01-6.1-30
// req: D01-6.1-11, D01-5.2-3, 5044-1.2-1, 5044-7.1.1-4, D01-6.1-5, 5044-7.1.2-1, D01-6.1-25
// req: D01-5.4-1, D01-5.2-17, D01-5.2-18, D01-5.2-2, D01-5.2-7, D01-5.2-8, D01-5.2-12
// req: D01-6.1.1-8, D01-6.1.1-9, 5044-4.4-1, 5044-7.1.1-3
// req: 5044-C.2-5, 5044-C.1-3, 5044-3-2, 5044-C.1-2, 5044-C.2-6, 5044-C.1-5
// req: D01-6.1-21
// req: D01-6.1.3.2-2, D01-6.1-20, 5044-C.2-3, 5044-C.2-1, D01-6.1.1-13, D01-6.1.1-14, DDP-3.3-1
// req: DDP-4-2, 5040-3.1-1
func TestTranscripts(t *testing.T) {
	for _, tc := range transcripts {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, map[bool]kind{true: sockets}[strings.HasPrefix(tc.name, "sockets")], rigConfig{})
			var e *end
			var p *peer
			if tc.script[0] == '>' {
				e, p = r.newEnd(r.server, connOpts(tc.conn)), r.peerDials()
			} else {
				e, p = r.dialling(connOpts(tc.conn))
			}
			e.postRecv(e.recvAt(1, 0, 100))
			want, special := transcribed[tc.name]
			received, written := 0, 0
			for _, step := range strings.Split(strings.ReplaceAll(tc.script, "\n", ";"), ";") {
				verb, rest, _ := strings.Cut(strings.TrimSpace(step), " ")
				switch verb {
				case ">":
					p.expectNothing()
					p.write(e.octets(rest))
				case "<":
					p.expectOctets(step, e.octets(rest))
				case "accepts":
					req := r.request()
					require.Equal(t, rest, string(req.PrivateData()))
					require.True(t, !special || want.PeerToPeer == req.PeerToPeer())
					require.True(t, !special || want.Dialect == req.Dialect())
					require.NoError(t, req.Accept(r.ctx, e.qp, e.conn))
				case "sends":
					e.expectInService()
					e.post(e.sendQuietly(0, 0))
				case "receives":
					e.expectCompletions(Completion{ID: 1, Op: OpRecv, Len: uint32(must(strconv.Atoi(rest)))})
					received++
				case "written":
					r.until("a Write", func() bool { return r.stats(e.qp).WritesRecvd == 1 })
					written++
				case "waits":
					r.pass(time.Second)
				case "unasked":
					require.Equal(t, StartupCounters{UnaskedS: 1}, r.client.StartupCounters())
				case "rejected":
					e.awaitClosed()
					require.Nil(t, errorAs[*RejectedError](t, e.qp.Err()).Conn)
					p.expectReset()
					return
				case "refuses":
					f := r.failure()
					require.ErrorIs(t, f.Err, startupErrors[rest])
					require.False(t, f.Started)
					require.True(t, f.Remote.IsValid())
					p.expectReset()
					require.Empty(t, p.octets())
					require.Nil(t, r.listener.Poll())
					return
				case "fails":
					p.expectFIN()
					p.ends(e)
					require.False(t, errorAs[*TerminateError](t, e.qp.Err()).Remote)
					code := errorAs[*mpa.Error](t, e.qp.Err()).Code
					require.True(t, rest == "" || code == mpa.ErrCRC, code)
					require.Equal(t, make([]byte, regionBytes), e.region.Bytes())
					e.unharmed(t)
					return
				case "resets":
					e.expectClosedBy(startupErrors[rest])
					require.Zero(t, r.client.StartupCounters().Fallbacks)
					require.Equal(t, Closed, e.qp.State())
					p.expectReset()
					return
				case "revision":
					p.expectFIN()
					p.ends(e)
					require.Equal(t, rest, strconv.Itoa(errorAs[*RevisionError](t, e.qp.Err()).Revision))
					return
				case "closes":
					require.Equal(t, rest, string(e.qp.PeerPrivateData()))
					e.qp.Disconnect()
					p.expectFIN()
					p.ends(e)
					require.NoError(t, e.qp.Err())
				default:
					t.Fatal(step)
				}
			}
			e.expectNoCompletion()
			p.expectNothing()
			require.EqualValues(t, received, r.stats(e.qp).MessagesRecvd)
			if tc.script[0] == '<' { // a Responder counts the RTR message too
				require.EqualValues(t, written, r.stats(e.qp).WritesRecvd)
			}
			require.True(t, !special || want == e.qp.Startup(), e.qp.Startup())
		})
	}
}

var startupErrors = map[string]error{"key": mpa.ErrKey, "revision": mpa.ErrReadyRev,
	"respond": mpa.ErrBothRespond, "initiate": mpa.ErrBothInitiate, "private": mpa.ErrPrivateData,
	"enhanced": mpa.ErrEnhanced, "plain": mpa.ErrPlain}

var quoted = regexp.MustCompile(`"[^"]*"`)

// octets are those of a transcript's line: CRC is of what follows it, to the line's end.
func (e *end) octets(line string) []byte {
	send := func(msn int) string {
		return withCRC(e.d.t, fmt.Sprintf("0012 41 43 00000000 00000000 %08x 00000000", msn))
	}
	line = quoted.ReplaceAllStringFunc(line, func(s string) string {
		return hex.EncodeToString([]byte(s[1 : len(s)-1]))
	})
	stag := fmt.Sprintf("%08x", uint32(e.region.STag()))
	line = strings.NewReplacer("REQ", hexReq, "REP", hexRep, "RTR", hexRtr,
		"SEND2", send(2), "SEND", send(1),
		"WRITE", withCRC(e.d.t, "000e c1 40 00000001 0000000000000000"),
		"READ", withCRC(e.d.t, "002e 41 41 00000000 00000001 00000001 00000000 00000001 "+
			"0000000000000000 00000000 00000001 0000000000000000"),
		"ANSWER", withCRC(e.d.t, "000e c1 42 00000001 0000000000000000"),
		"STAG", stag, "BAD", "0010 c1 40 "+stag+" 0000000000000000 abcd 0000 deadbeef",
		"NOISE", hex.EncodeToString(randomBytes(9, 8000))).Replace(line)
	before, checked, has := strings.Cut(line, "CRC")
	if has {
		before += withCRC(e.d.t, checked)
	}
	return unhex(e.d.t, before)
}
