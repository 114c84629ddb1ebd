package bench

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/crc32c"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// fpdus is how many FPDUs a round has. One more of the right size goes after them, so that the next
// round's markers stand where this one's stood.
const fpdus = 64

// half is MPA, DDP and what RDMAP checks of one direction, without TCP: a round of FPDUs that carry
// Writes into a region.
type half struct {
	mode   mpa.Mode
	mulpdu int
	each   int // payload of a full FPDU
	table  *mem.Table
	pd     mem.ProtectionDomain
	reader *mem.Reader
	local  *mem.MemoryRegion // what is sent
	remote *mem.MemoryRegion // where it goes
	pool   *mem.Pool
	bufs   []mem.Buf
	data   [][]byte // each one FPDU, in a Buf
	last   int      // the shorter payload of the round's last FPDU

	message int // FPDUs of a message
	noise   noise
	tx      mpa.Sender
	seg     ddp.Segmenter
	header  [ddp.UntaggedLen]byte
	parts   [2][]byte

	rx     mpa.Receiver
	stream ddp.Stream
	off    uint64
	done   ddp.Delivered
	got    int // messages
}

func newHalf(t testing.TB, emss int, markers bool, message int) *half {
	t.Helper()
	stride := 2048
	if emss > 2000 {
		stride = 9344
	}
	h := &half{mode: mpa.Mode{Markers: markers, CRC: true}, table: mem.NewTable(8), message: message}
	h.mulpdu = h.mode.MULPDU(emss)
	h.each = h.mulpdu - ddp.TaggedLen
	holds := mpa.BufsMin(stride) + 1
	count := fpdus + 1 + holds
	var err error
	h.pool, err = mem.NewPool(hugepages.Heap(count*stride+count*64+1<<16),
		mem.PoolConfig{Bufs: count, Stride: stride})
	require.NoError(t, err)
	h.pd, h.reader = h.table.AllocDomain(), h.table.NewReader()
	h.local = h.register(t, mem.LocalRead)
	h.remote = h.register(t, mem.RemoteWrite)
	h.noise = newNoise(t)
	h.noise.fill(h.local.Bytes())
	for range fpdus + 1 {
		b := h.pool.Alloc()
		h.bufs, h.data = append(h.bufs, b), append(h.data, h.pool.Slot(b)[128:])
	}
	h.tx.Init(h.mode)
	h.seg.Init(1)
	h.rx.Init(mpa.ReceiverConfig{Mode: h.mode, Pool: h.pool, BufsMax: holds})
	h.stream.Init(ddp.StreamConfig{Table: h.table, Domain: h.pd, Version: 1, PendingMax: 64})
	h.last = h.filler()
	h.send()
	return h
}

func (h *half) register(t testing.TB, access mem.Access) *mem.MemoryRegion {
	m, err := h.table.Register(h.pd, make([]byte, (fpdus+1)*h.mulpdu),
		mem.RegionOptions{Access: access})
	require.NoError(t, err)
	return m
}

// filler is the payload of an FPDU that ends a round at a marker.
func (h *half) filler() int {
	var tx mpa.Sender
	tx.Init(h.mode)
	room := make([]byte, 2*h.mulpdu)
	for range fpdus {
		tx.Put(room, [][]byte{room[:h.mulpdu]})
	}
	for n := ddp.TaggedLen + 1; ; n++ {
		if (int(tx.Offset())+tx.Size(n))%mpa.MarkerSpacing == 0 {
			return n - ddp.TaggedLen
		}
	}
}

// send makes one round of FPDUs as a QueuePair does: cut, local octets found, headers, payload,
// markers and CRC written.
func (h *half) send() {
	left := 0 // FPDUs of the message in hand
	var base uint32
	h.reader.Enter()
	for i := range h.data {
		n := h.each
		if i == fpdus {
			n, left = h.last, 0
		}
		if left == 0 {
			if h.seg.Active() {
				panic("bench: a message is longer than planned")
			}
			left = min(h.message, max(fpdus-i, 1))
			base = uint32(i * h.each)
			h.seg.Start(ddp.Message{
				Header: ddp.Header{Tagged: true, ULP: rdmap.Control(1, rdmap.OpWrite), STag: h.remote.STag(),
					TO: h.remote.Base() + uint64(base)},
				Len: uint32(left * n),
			})
		}
		left--
		size := h.tx.Size(h.seg.NextLen(h.mulpdu))
		head, off, n := h.seg.Next(h.mulpdu)
		src, verdict := h.table.Check(h.pd, mem.AnyStream, h.local.STag(),
			h.local.Base()+uint64(base+off), n, mem.LocalRead)
		if verdict != mem.CheckOK {
			panic("bench: local octets")
		}
		head.Put(h.header[:])
		h.parts[0], h.parts[1] = h.header[:head.Len()], src
		h.data[i] = h.data[i][:size]
		h.tx.Put(h.data[i], h.parts[:])
	}
	h.reader.Exit()
}

// sendFloor copies each payload and computes its CRC, in the one pass that MPA itself uses.
func (h *half) sendFloor() {
	src := h.local.Bytes()
	for i, d := range h.data {
		n := h.each
		if i == fpdus {
			n = h.last
		}
		crc := crc32c.Copy(0, d[16:], src[i*h.each:][:n])
		binary.LittleEndian.PutUint32(d[len(d)-4:], crc)
	}
}

// receive takes a round of FPDUs in, each a segment, to where Placement and Delivery leave them.
func (h *half) receive() {
	h.reader.Enter()
	for i, d := range h.data {
		h.rx.Input(h.off, h.bufs[i], d)
		for u := h.rx.Next(); u != nil; u = h.rx.Next() {
			h.place(u)
		}
		if h.rx.Verdict() != mpa.Done {
			panic("bench: not passed")
		}
		h.off += uint64(len(d))
		h.deliver(h.rx.Edge(h.off))
	}
	h.reader.Exit()
}

// place judges a ULPDU as RDMAP does and puts it where it belongs.
func (h *half) place(u *mpa.ULPDU) {
	header, err := h.stream.Begin(u.Start, u.End, u.Len, u.Pieces)
	if header != nil {
		if op, _, ok := rdmap.Check(header, 1); !ok || op != rdmap.OpWrite {
			panic("bench: not a Write")
		}
		err = h.stream.Place(u.Start, u.End, u.Len, u.Pieces, mem.RemoteWrite)
	}
	if err != nil {
		panic(err)
	}
}

func (h *half) deliver(edge uint64) {
	for h.stream.Deliver(edge, &h.done) {
		h.got++
	}
}

// receiveFloor verifies the CRC of each FPDU, by the function that MPA itself uses, and copies as
// many octets as its payload has.
func (h *half) receiveFloor() {
	dst := h.remote.Bytes()
	for i, d := range h.data {
		if crc32c.Update(0, d[:len(d)-4]) != binary.LittleEndian.Uint32(d[len(d)-4:]) {
			panic("bench: CRC")
		}
		n := h.each
		if i == fpdus {
			n = h.last
		}
		copy(dst[i*h.each:], d[16:][:n])
	}
}

// verify plays one round that is not timed. It sends new octets, receives and compares them, and
// checks that each message is delivered with its last FPDU, neither earlier nor later.
func (h *half) verify(t testing.TB) {
	t.Helper()
	h.noise.fill(h.local.Bytes())
	clear(h.remote.Bytes())
	for _, d := range h.data {
		clear(d)
	}
	h.send()
	h.reader.Enter()
	for i, d := range h.data {
		before := h.got
		h.rx.Input(h.off, h.bufs[i], d)
		for u := h.rx.Next(); u != nil; u = h.rx.Next() {
			h.place(u)
		}
		require.Equal(t, mpa.Done, h.rx.Verdict())
		h.off += uint64(len(d))
		h.deliver(h.rx.Edge(h.off))
		due := 0
		if i == fpdus || (i+1)%h.message == 0 {
			due = 1
		}
		require.Equal(t, due, h.got-before, "messages delivered after FPDU %d", i)
	}
	h.reader.Exit()
	require.NoError(t, h.rx.Err())
	n := fpdus*h.each + h.last
	requireSame(t, h.local.Bytes()[:n], h.remote.Bytes()[:n])
}

// verifyAll checks that so many rounds were received, each FPDU from one segment. Then it plays one
// more, and one with a damaged FPDU, which must be refused and not placed.
func (h *half) verifyAll(t testing.TB, rounds int) {
	t.Helper()
	require.NoError(t, h.rx.Err())
	require.EqualValues(t, rounds*(fpdus+1), h.rx.Stats().Direct)
	require.Equal(t, rounds*(fpdus/h.message+1), h.got)
	h.verify(t)
	h.noise.fill(h.local.Bytes())
	h.send()
	const bad = 3
	h.data[bad][len(h.data[bad])/2] ^= 1
	clear(h.remote.Bytes())
	h.receive()
	var e *mpa.Error
	require.ErrorAs(t, h.rx.Err(), &e)
	require.Equal(t, mpa.ErrCRC, e.Code)
	requireSame(t, h.local.Bytes()[:bad*h.each], h.remote.Bytes()[:bad*h.each])
	requireSame(t, make([]byte, (fpdus-bad)*h.each),
		h.remote.Bytes()[bad*h.each:][:(fpdus-bad)*h.each])
}

// What the benchmark does is the whole work: octets arrive, messages are delivered, nothing is
// held, nothing is allocated.
func TestFPDUCostIsOfWholeFPDUs(t *testing.T) {
	for _, emss := range []int{1460, 8960} {
		for _, markers := range []bool{false, true} {
			for _, message := range []int{1, fpdus} {
				h := newHalf(t, emss, markers, message)
				for range 3 {
					h.verify(t)
				}
				require.Zero(t, testing.AllocsPerRun(9, h.receive)) // and once to warm up
				require.Zero(t, testing.AllocsPerRun(10, h.send))
				h.verifyAll(t, 3+10)
			}
		}
	}
}

// BenchmarkFPDU is what MPA and DDP cost for each aligned FPDU in order, and how much of it is
// neither the CRC nor the copy of the payload: beyond-ns/op. The marks: 40 ns without markers, 80
// ns with them, either way, no allocation. Rounds in between, which are not timed, carry new
// octets, and all of them are compared.
func BenchmarkFPDU(b *testing.B) {
	for _, way := range []string{"receive", "send"} {
		for _, emss := range []int{1460, 8960} {
			for _, markers := range []bool{false, true} {
				for _, message := range []int{1, fpdus} {
					b.Run(fmt.Sprintf("%s/emss=%d/markers=%v/message=%d", way, emss, markers, message),
						func(b *testing.B) {
							h := newHalf(b, emss, markers, message)
							if way == "send" {
								h.verifyAll(b, beyond(b, fpdus+1, h.send, h.sendFloor, h.verify)[1])
							} else {
								turns := beyond(b, fpdus+1, h.receive, h.receiveFloor, h.verify)
								h.verifyAll(b, turns[0]+turns[1])
							}
						})
				}
			}
		}
	}
}

// verifyEvery is how many turns of a benchmark there are to one round that is compared: enough for
// the caches to hold what they would hold without it.
const verifyEvery = 64

// beyond takes turns at work and floor, which do n things each, and reports both and the
// difference, each: medians over the turns, so that what else the machine does now and then does
// not count. verify, now and then, is not timed. It returns how many times it called work and
// verify.
func beyond(b *testing.B, n int, work, floor func(), verify func(testing.TB)) (calls [2]int) {
	turns := (b.N + n - 1) / n
	all, least, more := make([]float64, turns), make([]float64, turns), make([]float64, turns)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range turns {
		if i%verifyEvery == 0 {
			b.StopTimer()
			verify(b)
			calls[1]++
			work() // as every other turn has found things
			floor()
			calls[0]++
			b.StartTimer()
		}
		calls[0]++
		begin := time.Now()
		work()
		middle := time.Now()
		floor()
		all[i] = float64(middle.Sub(begin).Nanoseconds()) / float64(n)
		least[i] = float64(time.Since(middle).Nanoseconds()) / float64(n)
		more[i] = all[i] - least[i]
	}
	b.StopTimer()
	b.ReportMetric(median(all), "ns/op")
	b.ReportMetric(median(least), "floor-ns/op")
	b.ReportMetric(median(more), "beyond-ns/op")
	return calls
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
