package mpa

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// PutPlain writes what Put writes, and not an octet more.
func TestPutPlainIsPut(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	var one, other Sender
	one.Init(Mode{CRC: true})
	other.Init(Mode{CRC: true})
	for range 3000 {
		payload := ulpdu(r.IntN(1<<r.IntN(17))%(MULPDUMax-plainHead+1), r.IntN(1000))
		hi, lo := r.Uint64(), r.Uint64()
		head := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, hi), lo)[:plainHead]
		want, got := make([]byte, one.Size(plainHead+len(payload))), make([]byte, one.Size(plainHead+len(payload))+1)
		got[len(want)] = 0xa5
		require.Equal(t, one.Put(want, [][]byte{head, payload}), other.PutPlain(got, hi, lo, payload), "seed %d", seed)
		require.Equal(t, want, got[:len(want)], "seed %d", seed)
		require.EqualValues(t, 0xa5, got[len(want)], "seed %d", seed)
		require.Equal(t, one, other)
	}
}

func TestPutPlainRefuses(t *testing.T) {
	for _, m := range []Mode{{}, {CRC: true, Markers: true}, {Markers: true}} {
		var s Sender
		s.Init(m)
		require.False(t, s.Plain())
		require.Panics(t, func() { s.PutPlain(make([]byte, 200), 0, 0, nil) })
	}
	var s Sender
	s.Init(Mode{CRC: true})
	require.True(t, s.Plain())
	require.Panics(t, func() { s.PutPlain(make([]byte, 1<<17), 0, 0, make([]byte, MULPDUMax)) })
	require.Panics(t, func() { s.PutPlain(make([]byte, 30), 0, 0, make([]byte, 16)) })
}
