package bench

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/crc32c"
	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// fpdus is how many FPDUs a round has. One more of the right size goes behind them, so that the next round's markers stand
// where this one's stood.
const fpdus = 64

// half is MPA and DDP of one direction, without TCP and without RDMAP: a round of FPDUs that carry Writes into a region.
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
	h.pool, err = mem.NewPool(hugepages.Heap(count*stride+count*64+1<<16), mem.PoolConfig{Bufs: count, Stride: stride})
	require.NoError(t, err)
	h.pd, h.reader = h.table.AllocDomain(), h.table.NewReader()
	h.local = h.register(t, mem.LocalRead)
	h.remote = h.register(t, mem.RemoteWrite)
	for i := range h.local.Bytes() {
		h.local.Bytes()[i] = byte(i * 7)
	}
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
	m, err := h.table.Register(h.pd, make([]byte, (fpdus+1)*h.mulpdu), mem.RegionOptions{Access: access})
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

// send makes one round of FPDUs as a QueuePair does: cut, local octets found, headers, payload, markers and CRC written.
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
				Header: ddp.Header{Tagged: true, ULP: rdmap.Control(1, rdmap.OpWrite), STag: h.remote.STag(), TO: h.remote.Base() + uint64(base)},
				Len:    uint32(left * n),
			})
		}
		left--
		size := h.tx.Size(h.seg.NextLen(h.mulpdu))
		head, off, n := h.seg.Next(h.mulpdu)
		src, verdict := h.table.Check(h.pd, mem.AnyStream, h.local.STag(), h.local.Base()+uint64(base+off), n, mem.LocalRead)
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

// sendFloor is a copy of each payload and the CRC of as many octets, by the function that MPA itself uses.
func (h *half) sendFloor() {
	src := h.local.Bytes()
	for i, d := range h.data {
		n := h.each
		if i == fpdus {
			n = h.last
		}
		copy(d[16:], src[i*h.each:][:n])
		binary.LittleEndian.PutUint32(d[len(d)-4:], crc32c.Update(0, d[:len(d)-4]))
	}
}

// receive takes a round of FPDUs in, each a segment, to where Placement and Delivery leave them.
func (h *half) receive() {
	h.reader.Enter()
	for i, d := range h.data {
		if h.rx.Input(h.off, h.bufs[i], d, h) != mpa.Done {
			panic("bench: not passed")
		}
		h.off += uint64(len(d))
		h.deliver(h.rx.Edge(h.off, h))
	}
	h.reader.Exit()
}

// Place implements mpa.Sink.
func (h *half) Place(u *mpa.ULPDU) error {
	if err := h.stream.Place(u.Start, u.End, u.Len, u.Pieces); err != nil {
		return err
	}
	return nil
}

func (h *half) deliver(edge uint64) {
	for h.stream.Deliver(edge, &h.done) {
		h.got++
	}
}

// receiveFloor verifies the CRC of each FPDU, by the function that MPA itself uses, and copies as many octets as its payload has.
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

// What the benchmark does is the whole work: octets arrive, messages are delivered, nothing is held, nothing is allocated.
func TestFPDUCostIsOfWholeFPDUs(t *testing.T) {
	for _, emss := range []int{1460, 8960} {
		for _, markers := range []bool{false, true} {
			for _, message := range []int{1, fpdus} {
				h := newHalf(t, emss, markers, message)
				for range 3 {
					clear(h.remote.Bytes())
					h.receive()
					require.NoError(t, h.rx.Err())
					n := fpdus*h.each + h.last
					require.Equal(t, h.local.Bytes()[:n], h.remote.Bytes()[:n])
					h.send()
				}
				require.Equal(t, 3*(fpdus/message+1), h.got)
				st := h.rx.Stats()
				require.EqualValues(t, 3*(fpdus+1), st.Direct)
				require.Zero(t, testing.AllocsPerRun(10, h.receive))
				require.Zero(t, testing.AllocsPerRun(10, h.send))
			}
		}
	}
}

// BenchmarkFPDU is what MPA and DDP cost for each aligned FPDU in order, and how much of it is neither the CRC nor the copy of
// the payload: beyond-ns/op. The marks: 40 ns without markers, 80 ns with them, either way, no allocation.
func BenchmarkFPDU(b *testing.B) {
	for _, way := range []string{"receive", "send"} {
		for _, emss := range []int{1460, 8960} {
			for _, markers := range []bool{false, true} {
				for _, message := range []int{1, fpdus} {
					b.Run(fmt.Sprintf("%s/emss=%d/markers=%v/message=%d", way, emss, markers, message), func(b *testing.B) {
						h := newHalf(b, emss, markers, message)
						work, floor := h.receive, h.receiveFloor
						if way == "send" {
							work, floor = h.send, h.sendFloor
						}
						beyond(b, fpdus+1, work, floor)
					})
				}
			}
		}
	}
}

// beyond takes turns at work and floor, each of which does n things, and reports both and the difference, each: medians over
// the turns, so that what else the machine does now and then does not count.
func beyond(b *testing.B, n int, work, floor func()) {
	turns := (b.N + n - 1) / n
	all, least, more := make([]float64, turns), make([]float64, turns), make([]float64, turns)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range turns {
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
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
