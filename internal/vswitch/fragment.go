package vswitch

import (
	"crypto/rand"

	"github.com/rnicd/rnicd/internal/inet"
)

// fragments gives later fragments of a packet to a shared address to the program that got the
// first. A set of fragmentSets takes fragmentWays packets; a new one replaces the oldest. Entries
// older than fragmentNs do not count. Which set is a packet's is secret: a host that fills sets by
// packets of its choice does not know those of others.
type fragments struct {
	keys [fragmentWords]uint64
	sets [fragmentSets][fragmentWays]fragmentEntry
}

const (
	fragmentSets  = 128
	fragmentWays  = 4
	fragmentBits  = 7 // of fragmentSets
	fragmentWords = 6 // of a key that are hashed
	fragmentNs    = 2e9
)

type fragmentKey struct {
	from, to inet.Addr
	id       uint32
	in       uint16 // slot of the port that it came in on: nobody marks what others send
	proto    uint8
	vid      uint16
}

type fragmentEntry struct {
	key  fragmentKey
	at   int64
	slot uint16
	who  uint32 // its serial number; 0: nothing here
}

func keyOf(in uint16, h *headers) fragmentKey {
	return fragmentKey{h.from, h.to, h.id, in, h.proto, h.vid}
}

func (f *fragments) set(k *fragmentKey) *[fragmentWays]fragmentEntry {
	x := f.keys[0]*uint64(k.id) + f.keys[1]*uint64(k.in)
	// multilinear: M. Thorup, "High speed hashing for integers and strings", 3.2
	for i := range len(k.from) / 4 {
		x += f.keys[2+i] * uint64(be.Uint32(k.from[4*i:]))
	}
	return &f.sets[x>>(64-fragmentBits)]
}

// draw makes the keys.
func (f *fragments) draw() {
	var b [8 * fragmentWords]byte
	_, _ = rand.Read(b[:]) // never fails
	for i := range f.keys {
		f.keys[i] = be.Uint64(b[8*i:])
	}
}

func (f *fragments) add(in uint16, h *headers, m *port, now int64) {
	k := keyOf(in, h)
	set := f.set(&k)
	at := 0
	for i := range set {
		if set[i].who != 0 && set[i].key == k {
			at = i
			break
		}
		if set[i].who == 0 || set[at].who != 0 && set[i].at < set[at].at {
			at = i
		}
	}
	set[at] = fragmentEntry{k, now, m.slot, m.serial}
}

// find returns the program that got the first fragment; nil: it has not come, was too long ago, or
// that program is gone.
func (f *fragments) find(in uint16, h *headers, now int64) *fragmentEntry {
	k := keyOf(in, h)
	set := f.set(&k)
	for i := range set {
		if e := &set[i]; e.who != 0 && e.key == k && now-e.at < fragmentNs {
			return e
		}
	}
	return nil
}
