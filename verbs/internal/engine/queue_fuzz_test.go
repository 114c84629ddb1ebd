package engine

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/rnicd/rnicd/internal/wq"
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
		for range 2 * len(q.entries) {
			n := q.peek()
			if n == 0 {
				return
			}
			if there := tail - q.head; n > there || there > uint32(len(q.entries)) {
				t.Fatalf("%d entries of %d", n, there)
			}
			if e := &q.entry; len(q.data) > inlineMax || 1+len(q.list) > sgeMax ||
				int(e.More) != len(q.list) ||
				e.Inline() != (len(q.data) > 0) || e.Inline() && int(e.Local.Length) != len(q.data) ||
				e.Refused() {
				t.Fatalf("%+v: %d octets inline, %d ranges", *e, len(q.data), 1+len(q.list))
			}
			if i := int(head[4]) % len(q.entries); len(entries) > i {
				// what is in hand is a copy
				q.entries[i].Flags, q.entries[i].More = wq.Flags(entries[i]), head[4]
			}
			q.immediate()
			q.taken(n)
		}
		t.Fatal("reading does not end")
	})
}
