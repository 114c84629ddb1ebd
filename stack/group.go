package stack

import (
	"crypto/rand"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/iphost"
	"github.com/rnicd/rnicd/internal/rouse"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// groupMax bounds the Pollers of a Group.
const groupMax = 64

// crossingSlots is how many frames may be on their way from one Poller to another.
const crossingSlots = 128

// crossingDatagrams is how many of them datagrams may take.
const crossingDatagrams = crossingSlots / 4 * 3

// Group is several Pollers that share one address: one for each queue of a port. Each connection
// belongs to one of them. A hash of the 4-tuple says which, so either end may have opened it and
// no member has to ask another: the port's own (Caps.RSSKey, group_rss.go), so that frames come
// to the right Poller and a dial takes a local port whose answers do; else, where the port steers
// by rules that it does not tell (a TAP's memory of flows, which fades when a flow is idle), a
// keyed one. The port need not spread exactly: a frame that comes to the wrong Poller crosses to
// the right one, at the cost of a copy, and is counted (Counters.Crossed). What concerns all
// members (ARP, neighbour discovery, ICMP) is answered by the one it came to, and overheard by
// the others.
//
//	queue 0 ─► Poller 0 ─┐ crossing, one ring for each ordered pair
//	queue 1 ─► Poller 1 ◄┘
//
// Make the Group, open all queues of the port, make all Pollers (Config.Group; Config.Member is the
// number of its queue), then run them. All have the same Caps, addresses, MTU, PeerMax and (where
// PeerMax is set) ConnsMax, and listen on the same ports.
type Group struct {
	secret  [16]byte
	inboxes [][]*crossing   // by receiver, then by sender
	rousers []*rouse.Rouser // of the members
	rss     *rss            // how the port spreads; nil: by rules of its own

	udp atomic.Pointer[map[uint16]int] // which member has a port; changed as a whole, with lock

	lock         sync.Mutex // of what New, AddAddr, RemoveAddr and ListenUDP change
	addrs        *iphost.Shared
	peers        []peerCount
	made         bool // a member; the next have its limits
	peerMax      int
	connsMax     int
	placesWanted atomic.Uint32 // how often askForPlace asked
}

// NewGroup is one of n Pollers, 1 to 64.
func NewGroup(n int) (*Group, error) {
	if n < 1 || n > groupMax {
		return nil, fmt.Errorf("stack: group of %d pollers: want 1 to %d", n, groupMax)
	}
	g := &Group{
		inboxes: make([][]*crossing, n), rousers: make([]*rouse.Rouser, n), addrs: iphost.NewShared(n),
	}
	if _, err := rand.Read(g.secret[:]); err != nil {
		return nil, fmt.Errorf("stack: group: secret: %w", err)
	}
	return g, nil
}

// check says what is wrong with a member's Config, and gives it the Group's secret.
func (g *Group) check(cfg *Config) error {
	switch {
	case cfg.Member < 0 || cfg.Member >= len(g.inboxes):
		return fmt.Errorf("member %d of a group of %d", cfg.Member, len(g.inboxes))
	case g.inboxes[cfg.Member] != nil:
		return fmt.Errorf("member %d of its group was made before", cfg.Member)
	}
	g.lock.Lock()
	defer g.lock.Unlock()
	if g.made && (cfg.PeerMax != g.peerMax || cfg.PeerMax != 0 && cfg.ConnsMax != g.connsMax) {
		return fmt.Errorf("PeerMax %d, ConnsMax %d: those of the group's first member are %d and %d, "+
			"and it is one limit for all",
			cfg.PeerMax, cfg.ConnsMax, g.peerMax, g.connsMax)
	}
	spreads := newRSS(&cfg.Caps, len(g.inboxes))
	if g.made && !spreads.equal(g.rss) {
		return fmt.Errorf("its RSSKey or RSSTable are not those of the group's first member: take Caps " +
			"when all queues of the port are open")
	}
	g.made, g.peerMax, g.connsMax, g.rss = true, cfg.PeerMax, cfg.ConnsMax, spreads
	cfg.Secret = g.secret
	return nil
}

// addMember makes the rings to a new member, and knows how to rouse it.
func (g *Group) addMember(member, frameMax int, r *rouse.Rouser) {
	g.rousers[member] = r
	inbox := make([]*crossing, len(g.inboxes))
	for from := range inbox {
		if from != member {
			inbox[from] = newCrossing(frameMax)
		}
	}
	g.inboxes[member] = inbox
}

// frameMaxOf is the longest frame of a port with this MTU.
func frameMaxOf(mtu int) int { return mtu + inet.EthernetLen + 2*inet.VLANLen }

// rouseAll is for news that all members are to heed.
func (g *Group) rouseAll() {
	for _, r := range g.rousers {
		if r != nil {
			r.Rouse()
		}
	}
}

// groupMember is a Poller's place in its Group: it says which member a connection belongs to, and
// carries frames to others. Without a Group all connections are this Poller's.
type groupMember struct {
	group    *Group // nil: it is alone
	index    int
	secret   *secret
	pool     *mem.Pool
	tx       *transmitter
	counters *Counters
}

// owner is the member that a connection belongs to.
func (m *groupMember) owner(id *tcp.ID) int {
	if m.group == nil {
		return m.index
	}
	if r := m.group.rss; r != nil {
		return r.queue(id)
	}
	return int(m.secret.tuple(useOwner, id) % uint64(len(m.group.inboxes)))
}

// tell lets the other members overhear a frame that is not of one connection, unless it was
// overheard itself.
func (m *groupMember) tell(b mem.Buf) {
	if m.group == nil || m.tx.mute {
		return
	}
	for to := range m.group.inboxes {
		if to != m.index {
			m.cross(b, to, true)
		}
	}
}

// cross hands the frame in b to another member. b stays the caller's.
func (m *groupMember) cross(b mem.Buf, to int, overheard bool) {
	inbox := m.group.inboxes[to]
	if inbox == nil || !inbox[m.index].put(m.pool.Data(b), m.pool.Desc(b), overheard) {
		m.counters.Own[DropCrossing]++
		return
	}
	m.counters.Crossed++
	m.group.rousers[to].Rouse()
}

// ownUDP makes a port of UDP this member's; false: another one has it.
func (m *groupMember) ownUDP(port uint16) bool {
	if m.group == nil {
		return true
	}
	m.group.lock.Lock()
	defer m.group.lock.Unlock()
	ports := map[uint16]int{}
	if old := m.group.udp.Load(); old != nil {
		maps.Copy(ports, *old)
	}
	if _, taken := ports[port]; taken {
		return false
	}
	ports[port] = m.index
	m.group.udp.Store(&ports)
	return true
}

func (m *groupMember) disownUDP(port uint16) {
	if m.group == nil {
		return
	}
	m.group.lock.Lock()
	defer m.group.lock.Unlock()
	ports := maps.Clone(*m.group.udp.Load())
	delete(ports, port)
	m.group.udp.Store(&ports)
}

// crossDatagram hands a datagram to the member that has its port. False: none has. Anybody can send
// any number of them: they leave room for segments. One that came in fragments, in no Buf, is
// dropped.
func (m *groupMember) crossDatagram(b mem.Buf, port uint16) bool {
	if m.group == nil || m.tx.mute {
		return false
	}
	ports := m.group.udp.Load()
	if ports == nil {
		return false
	}
	to, ok := (*ports)[port]
	if !ok || to == m.index {
		return false
	}
	if b == mem.NoBuf || m.group.inboxes[to][m.index].ring.Len() >= crossingDatagrams {
		m.counters.Own[DropCrossing]++
	} else {
		m.cross(b, to, false)
	}
	return true
}

// inbox is the rings from the other members; nil in this one's own place.
func (m *groupMember) inbox() []*crossing {
	if m.group == nil {
		return nil
	}
	return m.group.inboxes[m.index]
}

// crossingsWait says that frames of other members wait for the next Turn.
func (m *groupMember) crossingsWait() bool {
	for _, x := range m.inbox() {
		if x != nil && x.ring.Len() > 0 {
			return true
		}
	}
	return false
}

// take puts the next frame of x into b. overheard: it is to be learned from, not answered.
func (m *groupMember) take(x *crossing, b mem.Buf) (overheard bool) {
	s := x.ring.Peek(0)
	d := m.pool.Desc(b)
	d.Len, d.Flags, d.CsumStart, d.CsumOffset = s.length, s.flags, s.csumStart, s.csumOffset
	copy(m.pool.Data(b), x.octets(s))
	overheard = s.overheard
	x.ring.Release(1)
	return overheard
}

// crossing carries frames from one Poller to another.
type crossing struct {
	ring *mem.SPSC[crossed]
	data []byte
	step int
}

// crossed is one frame.
type crossed struct {
	length                uint32
	flags                 mem.DescFlags
	csumStart, csumOffset uint16
	slot                  uint16
	overheard             bool // to learn from, not to answer
}

func newCrossing(frameMax int) *crossing {
	slots := make([]crossed, crossingSlots)
	for i := range slots {
		slots[i].slot = uint16(i)
	}
	return &crossing{ring: mem.NewSPSC(slots), data: make([]byte, crossingSlots*frameMax),
		step: frameMax}
}

func (x *crossing) octets(s *crossed) []byte {
	at := int(s.slot) * x.step
	return x.data[at : at+int(s.length)]
}

// put copies a frame; false: it is too long, or there is no room. What all overhear anybody on the
// link can send any number of: it takes half of the room at most.
func (x *crossing) put(frame []byte, d *mem.Desc, overheard bool) bool {
	if overheard && x.ring.Len() >= crossingSlots/2 {
		return false
	}
	s := x.ring.Reserve(0)
	if s == nil || len(frame) > x.step {
		return false
	}
	s.length, s.flags, s.csumStart, s.csumOffset, s.overheard = uint32(len(frame)), d.Flags,
		d.CsumStart, d.CsumOffset, overheard
	copy(x.octets(s), frame)
	x.ring.Publish(1)
	return true
}
