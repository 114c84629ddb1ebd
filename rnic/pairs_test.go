package rnic

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/fault"
)

// pair is two operations one after the other, both about one word of the server's that held before.
type pair struct {
	r      *rig
	s, c   *end
	word   *MemoryRegion
	before uint64
	fresh  uint64 // what a Write puts there
}

const (
	pairAdd  = 1 << 32
	pairRead = 64 // where a Read puts the word, in the inbox: by which of the two it is
)

// do posts operation op as the i-th of the pair.
func (p *pair) do(op Opcode, i int, fence bool) error {
	wr := WorkRequest{ID: uint64(i), Signaled: true, Fence: fence, RemoteSTag: p.word.STag(),
		RemoteOffset: p.word.Base()}
	src := p.c.source.Bytes()[8*i:][:8]
	switch op {
	case OpSend:
		wr.Local = p.c.source.Slice(100, 30+i)
		return errOf(p.c.qp.PostSend(as(OpSend, wr)))
	case OpWrite:
		binary.NativeEndian.PutUint64(src, p.fresh+uint64(i))
		wr.Local = p.c.source.Slice(8*i, 8)
		return errOf(p.c.qp.PostSend(as(OpWrite, wr)))
	case OpRead:
		wr.Local = p.c.inbox.Slice(pairRead*(i+1), 8)
		return errOf(p.c.qp.PostSend(as(OpRead, wr)))
	case OpFetchAdd:
		return errOf(p.c.qp.PostSend(fetchAdd(wr, pairAdd)))
	}
	return errOf(p.c.qp.PostSend(immediate(wr, [8]byte{byte(i)})))
}

// now is the word.
func (p *pair) now() uint64 { return binary.NativeEndian.Uint64(p.word.Bytes()) }

// saw is what operation i found, if it is one that looks.
func (p *pair) saw(op Opcode, i int, c *Completion) (uint64, bool) {
	switch op {
	case OpRead:
		return binary.NativeEndian.Uint64(p.c.inbox.Bytes()[pairRead*(i+1):]), true
	case OpFetchAdd:
		return c.Original, true
	}
	return 0, false
}

// after is the word when operation i has been carried out on v.
func (p *pair) after(op Opcode, i int, v uint64) uint64 {
	switch op {
	case OpWrite:
		return p.fresh + uint64(i)
	case OpFetchAdd:
		return v + pairAdd
	}
	return v
}

func tells(op Opcode) bool { return op == OpSend || op == OpImmediate }

// Every pair of operations, over a network that loses and reorders: what the tables of RFC 5040
// (Figure 17) and RFC 7306 (section 7) guarantee of the second. What changes the word after a
// Read is fenced, and a Write after an atomic: there is no guarantee without. The other pairs go
// without.
//
// req: 5040-B-1, 7306-7-1, 5040-5.5-3, 5040-5.5-5, 5040-5.5-9, 7306-5.4-3, 5040-5.5-6
func TestPairs(t *testing.T) {
	ops := []Opcode{OpSend, OpWrite, OpRead, OpFetchAdd, OpImmediate}
	r := newRig(t, turned, rigConfig{faults: true})
	s, c := r.connect(serving(4), asking(4))
	for _, h := range r.hosts {
		require.NoError(t, h.faulty.Set(fault.Faults{Drop: 0.05, Reorder: 0.2}, fault.Faults{}))
	}
	p := &pair{r: r, s: s, c: c, word: r.readable(s, 64, RemoteRead|RemoteWrite|LocalWrite)}
	for round := range 20 {
		for _, first := range ops {
			for _, second := range ops {
				name := fmt.Sprintf("%v, %v, round %d", first, second, round)
				messages := 0
				for i, op := range []Opcode{first, second} {
					if tells(op) {
						messages++
						s.postRecv(s.recvAt(uint64(i), 100*i, 100))
					}
				}
				p.before, p.fresh = p.now(), uint64(round+1)<<40|uint64(first)<<16|uint64(second)<<8
				fence := Opcode(first).IsRequest() && second == OpWrite || first == OpRead &&
					second == OpFetchAdd
				require.NoError(t, p.do(first, 0, false))
				require.NoError(t, p.do(second, 1, fence))
				if second == OpSend && first == OpWrite || second == OpImmediate && first == OpWrite {
					s.await(1)
					messages--
					require.Equal(t, p.fresh, p.now(), name)
				}
				got := s.await(messages)
				for i := range got { // in the order in which they were sent
					require.Equal(t, Success, got[i].Status)
					require.True(t, i == 0 || got[i-1].ID < got[i].ID, name)
				}
				cs := c.await(2)
				require.Equal(t, []uint64{0, 1}, ids(t, cs), name)
				want := p.before
				for i, op := range []Opcode{first, second} {
					if v, looks := p.saw(op, i, &cs[i]); looks {
						require.Equal(t, want, v, name)
					}
					want = p.after(op, i, want)
				}
				if first == OpWrite && second == OpWrite {
					p.settle()
					continue // they overlap: either may be placed last
				}
				p.settle()
				require.Equal(t, want, p.now(), name)
			}
		}
	}
	r.close(s, c)
}

// settle waits until the server has delivered all that was posted: an atomic that adds nothing is
// answered after it.
func (p *pair) settle() {
	p.r.t.Helper()
	wr := WorkRequest{ID: 9, Signaled: true, RemoteSTag: p.word.STag(), RemoteOffset: p.word.Base()}
	p.c.post(fetchAdd(wr, 0))
	require.Equal(p.r.t, []uint64{9}, ids(p.r.t, p.c.await(1)))
}
