package mpa

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
)

// rig is a Receiver with a Pool, a stream to cut segments from, and a Sink that writes down what
// it is given.
//
//	r := newRig(t, rigConfig{Mode: both}, s)
//	r.send(52, 104).is(Kept)   // stream octets [52, 104) arrive
//	r.want(1)                  // FPDU 1 was passed, and no other
//	r.edge(104, 0)             // TCP's edge, Delivery edge
type rig struct {
	t        testing.TB
	s        *stream
	pool     *mem.Pool
	recv     Receiver
	got      []passed
	direct   []bool
	inOrder  []bool
	verdict  Verdict
	pos      int    // where in the slot octets are put; -1: after Headroom
	quiet    bool   // for benchmarks
	late     bool   // octets are committed already
	base     uint64 // where the stream begins, as MPA counts; all else here counts from there
	poolSize int
}

type rigConfig struct {
	Mode       Mode
	Stride     int // default 2048
	BufsMax    int // default BufsMin + 64
	DropBadCRC bool
	Reserve    *Reserve
	PoolExtra  int
	Base       uint64 // a multiple of MarkerSpacing
}

var (
	plain      = Mode{}
	withCRC    = Mode{CRC: true}
	withMarker = Mode{Markers: true}
	both       = Mode{Markers: true, CRC: true}
	allModes   = []Mode{plain, withCRC, withMarker, both}
)

func newPool(t testing.TB, bufs, stride int) *mem.Pool {
	p, err := mem.NewPool(hugepages.Heap(bufs*stride+bufs*64+1<<16),
		mem.PoolConfig{Bufs: bufs, Stride: stride})
	require.NoError(t, err)
	return p
}

func newRig(t testing.TB, cfg rigConfig, s *stream) *rig {
	if cfg.Stride == 0 {
		cfg.Stride = 2048
	}
	if cfg.BufsMax == 0 {
		cfg.BufsMax = BufsMin(cfg.Stride) + 64
	}
	if s == nil {
		s = &stream{mode: cfg.Mode}
	}
	if cfg.Reserve == nil {
		cfg.Reserve = &Reserve{}
	}
	r := &rig{t: t, s: s, pool: newPool(t, cfg.BufsMax+2+cfg.PoolExtra, cfg.Stride), pos: -1,
		base: cfg.Base}
	r.poolSize = r.pool.Available()
	r.recv.Init(ReceiverConfig{
		Mode: cfg.Mode, Pool: r.pool, BufsMax: cfg.BufsMax, DropBadCRC: cfg.DropBadCRC,
		Reserve: cfg.Reserve,
	})
	r.recv.next = cfg.Base
	return r
}

func (r *rig) Place(u *ULPDU) {
	if r.quiet {
		return
	}
	var b bytes.Buffer
	for _, p := range u.Pieces {
		if len(p) == 0 {
			r.t.Fatalf("empty piece in ULPDU at %d", u.Start)
		}
		b.Write(p)
	}
	if b.Len() != u.Len {
		r.t.Fatalf("ULPDU at %d: Len %d, pieces %d", u.Start, u.Len, b.Len())
	}
	r.got = append(r.got, passed{u.Start - r.base, u.End - r.base, b.String()})
	r.direct = append(r.direct, u.Direct)
	r.inOrder = append(r.inOrder, u.InOrder)
}

// input offers octets in a Buf of their own and does what the Poller does with the Verdict.
func (r *rig) input(off uint64, octets []byte) Verdict {
	b := r.pool.Alloc()
	if b == mem.NoBuf {
		r.t.Fatal("pool is empty")
	}
	slot := r.pool.Slot(b)
	pos := r.pos
	if pos < 0 {
		pos = min(r.pool.Headroom()+54, len(slot)-len(octets))
	}
	data := slot[pos : pos+copy(slot[pos:], octets)]
	var v Verdict
	if r.late {
		r.recv.InputCommitted(r.base+off, b, data)
		v = pass(&r.recv, r)
	} else {
		v = input(&r.recv, r.base+off, b, data, r)
	}
	if inOrder := len(r.recv.heldBufs) - r.recv.heldOutOfOrder(); r.recv.partial != inOrder {
		r.t.Fatalf("%d Bufs count as held in order, %d are", r.recv.partial, inOrder)
	}
	if v != Kept {
		if !r.quiet {
			clear(slot) // it must no longer be looked at
		}
		r.pool.Free(b)
	}
	return v
}

func (r *rig) send(lo, hi int) *rig {
	r.t.Helper()
	r.verdict = r.input(uint64(lo), r.s.octets[lo:hi])
	return r
}

// insist sends octets again that were refused, as often as a doubt takes.
func (r *rig) insist(lo, hi int) *rig {
	r.t.Helper()
	for range doubtsMax {
		if r.send(lo, hi).verdict != Refused {
			break
		}
	}
	return r
}

func (r *rig) is(v Verdict) *rig {
	r.t.Helper()
	require.Equal(r.t, v, r.verdict, "verdict")
	return r
}

// want says which frames of the stream have been passed since the last call, in this order.
func (r *rig) want(frames ...int) *rig {
	r.t.Helper()
	var want []passed
	for _, i := range frames {
		want = append(want, r.s.frames[i])
	}
	require.Equal(r.t, names(r.s, want), names(r.s, r.got))
	require.Equal(r.t, want, r.got)
	r.got = nil
	return r
}

// names makes failures readable.
func names(s *stream, ps []passed) []string {
	var out []string
	for _, p := range ps {
		out = append(out, fmt.Sprintf("[%d,%d)", p.start, p.end))
	}
	return out
}

func (r *rig) edge(left, delivery int) *rig {
	r.t.Helper()
	require.Equal(r.t, uint64(delivery), r.deliverable(left), "Delivery edge")
	return r
}

// deliverable is the Delivery edge when TCP's left edge is left.
func (r *rig) deliverable(left int) uint64 { return r.recv.Edge(r.base+uint64(left)) - r.base }

func (r *rig) held(n int) *rig {
	r.t.Helper()
	require.Equal(r.t, uint64(n), r.recv.Stats().HeldBufs, "held Bufs")
	require.Equal(r.t, r.poolSize-n, r.pool.Available(), "Bufs in the pool")
	return r
}

func (r *rig) failed(code ErrorCode) *rig {
	r.t.Helper()
	var e *Error
	require.ErrorAs(r.t, r.recv.Err(), &e)
	require.Equal(r.t, code, e.Code)
	return r.held(0)
}

// ulpdu is n recognisable octets.
func ulpdu(seed, n int) []byte {
	b := make([]byte, n)
	x := uint32(seed)*2654435761 + 12345
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// streamOf writes ULPDUs of the given sizes.
func streamOf(mode Mode, sizes ...int) *stream {
	s := &stream{mode: mode}
	for i, n := range sizes {
		s.add(ulpdu(i, n))
	}
	return s
}

// sink takes ULPDUs.
type sink interface{ Place(u *ULPDU) }

// input is Input and what belongs to it.
func input(r *Receiver, off uint64, b mem.Buf, data []byte, s sink) Verdict {
	r.Input(off, b, data)
	return pass(r, s)
}

func pass(r *Receiver, s sink) Verdict {
	for u := r.Next(); u != nil; u = r.Next() {
		s.Place(u)
	}
	return r.Verdict()
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}
