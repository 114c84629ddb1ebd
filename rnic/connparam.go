package rnic

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/connect"
)

// ConnParam has the options of a connection, for Connect, Dial, ConnectStream and Accept, as
// rdma_conn_param. Fields that do not apply to an end are ignored there. The zero value is a
// connection without Reads and atomics. An invalid value is an error that names the field, before
// anything is sent or changed.
type ConnParam struct {
	// PrivateData goes with the MPA Request or Reply: Dialect.PrivateDataMax octets at most. It is
	// copied.
	PrivateData []byte
	// PrivateDataMax is the longest private data taken with a Reply of Rev 0 (default 512, up to
	// 65535). Accept ignores it: ListenOptions has the Request's.
	PrivateDataMax int

	// Dialect to connect in. 0: rfc5044, whose Reply may also be of Rev 0. With PeerToPeer, IRD or
	// ORD, which only rfc6581 can negotiate, rfc6581 is tried first; if the peer closes or answers
	// with a lower Rev, rtr (PeerToPeer) or rfc5044 follows on a second connection. A dialect that
	// is named is the only one tried, and a Reply of another Rev is an error. If a peer answers rtr
	// without the S bit, the dialect is rfc5044, without an error. culley-02 has no Reply: that
	// dial succeeds with any peer. Accept ignores it: it answers in the Request's dialect.
	Dialect Dialect
	// PeerToPeer: let the Responder be the first to send. It cannot where Startup().PeerToPeer is
	// false. Accept ignores it: the Request says it.
	PeerToPeer bool
	// RTR messages this end can send and take (rfc6581; default all).
	RTR RTRKinds
	// IRD is the number of Reads and atomics that this end can serve at a time, ORD the number that
	// it wants to have outstanding: at most ReadDepthMax, by default 0. ReadDepthULP leaves the
	// numbers to the ULPs, with room for ReadDepthDefault. Startup has the negotiated numbers.
	// (rdma_conn_param: responder_resources and initiator_depth.)
	IRD, ORD int
	// ORDMin, at most ORD: Accept rejects a Request of rfc6581 that allows a smaller ORD. Connect
	// ignores it.
	ORDMin int
	// KeepRejected: if the peer's ULP rejects, RejectedError.Conn is the connection as a stream.
	// Accept ignores it.
	KeepRejected bool

	// Check, if set, is called with the private data of the Reply that accepts, before the connection
	// is in service: nothing has been sent after the Request, and nothing of the peer's is placed. An
	// error ends the connection, and is Connect's. It runs where the connection is driven, so it must
	// not block, and what it is given is good for the call. Accept ignores it.
	Check func(private []byte) error

	// LocalAddr is this end of a connection to be: an address, a port, or both; what is zero is
	// chosen. Errors of Connect are stack.ErrNotLocal, where we have no such address, and
	// stack.ErrPortUsed, where a listener, a Binding or another connection's LocalAddr has the
	// port. ConnectStream and Accept ignore it.
	LocalAddr netip.AddrPort
	// Binding, if set, is where this end was bound: its address, unless LocalAddr names one, and
	// its port. It must stay open until the connection is in service. Several connections may have
	// one Binding, to different peers.
	Binding *Binding

	// UserTimeout ends a connection in service with stack.ErrTimeout if the peer has not
	// acknowledged octets in flight for this time (RFC 9293 section 3.8.3) or, with nothing in
	// flight, has not answered keep-alives, which begin after half of it. Over kernel sockets,
	// whose keep-alives count in seconds, this may take two seconds and an eighth of it longer. A
	// connection that is being closed waits as long for its peer, with ErrLinger. 0: 100 s for the
	// peer's close, and 100 s and seven retransmissions for octets in flight; our TCP then sends no
	// keep-alives, so that a vanished peer is not noticed while nothing is in flight. If the kernel
	// refuses the value, start-up fails.
	UserTimeout time.Duration

	// NoMarkers: do not ask the peer for markers. Over kernel sockets they are never asked for,
	// because octets arrive in order there.
	NoMarkers bool
	// NoCRC declares that this end needs no CRC32C; it is off only if the peer declares so too. For
	// paths that have an integrity check of their own, by an administrator's choice (RFC 5044
	// section 4.4).
	NoCRC bool
	// DropBadCRC: drop a segment with a bad CRC before it is acknowledged, so that the peer
	// retransmits it, instead of ending the connection. Over a Poller only.
	DropBadCRC bool
	// Packing says what small FPDUs wait for: latency or wire efficiency.
	Packing Packing
	// AllowHalfClosed leaves our half open when the peer has closed its half (DDP section 8.2.1):
	// State is Closing, and requests are sent until Disconnect or Close. Otherwise our half is
	// closed after the requests posted so far. No timer ends a half that was left open. In both
	// cases a Read or atomic that was not yet sent ends it, because the peer cannot answer: it and
	// all later requests are Flushed.
	AllowHalfClosed bool

	// Acknowledged has a request complete when the peer has acknowledged it: everything of it is in
	// memory there, in order, and its completion is published. A message that finds no receive buffer
	// waits for one, with all that follow it (QueuePair.SetRetry). Both ends must have agreed on
	// it, as by their private data: it is not negotiated, and a peer without it ends the connection.
	// It is for rfc5044 and later. AllowHalfClosed and Quirks.WakeUp have no effect with it.
	//
	// When the connection ends otherwise than by Close, Disconnect or Abort here, the oldest request
	// that is not acknowledged, or the next that is posted, completes with RetryExceeded, unless the
	// peer's Terminate says more of it. The others are Flushed.
	Acknowledged bool
	// MayAcknowledge has Acknowledged apply if the peer's ConnParam has MayAcknowledge, too. A
	// reserved bit of rfc6581's frames says so, which peers without it do not look at. Startup tells.
	MayAcknowledge bool

	Quirks Quirks
}

// Quirks are work-arounds for particular peers.
type Quirks struct {
	// WakeUp, as Initiator: this time after start-up an empty RDMA Write is sent, if something was
	// sent before. Linux siw may not process what arrives right after its Reply until more arrives;
	// use WakeUpDefault with it. 0: never. Accept ignores it.
	WakeUp time.Duration
	// SendFirst, as Responder: as if QueuePair.SendFirst were called at once. Connect ignores it.
	SendFirst bool
}

// Packing of FPDUs into segments (RFC 5044 section 5.1; the drafts' section 5.3.1). Either way a
// segment holds whole FPDUs, as many as fit of what has been posted.
type Packing uint8

const (
	// PackNow sends what has been posted at once: Nagle's algorithm is off.
	PackNow Packing = iota
	// PackFull lets a segment that is not full wait while octets are unacknowledged, as Nagle's
	// algorithm does, and cuts messages so that segments are filled. Over a kernel socket it turns
	// Nagle's algorithm on, which fills segments too but does not know where FPDUs begin.
	PackFull
)

// privateDataCap is the longest private data any frame carries.
const privateDataCap = 65535

// checkConnect validates what an Initiator may ask for.
func (c *ConnParam) checkConnect() error {
	switch {
	case c.Dialect != 0 && !c.Dialect.Valid():
		return fmt.Errorf("rnic: ConnParam.Dialect: %v is unknown", c.Dialect)
	case c.Dialect == Culley02 && (c.NoMarkers || c.NoCRC):
		return fmt.Errorf("rnic: ConnParam.NoMarkers and NoCRC cannot be: %v always has markers and CRC",
			c.Dialect)
	case c.Dialect != 0 && c.Dialect != RTR && c.Dialect != RFC6581 && c.PeerToPeer:
		return fmt.Errorf("rnic: ConnParam.PeerToPeer: %v has no such model, %v and %v have", c.Dialect,
			RFC6581, RTR)
	case c.Acknowledged && c.Dialect != 0 && mpa.Dialect(c.Dialect) != mpa.RFC5044 &&
		c.Dialect != RTR && c.Dialect != RFC6581:
		return fmt.Errorf("rnic: ConnParam.Acknowledged: %v has no such messages", c.Dialect)
	case c.Quirks.WakeUp < 0:
		return fmt.Errorf("rnic: ConnParam.Quirks.WakeUp %v is negative", c.Quirks.WakeUp)
	case c.PrivateDataMax < 0 || c.PrivateDataMax > privateDataCap:
		return fmt.Errorf("rnic: ConnParam.PrivateDataMax %d, 0 to %d possible", c.PrivateDataMax,
			privateDataCap)
	}
	if err := c.check(); err != nil {
		return err
	}
	for _, d := range c.dialects() {
		if err := c.checkPrivate(d); err != nil {
			return err
		}
	}
	return nil
}

// checkAccept validates what a Responder may say to a Request of dialect d.
func (c *ConnParam) checkAccept(d Dialect) error {
	if err := c.check(); err != nil {
		return err
	}
	switch {
	case c.ORDMin < 0 || c.ORDMin > ReadDepthULP:
		return depthError("ORDMin", c.ORDMin)
	case c.ORDMin > c.ORD:
		return fmt.Errorf("rnic: ConnParam.ORDMin %d is above ORD %d: no Request could be accepted",
			c.ORDMin, c.ORD)
	}
	return c.checkPrivate(d)
}

// check validates what both ends have.
func (c *ConnParam) check() error {
	switch {
	case c.RTR != 0 && c.RTR&RTRKinds(mpa.AllRTR) != c.RTR:
		return fmt.Errorf("rnic: ConnParam.RTR 0x%x names no RTR message, or an unknown one",
			uint8(c.RTR))
	case c.IRD < 0 || c.IRD > ReadDepthULP:
		return depthError("IRD", c.IRD)
	case c.ORD < 0 || c.ORD > ReadDepthULP:
		return depthError("ORD", c.ORD)
	case c.UserTimeout < 0:
		return fmt.Errorf("rnic: ConnParam.UserTimeout %v is negative", c.UserTimeout)
	case c.Packing > PackFull:
		return fmt.Errorf("rnic: ConnParam.Packing %d is neither PackNow nor PackFull", c.Packing)
	}
	return nil
}

func depthError(field string, n int) error {
	return fmt.Errorf("rnic: ConnParam.%s %d, 0 to %d possible, or ReadDepthULP", field, n,
		ReadDepthMax)
}

// checkPrivate: the private data must fit a frame of dialect d.
func (c *ConnParam) checkPrivate(d Dialect) error {
	if err := privateDataError(c.PrivateData, d); err != nil {
		return fmt.Errorf("rnic: ConnParam.PrivateData: %w", err)
	}
	return nil
}

// privateDataError is nil where private fits a frame of dialect d.
func privateDataError(private []byte, d Dialect) error {
	if len(private) <= d.PrivateDataMax() {
		return nil
	}
	return fmt.Errorf("%d octets of private data, MPA start-up of %v carries %d at most", len(private),
		d, d.PrivateDataMax())
}

// enhanced says whether the ULP wants what only RFC 6581 can settle.
func (c *ConnParam) enhanced() bool { return c.PeerToPeer || c.IRD > 0 || c.ORD > 0 }

// dialects are those a connecting QueuePair tries, one after another, each on a connection of its
// own. The enhanced format is used only where something enhanced is wanted (RFC 6581 section 10).
// Never more than two.
func (c *ConnParam) dialects() []Dialect {
	switch {
	case c.Dialect != 0:
		return []Dialect{c.Dialect}
	case c.PeerToPeer:
		return []Dialect{RFC6581, RTR}
	case c.enhanced():
		return []Dialect{RFC6581, RFC5044}
	}
	return []Dialect{RFC5044}
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// param is c as a connection has it.
func (c *ConnParam) param() connect.Param {
	p := connect.Param{
		Named: c.Dialect != 0, PrivateData: c.PrivateData,
		PrivateDataMax: int32(cmp.Or(c.PrivateDataMax, mpa.PrivateDataMax)),
		PeerToPeer:     c.PeerToPeer, RTR: mpa.RTRKinds(c.RTR), IRD: c.IRD, ORD: c.ORD,
		ORDMin:       int32(c.ORDMin),
		KeepRejected: c.KeepRejected, Check: c.Check,
		UserTimeout: c.UserTimeout, NoMarkers: c.NoMarkers, NoCRC: c.NoCRC, DropBadCRC: c.DropBadCRC,
		PackFull:        c.Packing == PackFull,
		AllowHalfClosed: c.AllowHalfClosed, Acknowledged: c.Acknowledged,
		WakeUp: c.Quirks.WakeUp, Local: unmapped(c.LocalAddr), MayAcknowledge: c.MayAcknowledge,
	}
	if c.Binding != nil {
		p.Bound = c.Binding.b
	}
	for i, d := range c.dialects() {
		p.Tries[i] = mpa.Dialect(d)
	}
	return p
}
