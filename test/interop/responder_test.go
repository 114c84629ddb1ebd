package interop

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/test/interop/guest"
)

// siwResponder is a way in which we ask.
type siwResponder struct {
	name   string
	module string
	opt    rnic.ConnParam
	want   rnic.Startup
}

var siwResponders = []siwResponder{
	{"Rev 2", "std", rnic.ConnParam{NoMarkers: true, NoCRC: true, IRD: 3, ORD: 5},
		rnic.Startup{Dialect: rnic.RFC6581, Version: 1, Enhanced: true, IRD: 3, ORD: 5, PeerIRD: 5,
			PeerORD: 3}},
	{"Rev 2, CRC", "std", rnic.ConnParam{NoMarkers: true, IRD: 3, ORD: 5},
		rnic.Startup{Dialect: rnic.RFC6581, Version: 1, Enhanced: true, IRD: 3, ORD: 5, PeerIRD: 5,
			PeerORD: 3}},
	{"Rev 2, CRC that siw wants too", "opt mpa_crc_required=1",
		rnic.ConnParam{NoMarkers: true, IRD: 3, ORD: 5},
		rnic.Startup{Dialect: rnic.RFC6581, Version: 1, Enhanced: true, IRD: 3, ORD: 5, PeerIRD: 5,
			PeerORD: 3}},
	{"Rev 1", "std", rnic.ConnParam{NoMarkers: true, NoCRC: true, Dialect: rnic.RFC5044},
		rnic.Startup{Dialect: rnic.RFC5044, Version: 1}},
	{"Rev 1, CRC", "std", rnic.ConnParam{NoMarkers: true, Dialect: rnic.RFC5044},
		rnic.Startup{Dialect: rnic.RFC5044, Version: 1}},
	{"peer-to-peer, Write", "std", rnic.ConnParam{NoMarkers: true, NoCRC: true, PeerToPeer: true,
		RTR: rnic.RTRWrite, IRD: 1, ORD: 1},
		rnic.Startup{Dialect: rnic.RFC6581, Version: 1, Enhanced: true, PeerToPeer: true, IRD: 1, ORD: 1,
			PeerIRD: 1, PeerORD: 1}},
	{"peer-to-peer, any, CRC", "std", rnic.ConnParam{NoMarkers: true, PeerToPeer: true,
		IRD: 1, ORD: 1},
		rnic.Startup{Dialect: rnic.RFC6581, Version: 1, Enhanced: true, PeerToPeer: true, IRD: 1, ORD: 1,
			PeerIRD: 1, PeerORD: 1}},
	{"peer-to-peer, Read", "std", rnic.ConnParam{NoMarkers: true, NoCRC: true, PeerToPeer: true,
		RTR: rnic.RTRRead, IRD: 1, ORD: 1},
		rnic.Startup{Dialect: rnic.RFC6581, Version: 1, Enhanced: true, PeerToPeer: true, IRD: 1, ORD: 1,
			PeerIRD: 1, PeerORD: 1}},
}

// overResponders runs a test over both transports and each way of ours.
func overResponders(t *testing.T, f func(r *rig, s siwResponder)) {
	for _, s := range siwResponders {
		t.Run(s.name, func(t *testing.T) {
			over(t, func(r *rig) {
				r.siw(s.module)
				f(r, s)
			})
		})
	}
}

// connect is our end of a connection to a server of the guest's. Siw may leave lying what it is
// sent right after its Reply (TestSiwAcceptRace), unless it is woken up.
func (r *rig) connect(addr string, opt rnic.ConnParam) *end {
	r.t.Helper()
	opt.Quirks.WakeUp = rnic.WakeUpDefault
	return r.connectOnly(addr, opt)
}

func (r *rig) connectOnly(addr string, opt rnic.ConnParam) *end {
	r.t.Helper()
	e := r.newEnd(opt)
	require.NoError(r.t, e.qp.Connect(r.ctx, addr, e.conn))
	return e
}

// ask sends a message and returns the answer.
func (e *end) ask(message []byte) []byte {
	e.r.t.Helper()
	e.send(message)
	return e.receive()
}

func (e *end) close() {
	e.r.t.Helper()
	require.NoError(e.r.t, e.qp.Close(e.r.ctx))
	require.NoError(e.r.t, e.over())
}

// Messages both ways and our RDMA Write, to a server that echoes; private data both ways.
func TestSiwResponder(t *testing.T) {
	overResponders(t, func(r *rig, s siwResponder) {
		probe, addr := r.serve("exec probe listen $port accept " + hexOf(private(30)))
		s.opt.PrivateData = private(20)
		e := r.connect(addr, s.opt)
		require.Equal(r.t, s.want, e.qp.Startup())
		require.Equal(r.t, private(30), e.qp.PeerPrivateData())
		r.expect(probe, "^private "+hex.EncodeToString(private(20))+"$")
		to := r.region(probe)
		require.Equal(r.t, "first", string(e.ask([]byte("first"))))
		for n := range 5 {
			message := bytes.Repeat([]byte{byte('a' + n)}, 1+n*900)
			e.write(message[:min(len(message), 50)], to, n)
			e.send(message)
			require.Equal(r.t, message, e.receive())
		}
		e.close()
		r.ends(probe)
		require.Contains(r.t, probe.String(),
			"region holds "+hex.EncodeToString([]byte("abcd"+strings.Repeat("e", 50))))
	})
}

// region is what probe tells of its memory.
func (r *rig) region(probe *guest.Job) guestRegion {
	r.t.Helper()
	m := r.expect(probe, "^region ([0-9a-f]+) ([0-9a-f]+)$")
	at := must(strconv.ParseUint(m[0], 16, 64))(r.t)
	stag := must(strconv.ParseUint(m[1], 16, 32))(r.t)
	return guestRegion{at: at, stag: rnic.STag(stag)}
}

// librdmacm's example.
func TestSiwResponderRdmaServer(t *testing.T) {
	overResponders(t, func(r *rig, s siwResponder) {
		server, addr := r.serve("exec rdma_server -p $port")
		e := r.connect(addr, s.opt)
		require.Len(r.t, e.ask(make([]byte, 16)), 16)
		r.ends(server)
		require.NoError(r.t, e.over())
	})
}

// rping's server, five pings: it reads what we had in our region, and writes it elsewhere into it.
// Without read depths, in Rev 1, it cannot even ask, and closes in order.
func TestSiwResponderRping(t *testing.T) {
	overResponders(t, func(r *rig, s siwResponder) {
		const pings, size = 5, 2000
		job, addr := r.serve(fmt.Sprintf("exec rping -s -v -V -p $port -C %d -S %d -a %v", pings, size,
			guestAddr.Addr()))
		if !s.want.Enhanced {
			e := r.connect(addr, s.opt)
			e.send(e.expose(0, size))
			require.NoError(r.t, e.over())
			_ = r.status(job)
			require.Contains(r.t, job.String(), "post send error")
			return
		}
		e := r.connect(addr, s.opt)
		for n := range pings {
			source, sink := e.region.Bytes()[:size], e.region.Bytes()[size:][:size]
			copy(source, pingData(n, size))
			clear(sink)
			require.Len(r.t, e.ask(e.expose(0, size)), 16)    // "was read"
			require.Len(r.t, e.ask(e.expose(size, size)), 16) // "was written"
			require.Equal(r.t, source, sink)
		}
		e.close()
		_ = r.status(job) // of a connection that ends it says nothing good, whatever it was
		require.Contains(r.t, job.String(), "server ping data: rdma-ping-4: EFGH")
		require.Contains(r.t, job.String(), "server DISCONNECT EVENT")
	})
}

// What siw refuses is an error that says so: markers, and with them Rev 0, which always asks for
// them. Its listener serves on.
func TestSiwResponderRefuses(t *testing.T) {
	over(t, func(r *rig) {
		r.siw("std")
		_, addr := r.serve("exec probe listen $port accept")
		asked := map[string]rnic.ConnParam{"Rev 0": {Dialect: rnic.RDDP01, NoMarkers: true}}
		if r.host == ourAddr.Addr().String() { // kernel sockets never ask for markers
			asked["Rev 1"] = rnic.ConnParam{}
			asked["Rev 1, no CRC"] = rnic.ConnParam{NoCRC: true}
			asked["Rev 2"] = rnic.ConnParam{IRD: 1, ORD: 1}
			asked["Rev 2, peer-to-peer"] = rnic.ConnParam{PeerToPeer: true, IRD: 1, ORD: 1}
		}
		for name, opt := range asked {
			e := r.newEnd(opt)
			var no *rnic.RejectedError
			require.ErrorAs(r.t, e.qp.Connect(r.ctx, addr, e.conn), &no, name)
			require.Empty(r.t, no.PrivateData)
		}
		e := r.connect(addr, rnic.ConnParam{NoMarkers: true})
		require.Equal(r.t, "hello", string(e.ask([]byte("hello"))))
		e.close()
	})
}

// A server rejects, with private data.
func TestSiwResponderRejects(t *testing.T) {
	over(t, func(r *rig) {
		r.siw("std")
		for _, opt := range []rnic.ConnParam{
			{NoMarkers: true, Dialect: rnic.RFC5044}, {NoMarkers: true, IRD: 1, ORD: 2},
			{NoMarkers: true, PeerToPeer: true, IRD: 1, ORD: 2},
		} {
			probe, addr := r.serve("exec probe listen $port reject " + hexOf([]byte("not today")))
			opt.PrivateData = []byte("please")
			e := r.newEnd(opt)
			var no *rnic.RejectedError
			require.ErrorAs(r.t, e.qp.Connect(r.ctx, addr, opt), &no)
			require.Equal(r.t, "not today", string(no.PrivateData))
			if opt.Dialect == 0 {
				require.Equal(r.t, []any{true, 2, 1}, []any{no.Enhanced, no.IRD, no.ORD})
			}
			r.expect(probe, "^private "+hex.EncodeToString([]byte("please"))+"$")
			r.ends(probe)
		}
	})
}

// Private data of the lengths that siw takes, both ways, octet for octet.
func TestSiwResponderPrivateData(t *testing.T) {
	over(t, func(r *rig) {
		r.siw("std")
		for _, n := range privateSizes {
			probe, addr := r.serve("exec probe listen $port accept " + hexOf(private(n)))
			e := r.connect(addr, rnic.ConnParam{NoMarkers: true, IRD: 1, ORD: 1, PrivateData: private(n)})
			require.Equal(r.t, private(n), append([]byte{}, e.qp.PeerPrivateData()...))
			r.events(probe, "CONNECT_REQUEST 0 ird 1 ord 1", private(n))
			require.Equal(r.t, "x", string(e.ask([]byte("x"))))
			e.close()
			r.ends(probe)
		}
	})
}

// Siw answers with the flags of the Request, so that in dialect rtr each end takes the other for
// one that knows it; our Ready-to- Receive frame then is no FPDU to siw, which ends the stream. RFC
// 6581, which siw knows, is what a dial tries first.
func TestSiwResponderRtrFrame(t *testing.T) {
	over(t, func(r *rig) {
		r.siw("std")
		_, addr := r.serve("exec probe listen $port accept")
		e := r.connect(addr, rnic.ConnParam{NoMarkers: true, Dialect: rnic.RTR})
		e.send([]byte("x"))
		var te *rnic.TerminateError
		require.ErrorAs(r.t, e.over(), &te)
		require.True(r.t, te.Remote)
	})
}

// Without a wake-up siw leaves lying, in some of the tries, what comes right after its Reply;
// octets more wake it. With one, all tries work.
func TestSiwAcceptRace(t *testing.T) {
	over(t, func(r *rig) {
		r.siw("std")
		for _, opt := range []rnic.ConnParam{
			{NoMarkers: true}, {NoMarkers: true, PeerToPeer: true},
			{NoMarkers: true, Quirks: rnic.Quirks{WakeUp: rnic.WakeUpDefault}},
			{NoMarkers: true, PeerToPeer: true, Quirks: rnic.Quirks{WakeUp: rnic.WakeUpDefault}},
		} {
			late := 0
			for range *raceTries {
				probe, addr := r.serve("exec probe listen $port accept")
				e := r.connectOnly(addr, opt)
				begin := time.Now()
				e.send([]byte("at once"))
				limit := patience
				if opt.Quirks.WakeUp == 0 {
					limit = raceTimeout
				}
				answer, err := e.awaitFor(limit)
				if opt.Quirks.WakeUp == 0 && err != nil {
					require.ErrorIs(r.t, err, context.DeadlineExceeded)
					late++
					e.write(nil, guestRegion{stag: 1}, 0)
					answer, err = e.await(r.ctx)
				}
				require.NoError(r.t, err)
				require.Equal(r.t, "at once", string(answer))
				if opt.Quirks.WakeUp > 0 && time.Since(begin) > opt.Quirks.WakeUp*3/4 {
					late++
				}
				e.close()
				r.ends(probe)
			}
			r.t.Logf("siw left the first FPDU lying in %d of %d tries (peer-to-peer: %v; wake-up: %v)", late,
				*raceTries, opt.PeerToPeer, opt.Quirks.WakeUp)
		}
	})
}

// raceTimeout is how long an answer may take before siw is thought to have left our message lying.
const raceTimeout = 2 * time.Second

// awaitFor is await for so long.
func (e *end) awaitFor(d time.Duration) ([]byte, error) {
	e.r.t.Helper()
	ctx, cancel := context.WithTimeout(e.r.ctx, d)
	defer cancel()
	return e.await(ctx)
}
