package rnic

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// nowhere is a range of no octets that names nothing.
var nowhere = SGE{STag: 0xbad, Offset: 1 << 63}

// pieces cuts n octets of m, from off, into up to most ranges, some of them empty, and returns
// them in order.
func pieces(rng *rand.Rand, m *MemoryRegion, off, n, most int) []SGE {
	var list []SGE
	for len(list) < most-1 && rng.IntN(4) > 0 {
		if rng.IntN(4) == 0 {
			list = append(list, nowhere)
			continue
		}
		k := rng.IntN(n + 1)
		list = append(list, m.Slice(off, k))
		off, n = off+k, n-k
	}
	return append(list, m.Slice(off, n))
}

// Ranges are gathered from all over the source, in the order of the list, and scattered over the
// buffer's in theirs, whatever the segments: a message is one run of octets.
func TestScatterGather(t *testing.T) {
	const limit = 9
	for _, packing := range []Packing{PackNow, PackFull} {
		r := newRig(t, turned, rigConfig{mtu: 600})
		opt := opts{QPOptions: QPOptions{SGEMax: limit, SendDepth: 8, RecvDepth: 8},
			ConnParam: ConnParam{Packing: packing}}
		s, c := r.connect(opt, opt)
		rng := rand.New(rand.NewPCG(uint64(packing), 3))
		for round := range 60 {
			n := rng.IntN(4000)
			if round%8 == 0 {
				n = 0
			}
			room := n + rng.IntN(200)
			buffer := pieces(rng, s.inbox, 4096, room, limit)
			s.postRecv(WorkRequest{ID: uint64(round), Local: buffer[0], List: buffer[1:]})
			clear(s.inbox.Bytes())
			clear(s.region.Bytes())

			local := pieces(rng, c.source, rng.IntN(1000), n, limit)
			rng.Shuffle(len(local), func(i, j int) { local[i], local[j] = local[j], local[i] })
			var want []byte
			for _, sge := range local {
				want = append(want, c.source.Bytes()[sge.Offset&0xffff:][:sge.Length]...)
			}
			c.post(WorkRequest{ID: 1, Op: OpWrite, Local: local[0], List: local[1:],
				RemoteSTag: s.region.STag(), RemoteOffset: 77, Signaled: true},
				WorkRequest{ID: 2, Op: OpSend, Local: local[0], List: local[1:], Signaled: true})
			clear(local) // the list was the call's
			length := uint32(n)
			c.expectCompletions(Completion{ID: 1, Op: OpWrite, Len: length},
				Completion{ID: 2, Op: OpSend, Len: length})
			s.expectCompletions(Completion{ID: uint64(round), Op: OpRecv, Len: length})
			inbox := make([]byte, regionBytes)
			copy(inbox[4096:], want)
			require.True(t, bytes.Equal(inbox, s.inbox.Bytes()), "round %d: sent", round)
			require.True(t, bytes.Equal(want, s.region.Bytes()[77:][:n]), "round %d: written", round)
			s.unharmed(t)
		}
		r.close(s, c)
	}
}

// Inline data is copied by the posting call, from memory of any kind, and of any length up to the
// limit, and so is a List. A Response that goes out while such a request waits for a Read does
// not touch them.
func TestInline(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	opt := opts{QPOptions: QPOptions{InlineMax: 200}, ConnParam: ConnParam{IRD: 2, ORD: 2}}
	s, c := r.connect(opt, opt)
	r.exchange(s, c)
	word := r.readable(s, 64, RemoteRead|RemoteWrite)
	for n := range 201 {
		octets := bytes.Repeat([]byte{byte(n + 1)}, n)
		want := bytes.Clone(octets)
		s.postRecv(s.recvAt(7, 0, 300))
		fetch := WorkRequest{ID: 1, Op: OpFetchAdd, Add: 1, RemoteSTag: word.STag(),
			RemoteOffset: word.Base(), Signaled: true}
		list := []SGE{c.source.Slice(50, 2), nowhere, c.source.Slice(7, 1)}
		c.post(fetch, WorkRequest{ID: 2, Op: OpWrite, Inline: octets, Signaled: true, Fence: true,
			RemoteSTag: s.region.STag(), RemoteOffset: 5},
			fetch, WorkRequest{ID: 4, Op: OpWrite, Local: c.source.Slice(9, 1), List: list, Signaled: true,
				Fence: true, RemoteSTag: s.region.STag(), RemoteOffset: 500},
			// when it has come, all before it has been placed
			WorkRequest{ID: 2, Op: OpSend, Inline: octets, Signaled: true, Fence: true})
		clear(octets)
		clear(list)
		back := r.readable(c, 64, RemoteRead|RemoteWrite)
		s.post(WorkRequest{Op: OpFetchAdd, Add: 1, ID: 3, RemoteSTag: back.STag(),
			RemoteOffset: back.Base(), Signaled: true})
		for i, done := range c.await(5) {
			require.Equal(t, Success, done.Status)
			require.Equal(t, []uint32{8, uint32(n), 8, 4, uint32(n)}[i], done.Len)
		}
		ids(t, s.await(2))
		require.True(t, bytes.Equal(want, s.inbox.Bytes()[:n]))
		require.True(t, bytes.Equal(want, s.region.Bytes()[5:][:n]))
		from := c.source.Bytes()
		require.Equal(t, []byte{from[9], from[50], from[51], from[7]}, s.region.Bytes()[500:504])
		back.Deregister()
	}
	r.close(s, c)
}

// A range of a list that is not registered for this ends the connection before an octet of the
// message is on the wire, wherever it stands.
func TestListProtection(t *testing.T) {
	for i := range 4 {
		_, s, c := connected(t, opts{}, opts{})
		list := [4]SGE{}
		for k := range list {
			list[k] = c.source.Slice(6000*k, 5000)
		}
		list[i] = SGE{STag: c.source.STag() ^ 0x100, Length: 5000}
		c.post(WorkRequest{ID: 5, Op: OpWrite, Local: list[0], List: list[1:],
			RemoteSTag: s.region.STag()})
		c.expectClosedBy(qp.ErrLocalRange)
		s.awaitClosed()
		c.expectCompletions(Completion{ID: 5, Op: OpWrite, Status: LocalProtection})
		require.Equal(t, make([]byte, 20000), s.region.Bytes()[:20000], "range %d", i)
	}
}

// A message that is longer than all ranges of a buffer together is LocalLength, one that fits to
// the octet is not. A buffer with a range that cannot be written is this host's error; the message
// that would have filled it is in none.
func TestReceiveListRefused(t *testing.T) {
	for bad, want := range map[bool]Status{false: LocalLength, true: LocalProtection} {
		_, s, c := connected(t, opts{}, opts{})
		first := WorkRequest{Local: s.inbox.Slice(0, 10), List: []SGE{nowhere, s.inbox.Slice(20, 10)}}
		second := first
		if second.ID = 1; bad {
			second.List = []SGE{s.source.Slice(0, 10), s.inbox.Slice(20, 10)} // without LocalWrite
		}
		s.postRecv(first, second)
		c.post(c.sendQuietly(0, 20))
		s.expectCompletions(Completion{Op: OpRecv, Len: 20})
		clear(s.inbox.Bytes())
		c.post(c.sendQuietly(0, 21))
		awaitClosed(s, c)
		s.expectCompletions(Completion{ID: 1, Op: OpRecv, Status: want})
		require.Equal(t, make([]byte, 30), s.inbox.Bytes()[:30])
	}
}
