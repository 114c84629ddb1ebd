package stack

import (
	"encoding/binary"
	"math/bits"

	"github.com/rnicd/rnicd/tcp"
)

// connIndex names a connection by its slot in the slab.
type connIndex uint32

// lookup finds a connection by its 4-tuple. It is a hash table with linear probing and
// backward-shift deletion, at most half full. Each entry has the hash next to the index, so a probe
// reads a connection only when it is most likely the right one. The hash is keyed: otherwise a peer
// could choose ports that all fall on one entry.
type lookup struct {
	entries []lookupEntry // a power of two
	mask    uint32
	k0, k1  uint64
	conns   []Conn
	n       int
}

type lookupEntry struct {
	hash uint32
	conn connIndex // noConn: empty
}

func newLookup(connsMax int, s *secret, conns []Conn) lookup {
	size := powerOfTwo(2 * connsMax)
	t := lookup{
		entries: make([]lookupEntry, size), mask: uint32(size - 1), conns: conns,
		// Both odd: a zero factor would swallow the other.
		k0: s.prf(useLookup, []byte{0}) | 1, k1: s.prf(useLookup, []byte{1}) | 1,
	}
	onLargePages(t.entries)
	for i := range t.entries {
		t.entries[i].conn = noConn
	}
	return t
}

// find returns the connection of id, or noConn.
func (t *lookup) find(id *tcp.ID) connIndex {
	h := t.hash(id)
	for i := h & t.mask; ; i = (i + 1) & t.mask {
		e := t.entries[i]
		if e.conn == noConn || e.hash == h && *t.conns[e.conn].tcp.ID() == *id {
			return e.conn
		}
	}
}

// candidate is the first connection of this hash, or noConn: most probably the one find would
// return.
func (t *lookup) candidate(h uint32) connIndex {
	for i := h & t.mask; ; i = (i + 1) & t.mask {
		if e := t.entries[i]; e.conn == noConn || e.hash == h {
			return e.conn
		}
	}
}

// insert adds connection c under id, which must not be there yet and is c's from the next find on.
func (t *lookup) insert(c connIndex, id *tcp.ID) {
	if t.n++; t.n > len(t.conns) {
		panic("stack: more connections in the table than slots")
	}
	h := t.hash(id)
	i := h & t.mask
	for t.entries[i].conn != noConn {
		i = (i + 1) & t.mask
	}
	t.entries[i] = lookupEntry{h, c}
}

// remove takes connection c out and moves back what probed past it.
func (t *lookup) remove(c connIndex) {
	i := t.hash(t.conns[c].tcp.ID()) & t.mask
	for t.entries[i].conn != c {
		if t.entries[i].conn == noConn {
			panic("stack: connection is not in the table")
		}
		i = (i + 1) & t.mask
	}
	t.n--
	for j := (i + 1) & t.mask; t.entries[j].conn != noConn; j = (j + 1) & t.mask {
		// The entry at j may fill the hole at i unless its home lies cyclically in (i, j].
		if home := t.entries[j].hash & t.mask; (j-home)&t.mask >= (j-i)&t.mask {
			t.entries[i] = t.entries[j]
			i = j
		}
	}
	t.entries[i].conn = noConn
}

func (t *lookup) hash(id *tcp.ID) uint32 {
	r := (*[16]byte)(&id.Remote)
	l := (*[16]byte)(&id.Local)
	ports := uint64(id.LocalPort)<<16 | uint64(id.RemotePort)
	h := fold(binary.LittleEndian.Uint64(r[8:])^t.k0, ports^t.k1)
	h = fold(h^binary.LittleEndian.Uint64(r[:8]), t.k1)
	h ^= fold(binary.LittleEndian.Uint64(l[8:])^t.k1, binary.LittleEndian.Uint64(l[:8])^t.k0)
	h = fold(h, t.k0)
	return uint32(h)
}

// fold is the 128-bit product's halves xored, as in wyhash.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

func powerOfTwo(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}
