package rnic

import (
	"github.com/rnicd/rnicd/mpa"
)

// Dialect is a way to start MPA; docs/reference/dialects.md has what each sends.
type Dialect uint8

// The dialects, oldest first.
const (
	// no start-up frames, markers and CRC always, DDP and RDMAP version 0
	Culley02 Dialect = Dialect(mpa.Culley02)
	// Rev 0, version 0: draft-ietf-rddp-mpa-01, RDMA Consortium
	RDDP01  Dialect = Dialect(mpa.RDDP01)
	RFC5044 Dialect = Dialect(mpa.RFC5044) // Rev 1
	RTR     Dialect = Dialect(mpa.RTR)     // Rev 1, with a Ready-to-Receive frame
	RFC6581 Dialect = Dialect(mpa.RFC6581) // Rev 2: IRD, ORD and RTR message
)

// ParseDialect reads a dialect's name: culley-02, rddp-01, rfc5044, rtr or rfc6581.
func ParseDialect(name string) (Dialect, error) {
	d, err := mpa.ParseDialect(name)
	return Dialect(d), err
}

func (d Dialect) String() string { return mpa.Dialect(d).String() }

// Valid says whether d is one of the five.
func (d Dialect) Valid() bool { return mpa.Dialect(d).Valid() }

// Rev is the MPA revision of the dialect's frames; culley-02 has none.
func (d Dialect) Rev() int { return int(mpa.Dialect(d).Rev()) }

// PrivateDataMax is how many octets of private data a frame of the dialect carries.
func (d Dialect) PrivateDataMax() int { return mpa.Dialect(d).PrivateDataMax() }

// setOf makes a set.
func setOf(ds ...Dialect) (s mpa.Dialects) {
	for _, d := range ds {
		s |= mpa.DialectsOf(mpa.Dialect(d))
	}
	return s
}

// listOf is what a set has, oldest first.
func listOf(s mpa.Dialects) (ds []Dialect) {
	for d := Culley02; d <= RFC6581; d++ {
		if s.Has(mpa.Dialect(d)) {
			ds = append(ds, d)
		}
	}
	return ds
}

// RTRKinds are the messages of RFC 6581 by which an Initiator says that the Responder may send.
type RTRKinds uint8

const (
	RTRSend  RTRKinds = RTRKinds(mpa.RTRSend)
	RTRWrite RTRKinds = RTRKinds(mpa.RTRWrite)
	RTRRead  RTRKinds = RTRKinds(mpa.RTRRead)
)

func (k RTRKinds) String() string { return mpa.RTRKinds(k).String() }

// Startup is what start-up settled.
type Startup struct {
	Dialect    Dialect
	Version    int  // of DDP and RDMAP
	PeerToPeer bool // the Responder may have sent first
	Enhanced   bool // read depths were negotiated
	// Acknowledged: both ends had ConnParam.MayAcknowledge
	Acknowledged bool

	// IRD and ORD of this end: Read Requests of the peer's that it serves, and of its own that it
	// may have under way, at a time. Where depths were not negotiated, or one is ReadDepthULP, they
	// are as ConnParam said.
	IRD, ORD int
	// PeerIRD and PeerORD are what the peer's frame said.
	PeerIRD, PeerORD int
}

// Framing is what start-up settled about FPDUs.
type Framing struct {
	CRC                          bool // CRC32C in both directions
	MarkersSent, MarkersReceived bool
}

// Framing is what start-up settled about FPDUs, once the QueuePair is in service. Any goroutine.
func (q *QueuePair) Framing() Framing {
	if t := q.end.Terms.Load(); t != nil {
		return Framing{CRC: t.Send.CRC, MarkersSent: t.Send.Markers, MarkersReceived: t.Receive.Markers}
	}
	return Framing{}
}

// Startup is what start-up settled, once the QueuePair is in service. Any goroutine.
func (q *QueuePair) Startup() Startup {
	if t := q.end.Terms.Load(); t != nil {
		return Startup{
			Dialect: Dialect(t.Dialect), Version: int(t.Version), PeerToPeer: t.PeerToPeer,
			Enhanced: t.Enhanced, Acknowledged: t.Acknowledged,
			IRD: int(t.IRD), ORD: int(t.ORD), PeerIRD: int(t.Peer.IRD), PeerORD: int(t.Peer.ORD),
		}
	}
	return Startup{}
}
