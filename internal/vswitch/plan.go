package vswitch

import (
	"math/bits"

	"github.com/rnicd/rnicd/internal/inet"
)

// plan says which program has which addresses. It does not change; a change of the configuration
// makes a new one.
type plan struct {
	stations macTable
	byAddr   map[addrKey]*station
	links    map[uint32][]*station // of a segment and VLAN: the stations that get frames to groups
	uplinks  [][]*port             // of each, the ports of its queues
	ports    []*port               // all, at their slots
}

// station is a MAC on a link with its addresses, of one program or of several that share it.
type station struct {
	mac     inet.MAC
	addrs   []inet.Addr
	members []*port
	// owner is, of a station with several members, whose each TCP port is: an index of members and 1.
	owner *[1 << 16]uint8
}

// shared: the members are told apart by TCP ports.
func (s *station) shared() bool { return s.owner != nil }

// has says whether an address is the station's: one that is configured, or the link-local one
// that comes of its MAC.
func (s *station) has(a *inet.Addr) bool {
	for i := range s.addrs {
		if s.addrs[i] == *a {
			return true
		}
	}
	return false
}

// of is the member whose TCP port it is; nil: no member's.
func (s *station) of(tcp uint16) *port {
	if i := s.owner[tcp]; i > 0 {
		return s.members[i-1]
	}
	return nil
}

// lead is the first member that is attached, or nil.
func (s *station) lead() *port {
	for _, m := range s.members {
		if m.attached() {
			return m
		}
	}
	return nil
}

type addrKey struct {
	link uint32
	addr inet.Addr
}

// linkOf numbers links: those that an uplink, or none, and a VLAN make.
func linkOf(segment int, vid uint16) uint32 { return uint32(segment+1)<<12 | uint32(vid) }

// stationKey fits into a word, as uplinks are few.
func stationKey(link uint32, mac *inet.MAC) uint64 {
	return uint64(link)<<48 | uint64(be.Uint16(mac[:]))<<32 | uint64(be.Uint32(mac[2:]))
}

// macTable is open addressing, at most half full. Its keys are the operator's, so a fixed hash
// will do.
type macTable struct {
	keys  []uint64
	who   []*station
	shift uint
}

func newMACTable(n int) macTable {
	log2 := max(bits.Len(uint(2*n)), 4)
	return macTable{keys: make([]uint64, 1<<log2), who: make([]*station, 1<<log2),
		shift: uint(64 - log2)}
}

func (t *macTable) slot(key uint64) int { return int(key * 0x9e3779b97f4a7c15 >> t.shift) }

func (t *macTable) add(key uint64, s *station) {
	i := t.slot(key)
	for t.who[i] != nil {
		i = (i + 1) & (len(t.who) - 1)
	}
	t.keys[i], t.who[i] = key, s
}

func (t *macTable) find(key uint64) *station {
	for i := t.slot(key); t.who[i] != nil; i = (i + 1) & (len(t.who) - 1) {
		if t.keys[i] == key {
			return t.who[i]
		}
	}
	return nil
}

// newPlan is that of ports, whose programs have been checked.
func newPlan(uplinks [][]*port, programs []*port, slots int) *plan {
	p := &plan{
		stations: newMACTable(len(programs)), byAddr: map[addrKey]*station{},
		links:   map[uint32][]*station{},
		uplinks: uplinks, ports: make([]*port, slots),
	}
	for _, queues := range uplinks {
		for _, q := range queues {
			p.ports[q.slot] = q
		}
	}
	for _, m := range programs {
		p.ports[m.slot] = m
		p.enter(m)
	}
	return p
}

// enter adds a program to its station.
func (p *plan) enter(m *port) {
	prog := &m.cfg
	link := linkOf(prog.Uplink, prog.VLAN)
	key := stationKey(link, &prog.MAC)
	s := p.stations.find(key)
	if s == nil {
		s = &station{mac: prog.MAC, addrs: append([]inet.Addr{inet.LinkLocal(prog.MAC)}, prog.Addrs...)}
		p.stations.add(key, s)
		p.links[link] = append(p.links[link], s)
		for _, a := range s.addrs {
			p.byAddr[addrKey{link, a}] = s
		}
	}
	s.members = append(s.members, m)
	if len(prog.Ports) > 0 && s.owner == nil {
		s.owner = new([1 << 16]uint8)
	}
	for _, r := range prog.Ports {
		for tcp := int(r.First); tcp <= int(r.Last); tcp++ {
			s.owner[tcp] = uint8(len(s.members))
		}
	}
	m.next.station, m.next.member = s, uint8(len(s.members))
}

func (p *plan) station(segment int, vid uint16, mac *inet.MAC) *station {
	return p.stations.find(stationKey(linkOf(segment, vid), mac))
}

// uplink is the queue of a segment's uplink for what a core has: its own where there is one, or
// nil.
func (p *plan) uplink(segment, core int) *port {
	if segment < 0 || segment >= len(p.uplinks) {
		return nil
	}
	queues := p.uplinks[segment]
	return queues[core%len(queues)]
}
