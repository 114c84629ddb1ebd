package ddp

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
)

// protected is a sink with a region of every kind that a peer may name, and queue 0 with MSN 2
// and 3 to come.
type protected struct {
	*sink
	mr, based, readOnly, foreign, other, mine, revoked *mem.MemoryRegion
}

func newProtected(t *testing.T, size int) *protected {
	f := &protected{sink: newSink(t, 4)}
	f.mr = f.register(size)
	f.based = f.registerIn(f.domain, size, mem.RegionOptions{Access: mem.RemoteWrite, Base: 1 << 40})
	f.readOnly = f.registerIn(f.domain, size,
		mem.RegionOptions{Access: mem.RemoteRead | mem.LocalWrite})
	f.foreign = f.registerIn(f.table.AllocDomain(), size, mem.RegionOptions{Access: mem.RemoteWrite})
	f.other = f.registerIn(f.domain, size,
		mem.RegionOptions{Access: mem.RemoteWrite, Stream: ownStream + 1})
	f.mine = f.registerIn(f.domain, size,
		mem.RegionOptions{Access: mem.RemoteWrite, Stream: ownStream})
	f.revoked = f.register(size)
	f.reader.Exit()
	f.revoked.Revoke()
	f.reader.Enter()
	for i := range uint64(3) {
		f.post(0, i, size)
	}
	f.send(0, 1, 0, "", true) // MSN 1 is completed
	f.wantIDs(f.pos, 0)
	return f
}

const protectedSize = 64

func ofVersion(h Header, v uint8) Header  { h.Version = v; return h }
func toSTag(h Header, s mem.STag) Header  { h.STag = s; return h }
func toOffset(h Header, to uint64) Header { h.TO = to; return h }

// placementCase is a segment and the type and code of its error, as of section 9.2.
type placementCase struct {
	name          string
	errType, code uint8
	ok            bool
	n             int
	header        Header
}

// A tagged segment that fails a check of section 9.1 has its error, and memory is not changed.
//
// req: 5041-7.1-4, 5040-7.2-1
func TestTaggedPlacementErrors(t *testing.T) {
	testPlacement(t, func(f *protected) []placementCase {
		return []placementCase{
			// req: DDP-9.1-6, DDP-9.2-3, DDP-10.3-6
			{"unknown STag", 1, 0x00, false, 1, toSTag(tagged(f.mr, 0, true), f.mr.STag()^0x100)},
			{"wrong key", 1, 0x00, false, 1, toSTag(tagged(f.mr, 0, true), f.mr.STag()^1)},
			// req: DDP-10.3-3
			{"revoked STag", 1, 0x00, false, 1, tagged(f.revoked, 0, true)},
			// req: DDP-9.1-7
			{"no right to write", 1, 0x00, false, 1, tagged(f.readOnly, 0, true)},
			// req: DDP-9.1-8, DDP-9.2-4, 5041-8.3.1-3
			{"TO at the end", 1, 0x01, false, 1, tagged(f.mr, protectedSize, true)},
			{"TO below base", 1, 0x01, false, 1, toOffset(tagged(f.based, 0, true), f.based.Base()-1)},
			{"TO far away", 1, 0x01, false, 1, toOffset(tagged(f.mr, 0, true), 1<<63)},
			// req: DDP-9.1-9, DDP-10.1-1
			{"one octet over", 1, 0x01, false, 2, tagged(f.mr, protectedSize-1, true)},
			{"one octet over, based", 1, 0x01, false, protectedSize + 1, tagged(f.based, 0, true)},
			{"below base, into it", 1, 0x01, false, 2, toOffset(tagged(f.based, 0, true), f.based.Base()-1)},
			{"last octet", 0, 0, true, 1, tagged(f.mr, protectedSize-1, true)},
			{"all of it", 0, 0, true, protectedSize, tagged(f.based, 0, true)},
			// req: DDP-9.2-5, DDP-6.2-5, 5041-2.1-1, 5041-8.2-1, 5041-8.3.1-1, 5042-6.1.1-2
			{"other domain", 1, 0x02, false, 1, tagged(f.foreign, 0, true)},
			// req: DDP-10.3-4, 5041-8.2-2, 5041-8.2-3, 5041-8.3.1-2, 5042-6.1.1-3
			{"other stream", 1, 0x02, false, 1, tagged(f.other, 0, true)},
			{"own stream", 0, 0, true, 1, tagged(f.mine, 0, true)},
			// req: DDP-9.1-10, DDP-9.2-6
			{"TO wraps", 1, 0x03, false, 2, toOffset(tagged(f.mr, 0, true), 1<<64-1)},
			// req: DDP-9.2-7, DDP-6.1-11, 5041-4.1-2
			{"tagged version 0", 1, 0x04, false, 1, ofVersion(tagged(f.mr, 0, true), 0)},
			{"tagged version 2, not last", 1, 0x04, false, 1, ofVersion(tagged(f.mr, 0, false), 2)},
			{"tagged version, no payload", 1, 0x04, false, 0, ofVersion(tagged(f.mr, 0, true), 3)},
			// req: DDP-7.2-12, DDP-7.2-13, 5041-5.2-2
			{"no payload, unknown STag", 0, 0, true, 0, toSTag(tagged(f.mr, 1<<64-1, true), 0xffffffff)},
		}
	})
}

// An untagged segment that fails a check of section 9.1 has its error, and memory is not changed.
//
// req: 5041-7.1-4, 5040-7.2-1
func TestUntaggedPlacementErrors(t *testing.T) {
	testPlacement(t, func(f *protected) []placementCase {
		return []placementCase{
			// req: DDP-9.1-1, DDP-9.2-8
			{"QN beyond the list", 2, 0x01, false, 1, untagged(7, 1, 0, true)},
			{"QN without a queue", 2, 0x01, false, 1, untagged(1, 1, 0, true)},
			{"highest QN", 2, 0x01, false, 1, untagged(0xffffffff, 1, 0, true)},
			{"QN, no payload", 2, 0x01, false, 0, untagged(1, 1, 0, true)},
			// req: DDP-9.1-2, DDP-3.2-3, 5041-7.1-3
			{"no buffer posted", 2, 0x02, false, 1, untagged(2, 1, 0, true)},
			{"no buffer posted, no payload", 2, 0x02, false, 0, untagged(2, 1, 0, true)},
			{"MSN above the window", 2, 0x02, false, 1, untagged(0, 4, 0, true)},
			{"highest MSN of the window", 0, 0, true, 1, untagged(0, 3, 0, true)},
			{"MSN completed", 2, 0x03, false, 1, untagged(0, 1, 0, true)},
			{"MSN completed, no payload", 2, 0x03, false, 0, untagged(0, 1, 0, true)},
			{"MSN 0 before the first wrap", 2, 0x03, false, 1, untagged(0, 0, 0, true)},
			{"MO at the end", 2, 0x04, false, 1, untagged(0, 2, protectedSize, true)},
			{"MO beyond the end, no payload", 2, 0x04, false, 0, untagged(0, 2, protectedSize+1, true)},
			// req: DDP-3.2-2
			{"message one octet too long", 2, 0x05, false, protectedSize + 1, untagged(0, 2, 0, true)},
			{"one octet over at the end", 2, 0x05, false, 2, untagged(0, 2, protectedSize-1, true)},
			{"buffer full to the octet", 0, 0, true, 1, untagged(0, 2, protectedSize-1, true)},
			// req: DDP-9.2-13
			{"untagged version 0", 2, 0x06, false, 1, ofVersion(untagged(0, 2, 0, true), 0)},
			{"untagged version before QN", 2, 0x06, false, 0, ofVersion(untagged(7, 2, 0, true), 2)},
		}
	})
}

func testPlacement(t *testing.T, cases func(*protected) []placementCase) {
	for i, c := range cases(newProtected(t, protectedSize)) {
		t.Run(c.name, func(t *testing.T) {
			f := newProtected(t, protectedSize)
			before := f.snapshot()

			h := cases(f)[i].header
			err := f.place(h, bytes.Repeat([]byte{0x77}, c.n))
			if c.ok {
				require.Nil(t, err)
				require.Nil(t, f.stream.Err())
				require.Len(t, f.delivered(f.pos), map[bool]int{true: 1, false: 0}[h.MSN != 3])
				return
			}
			require.Equal(t, &Error{Type: c.errType, Code: c.code, Header: h, SegmentLen: h.Len() + c.n},
				err)
			require.Equal(t, before, f.snapshot(), "nothing was written")
			require.Empty(t, f.delivered(f.pos))
		})
	}
}

func (k *sink) snapshot() []byte {
	var all []byte
	for _, g := range k.ranges {
		all = append(all, g.all...)
	}
	return all
}

// A ULPDU too short for its header, down to none: the first octet decides which header.
// req: DDP-8.2.2-3
func TestTruncatedSegment(t *testing.T) {
	for _, whole := range [][]byte{ulpdu(Header{Tagged: true, Version: testDV}, nil),
		ulpdu(untagged(0, 1, 0, true), nil)} {
		for n := range whole {
			for _, pieces := range [][][]byte{{whole[:n]}, {whole[:n/2], whole[n/2 : n]}, nil} {
				if pieces == nil && n != 0 {
					continue
				}
				k := newSink(t, 1)
				want := &Error{Type: TypeLocalCatastrophic, SegmentLen: n, Truncated: true}
				require.Equal(t, want, place(&k.stream, 0, 10, n, pieces), "%d of %d octets", n, len(whole))
			}
		}
	}
}

// A posted buffer that is no writable local range is this host's fault.
// req: DDP-9.2-2
func TestLocalBufferFails(t *testing.T) {
	type localCase struct {
		name string
		post RecvBuffer
	}
	cases := func(k *sink) []localCase {
		readable := k.registerIn(k.domain, 8, mem.RegionOptions{Access: mem.RemoteRead})
		foreign := k.registerIn(k.table.AllocDomain(), 8, mem.RegionOptions{Access: mem.LocalWrite})
		return []localCase{
			{"good", RecvBuffer{STag: k.register(8).STag(), Len: 8}},
			{"unknown STag", RecvBuffer{STag: 0x01020304, Len: 8}},
			{"not writable", RecvBuffer{STag: readable.STag(), Len: 8}},
			{"other domain", RecvBuffer{STag: foreign.STag(), Len: 8}},
			{"longer than the region", RecvBuffer{STag: k.register(7).STag(), Len: 8}},
			{"TO wraps", RecvBuffer{STag: k.register(8).STag(), TO: 1<<64 - 4, Len: 8}},
		}
	}
	for i, c := range cases(newSink(t, 1)) {
		t.Run(c.name, func(t *testing.T) {
			k := newSink(t, 1)
			require.True(t, k.queues[0].Post(cases(k)[i].post))
			before := k.snapshot()
			h := untagged(0, 1, 4, true)
			err := k.place(h, []byte("1234"))
			if c.name == "good" {
				require.Nil(t, err)
				return
			}
			require.Equal(t, &Error{Header: h, SegmentLen: 22}, err)
			require.Equal(t, before, k.snapshot())
		})
	}
}

func TestPlacementMisuse(t *testing.T) {
	k := newSink(t, 1)
	mr := k.register(64)
	b := ulpdu(tagged(mr, 0, true), []byte("12345678"))
	require.Panics(t, func() { place(&k.stream, 0, 30, len(b)-1, [][]byte{b}) }, "pieces too long")
	require.Panics(t, func() { place(&k.stream, 0, 30, len(b)+1, [][]byte{b}) }, "pieces too short")
	err := place(&k.stream, 0, 30, TaggedLen-1, [][]byte{b})
	require.True(t, err.Truncated, "the header is not looked for after n")
}

func TestPlaceAllocs(t *testing.T) {
	k := newSink(t, 4)
	mr := k.register(4096)
	write := ulpdu(tagged(mr, 8, true), make([]byte, 1446))
	send := ulpdu(untagged(0, 1, 0, true), make([]byte, 100))
	pieces := [][]byte{nil, nil}
	var d Delivered
	require.Zero(t, testing.AllocsPerRun(200, func() {
		for i := range 2 { // out of order: the second comes first
			pieces[0], pieces[1] = write[:5], write[5:]
			at := k.pos + uint64(1-i)*2000
			if place(&k.stream, at, at+2000, len(write), pieces) != nil {
				t.Fatal(k.stream.Err())
			}
		}
		k.pos += 4000
		k.queues[0].Post(RecvBuffer{STag: mr.STag(), Len: 4000})
		binary.BigEndian.PutUint32(send[10:], k.queues[0].first)
		pieces[0], pieces[1] = send, nil
		if place(&k.stream, k.pos, k.pos+200, len(send), pieces) != nil {
			t.Fatal(k.stream.Err())
		}
		k.pos += 200
		for range 3 {
			if !k.stream.Deliver(k.pos, &d) {
				t.Fatal("not delivered")
			}
		}
	}))
	require.Zero(t, testing.AllocsPerRun(10, func() { // the error path, too
		place(&k.stream, k.pos, k.pos+1, 0, nil)
	}))
	require.NotNil(t, k.stream.Err())
}

func BenchmarkPlace(b *testing.B) {
	for _, c := range []struct {
		name    string
		payload int
		tag     bool
	}{{"tagged", 1446, true}, {"tagged", 64, true}, {"tagged", 0, true}, {"tagged", 8934, true},
		{"untagged", 1442, false}} {
		b.Run(fmt.Sprintf("%s/%d", c.name, c.payload), func(b *testing.B) {
			k := newSink(b, 64)
			const size = 1 << 20
			mr := k.register(size)
			h := untagged(0, 1, 0, true)
			if c.tag {
				h = tagged(mr, 0, true)
			}
			payload := make([]byte, c.payload)
			_, _ = rand.Read(payload)
			seg := ulpdu(h, payload)
			pieces := [][]byte{seg}
			var d Delivered
			var to uint64
			b.SetBytes(int64(c.payload))
			for b.Loop() {
				if c.tag {
					if to += uint64(c.payload); to+uint64(c.payload) > size {
						to = 0
					}
					binary.BigEndian.PutUint64(seg[6:], to)
				} else {
					k.queues[0].Post(RecvBuffer{STag: mr.STag(), Len: size})
					binary.BigEndian.PutUint32(seg[10:], k.queues[0].first)
				}
				end := k.pos + uint64(len(seg)) + 6
				if err := place(&k.stream, k.pos, end, len(seg), pieces); err != nil {
					b.Fatal(err)
				}
				k.pos = end
				if !k.stream.Deliver(end, &d) {
					b.Fatal("not delivered")
				}
			}
			require.True(b, bytes.Equal(payload, mr.Bytes()[to:][:c.payload]),
				"the octets of the last segment")
		})
	}
}

// PlaceAside takes the octets past a buffer that has no room, or none that is valid; they come in
// order of the stream. A message that contradicts another one of its MSN is an error.
func TestPlaceAside(t *testing.T) {
	aside := func(k *sink, msn uint32, payload string) *Error {
		h := untagged(0, msn, 0, true)
		b := ulpdu(h, []byte(payload))
		start, end := k.span(len(b))
		got, err := k.stream.Begin(start, end, len(b), [][]byte{b})
		require.Nil(t, err)
		require.Equal(t, h, *got)
		return k.stream.PlaceAside(start, end, len(b), [][]byte{b[:20], b[20:]})
	}
	k := newSink(t, 4)
	require.True(t, k.queues[0].Post(RecvBuffer{ID: 1}))
	require.True(t, k.queues[0].Post(RecvBuffer{ID: 2, STag: 99, Len: 8}))
	mr := k.post(0, 3, 100)
	before := bytes.Clone(mr.Bytes())
	for i, text := range []string{"octets 1", "octets 2", "octets 3"} {
		require.Nil(t, aside(k, uint32(i+1), text))
	}
	for i, d := range k.delivered(k.pos) {
		require.Equal(t, uint64(i+1), d.Buffer.ID)
		require.Equal(t, fmt.Sprint("octets ", i+1), string(d.Aside[:]))
		require.EqualValues(t, asideLen, d.Len)
	}
	require.Equal(t, before, mr.Bytes())
	require.Equal(t, 0, k.queues[0].Posted())
	require.Equal(t, Stats{Segments: 3, Octets: 3 * asideLen}, k.stream.Stats())
	require.Equal(t, &Error{Type: TypeUntagged, Code: CodeNoBuffer, Header: untagged(0, 4, 0, true),
		SegmentLen: UntaggedLen + asideLen},
		aside(k, 4, "octets 4"))

	// a segment of a Send in the same buffer, before and after
	for _, first := range []bool{false, true} {
		k := newSink(t, 4)
		k.post(0, 1, 100)
		send := func() *Error { return k.place(untagged(0, 1, 0, false), []byte("text")) }
		if first {
			require.Nil(t, send())
			require.Equal(t, uint8(CodeMSNRange), aside(k, 1, "octets 1").Code)
			continue
		}
		k.pos = 1000
		require.Nil(t, aside(k, 1, "octets 1"))
		k.pos = 0
		require.Equal(t, uint8(CodeMSNRange), send().Code)
	}

	k = newSink(t, 4) // the very same again
	k.post(0, 1, 100)
	require.Nil(t, aside(k, 1, "octets 1"))
	k.pos = 0
	require.Nil(t, aside(k, 1, "octets 1"))
	require.EqualValues(t, 1, k.stream.Stats().Duplicates)
	require.Panics(t, func() { _ = aside(k, 1, "octets") })
}
