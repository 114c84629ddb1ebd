package stack

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/rnicd/rnicd/internal/inet"
)

// Errors an Upper's Closed is given, or Dial, Listen and Submit return. errors.Is finds also what
// the kernel's sockets say of the same (syscall.ECONNREFUSED), and errors.As a net.Error, whose
// Timeout is true for ErrTimeout and ErrHoarding.
var (
	ErrReset   error = &netError{"stack: connection reset by peer", syscall.ECONNRESET}
	ErrRefused error = &netError{"stack: connection refused", syscall.ECONNREFUSED}
	ErrTimeout error = &netError{"stack: connection timed out", syscall.ETIMEDOUT}
	ErrAborted error = &netError{"stack: connection aborted", syscall.ECONNABORTED}
	// no route to it, or its next hop does not answer
	ErrNoRoute  error = &netError{"stack: no route to host", syscall.EHOSTUNREACH}
	ErrConnMax  error = &netError{"stack: too many connections", syscall.ENOBUFS}
	ErrPortUsed error = &netError{"stack: port is in use", syscall.EADDRINUSE}
	ErrBusy           = errors.New("stack: control ring is full")
	ErrStopped  error = &netError{"stack: poller has stopped", syscall.ENETDOWN}
	ErrGaveWay        = errors.New("stack: the peer said nothing, and another connection needed its " +
		"place")
	ErrHoarding error = &netError{"stack: the peer keeps packet buffers of ours for too long, and " +
		"others wait for them", syscall.ETIMEDOUT}

	ErrNetUnreachable error = &netError{"stack: network is unreachable", syscall.ENETUNREACH}
	ErrNotLocal       error = &netError{"stack: not an address of ours in use", syscall.EADDRNOTAVAIL}
	ErrTentative            = errors.New(
		"stack: our address is still being checked for another host that has it")
	ErrOtherMember error = &netError{
		"stack: the connection would belong to another poller of the group", syscall.EADDRNOTAVAIL}
	ErrUnread = fmt.Errorf("stack: octets arrived after the application had closed: %w",
		ErrReset)
)

// netError is a net.Error, and in the chain of errors.Is the errno that the kernel's sockets have
// for it.
type netError struct {
	text  string
	errno syscall.Errno
}

func (e *netError) Error() string   { return e.text }
func (e *netError) Unwrap() error   { return e.errno }
func (e *netError) Timeout() bool   { return e.errno.Timeout() }
func (e *netError) Temporary() bool { return e.errno.Temporary() }

// Errno tells these from errors that only wrap an errno, for packages above.
func (e *netError) Errno() syscall.Errno { return e.errno }

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
