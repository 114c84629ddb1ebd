package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/rnic"
)

// Workload is random exchanges over some connections between two hosts, both ways at once, with
// what befalls them.
type Workload struct {
	Config
	Conns      []Conn
	Messages   int     // of each end of each connection
	WriteMax   int     // octets of one Write
	SendMax    int     // octets of one Send
	SharedCQ   bool    // of all connections of a host
	SharedRecv [2]bool // host: its connections share receive buffers
	Paths      []PathChange
	Ending     Ending // of the first connection; the others end in order
	// Limit is how long, in virtual time, a stage may go on without a segment that arrives: default
	// 20 min. A stage may take longer. A peer without SACK and timestamps sends again with an RTO
	// that is a minute once it was doubled often enough: the maximum must be "at least 60 seconds"
	// (RFC 6298 section 2.5), and a new measurement "can only happen when new data has been sent
	// and acknowledged" (section 5). So each loss may cost a minute.
	Limit time.Duration
}

// Conn is one connection.
type Conn struct {
	Dialect      rnic.Dialect
	PeerToPeer   bool
	Acknowledged bool   // as in rnic.ConnParam, of both ends
	Dialer       int    // host that is the Initiator
	Depth        [2]int // Reads and atomics that the peer of each host may have under way
	Ends         [2]End // by host
}

// End is one end's choices.
type End struct {
	NoMarkers, NoCRC, DropBadCRC bool
	Packing                      rnic.Packing
	Base                         uint64 // tagged offset of the region's first octet
	Tied                         bool   // the region is for this connection's peer alone
	SGEMax, InlineMax            int    // as in rnic.QPOptions
}

// PathChange changes what the path carries in the middle of a run.
type PathChange struct {
	At     float64 // when this part of all messages has been posted
	From   int     // host whose packets it is about; 2: both
	MTU    int     // 0: all that the link carries
	Silent bool    // without reports: a black hole
}

// EndKind is how a connection comes to its end.
type EndKind int

const (
	Orderly      EndKind = iota // when all is done one host closes
	Simultaneous                // when all is done both do
	// one host closes with messages under way both ways: what was posted arrives
	Shutdown
	Abort        // one host resets the connection
	Vanish       // the cable is cut; of all connections
	Revoke       // one host revokes its region while the other writes
	RevokeSource // one host revokes the memory that it sends from
	endKinds
)

func (k EndKind) String() string {
	return [...]string{"orderly", "simultaneous", "shutdown", "abort", "vanish", "revoke",
		"revoke-source"}[k]
}

// Ending says who ends the connection, and when.
type Ending struct {
	Kind EndKind
	Host int
	At   float64 // when this part of the connection's messages has been posted
}

// withCRC says whether the connection uses CRCs: unless both ends do without.
func (c *Conn) withCRC() bool { return !c.Ends[0].NoCRC || !c.Ends[1].NoCRC }

// survives says whether damage that TCP's checksum does not show cannot end what the host receives
// on c, unless the other TCP cuts its segments: every octet is verified before it is acknowledged
// So bad segments are dropped, and segments hold whole frames. Where the network
// copies segments, a timestamp must tell one whose ULPDU_Length was damaged from what the peer
// sends again.
func (wl *Workload) survives(c *Conn, host int) bool {
	switch {
	case wl.Faults.Swap == 0:
		return true
	case wl.Faults.Duplicate > 0 && wl.TCP.NoTimestamps:
		return false
	}
	return c.Ends[host].DropBadCRC && wl.Coalesce == 0 && wl.Split == 0 && len(wl.Paths) == 0
}

// String is the configuration, for those that have to find out what a seed did.
func (wl Workload) String() string {
	var b strings.Builder
	family := "IPv4"
	if wl.V6 {
		family = "IPv6"
	}
	fmt.Fprintf(&b, "seed %d: %s, MTU %d, %d messages an end, Writes to %d, Sends to %d, ending %v "+
		"by host %d at %.2f",
		wl.Seed, family, wl.MTU, wl.Messages, wl.WriteMax, wl.SendMax, wl.Ending.Kind, wl.Ending.Host,
		wl.Ending.At)
	fmt.Fprintf(&b, "\n  cable: %s coalesce=%.2f split=%.2f", fault.Spec{Rx: wl.Faults, Tx: wl.Faults},
		wl.Coalesce, wl.Split)
	fmt.Fprintf(&b, "\n  TCP: window %d, no SACK %v, no timestamps %v; one completion queue %v, "+
		"shared receive queues %v",
		wl.TCP.ReceiveWindow, wl.TCP.NoSACK, wl.TCP.NoTimestamps, wl.SharedCQ, wl.SharedRecv)
	for i, f := range wl.Devices {
		if f != (fault.Faults{}) {
			fmt.Fprintf(&b, "\n  device of host %d: %s", i, fault.Spec{Tx: f})
		}
	}
	for _, p := range wl.Paths {
		fmt.Fprintf(&b, "\n  path: %+v", p)
	}
	for i := range wl.Conns {
		fmt.Fprintf(&b, "\n  connection %d: %+v", i, wl.Conns[i])
	}
	return b.String()
}
