package mpa

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/mem"
)

// lender is a Receiver whose octets come in Bufs that their sender may still read.
type lender struct {
	*rig
	sender *mem.Pool
}

func newLender(t *testing.T, s *stream) *lender {
	t.Helper()
	cfg := mem.PoolConfig{Bufs: BufsMin(2048) + 8, Stride: 2048}
	pair := must(mem.NewPair(hugepages.Heap(2*cfg.Bytes()), cfg))(t)
	l := &lender{rig: &rig{t: t, s: s, pool: pair[0], poolSize: cfg.Bufs}, sender: pair[1]}
	l.recv.Init(ReceiverConfig{Mode: s.mode, Pool: l.pool, BufsMax: cfg.Bufs})
	return l
}

// lend offers octets [lo, hi) in a Buf of the sender's, which must not change, and which is
// never kept.
func (l *lender) lend(lo, hi int) Verdict {
	l.t.Helper()
	b := l.sender.Alloc()
	slot := l.sender.Slot(b)
	copy(slot[100:], l.s.octets[lo:hi])
	before := bytes.Clone(slot)
	l.pool.Adopt(b)
	v := input(&l.recv, uint64(lo), b, l.pool.Slot(b)[100:100+hi-lo], l.rig)
	require.Equal(l.t, before, slot)
	l.pool.Free(b)
	l.sender.Free(b)
	var back [1]mem.Buf
	require.Equal(l.t, 1, l.pool.TakeReturned(back[:]))
	return v
}

// What waits for the rest of its FPDU waits in a Buf of the Receiver's own, where more can be
// joined to it.
func TestLentBufsAreCopiedNotKept(t *testing.T) {
	s := streamOf(withCRC, 300, 300, 300)
	f := s.frames
	l := newLender(t, s)
	second := int(f[1].start)
	require.Equal(t, Done, l.lend(0, second), "whole: placed from where it is")
	l.want(0).held(0)
	require.Equal(t, Done, l.lend(second, second+50))
	l.held(1)
	require.Equal(t, Done, l.lend(second+50, second+80), "joined")
	l.held(1)
	require.EqualValues(t, 1, l.recv.Stats().Coalesced)
	require.Equal(t, Done, l.lend(second+100, int(f[2].end)), "beyond a gap")
	l.held(2)
	require.Equal(t, Done, l.lend(second+80, second+100))
	l.want(1, 2).held(0)
}

// With no Buf for the copy a segment is refused as a whole, before any FPDU of it is passed.
func TestLentBufWithoutRoomForTheCopy(t *testing.T) {
	s := streamOf(withCRC, 300, 300)
	f := s.frames
	l := newLender(t, s)
	var others []mem.Buf
	for l.pool.Available() > 0 {
		others = append(others, l.pool.Alloc())
	}
	require.Equal(t, Refused, l.lend(0, int(f[1].start)+10))
	l.want()
	require.EqualValues(t, 1, l.recv.Stats().RefusedSpare)
	require.Equal(t, Done, l.lend(0, int(f[1].start)), "whole FPDUs need none")
	l.want(0)
	l.pool.FreeN(others)
	require.Equal(t, Done, l.lend(int(f[1].start), int(f[1].end)))
	l.want(1).held(0)
}

// After an error nothing is left of the copy.
func TestLentBufAfterAnError(t *testing.T) {
	s := streamOf(withCRC, 300)
	s.octets[50] ^= 1
	l := newLender(t, s)
	require.Equal(t, Done, l.lend(0, 40))
	l.held(1)
	require.Equal(t, Done, l.lend(40, len(s.octets)))
	l.failed(ErrCRC)
}
