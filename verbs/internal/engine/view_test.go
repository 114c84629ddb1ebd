package engine

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// Whoever looks sees what the program has, while it makes and destroys more.
func TestView(t *testing.T) {
	p := newProgram(t)
	const page = 4096
	m := must(unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))(t)
	addr := uint64(uintptr(unsafe.Pointer(&m[0])))
	first := p.do(ring.RegMR, p.pd, addr, page, addr, accessLocalWrite)
	p.do(ring.RegMR, p.pd, addr, 2*page, addr, accessLocalWrite)
	kept := p.newQP()
	v := p.engine.View()
	require.Equal(t, View{QueuePairs: 1, Regions: 2, RegionOctets: 3 * page}, v)

	looked := make(chan struct{})
	go func() {
		defer close(looked)
		for range 100 {
			if p.engine.View().QueuePairs == 0 {
				return
			}
		}
	}()
	for range 20 {
		p.do(ring.DestroyQP, p.newQP().handle)
	}
	<-looked
	p.do(ring.DeregMR, first[0])
	p.do(ring.DestroyQP, kept.handle)
	require.Equal(t, View{Regions: 1, RegionOctets: 2 * page}, p.engine.View())
}
