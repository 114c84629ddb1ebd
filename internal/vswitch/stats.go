package vswitch

import (
	"context"
	"fmt"

	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/memif"
)

// Reason is why a frame was dropped.
type Reason uint8

// Reasons. The first ones are counted at the port that a frame came from, the last ones, from
// Full on, at the one that it was for.
const (
	Passed Reason = iota
	// no Ethernet, VLAN, ARP or IP header, or neighbour discovery, that is whole
	Malformed
	Vlan        // not of the program's VLAN; several tags
	EtherType   // of a program: neither ARP nor IP
	SpoofedMAC  // of a program: from, or telling, a MAC that is not its own
	SpoofedAddr // of a program: from, or telling, an address that is not its own
	// of a program with a shared address: from, or about, a port that is not its own; neither TCP
	// nor ICMP
	SpoofedPort
	Router          // of a program: what only routers say
	Extension       // of a program: IPv6 extension headers that cannot be followed
	Fragment        // of a program: of a shared address; of IPv6 other than TCP and UDP
	Looped          // from an uplink, but a program sent it
	NoStation       // for no port here, and there is no uplink
	WrongAddr       // for a program's MAC, but not its address
	NoPort          // for a TCP port of a shared address that no program has
	FragmentUnknown // of a packet to a shared address whose first fragment has not come
	MulticastRate   // copies beyond Config.Multicast
	NoBuffer        // for a copy
	Full            // as many wait as Buffers allows
	Over            // beyond the Receive rate
	TooLong         // for its MTU
	Detached        // no program is attached
	WireFull        // between two cores
	Gone            // for a port that a change has taken out meanwhile
	Reasons
)

var reasonNames = [Reasons]string{
	"passed", "malformed", "vlan", "ethertype", "spoofed-mac", "spoofed-address", "spoofed-port",
	"router", "extension", "fragment",
	"looped", "no-station", "wrong-address", "no-port", "fragment-unknown", "multicast-rate",
	"no-buffer", "full", "rate", "too-long",
	"detached", "wire-full", "gone",
}

func (r Reason) String() string { return reasonNames[r] }

// PortStats are the counters of one program, or of one queue of an uplink. Those of a program are
// of its name: they only grow, also over an Apply that binds it anew, or takes it out and brings
// it back.
type PortStats struct {
	Name     string
	Uplink   bool
	Queue    int // of an uplink
	Attached bool
	// Attachments of a program so far.
	Attachments uint64
	Peer        memif.Peer // of a program that is attached: the process

	Received, ReceivedOctets uint64 // from it, dropped ones among them
	Sent, SentOctets         uint64 // to it
	// turns in which it had to wait, for its Send rate or with its share of a full uplink
	Throttled uint64
	Drops     [Reasons]uint64 // by Reason
	Waiting   int             // frames in its buffers
	Device    pmd.Counters    // of its queues
	Ring      memif.Drops     // of its queues: what was wrong with its rings
}

// CoreStats are those of one core.
type CoreStats struct {
	Turns, Busy uint64 // and how many of them had something to do
	Frames      uint64 // steered
	Lookups     uint64 // a run of frames of one flow is looked up once
	Copies      uint64 // of frames to groups
	Answers     uint64 // for shared addresses
	Free        int    // Bufs, of Bufs
	Bufs        int
	Drops       [Reasons]uint64 // of no port
}

// Stats is a snapshot of a Switch, taken of each core between two turns. Programs are in the
// order of the configuration, after the queues of uplinks.
type Stats struct {
	Cores []CoreStats
	Ports []PortStats
	// Refused counts clients of sockets that may not attach, or cannot.
	Refused uint64
}

// Stats takes a snapshot. Its error is ctx's, of a core that does not turn, or ErrClosed.
func (s *Switch) Stats(ctx context.Context) (*Stats, error) {
	s.change.Lock()
	defer s.change.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("vswitch: a change of programs took all of the time: %w", err)
	}
	all := &Stats{Refused: s.refused.Load(), Cores: make([]CoreStats, len(s.cores))}
	var order []*port
	for _, queues := range s.uplinks {
		order = append(order, queues...)
	}
	order = append(order, s.programs...)
	all.Ports = make([]PortStats, len(order))
	err := s.each(ctx, func(c *Core) {
		all.Cores[c.id] = c.stats
		all.Cores[c.id].Free, all.Cores[c.id].Bufs = c.pool.Available(), c.pool.Size()
		for i, m := range order {
			if m.core == c.id {
				all.Ports[i] = m.snapshot()
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for i, m := range order {
		if m.memif != nil {
			all.Ports[i].Peer, all.Ports[i].Attached = m.memif.Peer()
			all.Ports[i].Attachments = m.memif.LinkUps()
			if before := s.counted[m.name]; before != nil {
				all.Ports[i].count(before)
			}
		}
	}
	return all, nil
}

// snapshot is taken on the port's core.
func (m *port) snapshot() PortStats {
	st := m.stats
	st.Name, st.Uplink, st.Queue, st.Waiting, st.Attached = m.name, m.isUplink(), m.queue,
		m.waiting, true
	for _, q := range m.queues {
		add(&st.Device, q.Counters())
		if x, ok := q.(*memif.Queue); ok {
			addDrops(&st.Ring, x.Drops())
		}
	}
	return st
}

// outlived keeps what the closed port of a program has counted, for the next one of its name. No
// core has it any more.
func (s *Switch) outlived(m *port) {
	st := m.snapshot()
	st.Attachments = m.memif.LinkUps()
	if s.counted[m.name] == nil {
		s.counted[m.name] = &PortStats{}
	}
	s.counted[m.name].count(&st)
}

// count adds all counters of an earlier port.
func (st *PortStats) count(before *PortStats) {
	st.Attachments += before.Attachments
	st.Received += before.Received
	st.ReceivedOctets += before.ReceivedOctets
	st.Sent += before.Sent
	st.SentOctets += before.SentOctets
	st.Throttled += before.Throttled
	for r, n := range before.Drops {
		st.Drops[r] += n
	}
	add(&st.Device, before.Device)
	addDrops(&st.Ring, before.Ring)
}

func add(to *pmd.Counters, c pmd.Counters) {
	to.RxFrames += c.RxFrames
	to.RxOctets += c.RxOctets
	to.TxFrames += c.TxFrames
	to.TxOctets += c.TxOctets
	to.RxNoBuf += c.RxNoBuf
	to.RxTooLong += c.RxTooLong
	to.RxErrors += c.RxErrors
	to.RxOtherVLAN += c.RxOtherVLAN
	to.TxFull += c.TxFull
	to.TxErrors += c.TxErrors
}

func addDrops(to *memif.Drops, d memif.Drops) {
	to.Down += d.Down
	to.Length += d.Length
	to.Descriptor += d.Descriptor
	to.Index += d.Index
	to.Fault += d.Fault
	to.Slow += d.Slow
}
