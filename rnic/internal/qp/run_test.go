package qp

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// The middle of a message leaves, and arrives, in runs as it does segment by segment.

// ends are those of one connection of TestRuns: a sends from its memory, b has the memory that is
// written to and four receive buffers.
type ends struct {
	t         *testing.T
	a, b      *Engine
	from, to  *mem.MemoryRegion
	pool      *mem.Pool
	emss      int
	mode      mpa.Mode
	packFull  bool
	edge      uint64
	segments  [][]byte
	completed []wq.CQE
	inRuns    int
}

const (
	runMemory = 1 << 18
	inlineMax = InlineMaxLimit
)

func newEnds(t *testing.T, seed uint64) *ends {
	r := rand.New(rand.NewPCG(seed, 1))
	mode := mpa.Mode{CRC: r.IntN(4) > 0, Markers: r.IntN(2) == 0}
	const stride, bufs = 66560, 40
	pool, err := mem.NewPool(hugepages.Heap(bufs*stride+bufs*64+1<<16), mem.PoolConfig{Bufs: bufs, Stride: stride})
	require.NoError(t, err)
	e := &ends{t: t, pool: pool, mode: mode, packFull: r.IntN(4) == 0, emss: []int{536, 1448, 1460, 1459, 8948, 65400}[r.IntN(6)]}
	region := func(q *Engine, access mem.Access) *mem.MemoryRegion {
		octets := make([]byte, runMemory)
		_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(access)}).Read(octets)
		m, err := q.Table.Register(q.Domain, octets, mem.RegionOptions{Access: access})
		require.NoError(t, err)
		return m
	}
	e.a, e.b = e.engine(mode), e.engine(mode)
	e.from, e.to = region(e.a, mem.LocalRead), region(e.b, mem.RemoteWrite|mem.LocalWrite)
	for id := range uint64(4) {
		buffer := wq.SGE{STag: e.to.STag(), Length: runMemory / 4, Offset: e.to.Base() + id*runMemory/4}
		require.NoError(t, e.b.PostRecv(&wq.WQE{ID: id, Op: wq.OpRecv, Local: buffer}, nil))
	}
	return e
}

func (e *ends) engine(mode mpa.Mode) *Engine {
	table := mem.NewTable(8)
	table.DrawFrom(rand.New(rand.NewPCG(1, 1)).Uint32)
	q := &Engine{
		Config: Config{
			Table: table, Domain: table.AllocDomain(), Stream: 1, SendCQ: newCQ(64), RecvCQ: newCQ(8),
			SendDepth: 64, RecvDepth: 4, SGEMax: 2, RecvRanges: 1, InlineMax: inlineMax,
		},
		SQ: mem.NewMPSC(make([]mem.MPSCSlot[wq.WQE], 512)), RQ: mem.NewMPSC(make([]mem.MPSCSlot[wq.WQE], 4)),
	}
	require.NoError(e.t, q.Prepare(1, 1))
	q.Start(&StartOptions{
		Terms:  &mpa.Terms{Agreement: mpa.Agreement{Version: 1, Send: mode, Receive: mode}, IRD: 1, ORD: 1},
		Opened: true, EMSS: e.emss, Reader: table.NewReader(), Pool: e.pool, BufsMax: mpa.BufsMin(e.pool.Stride()) + 1, PackFull: e.packFull,
	})
	return q
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
		w := wq.WQE{ID: id, Op: wq.OpWrite, Flags: wq.FlagSignaled, RemoteSTag: e.to.STag(), RemoteOffset: e.to.Base() + r.Uint64N(runMemory-uint64(n))}
		w.Local = wq.SGE{STag: e.from.STag(), Length: n, Offset: e.from.Base() + r.Uint64N(runMemory-uint64(n))}
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

// send pulls all that was posted; with runs, several segments at once where that goes.
func (e *ends) send(runs bool, revokeAt int) {
	last := 0
	for {
		if len(e.segments) == revokeAt {
			e.from.Revoke()
		}
		if runs && last > 0 {
			if e.a.RunLen(last) > 0 && e.sendRun(last, revokeAt-len(e.segments)) > 0 {
				continue
			}
		}
		segment := make([]byte, e.emss)
		if last = e.a.Pull(segment, false); last == 0 {
			break
		}
		e.segments = append(e.segments, segment[:last])
	}
	e.completed = drainCQ(e.completed, e.a.SendCQ)
}

// sendRun is PullRun of some segments, not beyond the one at which the memory is to be revoked.
func (e *ends) sendRun(size, most int) int {
	run := make([][]byte, 1+rand.IntN(20))
	if most > 0 {
		run = run[:min(len(run), most)]
	}
	for i := range run {
		run[i] = make([]byte, e.emss)
	}
	n := e.a.PullRun(run, size)
	for _, segment := range run[:n] {
		e.segments = append(e.segments, segment[:size])
	}
	e.inRuns += n
	return n
}

// arrive gives b the segments, in order; with runs, several at once.
func (e *ends) arrive(runs bool) {
	for left := e.segments; len(left) > 0; {
		n := 1
		if runs {
			n = min(len(left), 1+rand.IntN(20))
		}
		bufs, data := make([]mem.Buf, n), make([][]byte, n)
		require.Equal(e.t, n, e.pool.AllocN(bufs))
		for i, b := range bufs {
			slot := e.pool.Slot(b)[128:]
			data[i] = slot[:copy(slot, left[i])]
		}
		v := mpa.Done
		if taken := n; n > 1 {
			taken, v = e.b.ArriveRun(e.edge, bufs, data)
			e.inRuns += taken
			e.pool.FreeN(bufs[taken:])
			n = taken
		} else {
			v = e.b.Arrive(e.edge, bufs[0], data[0])
		}
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
		left = left[n:]
	}
}

func drainCQ(to []wq.CQE, cq *CQ) []wq.CQE {
	var c [8]wq.CQE
	for n := cq.Poll(c[:]); n > 0; n = cq.Poll(c[:]) {
		to = append(to, c[:n]...)
	}
	return to
}

// A sender that is asked for runs where it may sends the same segments, completes the same and
// counts the same; a receiver that is given runs places, completes and counts the same. Also where
// the memory is revoked in the middle, or a segment is damaged.
func TestRuns(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	inRuns := 0
	for i := range uint64(60) {
		one, many := newEnds(t, seed+i), newEnds(t, seed+i)
		revokeAt := -1
		if i%5 == 4 {
			revokeAt = 1 + rand.IntN(40)
		}
		for _, e := range []*ends{one, many} {
			e.post(seed + i)
			e.send(e == many, revokeAt)
		}
		require.True(t, slices.EqualFunc(one.segments, many.segments, bytes.Equal), "seed %d", seed+i)
		require.Equal(t, one.completed, many.completed, "seed %d", seed+i)
		require.Equal(t, one.a.Stats(), many.a.Stats(), "seed %d", seed+i)
		if n := len(one.segments); i%7 == 6 && n > 0 {
			k, at := rand.IntN(n), rand.IntN(4)
			one.segments[k][at] ^= 1
			many.segments[k][at] ^= 1
		}
		one.arrive(false)
		many.arrive(true)
		require.True(t, bytes.Equal(one.to.Bytes(), many.to.Bytes()), "seed %d", seed+i)
		require.Equal(t, one.completed, many.completed, "seed %d", seed+i)
		require.Equal(t, one.b.Stats(), many.b.Stats(), "seed %d", seed+i)
		fx, err := one.b.TakeEffects()
		gx, frr := many.b.TakeEffects()
		require.Equal(t, fx, gx, "seed %d", seed+i)
		require.Equal(t, err, frr, "seed %d", seed+i)
		inRuns += many.inRuns
	}
	require.Greater(t, inRuns, 300, "seed %d", seed)
}

// What completes a receive buffer is the last that a run takes: the application hears of it, and
// may post another, before the next segment is looked at.
func TestRunEndsWithACompletion(t *testing.T) {
	e := newEnds(t, 1)
	for range 3 {
		w := wq.WQE{Op: wq.OpSend, Local: wq.SGE{STag: e.from.STag(), Length: uint32(e.emss - 100), Offset: e.from.Base()}}
		require.NoError(t, e.a.PostSend(&w, nil, nil))
	}
	e.send(false, -1)
	require.Equal(t, 3, len(e.segments))
	bufs := make([]mem.Buf, 3)
	require.Equal(t, 3, e.pool.AllocN(bufs))
	n, v := e.b.ArriveRun(0, bufs, e.segments)
	require.Equal(t, 1, n)
	require.Equal(t, mpa.Done, v)
	require.Len(t, drainCQ(nil, e.b.RecvCQ), 1)
}

// sendOf is an FPDU of a Send's segment.
func sendOf(tx *mpa.Sender, msn, mo uint32, last bool) []byte {
	const payload = 100
	h := ddp.Header{Last: last, Version: 1, ULP: rdmap.Control(1, rdmap.OpSend), QN: rdmap.QNSend, MSN: msn, MO: mo}
	ulpdu := make([]byte, h.Len()+payload)
	h.Put(ulpdu)
	fpdu := make([]byte, tx.Size(len(ulpdu)))
	tx.Put(fpdu, [][]byte{ulpdu})
	return fpdu
}

// plainEnds have a CRC and no markers.
func plainEnds(t *testing.T) (e *ends, tx mpa.Sender) {
	for seed := uint64(1); ; seed++ {
		if e = newEnds(t, seed); !e.mode.Markers && e.mode.CRC && !e.packFull {
			tx.Init(mpa.Mode{CRC: true})
			return e, tx
		}
	}
}

// The first error is the one that is reported: one that Delivery finds, MSN 2 before MSN 1, and not
// the bad CRC of the segment after it.
func TestRunEndsWithAnError(t *testing.T) {
	var errs [2]error
	for i := range 2 {
		e, tx := plainEnds(t)
		e.segments = [][]byte{sendOf(&tx, 2, 0, true), sendOf(&tx, 1, 0, false), sendOf(&tx, 1, 100, true)}
		e.segments[1][30] ^= 1
		e.arrive(i == 1)
		_, errs[i] = e.b.TakeEffects()
	}
	require.ErrorContains(t, errs[0], "MSN")
	require.Equal(t, errs[0], errs[1])
}

type teller []wq.EventKind

func (l *teller) Tell(k wq.EventKind, _ uint64, _ error) { *l = append(*l, k) }

// A threshold that is crossed in the middle of a run, and no longer at its end, is told.
func TestThresholdsWithinRuns(t *testing.T) {
	e, tx := plainEnds(t)
	var told teller
	e.b.Teller = &told
	e.b.Arm(wq.EventReceiveHigh, 1)
	e.segments = [][]byte{sendOf(&tx, 2, 0, false), sendOf(&tx, 1, 0, false), sendOf(&tx, 1, 100, true), sendOf(&tx, 2, 100, true)}
	bufs := make([]mem.Buf, 4)
	require.Equal(t, 4, e.pool.AllocN(bufs))
	for at := 0; at < 4; {
		n, _ := e.b.ArriveRun(e.edge, bufs[at:], e.segments[at:])
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

func (quiet) SendsWait() bool { return false }
func (quiet) FillSends()      {}
func (quiet) FillRecvs()      {}
func (quiet) Written()        {}

// A run ends after a segment with which others than memory have to do: each of these alone.
func TestWhatEndsARun(t *testing.T) {
	failed := errors.New("failed")
	for name, tc := range map[string]struct {
		change func(q *Engine)
		want   bool
	}{
		"memory alone":             {func(*Engine) {}, false},
		"a completion":             {func(q *Engine) { q.recv.batch.n = 1 }, true},
		"an effect":                {func(q *Engine) { q.effects = EffectSend }, true},
		"it may not send yet":      {func(q *Engine) { q.send.enabled = false }, true},
		"a fault":                  {func(q *Engine) { q.recv.fault = failed }, true},
		"a Terminate":              {func(q *Engine) { q.recv.terminated = true }, true},
		"Writes, and no Source":    {func(q *Engine) { q.recv.filledWrites++ }, false},
		"a Source, and no Writes":  {func(q *Engine) { q.Source = quiet{} }, false},
		"Writes for a Source":      {func(q *Engine) { q.Source = quiet{}; q.recv.filledWrites++ }, true},
		"Writes that it knows of":  {func(q *Engine) { q.Source = quiet{}; q.recv.filledWrites, q.recv.writesTold = 3, 3 }, false},
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
