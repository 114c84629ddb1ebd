package qp

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// A peer that copies no headers, as Linux siw: only a Read can have been the reason.
func TestCauseWithoutHeaders(t *testing.T) {
	a := &requester{ord: 2}
	a.outstanding.init(2)
	a.sent.init(2)
	a.sent.push(sentRequest{flushStatus: wq.Flushed})
	a.outstanding.push(outstanding{msn: 1})
	a.findCause(&rdmap.Terminate{Cause: rdmap.CauseBounds})
	require.Equal(t, wq.RemoteAccess, a.sent.at(0).flushStatus)
	a.sent.at(0).flushStatus = wq.Flushed
	a.findCause(&rdmap.Terminate{Cause: 0x1100})
	require.Equal(t, wq.Flushed, a.sent.at(0).flushStatus, "may be about a Write")
}

// expected is requester.expects by a look at every Request.
func expected(a *requester, h *ddp.Header, n int) (cause rdmap.Cause, ok bool) {
	cause = rdmap.CauseOpcode
	for i := range a.outstanding.count {
		r := a.outstanding.at(i)
		switch off := h.TO - r.sinkTO; {
		case r.atomic:
		case r.sink != h.STag:
			if cause == rdmap.CauseOpcode {
				cause = rdmap.NewCause(rdmap.LayerDDP, ddp.TypeTagged, ddp.CodeInvalidSTag)
			}
		case off <= uint64(r.size) && uint64(n) <= uint64(r.size)-off:
			return 0, true
		default:
			cause = rdmap.NewCause(rdmap.LayerDDP, ddp.TypeTagged, ddp.CodeBounds)
		}
	}
	return cause, false
}

// A segment of a Response is judged as a look at every outstanding Request would, whatever their
// sinks: apart, the same, one in the other. Random.
func TestExpectsOracle(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		ord := 1 + rng.IntN(40)
		a := &requester{}
		a.outstanding.init(ord)
		a.outstanding.head = -uint32(rng.IntN(50)) // places wrap around
		a.sinks = sinks{places: make([]uint32, len(a.outstanding.slots))}
		for range 300 {
			if n := int(a.outstanding.count); n == ord || n > 0 && rng.IntN(3) == 0 {
				a.end()
			} else {
				a.begin(outstanding{
					atomic: rng.IntN(5) == 0, sink: mem.STag(rng.IntN(3)), sinkTO: uint64(rng.IntN(30)),
					size: uint32(rng.IntN(10)),
				})
			}
			h := &ddp.Header{STag: mem.STag(rng.IntN(4)), TO: uint64(rng.IntN(45))}
			n := rng.IntN(8)
			want, wantOK := expected(a, h, n)
			got, ok := a.expects(h, n)
			require.Equal(t, wantOK, ok)
			require.Equal(t, want, got)
		}
	}
}

// However many Reads are outstanding, and whichever of them the peer answers in each FPDU, the Read
// is found in O(log ORD) steps.
func TestExpectsLooksAtFewReads(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for ord, most := range map[int]uint64{64: 8, 16382: 16} {
		for _, apart := range []uint64{0, 100} {
			a := &requester{}
			a.outstanding.init(ord)
			a.sinks = sinks{places: make([]uint32, len(a.outstanding.slots))}
			for i := range ord {
				a.begin(outstanding{sink: 7, sinkTO: uint64(i) * apart, size: 100})
			}
			for range 1000 {
				before := a.sinks.steps
				to := uint64(rng.IntN(ord))*apart + uint64(rng.IntN(90))
				_, ok := a.expects(&ddp.Header{STag: 7, TO: to}, 10)
				require.True(t, ok)
				require.LessOrEqual(t, a.sinks.steps-before, most)
			}
		}
	}
}

// A Read that was begun and found no room in the last segment is taken back when the peer closes
// its half: neither it nor what was posted after it is sent.
func TestPeerEndsTakesBackABegunRead(t *testing.T) {
	q := start(t, newPool(t, 8, 2048), mpa.Mode{}, func(*Config, *StartOptions) {})
	m, err := q.Table.Register(q.Domain, make([]byte, 1400),
		mem.RegionOptions{Access: mem.LocalRead | mem.LocalWrite})
	require.NoError(t, err)
	local := wq.SGE{STag: m.STag(), Offset: m.Base(), Length: 1400}
	for id, op := range []wq.Opcode{wq.OpWrite, wq.OpRead, wq.OpWrite} {
		require.NoError(t, q.PostSend(&wq.WQE{ID: uint64(id), Op: op, Flags: wq.FlagSignaled,
			Local: local}, nil, nil))
	}
	pull := func() (n int) {
		n, _ = q.Pull([][]byte{make([]byte, 1460)}, false)
		return n
	}
	require.Equal(t, 1, pull())
	require.True(t, q.send.seg.Active())
	require.Equal(t, wq.OpRead, q.send.wr.Op)
	require.False(t, q.PeerEnds(), "no Response is missing")
	require.Zero(t, pull())
	q.Finish()
	require.Equal(t, []wq.CQE{{ID: 0, Op: wq.OpWrite, Len: 1400},
		{ID: 1, Op: wq.OpRead, Status: wq.Flushed}, {ID: 2, Op: wq.OpWrite, Status: wq.Flushed},
	}, drainCQ(nil, q.SendCQ))
}
