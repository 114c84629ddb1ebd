package stack

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/rnicd/rnicd/internal/inet"
)

// Errors an Upper's Closed is given, or Dial, Listen and Submit return.
var (
	ErrReset    = errors.New("stack: connection reset by peer")
	ErrRefused  = errors.New("stack: connection refused")
	ErrTimeout  = errors.New("stack: connection timed out")
	ErrAborted  = errors.New("stack: connection aborted")
	ErrNoRoute  = errors.New("stack: no route to host") // or its next hop does not answer
	ErrConnMax  = errors.New("stack: too many connections")
	ErrPortUsed = errors.New("stack: port is in use")
	ErrBusy     = errors.New("stack: control ring is full")
	ErrStopped  = errors.New("stack: poller has stopped")
	ErrGaveWay  = errors.New("stack: the peer said nothing, and another connection needed its " +
		"place")
	ErrHoarding = errors.New("stack: the peer keeps packet buffers of ours for too long, and others " +
		"wait for them")

	ErrNetUnreachable = errors.New("stack: network is unreachable")
	ErrNotLocal       = errors.New("stack: not an address of ours in use")
	ErrTentative      = errors.New(
		"stack: our address is still being checked for another host that has it")
	ErrOtherMember = errors.New("stack: the connection would belong to another poller of the group")
	ErrUnread      = fmt.Errorf("stack: octets arrived after the application had closed: %w",
		ErrReset)
)

// ErrAddrRemoved ends the connections of an address that RemoveAddr takes away.
var ErrAddrRemoved = errors.New("stack: our address was removed")

// reason is why a connection ends, or what was advised of it: one of the errors above, in an octet.
type reason uint8

const (
	whyNothing reason = iota
	whyReset
	whyRefused
	whyTimeout
	whyAborted
	whyNoRoute
	whyStopped
	whyGaveWay
	whyHoarding
	whyNetUnreachable
	whyUnread
	whyAddrRemoved
	whyStalled
)

// reasons are the errors; nil for whyNothing.
var reasons = [...]error{
	whyReset: ErrReset, whyRefused: ErrRefused, whyTimeout: ErrTimeout, whyAborted: ErrAborted,
	whyNoRoute: ErrNoRoute,
	whyStopped: ErrStopped, whyGaveWay: ErrGaveWay, whyHoarding: ErrHoarding,
	whyNetUnreachable: ErrNetUnreachable,
	whyUnread:         ErrUnread, whyAddrRemoved: ErrAddrRemoved, whyStalled: ErrStalled,
}

// AddrError says that another host on the link has an address of ours, which therefore is not used.
type AddrError struct {
	Addr netip.Addr
	MAC  inet.MAC // of that host
}

func (e *AddrError) Error() string {
	return fmt.Sprintf("stack: another host on the link has %v: MAC %v", e.Addr, e.MAC)
}

// ErrStalled is advice: the peer has not acknowledged several retransmissions in a row (R1 of RFC
// 9293 section 3.8.3).
var ErrStalled = errors.New("stack: the peer does not acknowledge")
