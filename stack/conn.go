package stack

import (
	"math"
	"net/netip"
	"sync/atomic"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/iphost"
	"github.com/rnicd/rnicd/tcp"
)

// phase is where a slot of the slab stands; the TCP state is tcp.Conn's own.
//
//	          Dial, last ACK of a passive open
//	free ───────────────▶ opening ──────────▶ open ─────────▶ lingering
//	 ▲                       │   handshake      │   TIME-WAIT     │
//	 │                       │                  │                 │
//	 └───────────────────────┴──────────────────┴─────────────────┘
//	                            EvClosed
//
// Closed is called on leaving opening (if there is an Upper) or open; a lingering connection has no
// Upper.
type phase uint8

const (
	phaseFree phase = iota
	phaseOpening
	phaseOpen
	phaseLingering
)

// marks are requests, often made from within a callback, which output carries out; and the lists
// that a connection stands in.
type marks uint16

const (
	markActive    marks = 1 << iota // stands in the active list
	markAbort                       // Abort wanted
	markAbortDone                   // and given to tcp
	markFin                         // CloseSend wanted: no more Pull
	markFinDone                     // and given to tcp
	markWindow                      // SetReceiveWindow wanted
	markWoken                       // Wake came before Established
	markWaiting                     // stands in the list of those that wait for Bufs
	markUnproven                    // that list is pressure.unproven
	markPeer                        // counted in Poller.peers
	markSilent                      // stands in the list of silent ones
	markQueued                      // stands in Poller.sched
	markPutOff                      // timerAt was put off
	markFlows                       // it has given Bufs back since it last had no more to send
	markGuest                       // counted in pressure.loans.guests
)

// Conn is a connection of a Poller. Methods are for the Poller's goroutine except Wake.
//
// It begins with what every segment touches, as tcp.Conn does: hotOctets in all.
type Conn struct {
	p      *Poller
	index  connIndex
	marks  marks
	phase  phase
	advice reason // the last soft error: SoftError
	upper  Upper

	acked   uint64 // what the Upper has been told of
	timerAt int64  // the Upper's; 0: none
	path    pathState
	life    uint32 // counts the connections this slot has carried
	nextHop inet.Addr

	tcp tcp.Conn

	listener *listener          // passive and not yet established
	home     *iphost.SharedAddr // our address, while c counts as one that uses it
	window   int32              // for markWindow
	rung     atomic.Bool        // rung and not yet served: coalesces Wake
	rungNext uint32             // in Poller.doorbells, while rung is set
	why      reason             // what Closed will be given
	gaveBack uint16             // Bufs that came back, and whose place it has not taken yet

	// in the list of lingering ones, of those that wait for Bufs, or of silent ones, oldest first
	prev, next connIndex

	credit int32  // octets that c may send before it is others' turn (sched.go)
	round  uint32 // of the schedule, in which c was last given some

	_ [16]byte // to the end of the cache line
}

// Send says that there is something to Pull.
func (c *Conn) Send() { c.p.active.add(c) }

// CloseSend sends a FIN after what was pulled; nothing more is pulled. Called during the
// handshake, it takes effect when that is done.
func (c *Conn) CloseSend() {
	c.marks |= markFin
	c.p.active.add(c)
}

// Abort drops what was not sent and resets the connection. Closed(ErrAborted) follows, and no other
// call to the Upper, except Acked for what was acknowledged already.
func (c *Conn) Abort() { c.abort(whyAborted) }

// SetTimer sets the one Upper timer; 0 clears. A time that has passed fires in the next Turn. One
// that passes while the Poller is away for long fires later, by up to a second: what the peer owes
// until then may have come meanwhile, or be late because it was away, too.
func (c *Conn) SetTimer(at int64) {
	c.timerAt = at
	c.marks &^= markPutOff
	c.p.active.add(c) // output arms
}

// SetReceiveWindow sets how many octets beyond the left edge the peer may send, from the end of
// this burst on. The right edge never moves back (RFC 9293 section 3.8.6). Below 0: as configured,
// which is how a connection begins.
func (c *Conn) SetReceiveWindow(n int) {
	c.window = int32(max(min(n, math.MaxInt32), -1))
	c.marks |= markWindow
	c.p.active.add(c)
}

// SetNoDelay turns Nagle's algorithm off (true) or on: MPA wants it off (RFC 5044 appendix A.2).
// A small segment that Nagle holds goes out when it is turned off.
func (c *Conn) SetNoDelay(on bool) {
	c.tcp.SetNoDelay(on)
	c.p.active.add(c)
}

// SetCongestion replaces the congestion control; cwnd and ssthresh stay.
func (c *Conn) SetCongestion(a tcp.Congestion) { c.tcp.SetCongestion(a) }

// Congestion is the name of the congestion control in use.
func (c *Conn) Congestion() string { return c.tcp.Congestion() }

// SetTOS sets the DS field of segments from now on; the two bits of ECN are not taken (RFC 9293
// section 3.9.2, MUST-48).
func (c *Conn) SetTOS(tos uint8) { c.tcp.SetTOS(tos) }

// SetKeepAlive turns keep-alives on, or off with idleNs 0; they are off by default. The first
// probe is sent after idleNs without a segment, the next ones intervalNs apart. count unanswered
// probes in a row end the connection with ErrTimeout. tcp.KeepAliveDefault for any argument: 2
// hours, 75 s, 9.
func (c *Conn) SetKeepAlive(idleNs, intervalNs int64, count int) {
	c.tcp.SetKeepAlive(c.p.now, idleNs, intervalNs, count)
	c.p.active.add(c)
}

// SetUserTimeout sets for how many nanoseconds a SYN, octets or probes may stay unacknowledged
// before the connection ends with ErrTimeout. 0: as configured; tcp.Forever: no limit.
func (c *Conn) SetUserTimeout(ns int64) {
	c.tcp.SetUserTimeout(ns)
	c.p.active.add(c)
}

// SetFinWait2 sets for how many nanoseconds the peer's FIN is waited for after SetOrphaned. 0: as
// configured; below 0: not at all.
func (c *Conn) SetFinWait2(ns int64) {
	c.tcp.SetFinWait2(ns)
	c.p.active.add(c)
}

// SetOrphaned says that the Upper has called CloseSend and will no longer read. Octets that still
// come reset the connection (ErrUnread, which is an ErrReset). A peer that never closes its half
// is not waited for longer than tcp.Config.FinWait2Ns, or SetFinWait2, says (ErrTimeout). An
// Upper that holds octets which it has not read calls Abort instead (RFC 9293 section 3.6.1).
func (c *Conn) SetOrphaned() {
	c.tcp.SetOrphaned(c.p.now)
	c.p.active.add(c)
}

// EMSS is how many octets a full segment carries now.
func (c *Conn) EMSS() int {
	c.p.paths.follow(c)
	return c.tcp.EMSS()
}

// SetUpper gives c another Upper, for good: streaming mode ends and MPA begins (RFC 5044 section
// 7.1.2). Poller's goroutine, between Established and Closed. The old Upper gets no more calls. The
// new one gets every call from the next one on, but not Established; it learns from SentOffset, and
// from the old Upper, where the stream stands.
func (c *Conn) SetUpper(u Upper) {
	if u == nil || c.phase != phaseOpen {
		panic("stack: SetUpper without an Upper or on a connection that is not open")
	}
	c.upper = u
	c.p.active.add(c)
}

// SoftError is the last such trouble since the peer acknowledged anything, nil when there was none
// (RFC 9293 section 3.9.2.2). A connection that times out ends with it instead of ErrTimeout when a
// router had said it.
func (c *Conn) SoftError() error { return reasons[c.advice] }

// Local is our end.
func (c *Conn) Local() netip.AddrPort {
	return netip.AddrPortFrom(c.tcp.ID().Local.Netip(), c.tcp.ID().LocalPort)
}

// Remote is the peer's end.
func (c *Conn) Remote() netip.AddrPort {
	return netip.AddrPortFrom(c.tcp.ID().Remote.Netip(), c.tcp.ID().RemotePort)
}

// SentOffset is the stream offset of the next pulled octet.
func (c *Conn) SentOffset() uint64 { return c.tcp.PushedOffset() }

// Stamp is the timestamp (RFC 7323's TSval) of the segment whose octets Upper.Arrive is being
// offered; false: it has none. A segment that the network has copied has the same one, and one that
// the peer sends again in time a later one.
func (c *Conn) Stamp() (ts uint32, ok bool) {
	o := &c.p.rx.seg.Options
	return o.TSval, o.HasTimestamps
}

// EchoAge is the greatest possible age of the segment that the peer echoes in the one whose
// octets Upper.Arrive is being offered. It is no less than a round trip. ok is false when
// timestamps do not tell.
func (c *Conn) EchoAge() (ns int64, ok bool) { return c.tcp.EchoAge(c.p.now, &c.p.rx.seg) }

// State is TCP's.
func (c *Conn) State() tcp.State { return c.tcp.State() }

// Stats are those of the transport; valid until Closed returns.
func (c *Conn) Stats() tcp.Stats { return c.tcp.Stats() }

// AckedOffset is the stream offset up to which our octets are acknowledged.
func (c *Conn) AckedOffset() uint64 { return c.tcp.AckedOffset() }

// Edge is the left edge of what has arrived: all octets before it were taken.
func (c *Conn) Edge() uint64 { return c.tcp.Edge() }

// PeerClosed says whether the peer's FIN is in order.
func (c *Conn) PeerClosed() bool { return c.tcp.PeerClosed() }

// Poller is the one this connection belongs to. Any goroutine.
func (c *Conn) Poller() *Poller { return c.p }
