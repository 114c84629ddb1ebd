package fault

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/stretchr/testify/require"
)

var allFaults = Faults{Drop: 0.05, Duplicate: 0.05, Reorder: 0.1, Corrupt: 0.05, Swap: 0.05,
	Truncate: 0.05, ReorderFor: 300, Delay: 50, Jitter: 100}

// play runs both directions with bursts and times from seed and logs what came out.
func play(t testing.TB, spec Spec, seed uint64, slots int, incoming bool) (r *rig, log [][]byte) {
	r = newRig(t, spec, wire.Config{Slots: slots})
	rng := rand.New(rand.NewPCG(seed, 9))
	bufs := make([]mem.Buf, 16)
	collect := func(q pmd.Queue, pool *mem.Pool, n int) {
		got := q.Rx(bufs[:n])
		for _, b := range bufs[:got] {
			log = append(log, bytes.Clone(pool.Data(b)))
		}
		pool.FreeN(bufs[:got])
	}
	for range 400 {
		r.now += rng.Int64N(100)
		r.send(rng.IntN(8))
		n := rng.IntN(8)
		if incoming {
			in := r.frames(r.peerPool, n)
			r.peer.Tx(in)
			r.peerPool.FreeN(in)
		}
		collect(r.q, r.pool, rng.IntN(16))
		collect(r.peer, r.peerPool, rng.IntN(16))
	}
	for range 1000 {
		r.now += 1000
		collect(r.q, r.pool, 16)
		collect(r.peer, r.peerPool, 16)
	}
	return r, log
}

// Whatever happens, frames are conserved, and so are Bufs.
func TestConservation(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 8))
		spec := Spec{Seed: seed, HeldMax: 1 + rng.IntN(20), Rx: allFaults, Tx: allFaults}
		if seed%3 == 0 {
			spec.Rx.Delay, spec.Rx.Jitter, spec.Tx.Delay, spec.Tx.Jitter = 0, 0, 0, 0
		}
		r, log := play(t, spec, seed, 1<<rng.IntN(6), true)
		rx, tx := r.q.Faults()
		require.Zero(t, r.q.Held(), "seed %d", seed)
		require.Equal(t, r.pool.Size(), r.pool.Available(), "seed %d", seed)
		require.Equal(t, r.peer.Counters().TxFrames, rx.Frames, "seed %d", seed)
		in := rx.Frames + rx.Duplicated + tx.Frames + tx.Duplicated
		lost := rx.Dropped + tx.Dropped
		// HoldFull of a reordered frame is no loss, so the sum is a bound when something was held
		// in vain.
		require.LessOrEqual(t, uint64(len(log)), in-lost, "seed %d", seed)
		require.GreaterOrEqual(t, uint64(len(log))+rx.HoldFull+tx.HoldFull, in-lost, "seed %d", seed)
		require.NotZero(t, rx.Reordered*tx.Reordered*rx.Corrupted*tx.Truncated, "seed %d", seed)
	}
}

func TestSameSeedSameFaults(t *testing.T) {
	spec := Spec{Seed: 7, Rx: allFaults, Tx: allFaults}
	_, a := play(t, spec, 1, 64, true)
	_, b := play(t, spec, 1, 64, true)
	require.Equal(t, a, b)
	spec.Seed = 8
	_, c := play(t, spec, 1, 64, true)
	require.NotEqual(t, a, c)
}

// What befalls sent frames does not depend on what is received.
func TestDirectionsAreIndependent(t *testing.T) {
	spec := Spec{Seed: 7, Tx: allFaults, Rx: allFaults}
	with, _ := play(t, spec, 1, 512, true)
	without, _ := play(t, spec, 1, 512, false)
	_, a := with.q.Faults()
	_, b := without.q.Faults()
	require.Equal(t, a, b)
}
