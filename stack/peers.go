package stack

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/inet"
)

// peers counts, by remote address, the connections that were opened to us, so that one address cannot fill the table
// (Config.PeerMax). A counter is found by a keyed hash and may be shared by addresses, at most half of the counters ever
// being in use: a peer cannot choose with whom. Of IPv6 the first 64 bits count, as a host has all addresses behind them.
type peers struct {
	counts []uint32 // a power of two; none when there is no limit
	k0, k1 uint64
	max    uint32
}

func newPeers(cfg *Config, s *secret) peers {
	if cfg.PeerMax == 0 {
		return peers{}
	}
	return peers{
		counts: make([]uint32, powerOfTwo(2*cfg.ConnsMax)), max: uint32(cfg.PeerMax),
		k0: s.prf(usePeer, []byte{0}) | 1, k1: s.prf(usePeer, []byte{1}) | 1,
	}
}

func (t *peers) count(a *inet.Addr) *uint32 {
	h := binary.LittleEndian.Uint64(a[:8])
	if a.Is4() {
		h = binary.LittleEndian.Uint64(a[8:])
	}
	return &t.counts[fold(fold(h^t.k0, t.k1), t.k0)&uint64(len(t.counts)-1)]
}

// full says whether a has as many connections as it may.
func (t *peers) full(a *inet.Addr) bool { return t.max > 0 && *t.count(a) >= t.max }

// add and remove count a connection that a opened. A Conn that was added bears markPeer.
func (t *peers) add(c *Conn) {
	if t.max > 0 {
		c.marks |= markPeer
		*t.count(&c.id.Remote)++
	}
}

func (t *peers) remove(c *Conn) {
	if c.marks&markPeer != 0 {
		c.marks &^= markPeer
		*t.count(&c.id.Remote)--
	}
}
