package analysis

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/cc"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
)

// An aligned sender: nothing is held, however many connections there are and whatever is lost;
// every FPDU is passed straight from its segment. The buffers are those that come while the host
// looks elsewhere. Without markers that is so while nothing is lost. The draft says some hundreds
// of kB.
//
// req: D01-11.1.2-4, D01-11.1.2.1-2, 5044-B-1
func TestAlignedNeedsNoReassembly(t *testing.T) {
	v := current(t)
	for _, n := range connCounts {
		for _, loss := range connLosses {
			for _, kind := range []string{"aligned+markers", "aligned"} {
				c, key := v[connKey(n, loss, kind)], connKey(n, loss, kind)
				if kind == "aligned" && loss > 0 {
					require.Positive(t, c[mHeld], key)
					continue
				}
				require.Zero(t, c[mHeld], key)
				require.Equal(t, c[mHand], c[mBufs], key)
				require.Equal(t, c[mPlaced], c[mDirect], key)
				require.Positive(t, c[mPlaced], key)
				require.LessOrEqual(t, c[mBufs]*exampleEMSS, 300_000, key)
			}
		}
	}
}

// A sender that cuts its segments anywhere: each connection holds the front of one FPDU, in a
// buffer of a segment's size. For 10,000 of them and an EMSS of 1500 that is 15 MB.
//
// req: D01-11.1.2-2, D01-11.1.2-3, 5044-B-1
func TestUnalignedHoldsAnEMSSPerConnection(t *testing.T) {
	v := current(t)
	for _, n := range connCounts {
		c := v[connKey(n, 0, "unaligned")]
		require.InDelta(t, n, c[mBufs]-c[mHand], 2, "%d connections", n)
		require.InDelta(t, n*exampleEMSS/2, c[mMean], float64(n*exampleEMSS)/4,
			"%d connections: octets, of %d", n, n*exampleEMSS)
		require.Less(t, c[mDirect]*100, c[mPlaced], "%d connections: FPDUs lie in two segments", n)
	}
	require.InDelta(t, 15_000_000, v[connKey(10_000, 0, "unaligned")][mBufs]*exampleEMSS, 50_000)
}

// A TCP that keeps what lies beyond a gap: bandwidth times delay after one loss, K a little below
// 1; the aligned receiver of the same octets keeps nothing, and what it has in hand goes with the
// time it takes to look, not with the delay.
//
// req: D01-11.1.2-1
func TestPlainTCPHoldsBandwidthTimesDelay(t *testing.T) {
	v := current(t)
	for _, p := range paths {
		k := float64(v[pathKey(p, "plain")][mHeld]) / float64(p.product())
		require.InDelta(t, 1, k, 0.3, "%+v", p)
		c := v[pathKey(p, "aligned+markers")]
		require.Zero(t, c[mHeld], "%+v", p)
		inPoll := int(float64(p.mbit)*examplePoll/1000/8/(exampleEMSS+overhead)) + 2
		require.LessOrEqual(t, c[mBufs], inPoll, "%+v", p)
	}
}

// Buffers are needed where segments are not aligned, and where some are missing and there are no
// markers. With markers what is held of an unaligned stream goes with the number of gaps; without,
// with all that is in flight.
//
// req: D01-11.2-1, C02-13.1.1-1
func TestMarkersReduceWhatIsHeld(t *testing.T) {
	v := current(t)
	window := example(lossConns, 0, "plain").WindowBytes * lossConns
	for _, loss := range lossLosses {
		mean := func(kind string) int { return v[lossKey(loss, kind)][mMean] }
		require.Zero(t, mean("aligned+markers"), "%g %%", loss)
		if loss == 0 {
			require.Zero(t, mean("aligned"))
			require.Positive(t, mean("unaligned+markers"))
			continue
		}
		require.Greater(t, mean("unaligned"), 10*mean("unaligned+markers"), "%g %%", loss)
		require.Greater(t, mean("aligned"), 10*mean("unaligned+markers"), "%g %%", loss)
		require.Less(t, v[lossKey(loss, "unaligned+markers")][mHeld], window/10, "%g %%", loss)
	}
	require.Greater(t, v[lossKey(5, "unaligned")][mMean], window/2)
}

// FPDUs of EMSS/2+1 or a little more, posted in a crowd, take twice the segments of a TCP that cuts
// anywhere, never more; and no more ACKs than segments. Such segments are half full. Large
// messages, and small ones that are packed, cost nothing.
//
// req: D01-11.1.2.2-1, D01-11.1.2.2-2, 5044-B-1
func TestSegmentsAtMostTwice(t *testing.T) {
	v := current(t)
	ratio := func(key string, sent, least int) float64 {
		return float64(v[key][sent]) / float64(v[key][least])
	}
	for key, c := range v {
		if len(c) != sMarkersNow+1 || key[:4] != "fpdu" && key[:5] != "write" {
			continue
		}
		require.LessOrEqual(t, c[sNow], 2*c[sMinimum]+1, key)
		require.LessOrEqual(t, c[sFull], 2*c[sMinimum]+1, key)
		require.LessOrEqual(t, c[sMarkersNow], 2*c[sMarkersMinimum]+1, key)
		require.LessOrEqual(t, c[sAnswers], c[sNow], key)
		require.Equal(t, 1448, c[sEMSS])
	}
	require.InDelta(t, 2, ratio("fpdu 728", sNow, sMinimum), 0.02)
	require.InDelta(t, 0.5, 1/ratio("fpdu 728", sNow, sMinimum), 0.01, "of EMSS in each")
	require.InDelta(t, 1, ratio("fpdu 724", sNow, sMinimum), 0.01, "EMSS/2")
	require.InDelta(t, 1, ratio("fpdu 96", sNow, sMinimum), 0.02, "packed")
	require.InDelta(t, 1, ratio("fpdu 1448", sNow, sMinimum), 0.01, "EMSS")
	require.InDelta(t, 1, ratio("write 65536", sNow, sMinimum), 0.01)
	require.InDelta(t, 1, ratio("write 1048576", sNow, sMinimum), 0.01)
	require.Greater(t, ratio("fpdu 96", sAlone, sMinimum), 10.,
		"without packing there is no such bound")
	require.InDelta(t, 1, ratio("fpdu 728", sFull, sMinimum), 0.05, "cut to fill segments")
}

// segmentSetup is a world of one connection for tests of its own.
func segmentSetup() Setup {
	return Setup{Conns: 1, BitsPerSecond: 1e9, RTTNs: 10_000_000, PollNs: examplePoll,
		EMSS: exampleEMSS, WindowBytes: 400 * exampleEMSS, Seed: 1}
}

// An FPDU as long as EMSS is one segment; one that is four octets longer never is.
//
// req: D01-3.2-1, C02-5.2-1
func TestAlignmentNeedsAnFPDUWithinEMSS(t *testing.T) {
	s := segmentSetup()
	s.ULPDU = exampleEMSS - mpa.HeaderLen - mpa.CRCLen
	r := Run(s, 200_000_000)
	require.Positive(t, r.Placed)
	require.Equal(t, r.Placed, r.Direct)
	s.ULPDU += 4
	r = Run(s, 200_000_000)
	require.Positive(t, r.Placed)
	require.Zero(t, r.Direct)
	require.Positive(t, r.Held)
}

// A middlebox makes two segments of each; where one of the two is lost, the sender sends the FPDU
// again as it was, although half of it has been acknowledged. That costs an octet for each that was
// lost, one in a hundred where one in a hundred is lost.
//
// req: D01-11.1.2.2-3
func TestWholeFPDUsSentAgainCostLittle(t *testing.T) {
	s := segmentSetup()
	s.Halved, s.Loss, s.Markers = true, 0.01, true
	r := Run(s, 2_000_000_000)
	require.Positive(t, r.Lost)
	require.InDelta(t, 2, float64(r.Resent)/float64(r.LostOctets), 0.1, "the whole FPDU for each half")
	require.Less(t, float64(r.Resent-r.LostOctets)/float64(r.Delivered), 0.015,
		"of what was delivered")
}

// windows is cwnd after each round trip, of a sender whose FPDUs have so many octets. In the sixth
// one segment is lost.
func windows(fpdu, rounds int) (cwnd []int) {
	s := segmentSetup()
	s.ULPDU = fpdu - mpa.HeaderLen - mpa.CRCLen
	s.WindowBytes = 800 * exampleEMSS
	s.Congestion = cc.NewReno{}
	lose := false
	s.Lose = func(uint64) bool {
		now := lose
		lose = false
		return now
	}
	w := newWorld(s, int64(rounds)*s.RTTNs)
	for i := range rounds {
		lose = i == 5
		for end := w.began + int64(i+1)*s.RTTNs; w.step(end); {
		}
		cwnd = append(cwnd, w.conns[0].from.Stats().Cwnd)
	}
	return cwnd
}

// Slow start doubles the window each round trip, a loss halves it, and congestion avoidance adds
// one segment per round trip, whether segments are full or half full.
//
// req: D01-11.1.2.2-4
func TestWindowGrowsAsInAnyTCP(t *testing.T) {
	const rounds = 30
	full, half := windows(exampleEMSS, rounds), windows(exampleEMSS/2+2, rounds)
	for name, cwnd := range map[string][]int{"full": full, "half full": half} {
		for i := 1; i < 5; i++ {
			require.InDelta(t, 2, float64(cwnd[i])/float64(cwnd[i-1]), 0.3, "%s: slow start, round %d: %v",
				name, i, cwnd)
		}
		growth := float64(cwnd[rounds-1]-cwnd[rounds-11]) / 10
		require.InDelta(t, exampleEMSS, growth, exampleEMSS*0.35, "%s: octets per round trip: %v", name,
			cwnd)
	}
}

// The path's MTU shrinks under FPDUs that were posted for a larger one: they go out in pieces, and
// a receiver that can hold pieces finishes. One that cannot never does. Nor does a sender that is
// not told and does not cut.
//
// req: D01-11.2.2-4, C02-13.1.1.2-4, D01-11.2.1-4, C02-13.1.1.1-4
func TestShrinkingPathNeedsABuffer(t *testing.T) {
	const second = 1_000_000_000
	run := func(noBuffer, told bool) (done, moved bool) {
		s := segmentSetup()
		s.Octets, s.NoBuffer, s.Markers = 4<<20, noBuffer, true
		w := newWorld(s, 0)
		until := func(at int64) uint64 {
			for w.step(at) {
			}
			w.now = at
			return w.conns[0].to.Edge()
		}
		begin := until(w.now + 15_000_000)
		require.Positive(t, begin)
		require.Less(t, begin, w.st.end())
		w.mtu = 1000
		if told {
			w.conns[0].from.SetEMSSLimit(w.mtu + tcpOpts)
			w.turnFrom(0)
		}
		early := until(w.now + 20*second)
		late := until(w.now + 40*second)
		if late == w.st.end() {
			require.Equal(t, uint64(len(w.st.bounds)-1), w.placed)
		}
		return late == w.st.end(), late > early
	}
	done, _ := run(false, true)
	require.True(t, done, "with a buffer, and told")
	done, moved := run(true, true)
	require.False(t, done || moved, "without a buffer")
	done, moved = run(false, false)
	require.False(t, done || moved, "not told")
}

// give offers octets [lo, hi) of the stream to the first connection's receiver, as a segment of
// their own.
func give(w *world, lo, hi uint64) (kept bool) {
	b := w.pool.Alloc()
	data := w.pool.Slot(b)[mem.Headroom:]
	kept, refused := w.conns[0].recv.take(lo, b, data[:copy(data, w.st.octets[lo:hi])])
	if refused {
		panic("refused")
	}
	if !kept {
		w.pool.Free(b)
	}
	return kept
}

// For each segment the receiver finds out again whether it is aligned. An aligned
// segment holds no buffer; one that ends inside an FPDU keeps its front in a buffer of the
// connection's until one or two more bring the rest.
//
// req: D01-11.1.2.1-3, D01-11.1.2.1-1, D01-11.2.2-1, C02-13.1.1.2-1
func TestAlignmentIsDetectedPerSegment(t *testing.T) {
	for _, markers := range []bool{false, true} {
		s := segmentSetup()
		s.Octets, s.Markers = 1<<20, markers
		w := newWorld(s, 0)
		used := func() int { return w.pool.Size() - w.pool.Available() }
		idle := used()
		for i := 0; i+3 < 300; i += 3 {
			a, b, c, d := w.st.bounds[i], w.st.bounds[i+1], w.st.bounds[i+2], w.st.bounds[i+3]
			require.False(t, give(w, a, b), "aligned")
			require.Equal(t, idle, used())
			require.EqualValues(t, i/3+1, w.direct)
			// An FPDU of the link's MTU in two segments, the next in three; these begin with the
			// end of another.
			require.True(t, give(w, b, b+700))
			require.Equal(t, 700, w.held)
			require.Equal(t, idle+1, used())
			give(w, b+700, c+300)
			require.Equal(t, 300, w.held)
			give(w, c+300, c+900)
			require.Equal(t, 900, w.held, "nothing can be done before the FPDU is whole")
			require.False(t, give(w, c+900, d))
			require.Zero(t, w.held)
			require.Equal(t, idle, used())
		}
		require.EqualValues(t, 300-3, w.placed)
		require.EqualValues(t, 300/3-1, w.direct)
	}
}

// 128 octets of ULPDU, 2 of pad, 2 of length, 4 of CRC and a marker: the largest FPDU that a sender
// makes whatever the MTU is 140 octets, and a receiver can always hold it, also at an MTU of 100.
//
// req: D01-11.2.2-2, D01-11.2.2-3, C02-13.1.1.2-2, C02-13.1.1.2-3, 5044-A.5-2
func TestSmallestReassemblyBuffer(t *testing.T) {
	mode := mpa.Mode{Markers: true, CRC: true}
	const mtu, smallest = 100, 140
	emss := mtu - 20 - 20 - tcpOpts
	require.Equal(t, mpa.MULPDUMin, mode.MULPDU(emss))
	require.Equal(t, smallest, mpa.MULPDUMin+2+mpa.HeaderLen+mpa.CRCLen+mpa.MarkerLen)
	most := 0
	st := newStream(mode, mpa.MULPDUMin, 100_000)
	for i := 1; i < len(st.bounds); i++ {
		most = max(most, int(st.bounds[i]-st.bounds[i-1]))
	}
	require.Equal(t, smallest, most)
	for _, slot := range []int{256, 512, 2048} {
		require.GreaterOrEqual(t, mpa.BufsMin(slot)*slot, smallest)
		require.GreaterOrEqual(t, mpa.BufsMin(slot)*slot, 1500)
	}
	s := segmentSetup()
	s.ULPDU, s.Markers, s.Octets = mpa.MULPDUMin, true, 50_000
	w := newWorld(s, 0)
	p := w.conns[0].recv.(*placing)
	p.recv.Init(mpa.ReceiverConfig{Mode: mode, Pool: w.pool, BufsMax: mpa.BufsMin(stride)})
	held := 0
	for at := uint64(0); at < w.st.end(); at += uint64(emss) {
		give(w, at, min(at+uint64(emss), w.st.end()))
		held = max(held, w.held)
	}
	require.EqualValues(t, len(w.st.bounds)-1, w.placed)
	require.Zero(t, w.held)
	require.GreaterOrEqual(t, held, smallest-emss)
}
