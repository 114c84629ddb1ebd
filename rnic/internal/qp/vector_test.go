package qp

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// Segments leave, and arrive, in vectors of any lengths as they do one by one.

// ends are those of one connection of TestVectors: a sends from its memory, b has the memory that
// is written to and four receive buffers.
type ends struct {
	t         *testing.T
	a, b      *Engine
	from, to  *mem.MemoryRegion
	pool      *mem.Pool
	emss      int
	mode      mpa.Mode
	packFull  bool
	fill      bool
	edge      uint64
	segments  [][]byte
	ended     []int // which of the segments a message has ended in
	completed []wq.CQE
	waited    int // octets of a segment that was not full
	longest   int // vector that was filled or looked at
}

const (
	endsMemory = 1 << 18
	inlineMax  = InlineMaxLimit
)

func newEnds(t *testing.T, seed uint64) *ends {
	r := rand.New(rand.NewPCG(seed, 1))
	mode := mpa.Mode{CRC: r.IntN(4) > 0, Markers: r.IntN(2) == 0}
	e := &ends{t: t, pool: newPool(t, 40, 66560), mode: mode, packFull: r.IntN(4) == 0,
		emss: []int{100, 536, 1448, 1460, 1459, 8948, 65400}[r.IntN(7)], fill: r.IntN(2) == 0}
	region := func(q *Engine, access mem.Access) *mem.MemoryRegion {
		octets, err := unix.Mmap(-1, 0, endsMemory, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, unix.Munmap(octets)) })
		_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(access)}).Read(octets)
		m, err := q.Table.Register(q.Domain, octets, mem.RegionOptions{Access: access})
		require.NoError(t, err)
		return m
	}
	e.a, e.b = e.engine(mode), e.engine(mode)
	e.from, e.to = region(e.a, mem.LocalRead), region(e.b, mem.RemoteWrite|mem.LocalWrite)
	for id := range uint64(4) {
		buffer := wq.SGE{STag: e.to.STag(), Length: endsMemory / 4, Offset: e.to.Base() + id*endsMemory/4}
		require.NoError(t, e.b.PostRecv(&wq.WQE{ID: id, Op: wq.OpRecv, Local: buffer}, nil))
	}
	return e
}

func (e *ends) engine(mode mpa.Mode) *Engine {
	return start(e.t, e.pool, mode, func(c *Config, o *StartOptions) {
		c.Table.DrawFrom(rand.New(rand.NewPCG(1, 1)).Uint32)
		c.SendDepth, c.SGEMax, c.InlineMax = 64, 2, inlineMax
		o.EMSS, o.PackFull, o.Fill = e.emss, e.packFull, e.fill
	})
}

// post posts requests as seed has them: Writes and at most four Sends, of one or two ranges, whose
// second may be revoked, or inline.
func (e *ends) post(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 2))
	sends := 0
	for id := range uint64(10) {
		n := uint32(r.IntN(4 << (2 * r.IntN(7))))
		if r.IntN(3) == 0 { // its last segment is as long as the others, unless there are markers
			n = uint32((1 + r.IntN(6)) * (e.a.send.tx.MULPDU(e.emss) - ddp.TaggedLen))
		}
		w := wq.WQE{ID: id, Op: wq.OpWrite, Flags: wq.FlagSignaled, RemoteSTag: e.to.STag(),
			RemoteOffset: e.to.Base() + r.Uint64N(endsMemory-uint64(n))}
		w.Local = wq.SGE{STag: e.from.STag(), Length: n,
			Offset: e.from.Base() + r.Uint64N(endsMemory-uint64(n))}
		if sends < 4 && r.IntN(3) == 0 {
			sends++
			w.Op = wq.OpSend
		}
		var list []wq.SGE
		if r.IntN(4) == 0 {
			second := w.Local
			second.Length /= 2
			w.Local.Length -= second.Length
			list, w.More = []wq.SGE{second}, 1
		}
		var inline []byte
		if n <= inlineMax && r.IntN(2) == 0 {
			inline = make([]byte, n)
			w.Local, w.More, list = wq.SGE{Length: n}, 0, nil
			w.Flags |= wq.FlagInline
		}
		require.NoError(e.t, e.a.PostSend(&w, list, inline))
	}
}

// send pulls all that was posted, up to most segments at once. A last one that waits to be filled
// comes in the end.
func (e *ends) send(most, revokeAt int) {
	for mayWait := e.packFull; ; {
		if len(e.segments) == revokeAt {
			e.from.Revoke()
		}
		n := 1 + rand.IntN(most)
		if left := revokeAt - len(e.segments); left > 0 {
			n = min(n, left)
		}
		rooms := make([][]byte, n)
		for i := range rooms {
			rooms[i] = make([]byte, e.emss)
		}
		n, bits := e.a.Pull(rooms, mayWait)
		if n == 0 && mayWait {
			e.waited = len(e.a.send.staged)
			mayWait = false
			continue
		}
		if n == 0 {
			break
		}
		for i := range 32 {
			if bits>>i&1 != 0 {
				require.Less(e.t, i, n)
				e.ended = append(e.ended, len(e.segments)+i)
			}
		}
		e.segments = append(e.segments, rooms[:n]...)
		e.longest = max(e.longest, n)
	}
	e.completed = drainCQ(e.completed, e.a.SendCQ)
}

// inBufs copies segments to Bufs.
func (e *ends) inBufs(segments [][]byte) (bufs []mem.Buf, data [][]byte) {
	bufs, data = make([]mem.Buf, len(segments)), make([][]byte, len(segments))
	require.Equal(e.t, len(bufs), e.pool.AllocN(bufs))
	for i, b := range bufs {
		slot := e.pool.Slot(b)[128:]
		data[i] = slot[:copy(slot, segments[i])]
	}
	return bufs, data
}

// arrive gives b the segments, in order, up to most at once.
func (e *ends) arrive(most int) {
	for left := e.segments; len(left) > 0; {
		bufs, data := e.inBufs(left[:min(len(left), 1+rand.IntN(most))])
		n, v := e.b.Arrive(e.edge, bufs, data)
		e.pool.FreeN(bufs[n:])
		if e.pool.FreeN(bufs[:n-1]); v != mpa.Kept {
			e.pool.Free(bufs[n-1])
		}
		if v == mpa.Refused {
			return // a length that was damaged: all after it waits
		}
		for _, octets := range data[:n] {
			e.edge += uint64(len(octets))
		}
		e.b.LeftEdge(e.edge)
		e.completed = drainCQ(e.completed, e.b.RecvCQ)
		e.longest = max(e.longest, n)
		left = left[n:]
	}
}

// arriveOne is Arrive of one segment.
func arriveOne(q *Engine, off uint64, b mem.Buf, data []byte) mpa.Verdict {
	_, v := q.Arrive(off, []mem.Buf{b}, [][]byte{data})
	return v
}

// pullOne is Pull of one segment, and returns how many octets it has.
func pullOne(q *Engine, dst []byte) int {
	room := [][]byte{dst[:len(dst):len(dst)]}
	if n, _ := q.Pull(room, false); n == 0 {
		return 0
	}
	return len(room[0])
}

func drainCQ(to []wq.CQE, cq *CQ) []wq.CQE {
	var c [8]wq.CQE
	for n := cq.Poll(c[:]); n > 0; n = cq.Poll(c[:]) {
		to = append(to, c[:n]...)
	}
	return to
}

// reach has the octets of m from lost on out of reach, or within it again.
func (e *ends) reach(m *mem.MemoryRegion, prot int) {
	require.NoError(e.t, unix.Mprotect(m.Bytes()[endsMemory/2:], prot))
}

// How many segments a Pull or an Arrive is given at once changes no octet, no completion and no
// counter. Also where the memory is revoked or goes away in the middle, of either end, or a segment
// is damaged: what came before that stands.
func TestVectors(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	vectors, lost, waited := 0, 0, 0
	for i := range uint64(60) {
		one, many := newEnds(t, seed+i), newEnds(t, seed+i)
		revokeAt := -1
		if i%5 == 4 {
			revokeAt = 1 + rand.IntN(40)
		}
		for _, e := range []*ends{one, many} {
			e.post(seed + i)
			if i%10 == 3 {
				e.reach(e.from, unix.PROT_NONE)
			}
		}
		one.send(1, revokeAt)
		many.send(32, revokeAt)
		require.True(t, slices.EqualFunc(one.segments, many.segments, bytes.Equal), "seed %d", seed+i)
		sent := func(e *ends) []any { return []any{e.ended, e.waited, e.completed, e.a.Stats()} }
		require.Equal(t, sent(one), sent(many), "seed %d", seed+i)
		if n := len(one.segments); i%7 == 6 && n > 0 {
			k, at := rand.IntN(n), rand.IntN(4)
			one.segments[k][at] ^= 1
			many.segments[k][at] ^= 1
		}
		for _, e := range []*ends{one, many} {
			if i%10 == 8 {
				e.reach(e.to, unix.PROT_NONE)
			}
		}
		one.arrive(1)
		many.arrive(20)
		for _, e := range []*ends{one, many} {
			e.reach(e.to, unix.PROT_READ)
			if e.a.recv.lost != nil || e.b.recv.lost != nil {
				lost++
			}
		}
		require.True(t, bytes.Equal(one.to.Bytes(), many.to.Bytes()), "seed %d", seed+i)
		arrived := func(e *ends) []any {
			fx, err := e.a.TakeEffects()
			gx, frr := e.b.TakeEffects()
			return []any{e.edge, e.completed, e.b.Stats(), fx, err, gx, frr}
		}
		require.Equal(t, arrived(one), arrived(many), "seed %d", seed+i)
		vectors += many.longest
		waited += many.waited
	}
	require.Greater(t, vectors, 100, "seed %d", seed)
	require.Positive(t, lost, "seed %d", seed)
	require.Positive(t, waited, "seed %d", seed)
}

// What completes a receive buffer is the last that an Arrive looks at: the application hears of it,
// and may post another, before the next segment is looked at.
func TestVectorEndsWithACompletion(t *testing.T) {
	e, _ := plainEnds(t)
	for range 3 {
		w := wq.WQE{Op: wq.OpSend, Local: wq.SGE{STag: e.from.STag(), Length: uint32(e.emss - 100),
			Offset: e.from.Base()}}
		require.NoError(t, e.a.PostSend(&w, nil, nil))
	}
	e.send(8, -1)
	require.Equal(t, 3, len(e.segments))
	require.Equal(t, []int{0, 1, 2}, e.ended)
	bufs := make([]mem.Buf, 3)
	require.Equal(t, 3, e.pool.AllocN(bufs))
	n, v := e.b.Arrive(0, bufs, e.segments)
	require.Equal(t, 1, n)
	require.Equal(t, mpa.Done, v)
	require.Len(t, drainCQ(nil, e.b.RecvCQ), 1)
}

// Of a stream that has ended all is swallowed at once; ahead of a gap one segment is looked at.
func TestVectorsOutOfOrder(t *testing.T) {
	e, tx := plainEnds(t)
	e.segments = [][]byte{sendOf(&tx, 1, 0, false), sendOf(&tx, 1, 100, false),
		sendOf(&tx, 1, 200, true)}
	bufs, data := e.inBufs(e.segments[1:])
	n, v := e.b.Arrive(uint64(len(e.segments[0])), bufs, data)
	require.Equal(t, 1, n)
	require.NotEqual(t, mpa.Refused, v)
	e.b.recv.dead = true
	n, v = e.b.Arrive(uint64(len(e.segments[0])), bufs, data)
	require.Equal(t, 2, n)
	require.Equal(t, mpa.Done, v)
}

// sendOf is an FPDU of a Send's segment.
func sendOf(tx *mpa.Sender, msn, mo uint32, last bool) []byte {
	return fpdu(tx, &ddp.Header{Last: last, Version: 1, ULP: rdmap.Control(1, rdmap.OpSend),
		QN: rdmap.QNSend, MSN: msn, MO: mo}, make([]byte, 100))
}

// plainEnds have a CRC and no markers.
func plainEnds(t *testing.T) (e *ends, tx mpa.Sender) {
	for seed := uint64(1); ; seed++ {
		if e = newEnds(t, seed); !e.mode.Markers && e.mode.CRC && !e.packFull && e.emss > 500 {
			tx.Init(mpa.Mode{CRC: true})
			return e, tx
		}
	}
}

// The first error is the one that is reported: one that Delivery finds, MSN 2 before MSN 1, and not
// the bad CRC of the segment after it.
func TestVectorEndsWithAnError(t *testing.T) {
	var errs [2]error
	for i, most := range []int{1, 20} {
		e, tx := plainEnds(t)
		e.segments = [][]byte{sendOf(&tx, 2, 0, true), sendOf(&tx, 1, 0, false),
			sendOf(&tx, 1, 100, true)}
		e.segments[1][30] ^= 1
		e.arrive(most)
		_, errs[i] = e.b.TakeEffects()
	}
	require.ErrorContains(t, errs[0], "MSN")
	require.Equal(t, errs[0], errs[1])
}

type teller []wq.EventKind

func (l *teller) Tell(k wq.EventKind, _ uint64, _ error) { *l = append(*l, k) }

// A threshold that is crossed in the middle of a vector, and no longer at its end, is told.
func TestThresholdsWithinVectors(t *testing.T) {
	e, tx := plainEnds(t)
	var told teller
	e.b.Teller = &told
	e.b.Arm(wq.EventReceiveHigh, 1)
	e.segments = [][]byte{sendOf(&tx, 2, 0, false), sendOf(&tx, 1, 0, false),
		sendOf(&tx, 1, 100, true), sendOf(&tx, 2, 100, true)}
	bufs := make([]mem.Buf, 4)
	require.Equal(t, 4, e.pool.AllocN(bufs))
	for at := 0; at < 4; {
		n, _ := e.b.Arrive(e.edge, bufs[at:], e.segments[at:])
		for _, octets := range e.segments[at:][:n] {
			e.edge += uint64(len(octets))
		}
		e.b.LeftEdge(e.edge)
		at += n
	}
	require.Equal(t, teller{wq.EventReceiveHigh}, told)
}

// quiet is a Source without work.
type quiet struct{}

func (quiet) SendsWait() bool       { return false }
func (quiet) FillSends(*wq.Request) {}
func (quiet) FillRecvs(*wq.Request) {}
func (quiet) Written()              {}

// Arrive looks at no more after a segment that has a visible effect beyond placement: each of these
// alone.
func TestWhatEndsAVector(t *testing.T) {
	failed := errors.New("failed")
	for name, tc := range map[string]struct {
		change func(q *Engine)
		want   bool
	}{
		"memory alone":            {func(*Engine) {}, false},
		"a completion":            {func(q *Engine) { q.recv.batch.n = 1 }, true},
		"an effect":               {func(q *Engine) { q.effects = EffectSend }, true},
		"it may not send yet":     {func(q *Engine) { q.send.enabled = false }, true},
		"a fault":                 {func(q *Engine) { q.recv.fault = failed }, true},
		"a Terminate":             {func(q *Engine) { q.recv.terminated = true }, true},
		"Writes, and no Source":   {func(q *Engine) { q.recv.filledWrites++ }, false},
		"a Source, and no Writes": {func(q *Engine) { q.Source = quiet{} }, false},
		"Writes for a Source":     {func(q *Engine) { q.Source = quiet{}; q.recv.filledWrites++ }, true},
		"Writes that it knows of": {func(q *Engine) {
			q.Source = quiet{}
			q.recv.filledWrites, q.recv.writesTold = 3, 3
		}, false},
		"the stream was ended":     {func(q *Engine) { q.RejectStream(failed) }, true},
		"MPA has stopped by a CRC": {func(q *Engine) { badCRC(t, q) }, true},
	} {
		e, _ := plainEnds(t)
		tc.change(e.b)
		require.Equal(t, tc.want, e.b.toldSomething(), name)
	}
}

// badCRC has q's Receiver alone find a bad CRC.
func badCRC(t *testing.T, q *Engine) {
	var tx mpa.Sender
	tx.Init(mpa.Mode{CRC: true})
	fpdu := sendOf(&tx, 1, 0, true)
	fpdu[30] ^= 1
	q.recv.rx.Input(0, mem.NoBuf, fpdu)
	require.Nil(t, q.recv.rx.Next())
	require.NotNil(t, q.recv.rx.Err())
}
