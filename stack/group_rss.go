package stack

import (
	"encoding/binary"
	"slices"

	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/tcp"
)

// tupleMax is the longest input of the hash: the addresses and ports of IPv6.
const tupleMax = 16 + 16 + 2 + 2

// rss is a port's receive side scaling: which queue a segment comes to ("RSS Hashing Functions" of
// Microsoft's NDIS). Asked when no connection is found, and of the ports a dial tries; never for
// the segments of a connection, which prove by being found that they came right.
type rss struct {
	key    []byte
	queues []uint16              // by hash modulo its length
	sum    [tupleMax][256]uint32 // what an octet at this place adds to the hash
}

// newRSS is nil where the port does not say how it spreads over just these members.
func newRSS(caps *pmd.Caps, members int) *rss {
	short := len(caps.RSSKey) < tupleMax+4
	foreign := func(q uint16) bool { return int(q) >= members }
	if short || len(caps.RSSTable) == 0 || slices.ContainsFunc(caps.RSSTable, foreign) {
		return nil
	}
	r := &rss{key: slices.Clone(caps.RSSKey), queues: slices.Clone(caps.RSSTable)}
	for at := range r.sum {
		// 40 bits of the key: 32 for the octet's first bit, one further for each of the others.
		window := uint64(binary.BigEndian.Uint32(r.key[at:]))<<8 | uint64(r.key[at+4])
		for octet := range r.sum[at] {
			for bit := range 8 {
				if octet&(0x80>>bit) != 0 {
					r.sum[at][octet] ^= uint32(window >> (8 - bit))
				}
			}
		}
	}
	return r
}

func (r *rss) equal(o *rss) bool {
	if r == nil || o == nil {
		return r == o
	}
	return slices.Equal(r.key, o.key) && slices.Equal(r.queues, o.queues)
}

// queue is the one that segments of a connection come to.
func (r *rss) queue(id *tcp.ID) int {
	return int(r.queues[r.hash(id)%uint32(len(r.queues))])
}

// hash is the Toeplitz hash of a segment as it comes in, from the remote end to us.
func (r *rss) hash(id *tcp.ID) (h uint32) {
	var in [tupleMax]byte
	n := 0
	if id.Local.Is4() {
		n = copy(in[n:], id.Remote[12:])
		n += copy(in[n:], id.Local[12:])
	} else {
		n = copy(in[n:], id.Remote[:])
		n += copy(in[n:], id.Local[:])
	}
	binary.BigEndian.PutUint16(in[n:], id.RemotePort)
	binary.BigEndian.PutUint16(in[n+2:], id.LocalPort)
	for at, octet := range in[:n+4] {
		h ^= r.sum[at][octet]
	}
	return h
}
