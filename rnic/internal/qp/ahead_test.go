package qp

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// mayBeSend are RTR messages of which one may be a Send: octets beyond a gap wait until the first
// FPDU has come.
const mayBeSend = mpa.RTRSend | mpa.RTRWrite

// newRTRResponder is a Responder that awaits an RTR message of these.
func newRTRResponder(t *testing.T, kinds mpa.RTRKinds) *receiver {
	return startReceiver(t, 256, func(_ *Config, o *StartOptions) {
		o.Opened, o.Responder, o.Terms.RTR = false, true, kinds
		o.BufsMax += 199
	})
}

// An RTR message that is a Send has a receive buffer of its own: as many Sends after it as there
// are receive buffers all have one, in whatever order they come.
func TestRTRSendTakesNoReceiveBuffer(t *testing.T) {
	r := newRTRResponder(t, mayBeSend)
	r.postRecvs()
	r.untagged(rdmap.OpSend, rdmap.QNSend, 1, nil)
	at := []int{len(r.stream)}
	for i := range r.RecvDepth {
		r.untagged(rdmap.OpSend, rdmap.QNSend, uint32(2+i), make([]byte, sendLen))
		at = append(at, len(r.stream))
	}
	r.arrive(0, at[0])
	for i := r.RecvDepth - 1; i >= 0; i-- {
		require.True(t, r.offer(at[i], at[i+1]))
	}
	r.LeftEdge(uint64(len(r.stream)))
	done := drainCQ(nil, r.RecvCQ)
	require.Len(t, done, r.RecvDepth)
	for i, c := range done {
		require.Equal(t, wq.Success, c.Status)
		require.EqualValues(t, i, c.ID)
		require.EqualValues(t, sendLen, c.Len)
	}
}

// Empty Writes that wait beyond a gap until a Responder has heard its Initiator are more messages
// than may wait for Delivery. They are not passed at once when the first FPDU has come and
// another segment continues them: that segment is refused, and each Write counts once the gap has
// closed.
func TestRunThatWaitedForTheRTRMessage(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	for round := range 40 {
		r := newRTRResponder(t, mayBeSend)
		r.untagged(rdmap.OpSend, rdmap.QNSend, 1, nil)
		first := len(r.stream)
		writes := 1500 + rnd.IntN(8000)
		for range writes {
			r.emptyWrite()
		}
		var cuts [][2]int
		for at := first; at < len(r.stream); {
			to := min(at+1+rnd.IntN(1448), len(r.stream))
			cuts = append(cuts, [2]int{at, to})
			at = to
		}
		gap := cuts[0] // it stays open for as long as can be
		waiting := cuts[1:]
		if round%2 == 1 { // in any order: runs meet
			rnd.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
		}
		taken := make(map[int]bool)
		try := func(all [][2]int) {
			for _, c := range all {
				if !taken[c[0]] && r.offer(c[0], c[1]) {
					taken[c[0]] = true
				}
			}
		}
		half := rnd.IntN(len(waiting))
		try(waiting[:half])
		require.True(t, r.offer(0, first), "the RTR message")
		r.LeftEdge(uint64(first))
		try(waiting)
		try(waiting)
		require.NoError(t, r.recv.fault)
		edge := first
		cuts = append([][2]int{gap}, waiting...)
		for turns := 0; edge < len(r.stream); turns++ {
			require.Less(t, turns, 2*len(cuts))
			for _, c := range cuts { // the peer sends again what is missing at the left edge
				if c[0] == edge && !taken[edge] {
					require.True(t, r.offer(c[0], c[1]), "in order")
					taken[edge] = true
				}
				if c[0] == edge {
					edge = c[1]
					r.LeftEdge(uint64(edge))
				}
			}
		}
		require.NoError(t, r.recv.fault)
		require.EqualValues(t, writes, r.recv.writes)
	}
}

// A Responder that has been opened, or may get no Send as RTR message, does not wait for the first
// FPDU: what comes beyond a gap is passed.
func TestOpenPassesAhead(t *testing.T) {
	for _, x := range []struct {
		open  bool
		kinds mpa.RTRKinds
	}{{false, mayBeSend}, {true, mayBeSend}, {false, mpa.RTRWrite | mpa.RTRRead}} {
		r := newRTRResponder(t, x.kinds)
		r.emptyWrite()
		first := len(r.stream)
		for len(r.stream) < first+1400 {
			r.emptyWrite()
		}
		require.False(t, r.send.enabled)
		if x.open {
			r.Open()
			fx, err := r.TakeEffects()
			require.NoError(t, err)
			require.NotZero(t, fx&EffectOpened)
			require.True(t, r.send.enabled)
		}
		require.True(t, r.offer(first, len(r.stream)))
		require.Equal(t, x.open || x.kinds != mayBeSend, r.recv.rx.Stats().OutOfOrder > 0)
		require.True(t, r.offer(0, first))
		r.LeftEdge(uint64(len(r.stream)))
		require.NoError(t, r.recv.fault)
		require.Positive(t, r.recv.writes)
		require.Zero(t, r.recv.rx.Stats().HeldBufs)
	}
}
