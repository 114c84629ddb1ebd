package ddp

import (
	"bytes"
	"testing"

	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
)

const (
	guardLen  = 256
	canary    = 0xa5
	testDV    = 1
	ownStream = mem.StreamID(5)
)

// sink is a Data Sink for tests: a Stream, its table, and memory in which every octet outside a
// registered region is a canary. The peer's side is place, send and write; the stream position
// runs along.
type sink struct {
	t      testing.TB
	table  *mem.Table
	domain mem.ProtectionDomain
	reader *mem.Reader
	stream Stream
	queues []*Queue
	ranges []guarded
	pos    uint64
}

type guarded struct{ all, inside []byte }

// newSink has queues 0 and 2 of eight buffers; QN 1 is nil.
func newSink(t testing.TB, pendingMax int) *sink { return newSinkOf(t, pendingMax, nil) }

func newSinkOf(t testing.TB, pendingMax int, memory *PendingMemory) *sink {
	return newSinkFrom(t, 0, pendingMax, memory)
}

func newSinkFrom(t testing.TB, peer uint64, pendingMax int, memory *PendingMemory) *sink {
	k := &sink{t: t, table: mem.NewTable(64), queues: []*Queue{{}, nil, {}}}
	k.domain = k.table.AllocDomain()
	k.reader = k.table.NewReader()
	k.queues[0].Init(8)
	k.queues[2].Init(8)
	k.stream.Init(StreamConfig{Table: k.table, Domain: k.domain, Stream: ownStream, Version: testDV,
		Queues: k.queues, PendingMax: pendingMax, Pending: memory, Peer: peer})
	k.reader.Enter()
	t.Cleanup(func() {
		k.reader.Exit()
		k.reader.Close()
		k.checkGuards()
	})
	return k
}

func (k *sink) checkGuards() {
	k.t.Helper()
	guard := bytes.Repeat([]byte{canary}, guardLen)
	for i, g := range k.ranges {
		if !bytes.Equal(guard, g.all[:guardLen]) || !bytes.Equal(guard, g.all[len(g.all)-guardLen:]) {
			k.t.Fatalf("octets outside region %d were written", i)
		}
	}
}

func (k *sink) memory(n int) []byte {
	g := guarded{all: bytes.Repeat([]byte{canary}, n+2*guardLen)}
	g.inside = g.all[guardLen : guardLen+n : guardLen+n]
	clear(g.inside)
	k.ranges = append(k.ranges, g)
	return g.inside
}

func (k *sink) registerIn(pd mem.ProtectionDomain, n int, opt mem.RegionOptions) *mem.MemoryRegion {
	k.t.Helper()
	mr, err := k.table.Register(pd, k.memory(n), opt)
	require.NoError(k.t, err)
	return mr
}

// register makes n octets writable from afar and, for posted buffers, locally.
func (k *sink) register(n int) *mem.MemoryRegion {
	k.t.Helper()
	return k.registerIn(k.domain, n, mem.RegionOptions{Access: mem.LocalWrite | mem.RemoteWrite})
}

// post gives queue qn a buffer of n octets at the end of a region of its own.
func (k *sink) post(qn int, id uint64, n int) *mem.MemoryRegion {
	k.t.Helper()
	mr := k.registerIn(k.domain, n+3, mem.RegionOptions{Access: mem.LocalWrite})
	require.True(
		k.t, k.queues[qn].Post(RecvBuffer{ID: id, STag: mr.STag(), TO: mr.Base() + 3, Len: uint32(n)}))
	return mr
}

func ulpdu(h Header, payload []byte) []byte {
	b := make([]byte, h.Len()+len(payload))
	h.Put(b)
	copy(b[h.Len():], payload)
	return b
}

// span takes the next piece of stream for a ULPDU of n octets: MPA's length in front, CRC after.
func (k *sink) span(n int) (start, end uint64) {
	start = k.pos
	k.pos += uint64(n) + 6
	return start, k.pos
}

func (k *sink) place(h Header, payload []byte) *Error {
	b := ulpdu(h, payload)
	start, end := k.span(len(b))
	return place(&k.stream, start, end, len(b), [][]byte{b})
}

func tagged(mr *mem.MemoryRegion, to uint64, last bool) Header {
	return Header{Tagged: true, Last: last, Version: testDV, ULP: 0x40, STag: mr.STag(),
		TO: mr.Base() + to}
}

func untagged(qn, msn, mo uint32, last bool) Header {
	return Header{Last: last, Version: testDV, ULP: 0x43, ULP32: 0x01020304, QN: qn, MSN: msn, MO: mo}
}

func (k *sink) write(mr *mem.MemoryRegion, to uint64, payload string, last bool) {
	k.t.Helper()
	require.Nil(k.t, k.place(tagged(mr, to, last), []byte(payload)))
}

func (k *sink) send(qn, msn, mo uint32, payload string, last bool) {
	k.t.Helper()
	require.Nil(k.t, k.place(untagged(qn, msn, mo, last), []byte(payload)))
}

// delivered is all that Deliver returns with the left edge at edge.
func (k *sink) delivered(edge uint64) (out []Delivered) {
	k.t.Helper()
	var d Delivered
	for k.stream.Deliver(edge, &d) {
		out = append(out, d)
	}
	return out
}

// wantIDs checks which posted buffers Deliver returns; tagged messages show as their TO plus 1000.
func (k *sink) wantIDs(edge uint64, want ...uint64) {
	k.t.Helper()
	var got []uint64
	for _, d := range k.delivered(edge) {
		if d.Header.Tagged {
			got = append(got, 1000+d.Header.TO)
		} else {
			got = append(got, d.Buffer.ID)
		}
	}
	require.Equal(k.t, want, got)
}

func TestStreamInit(t *testing.T) {
	var s Stream
	require.Panics(t, func() { s.Init(StreamConfig{PendingMax: 1}) })
	require.Panics(t, func() { s.Init(StreamConfig{Table: mem.NewTable(1)}) })
	k := newSink(t, 1)
	require.Nil(t, k.stream.Err())
	require.Equal(t, Stats{}, k.stream.Stats())
}

// req: 5040-7-1
func TestDisable(t *testing.T) {
	k := newSink(t, 4)
	mr := k.register(64)
	k.write(mr, 0, "x", true)
	k.write(mr, 1, "x", true)
	var d Delivered
	require.True(t, k.stream.Deliver(k.pos, &d))
	k.stream.Disable() // the ULP dislikes the first message
	k.wantIDs(k.pos)
	k.write(mr, 2, "x", true)
	require.Nil(t, k.place(untagged(9, 1, 0, true), nil))
	k.wantIDs(k.pos)
	require.Nil(t, k.stream.Err())
	require.Equal(t, "xx\x00", string(mr.Bytes()[:3]))
	require.Equal(t, Stats{Segments: 2, Octets: 2, AfterError: 2}, k.stream.Stats())
}

// Streams share nothing but the Table: each has its own set of queue numbers and counts its own
// MSNs, an error in one is none in the other, and no order holds between them.
// req: DDP-3.1-2, DDP-3.2-8, 5040-5.5-1
func TestStreamsAreIndependent(t *testing.T) {
	a := newSink(t, 4)
	b := &sink{t: t, table: a.table, domain: a.domain, reader: a.reader, queues: []*Queue{nil, {}}}
	b.queues[1].Init(2)
	b.stream.Init(StreamConfig{Table: a.table, Domain: a.domain, Stream: ownStream + 1, Version: 0,
		Queues: b.queues, PendingMax: 4})
	old := func(qn, msn uint32) Header {
		h := untagged(qn, msn, 0, true)
		h.Version = 0
		return h
	}
	a.post(0, 70, 4)
	a.post(0, 71, 4)
	b.post(1, 72, 4)
	hole, _ := a.span(UntaggedLen + 1)
	a.send(0, 2, 0, "two", true)
	require.Nil(t, b.place(old(1, 1), []byte("one")))
	b.wantIDs(b.pos, 72) // though the other's first message is missing
	require.Equal(t, CodeInvalidQN, b.place(old(0, 1), nil).Code, "a queue of the other's")
	one := ulpdu(untagged(0, 1, 0, true), []byte("1"))
	require.Nil(t, place(&a.stream, hole, hole+25, len(one), [][]byte{one}))
	a.wantIDs(a.pos, 70, 71)
	require.Nil(t, a.stream.Err())
	require.Equal(t, CodeInvalidQN, a.place(untagged(1, 1, 0, true), nil).Code)
	b.checkGuards()
}

// place is Begin and Place of a stream whose ULP wants every segment, and RemoteWrite.
func place(s *Stream, start, end uint64, n int, pieces [][]byte) *Error {
	h, err := s.Begin(start, end, n, pieces)
	if h == nil {
		return err
	}
	return s.Place(start, end, n, pieces, mem.RemoteWrite)
}

// One message may wait at the least, 2^30 at the most: what is outside is the caller's fault, which
// is found before anything is allocated.
func TestStreamPendingMax(t *testing.T) {
	table := mem.NewTable(1)
	var s Stream
	for _, n := range []int{-1, 0, 1<<30 + 1, 1 << 31} {
		require.PanicsWithValue(t, "ddp: Stream.Init wants a Table and a PendingMax of 1 to 2^30",
			func() { s.Init(StreamConfig{Table: table, PendingMax: n}) }, "%d", n)
	}
	require.Panics(t, func() { s.Init(StreamConfig{PendingMax: 1}) })
	s.Init(StreamConfig{Table: table, PendingMax: 1})
	s.Close()
}

// Init leaves nothing of the stream that there was before in the same place.
func TestInitForgetsTheStreamBefore(t *testing.T) {
	k := newSink(t, 4)
	cfg := StreamConfig{Table: k.table, Domain: k.domain, Stream: ownStream, Version: testDV,
		Queues: k.queues, PendingMax: 4}
	// for which no buffer is posted
	k.place(Header{Last: true, Version: testDV, QN: 2, MSN: 1}, []byte("octets"))
	require.NotNil(t, k.stream.Err())
	k.place(Header{Last: true, Version: testDV, QN: 2, MSN: 1}, []byte("octets")) // dropped
	require.NotZero(t, k.stream.Stats())
	var fresh Stream
	fresh.Init(cfg)
	k.stream.Init(cfg)
	require.Equal(t, fresh, k.stream)
	require.Nil(t, k.stream.Err())
	require.Zero(t, k.stream.Stats())
}
