package interop

import (
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/test/interop/guest"
)

// guestRegion is memory of the guest's that we may write.
type guestRegion struct {
	stag rnic.STag
	at   uint64
}

// pingData is what rping's n-th ping has in its buffer.
func pingData(n, size int) []byte {
	b := append(make([]byte, 0, size), fmt.Sprintf("rdma-ping-%d: ", n)...)
	for c := 'A' + rune(n); len(b) < size-1; c++ {
		if c > 'z' {
			c = 'A'
		}
		b = append(b, byte(c))
	}
	return append(b, 0)
}

// siwInitiator is a way in which siw asks.
type siwInitiator struct {
	name   string
	module string // how siw is loaded
	opt    rnic.ConnParam
	want   rnic.Startup // except for the read depths, which are the program's
}

const ourDepth = 4

// Without markers: siw ends a connection whose Reply asks for them.
var siwInitiators = []siwInitiator{
	{"no CRC", "std", rnic.ConnParam{NoMarkers: true, NoCRC: true, IRD: ourDepth, ORD: ourDepth},
		rnic.Startup{Dialect: rnic.RFC6581, Version: 1, Enhanced: true}},
	{"CRC that we ask for", "std", rnic.ConnParam{NoMarkers: true, IRD: ourDepth, ORD: ourDepth},
		rnic.Startup{Dialect: rnic.RFC6581, Version: 1, Enhanced: true}},
	{"CRC that siw asks for", "opt mpa_crc_required=1",
		rnic.ConnParam{NoMarkers: true, NoCRC: true, IRD: ourDepth, ORD: ourDepth},
		rnic.Startup{Dialect: rnic.RFC6581, Version: 1, Enhanced: true}},
	{"peer-to-peer", "opt peer_to_peer=1", rnic.ConnParam{NoMarkers: true, NoCRC: true, IRD: ourDepth,
		ORD: ourDepth},
		rnic.Startup{Dialect: rnic.RFC6581, Version: 1, Enhanced: true, PeerToPeer: true}},
	{"peer-to-peer, CRC", "opt peer_to_peer=1 mpa_crc_required=1",
		rnic.ConnParam{NoMarkers: true, IRD: ourDepth, ORD: ourDepth},
		rnic.Startup{Dialect: rnic.RFC6581, Version: 1, Enhanced: true, PeerToPeer: true}},
	{"Rev 1", "opt mpa_version=1", rnic.ConnParam{NoMarkers: true, NoCRC: true},
		rnic.Startup{Dialect: rnic.RFC5044, Version: 1}},
}

// overSiw runs a test over both transports and each way of siw's.
func overSiw(t *testing.T, f func(r *rig, s siwInitiator)) {
	for _, s := range siwInitiators {
		t.Run(s.name, func(t *testing.T) {
			over(t, func(r *rig) {
				r.siw(s.module)
				f(r, s)
			})
		})
	}
}

// accepted is our end of a connection of a program in the guest that asks for these read depths,
// both alike, and has no private data.
func (r *rig) accepted(l *rnic.Listener, s siwInitiator, depth int) *end {
	r.t.Helper()
	req := r.accept(l)
	require.Equal(r.t, s.want.Dialect, req.Dialect())
	require.Equal(r.t, s.want.PeerToPeer, req.PeerToPeer())
	require.Empty(r.t, req.PrivateData())
	ird, ord, enhanced := req.ReadDepths()
	require.Equal(r.t, s.want.Enhanced, enhanced)
	if enhanced {
		require.Equal(r.t, []int{depth, depth}, []int{ird, ord})
		s.want.PeerIRD, s.want.PeerORD = depth, depth
		s.want.IRD, s.want.ORD = min(depth, ourDepth), min(depth, ourDepth)
	}
	e := r.newEnd(s.opt)
	require.NoError(r.t, req.Accept(r.ctx, e.qp, e.conn))
	require.Equal(r.t, s.want, e.qp.Startup())
	return e
}

// rping as client, five pings: Sends both ways, our RDMA Read of its memory, and our RDMA Write
// into it, which it compares with what it had there. Rev 1 settles no read depths, and siw serves
// no Read then: what it would have told is known.
func TestSiwInitiatorRping(t *testing.T) {
	overSiw(t, func(r *rig, s siwInitiator) {
		const pings, size = 5, 2000
		l := r.listen()
		job := r.start("rping -c -v -V -a %s -p %d -C %d -S %d", r.host, r.port, pings, size)
		e := r.accepted(l, s, 1)
		for n := range pings {
			source, got := advert(r.t, e.receive())
			require.Equal(r.t, size, got)
			data := pingData(n, size)
			if s.want.Enhanced {
				require.Equal(r.t, data, e.read(source, size))
			}
			e.send(make([]byte, 16)) // "was read"
			sink, got := advert(r.t, e.receive())
			require.Equal(r.t, size, got)
			e.write(data, sink, 0)
			e.send(make([]byte, 16)) // "was written"
		}
		r.ends(job)
		require.Contains(r.t, job.String(), "ping data: rdma-ping-4: EFGH")
		require.NoError(r.t, e.over())
		require.EqualValues(r.t, 2*pings, e.stats().MessagesRecvd)
	})
}

// librdmacm's example: one message each way.
func TestSiwInitiatorRdmaClient(t *testing.T) {
	overSiw(t, func(r *rig, s siwInitiator) {
		l := r.listen()
		client := r.start("rdma_client -s %s -p %d", r.host, r.port)
		e := r.accepted(l, s, 128)
		require.Len(r.t, e.receive(), 16)
		e.send(make([]byte, 16))
		r.ends(client)
		require.NoError(r.t, e.over())
	})
}

// privateSizes are lengths of private data that librdmacm and siw take: with the four octets of the
// read depths, siw counts in one octet.
var privateSizes = []int{0, 1, 20, 128, 251}

func private(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + n)
	}
	return b
}

// probe's private data, and the answer's, octet for octet; read depths of a frame that are not all
// 1.
func TestSiwInitiatorPrivateData(t *testing.T) {
	over(t, func(r *rig) {
		r.siw("std")
		for _, n := range privateSizes {
			l := r.listen()
			probe := r.start("probe connect %s %d %s 5 3 68656c6c6f", r.host, r.port, hexOf(private(n)))
			req := r.accept(l)
			require.Equal(r.t, private(n), append([]byte{}, req.PrivateData()...))
			ird, ord, ok := req.ReadDepths()
			require.Equal(r.t, []any{5, 3, true}, []any{ird, ord, ok})
			e := r.newEnd(rnic.ConnParam{NoMarkers: true, NoCRC: true, IRD: 2, ORD: 9,
				PrivateData: private(n + 1)[:n]})
			require.NoError(r.t, req.Accept(r.ctx, e.qp, e.conn))
			require.Equal(r.t, rnic.Startup{Dialect: rnic.RFC6581, Version: 1, Enhanced: true, IRD: 2,
				ORD: 5, PeerIRD: 5, PeerORD: 3}, e.qp.Startup())
			r.events(probe, "ESTABLISHED 0 ird 2 ord 5", private(n + 1)[:n])
			require.Equal(r.t, "hello", string(e.receive()))
			e.send([]byte("and back"))
			require.Equal(r.t, hex.EncodeToString([]byte("and back")), r.expect(probe, "^received (.*)")[0])
			r.ends(probe)
			require.NoError(r.t, e.over())
		}
	})
}

func hexOf(b []byte) string {
	if len(b) == 0 {
		return "-"
	}
	return hex.EncodeToString(b)
}

// events: probe was told of this event, with this private data.
func (r *rig) events(probe *guest.Job, event string, private []byte) {
	r.t.Helper()
	r.expect(probe, "^event "+event+"$")
	r.expect(probe, "^private "+hex.EncodeToString(private)+"$")
}

// Our Listener rejects. What it says with that arrives.
func TestSiwInitiatorRejected(t *testing.T) {
	over(t, func(r *rig) {
		r.siw("std")
		l := r.listen()
		probe := r.start("probe connect %s %d", r.host, r.port)
		require.NoError(r.t, r.accept(l).Reject(r.ctx, []byte("not today")))
		r.events(probe, "REJECTED -104 ird 0 ord 0", []byte("not today"))
		require.Equal(r.t, probeUnexpected, r.status(probe))
		job := r.start("rping -c -a %s -p %d -C 1", r.host, r.port)
		require.NoError(r.t, r.accept(l).Reject(r.ctx, nil))
		require.NotZero(r.t, r.status(job))
		require.Contains(r.t, job.String(), "RDMA_CM_EVENT_REJECTED, error -104")
	})
}

// probeUnexpected is probe's status when another event came than a connection's.
const probeUnexpected = 4

// With default options our Reply asks for markers, over our TCP (kernel sockets never do). Siw
// refuses that, and our end sees the connection closed.
func TestSiwInitiatorMarkers(t *testing.T) {
	overThese(t, []string{overOurTCP}, func(r *rig) {
		r.siw("std")
		l := r.listen()
		probe := r.start("probe connect %s %d", r.host, r.port)
		e := r.newEnd(rnic.ConnParam{})
		require.NoError(r.t, r.accept(l).Accept(r.ctx, e.qp, e.conn))
		r.events(probe, "REJECTED -111 ird 0 ord 0", nil)
		require.Equal(r.t, probeUnexpected, r.status(probe))
		_ = e.over() // in order, or reset: siw had said nothing yet
	})
}
