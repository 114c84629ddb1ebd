package mem

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rnicd/rnicd/internal/skip"
)

// What it costs to make a region and to end it: by size, because the kernel looks at every page.
func BenchmarkRegister(b *testing.B) {
	for _, octets := range []int{64, 4 << 10, 1 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("octets=%d", octets), func(b *testing.B) {
			table := NewTable(1 << 10)
			memory := make([]byte, octets)
			// its pages are there
			register(b, table, 1, memory, RegionOptions{Access: RemoteWrite}).Deregister()
			b.ReportAllocs()
			for b.Loop() {
				register(b, table, 1, memory, RegionOptions{Access: RemoteWrite}).Deregister()
			}
		})
	}
}

// Revoke and Revalidate, with so many Readers that are between bursts.
func BenchmarkRevoke(b *testing.B) {
	for _, readers := range []int{1, 16, 1024} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			table := NewTable(1)
			for range readers {
				defer table.NewReader().Close()
			}
			m := register(b, table, 1, make([]byte, 4096), RegionOptions{Access: RemoteWrite})
			b.ReportAllocs()
			for b.Loop() {
				m.Revoke()
				m.Revalidate()
			}
		})
	}
}

// Revoke under a Reader that places bursts of 32 segments without a pause: it waits for the end of
// one.
func BenchmarkRevokeUnderWrites(b *testing.B) {
	if runtime.GOMAXPROCS(0) < 2 {
		skip.Missing(b, "wants two cores")
	}
	const segments, octets = 32, 1460
	table := NewTable(1)
	m := register(b, table, 1, make([]byte, segments*octets), RegionOptions{Access: RemoteWrite})
	var current atomic.Uint32
	current.Store(uint32(m.STag()))
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		r := table.NewReader()
		defer r.Close()
		segment := make([]byte, octets)
		for !stop.Load() {
			stag := STag(current.Load())
			r.Enter()
			for i := range segments {
				if dst, res := table.Check(1, 1, stag, uint64(i*octets), octets, RemoteWrite); res == CheckOK {
					copy(dst, segment)
				}
			}
			r.Exit()
		}
	})
	for b.Loop() {
		m.Revoke()
		current.Store(uint32(m.Revalidate()))
	}
	stop.Store(true)
	wg.Wait()
}

func BenchmarkWindow(b *testing.B) {
	table := NewTable(1 << 10)
	m := register(b, table, 1, make([]byte, 4096), RegionOptions{Windows: RemoteWrite})
	w := newWindow(b, table)
	opt := WindowOptions{Off: 64, Len: 1024, Access: RemoteWrite, Stream: 1}
	defer table.NewReader().Close()
	b.Run("Check", func(b *testing.B) {
		stag := bind(b, w, m, opt)
		for b.Loop() {
			if _, res := table.Check(1, 1, stag, 64, 512, RemoteWrite); res != CheckOK {
				b.Fatal(res)
			}
		}
	})
	b.Run("Bind and Unbind", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			bind(b, w, m, opt)
			w.Unbind()
		}
	})
	b.Run("Bind and Invalidate", func(b *testing.B) {
		for b.Loop() {
			table.Invalidate(1, 1, bind(b, w, m, opt))
		}
	})
}
