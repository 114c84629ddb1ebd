package engine

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/rnicd/rnicd/internal/waiting"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// Whatever stands in a ring and at its head: a request is never longer than what is there and
// than what the queue may have, and reading ends. The first octets are the tail, and how the
// program changes an entry while it is read.
func FuzzHostileQueue(f *testing.F) {
	f.Add([]byte{5, 0, 0, 0, 1})
	f.Add(append([]byte{16, 0, 0, 0, 0}, make([]byte, 4*wq.EntryLen)...))
	f.Add([]byte{255, 255, 255, 255, 7})
	for _, fields := range []wq.WQE{
		{Op: wq.OpSend, Flags: wq.FlagInline, Local: wq.SGE{Length: 64}},
		{Op: wq.OpSend, Flags: wq.FlagInline, Local: wq.SGE{Length: 1<<32 - 1}},
		{Op: wq.OpWriteImmediate, More: 3},
		{Op: wq.OpBindWindow, Operands: [3]uint64{1, 2, 3}},
		{Op: wq.OpSendImmediate, More: 1, Operands: [3]uint64{0xdeadbeef}},
		{Op: wq.OpFetchAdd, More: 255},
	} {
		e := (*[wq.EntryLen]byte)(unsafe.Pointer(&fields))[:]
		f.Add(append([]byte{4, 0, 0, 0, 3}, append(e, e...)...))
	}
	const depth, sgeMax, inlineMax = 4, 4, 64
	f.Fuzz(func(t *testing.T, data []byte) {
		q, err := newQueue(depth, sgeMax, inlineMax)
		if err != nil {
			t.Fatal(err)
		}
		defer q.release()
		var head [5]byte
		entries := data[copy(head[:], data):]
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&q.entries[0])), len(q.entries)*wq.EntryLen), entries)
		tail := binary.LittleEndian.Uint32(head[:])
		atomic.StoreUint32(&q.shared.Tail, tail)
		r := &wq.Request{List: make([]wq.SGE, sgeMax-1), Data: make([]byte, inlineMax)}
		var u waiting.Underway
		for range 2 * len(q.entries) {
			n := q.peek(r)
			if n == 0 {
				return
			}
			if there := tail - q.head; n > there || there > uint32(len(q.entries)) {
				t.Fatalf("%d entries of %d", n, there)
			}
			if r.Inline() && (r.Local.Length < 1 || r.Local.Length > inlineMax || r.More > 0) ||
				r.More >= sgeMax || r.Refused() {
				t.Fatalf("%+v", r.WQE)
			}
			q.count(&u)
			was, total := r.WQE, r.Total()
			if i := int(head[4]) % len(q.entries); len(entries) > i {
				// what is in hand is a copy
				q.entries[i].Flags, q.entries[i].More = wq.Flags(entries[i]), head[4]
			}
			if r.WQE != was || r.Total() != total {
				t.Fatalf("%+v was %+v", r.WQE, was)
			}
			sum := r.Local.Length
			for _, part := range split(r, nil) {
				sum += part.Local.Length
			}
			if r.Op == wq.OpRead && uint64(sum) != total && total <= ring.MessageMax {
				t.Fatalf("parts have %d octets of %d", sum, total)
			}
			q.taken(n)
		}
		t.Fatal("reading does not end")
	})
}
