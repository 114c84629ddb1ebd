package mpa

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// PutPlain writes what Put writes, and not an octet more, wherever the markers fall.
func TestPutPlainIsPut(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	for _, m := range []Mode{{CRC: true}, {CRC: true, Markers: true}} {
		var one, other Sender
		one.Init(m)
		other.Init(m)
		plain := 0
		for range 4000 {
			payload := ulpdu(r.IntN(1<<r.IntN(17))%(mulpduMax-plainHead+1), r.IntN(1000))
			hi, lo := r.Uint64(), r.Uint64()
			head := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, hi), lo)[:plainHead]
			want, got := make([]byte, one.Size(plainHead+len(payload))),
				make([]byte, one.Size(plainHead+len(payload))+1)
			got[len(want)] = 0xa5
			inHead := false // a marker is
			for at := one.off; at <= one.off+plainAt; at += 4 {
				inHead = inHead || m.Markers && at%MarkerSpacing == 0
			}
			require.Equal(t, !inHead, other.PlainHere(), "seed %d", seed)
			n := one.Put(want, [][]byte{head, payload})
			if inHead {
				require.Panics(t, func() { other.PutPlain(got, hi, lo, payload) })
				require.Equal(t, n, other.Put(got, [][]byte{head, payload}))
			} else {
				plain++
				require.Equal(t, n, other.PutPlain(got, hi, lo, payload), "seed %d", seed)
			}
			require.True(t, bytes.Equal(want, got[:len(want)]), "seed %d", seed)
			require.EqualValues(t, 0xa5, got[len(want)], "seed %d", seed)
			require.Equal(t, one, other)
		}
		require.Greater(t, plain, 3000)
	}
}

func TestPutPlainRefuses(t *testing.T) {
	for _, m := range []Mode{{}, {Markers: true}} {
		var s Sender
		s.Init(m)
		require.False(t, s.PlainHere())
		require.Panics(t, func() { s.PutPlain(make([]byte, 200), 0, 0, nil) })
	}
	var s Sender
	s.Init(Mode{CRC: true})
	require.True(t, s.PlainHere())
	require.Panics(t, func() { s.PutPlain(make([]byte, 1<<17), 0, 0, make([]byte, mulpduMax)) })
	require.Panics(t, func() { s.PutPlain(make([]byte, 30), 0, 0, make([]byte, 16)) })
}
