package transport

import (
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/mem"
)

// bufPools are the Bufs of a Loop's connections: those that are read into, which are still in the
// cache from the last connection, and those that MPA keeps. A pool has as many as its connections
// may keep at most, so none ever lacks one: 18 MiB for four, of which only what was touched is
// there. The holder of the Loop.
type bufPools struct {
	open []*bufPool // with room for another connection
	all  int
	most int // connections of the last one made
}

// bufPool is that of some connections.
type bufPool struct {
	*mem.Pool
	memory []byte
	conns  int
	most   int
	at     int // in bufPools.open; -1: it is full
	// of the next read; NoBuf: to be taken from the pool
	read [readSlots]mem.Buf
}

// The first pool is for bufConnsMin connections, each further one for twice as many, up to
// bufConnsMax.
const (
	bufConnsMin = 4
	bufConnsMax = 64
)

// take returns a pool for one more connection, which may keep so many Bufs: each time as many.
func (p *bufPools) take(kept int) *bufPool {
	if len(p.open) == 0 {
		most := min(max(bufConnsMin, 2*p.most), bufConnsMax)
		// those that were read and not taken, and one that the Upper looks at
		p.list(newBufPool(most*(kept+readSlots+1)+readSlots, most))
		p.most = most
		p.all++
	}
	b := p.open[len(p.open)-1]
	if b.conns++; b.conns == b.most {
		p.unlist(b)
	}
	return b
}

// give is the end of a connection, which has no Buf any more. An empty pool goes, unless it is the
// last one.
func (p *bufPools) give(b *bufPool) {
	if b.at < 0 {
		p.list(b)
	}
	if b.conns--; b.conns == 0 && p.all > 1 {
		p.drop(b)
	}
}

// close is for the Loop's end: there is no connection.
func (p *bufPools) close() {
	for len(p.open) > 0 {
		p.drop(p.open[0])
	}
	p.most = 0
}

func (p *bufPools) list(b *bufPool) {
	b.at = len(p.open)
	p.open = append(p.open, b)
}

func (p *bufPools) unlist(b *bufPool) {
	last := len(p.open) - 1
	p.open[b.at] = p.open[last]
	p.open[b.at].at = b.at
	p.open[last], p.open = nil, p.open[:last]
	b.at = -1
}

func (p *bufPools) drop(b *bufPool) {
	p.unlist(b)
	p.all--
	if b.memory != nil {
		_ = unix.Munmap(b.memory) // it is whole
	}
}

func newBufPool(bufs, most int) *bufPool {
	b := &bufPool{most: most, memory: mapped(bufs * KernelStride)}
	var arena *hugepages.Arena
	if b.memory != nil {
		arena = hugepages.Over(b.memory, hugepages.Normal)
	} else { // the system lets us map no more; Go has some, or says so
		arena = hugepages.Heap((bufs + 1) * KernelStride)
	}
	pool, err := mem.NewPool(arena, mem.PoolConfig{Bufs: bufs, Stride: KernelStride})
	if err != nil {
		panic(err) // the sizes are ours
	}
	b.Pool = pool
	for i := range b.read {
		b.read[i] = mem.NoBuf
	}
	return b
}

// mapped is memory of n octets or a little more, none of it there yet; nil: there is none.
func mapped(n int) []byte {
	const page = int(hugepages.Normal)
	m, err := unix.Mmap(-1, 0, (n+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil
	}
	return m
}

// slots are room for the next read.
func (b *bufPool) slots(room [][]byte) [][]byte {
	for i := range b.read {
		if b.read[i] == mem.NoBuf {
			b.read[i] = b.Alloc()
		}
		room = append(room, b.Slot(b.read[i])[mem.Headroom:])
	}
	return room
}

// taken is the Buf of the slot that the last read has filled.
func (b *bufPool) taken(slot int) (buf mem.Buf) {
	buf, b.read[slot] = b.read[slot], mem.NoBuf
	return buf
}
