package stack

import (
	"encoding/binary"
	"unsafe"

	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

const (
	previewMin = 256 // connections: fewer stay in the cache by themselves
	cacheLine  = 64
)

// preview finds the connections of a burst before any of its frames is handled, and reads a word of each of their cache
// lines. With very many connections none of it is in the cache; handled one after the other each frame would wait for
// its own misses, while read one after the other, with nothing in between, they overlap. It decides nothing: what is
// not plain TCP over IPv4 is left for frame to look at.
func (p *Poller) preview(bufs []mem.Buf) {
	if p.table.n < previewMin {
		return
	}
	n := 0
	var id tcp.ID
	id.Local = p.addr
	for _, b := range bufs {
		f := p.pool.Data(b)
		if len(f) < tcpAt+tcpHeaderLen || f[12] != 8 || f[13] != 0 || f[14] != 0x45 || f[23] != inet.ProtoTCP {
			continue
		}
		id.Remote = inet.AddrFrom4([4]byte(f[26:]))
		id.LocalPort, id.RemotePort = binary.BigEndian.Uint16(f[36:]), binary.BigEndian.Uint16(f[34:])
		p.ahead[n] = connIndex(p.table.hash(&id) & p.table.mask)
		n++
	}
	for k, home := range p.ahead[:n] {
		p.ahead[k] = p.table.entries[home].conn // most probably the one
	}
	p.warm(p.ahead[:n])
}

// warm brings connections into the cache.
func (p *Poller) warm(ahead []connIndex) {
	sum := byte(0)
	for _, i := range ahead {
		if i != noConn {
			sum += lines(&p.slab.conns[i]) + lines(&p.timers.armed[i])
		}
	}
	p.warmth = sum
}

// lines reads an octet of every cache line of v.
func lines[T any](v *T) (sum byte) {
	for off := uintptr(0); off < unsafe.Sizeof(*v); off += cacheLine {
		sum += *(*byte)(unsafe.Add(unsafe.Pointer(v), off))
	}
	return sum
}
