package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/tcp"
)

// Drop says why the Poller itself dropped a frame or refused a connection; inet.Drop and tcp.Drop
// have the rest.
type Drop uint8

const (
	// pool empty: an ARP request, or the RST of an aborted connection, was not sent
	DropNoBuf Drop = iota
	// a reply, or a frame that had waited for a neighbour, found the batch full
	DropTxFull
	// neighbour unknown and the table, or its queue, full; the oldest frame gave way
	DropNeighbourFull
	DropNeighbourLost // neighbour did not answer
	DropNoRoute       // a SYN from where we have no way back
	// a SYN beyond a listener's backlog, or Config.SynMax: a cookie, or its oldest gave way
	DropBacklogFull
	// the last ACK of a passive open, or Dial, without a free connection
	DropConnMax
	DropRSTLimited  // a RST beyond Config.RSTPerSec
	DropAborting    // a segment for a connection that Abort was called on
	DropCrossing    // a frame for another Poller of the Group found its ring full
	DropStopped     // a frame that waited when the Poller stopped
	DropICMPLimited // an ICMP error beyond Config.ICMPPerSec
	// a SYN, or the last ACK of a passive open, of an address with Config.PeerMax connections
	DropPeerMax
	// an announcement to a host that claims our address, within DEFEND_INTERVAL of another
	DropDefenceLimited
	DropAnnounceLimited // a LinkUp for which another, a second away at most, stands
	DropMax
)

var dropNames = [DropMax]string{
	"no buf", "tx full", "neighbour full", "neighbour lost", "no route", "backlog full", "conn max",
	"rst limited",
	"aborting", "crossing", "stopped", "icmp limited", "peer max", "defence limited",
	"announce limited",
}

func (d Drop) String() string {
	if d < DropMax {
		return dropNames[d]
	}
	return "unknown"
}

// Counters of a Poller. All grow but the gauges at the end.
type Counters struct {
	RxFrames, RxOctets uint64
	Coalesced          uint64 // segments taken together with the one before them
	TxFrames, TxOctets uint64 // taken by the device
	Segments           uint64 // made by connections
	Turns, EmptyTurns  uint64
	Sleeps             uint64
	Wakes              uint64 // doorbells that led to Woken
	Controls           uint64 // functions of Submit
	Timers             uint64 // connections whose timer was due

	Opened    uint64 // slots taken, by Dial or the last ACK of a passive open
	Connected uint64 // active opens that were answered
	Accepted  uint64 // passive opens that were completed
	Closed    uint64 // slots given back

	HalfOpened   uint64 // SYNs that began a half-open connection
	HalfOpenLost uint64 // half-open connections given up: the peer never answered
	CookiesSent  uint64 // SYNs answered with a cookie
	CookiesGood  uint64 // connections made from one
	CookiesBad   uint64 // ACKs without a connection that came while cookies were out, and had none

	// SYNs with a window scale above 14, which is taken as 14 (RFC 7323 section 2.3)
	ScalesTooLarge uint64
	// segments with URG: urgent octets stay in line, without notification (RFC 9293 section 3.8.5)
	UrgentIn uint64

	TimeWaitCut uint64 // TIME-WAIT ended early: slots ran out, or a new SYN took its place
	RSTSent     uint64 // to segments without a connection
	EchoReplies uint64
	ARPRequests uint64
	ARPReplies  uint64
	ARPProbes   uint64 // that asked whether another host has an address of ours
	NDRequests  uint64 // Neighbour Solicitations, those that check an address of ours included
	NDReplies   uint64
	ICMPSent    uint64 // errors about what cannot be taken
	ICMPHard    uint64 // errors that ended a connection being opened
	ICMPSoft    uint64 // errors kept as advice
	Stalled     uint64 // connections whose peer did not acknowledge several retransmissions in a row
	ICMPIgnored uint64 // errors about nothing of ours, or that changed nothing
	PathMTU     uint64 // times a router lowered a connection's EMSS

	Crossed       uint64 // frames handed to other Pollers of the Group
	Strays        uint64 // of these, TCP segments that the port put on the wrong queue
	Fragments     uint64 // received
	Reassembled   uint64 // datagrams made whole
	Rerouted      uint64 // times a connection was given another next hop
	RouterAdverts uint64
	AddrDuplicate uint64 // addresses of ours that another host has: not used
	AddrConflicts uint64 // packets of other hosts that claim an address of ours
	AddrDefended  uint64 // announcements that answered one
	Announcements uint64 // of our addresses, those included
	LinkUps       uint64

	TxDeferred uint64 // frames that the device did not take when it was first offered them
	TxWaits    uint64 // a connection was held up: too many frames wait for the device
	// a timer for a loss came due, but the device had not taken the segment yet, or late
	TimersPutOff uint64
	NoBufWaits   uint64 // a connection was held up: no Buf to spare
	// a connection with nothing in flight was held up: no record of a sent segment to spare
	MemoryWaits uint64
	// a connection was held up: it has its share of Bufs in flight (Config.BufShare)
	ShareWaits uint64
	GaveWay    uint64 // silent connections ended with ErrGaveWay: one that came in had no place
	// connections ended with ErrHoarding: others waited for the memory their peers kept
	// (Config.StallNs)
	Reclaimed uint64
	TxCopied  uint64 // retransmissions sent from a copy
	TxSkipped uint64 // retransmissions whose first copy had not left yet

	Inet [inet.DropMax]uint64 `json:"-"` // drops by reason: Each has their names
	TCP  [tcp.DropMax]uint64  `json:"-"` // segments not accepted, whole or in part, by reason
	Own  [DropMax]uint64      `json:"-"`

	Queue pmd.Counters // the device's

	Memory     tcp.MemoryStats     // gauges, and how often there was too little
	Neighbours inet.NeighbourStats // what the table did; Entries and Frames are gauges
	Listener   inet.ListenerStats  // multicast listener discovery; Older is a gauge

	Conns    int // gauges: connections, those in TIME-WAIT included
	HalfOpen int // half-open connections
	TimeWait int // of them, those in TIME-WAIT
	// addresses of ours that cannot be used yet: whether another host has them is being found out
	AddrTentative int
	Pending       int // frames that wait for the device
	BufsAvailable int
	BufsExhausted uint64 // how often the pool was found empty
}

// Snapshot copies the counters. Poller goroutine; others use Counters.
func (p *Poller) Snapshot(dst *Counters) {
	*dst = p.n
	dst.Controls = p.control.ran
	dst.Queue = p.cfg.Queue.Counters()
	dst.Conns = p.table.n
	dst.TimeWait = p.slab.lingering.n
	dst.HalfOpen = p.syns.n
	dst.Memory, dst.Neighbours = p.memory.Stats(), p.neighbours.Stats()
	countHost(dst, p.now, p.host)
	dst.Pending = p.tx.n
	dst.BufsAvailable = p.pool.Available()
	dst.BufsExhausted = p.pool.Exhausted()
}

// Each yields every drop counter with the layer and the reason that name it, zero ones included.
func (n *Counters) Each(yield func(layer, reason string, count uint64)) {
	for d, v := range n.Inet[inet.DropNone+1:] {
		yield("inet", (inet.DropNone + 1 + inet.Drop(d)).String(), v)
	}
	for d, v := range n.TCP[tcp.DropNone+1:] {
		yield("tcp", (tcp.DropNone + 1 + tcp.Drop(d)).String(), v)
	}
	for d, v := range n.Own {
		yield("stack", Drop(d).String(), v)
	}
}
