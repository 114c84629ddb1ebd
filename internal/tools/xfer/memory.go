package xfer

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/rnicd/rnicd/internal/tools/peer"
)

// Memory is what files land in, of one Server or of several, each on an Adapter of its own: no two
// of their clients get the same octets.
type Memory struct {
	octets []byte
	quota  int // that one peer may hold at a time; 0: all

	mu   sync.Mutex
	room extents
	held map[netip.Prefix]int

	names map[string]*kept // nil: nothing is kept
}

// NewMemory makes one of b, which stays the caller's. quota is how many octets one address (of
// IPv6, one /64) may hold at a time; 0: all.
func NewMemory(b []byte, quota int) *Memory {
	return &Memory{octets: b, quota: quota, room: extents{size: len(b)}, held: map[netip.Prefix]int{}}
}

// SetQuota changes what one peer may hold at a time. Peers keep what they hold. Any goroutine.
func (m *Memory) SetQuota(quota int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.quota = quota
}

// take finds n octets for a peer, or says why there are none.
func (m *Memory) take(from netip.Addr, n uint64) (extent, string) {
	if n > uint64(len(m.octets)) {
		return extent{}, fmt.Sprintf("%d octets offered, the region holds %d; start the server with a "+
			"larger --region", n, len(m.octets))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.quota > 0 && n > uint64(m.quota) {
		return extent{}, fmt.Sprintf("%d octets offered, a client may hold %d of the region", n, m.quota)
	}
	who := peer.Network(from)
	if m.quota > 0 && int(n) > m.quota-m.held[who] {
		kept := ""
		if len(m.names) > 0 {
			kept = ", what it keeps included: an empty FILE put under a name takes that away"
		}
		return extent{},
			fmt.Sprintf("no room for %d octets: your address may hold %d, and holds %d%s"+peer.Later, n,
				m.quota, m.held[who], kept)
	}
	x, ok := m.room.take(int(n))
	if !ok && len(m.names) > 0 {
		return x, fmt.Sprintf("no room for %d octets beside %d files that are kept or on their way"+
			peer.Later, n, m.room.inUse())
	}
	if !ok {
		return x, fmt.Sprintf("no room for %d octets while %d other transfers run"+peer.Later, n,
			m.room.inUse())
	}
	m.held[who] += int(n)
	return x, ""
}

func (m *Memory) give(from netip.Addr, x extent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.giveLocked(from, x)
}

func (m *Memory) giveLocked(from netip.Addr, x extent) {
	m.room.give(x)
	who := peer.Network(from)
	if m.held[who] -= x.n; m.held[who] == 0 {
		delete(m.held, who)
	}
}

func (m *Memory) bytes(x extent) []byte { return m.octets[x.off : x.off+x.n : x.off+x.n] }
