package stream

import (
	"fmt"
	"math"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// settings are what the application has said of a connection, for the Poller to apply. What it has
// not said stays as the Poller's Config has it, or an Upper before.
type settings struct {
	changed     atomic.Uint32 // which of the following the Poller does not know yet
	keepAlive   atomic.Pointer[keepAlive]
	congestion  atomic.Pointer[tcp.Congestion] // until it is applied
	noDelay     atomic.Bool
	tos         atomic.Int32 // unsaid: nothing
	userTimeout atomic.Int64 // nanoseconds
	finWait2    atomic.Int64 // nanoseconds
	readBuffer  atomic.Int64 // until it is applied
}

const unsaid = -1

// changed bits.
const (
	noDelayChanged uint32 = 1 << iota
	tosChanged
	userTimeoutChanged
	keepAliveChanged
	finWait2Changed
	allChanged = 1<<iota - 1
)

func (o *settings) init(opts *Options) {
	o.noDelay.Store(!opts.Nagle)
	o.setKeepAlive(opts.KeepAlive)
	o.tos.Store(unsaid)
	o.userTimeout.Store(unsaid)
	if opts.TOS != 0 {
		o.tos.Store(int32(opts.TOS))
	}
	if opts.UserTimeout != 0 {
		o.userTimeout.Store(userTimeoutNs(opts.UserTimeout))
	}
	o.changed.Store(allChanged)
}

func userTimeoutNs(d time.Duration) int64 {
	if d < 0 {
		return math.MaxInt64
	}
	return int64(d)
}

// applyEarly is what a SYN of ours is to have. apply says it again. Poller's.
func (o *settings) applyEarly(c *stack.Conn) { o.tell(c, tosChanged|userTimeoutChanged) }

// apply tells the stack what the application has said since it was last called. Poller's.
func (o *settings) apply(c *stack.Conn) {
	o.tell(c, o.changed.Swap(0))
	if a := o.congestion.Swap(nil); a != nil {
		c.SetCongestion(*a)
	}
}

// tell tells the stack what changed says, as far as the application has said it at all.
func (o *settings) tell(c *stack.Conn, changed uint32) {
	if changed&noDelayChanged != 0 {
		c.SetNoDelay(o.noDelay.Load())
	}
	if tos := o.tos.Load(); changed&tosChanged != 0 && tos != unsaid {
		c.SetTOS(uint8(tos))
	}
	if ns := o.userTimeout.Load(); changed&userTimeoutChanged != 0 && ns != unsaid {
		c.SetUserTimeout(ns)
	}
	if changed&finWait2Changed != 0 {
		c.SetFinWait2(o.finWait2.Load())
	}
	if k := o.keepAlive.Load(); changed&keepAliveChanged != 0 && k != nil {
		c.SetKeepAlive(k.idleNs, k.intervalNs, k.count)
	}
}

// set is how a method changes a setting of a connection that lives; of one that is over it changes
// nothing. changed: which, or 0 where the setting itself says that it has.
func (c *Conn) set(changed uint32, change func(o *settings)) error {
	if err := c.ended(c.u.state.Load()); err != nil {
		return c.opError("set", err)
	}
	change(&c.u.settings)
	c.u.settings.changed.Or(changed)
	c.u.request(requestOptions)
	return nil
}

// SetNoDelay turns Nagle's algorithm off (true, the default) or on (false). True also sends what
// SetCork or WriteMore holds back, once: what is written later waits again for a cork that is still
// in (tcp(7), TCP_NODELAY).
func (c *Conn) SetNoDelay(on bool) error {
	return c.set(noDelayChanged, func(o *settings) { o.noDelay.Store(on) })
}

// SetTOS sets the DS field of IPv4's TOS octet, or of IPv6's traffic class, for what is sent from
// now on (IP_TOS, IPV6_TCLASS). The low two bits are ECN's and not taken. Options.TOS has it on the
// SYN as well.
func (c *Conn) SetTOS(tos uint8) error {
	return c.set(tosChanged, func(o *settings) { o.tos.Store(int32(tos)) })
}

// SetUserTimeout says how long octets, or probes of a closed window, may stay unacknowledged before
// the connection ends with ETIMEDOUT (TCP_USER_TIMEOUT; RFC 9293 section 3.8.3). 0: as
// tcp.Config.UserTimeoutNs says; below 0: for ever. Keep-alives have times of their own.
// Options.UserTimeout bounds a dial's SYNs as well.
func (c *Conn) SetUserTimeout(d time.Duration) error {
	return c.set(userTimeoutChanged, func(o *settings) { o.userTimeout.Store(userTimeoutNs(d)) })
}

// SetFinWait2 says how long the peer may take to close its half after Close, once it has
// acknowledged our FIN (TCP_LINGER2), in whole seconds, rounded up, 18 hours at most. 0: as
// tcp.Config.FinWait2Ns says; below 0: no time at all: what the peer sends from then on is answered
// by a RST.
func (c *Conn) SetFinWait2(d time.Duration) error {
	return c.set(finWait2Changed, func(o *settings) { o.finWait2.Store(int64(d)) })
}

// SetReadBuffer fixes the receive window, as SO_RCVBUF does: it no longer grows by itself. At most
// a quarter of the Poller's pool, and what the SYN's window scale allows. A smaller window does not
// take back what was advertised.
func (c *Conn) SetReadBuffer(octets int) error {
	if octets < 1 || octets > bufferMax {
		return c.opError("set", fmt.Errorf("stream: read buffer of %d octets, 1 to %d possible: %w",
			octets, bufferMax, syscall.EINVAL))
	}
	return c.set(0, func(o *settings) { o.readBuffer.Store(int64(octets)) })
}

// SetWriteBuffer changes Options.SendBuffer, as SO_SNDBUF does. Written octets stay; a blocked
// Write continues if the larger buffer has room.
func (c *Conn) SetWriteBuffer(octets int) error {
	if octets < 1 || octets > bufferMax {
		return c.opError("set", fmt.Errorf("stream: write buffer of %d octets, 1 to %d possible: %w",
			octets, bufferMax, syscall.EINVAL))
	}
	return c.set(0, func(*settings) { c.u.tx.max.Store(int64(max(octets, sendBufferMin))) })
}

// SetCongestion chooses the congestion control by its name: tcp.Congestions.
func (c *Conn) SetCongestion(name string) error {
	a, err := tcp.CongestionByName(name)
	if err != nil {
		return c.opError("set", err)
	}
	return c.set(0, func(o *settings) { o.congestion.Store(&a) })
}

// SetLinger says what Close does with octets that are not acknowledged: below 0, the default, they
// are sent in the background; 0: they are dropped and the peer gets a RST; above 0 Close blocks
// until they and the FIN are acknowledged, the connection is over, or that many seconds have
// passed, after which they are sent in the background.
func (c *Conn) SetLinger(seconds int) error {
	if err := c.ended(c.u.state.Load()); err != nil {
		return c.opError("set", err)
	}
	c.linger.Store(int64(seconds))
	return nil
}
