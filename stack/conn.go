package stack

import (
	"math"
	"net/netip"
	"sync/atomic"

	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
	"github.com/rnicd/rnicd/tcp/cc"
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
// Closed is called on leaving opening (if there is an Upper) or open; a lingering connection has no Upper.
type phase uint8

const (
	phaseFree phase = iota
	phaseOpening
	phaseOpen
	phaseLingering
)

// marks are what was asked for, often from within a callback, and is acted on in output.
type marks uint16

const (
	markActive    marks = 1 << iota // stands in the active list
	markAbort                       // Abort wanted
	markAbortDone                   // and given to tcp
	markFin                         // CloseSend wanted: no more Pull
	markFinDone                     // and given to tcp
	markWindow                      // SetReceiveWindow wanted
	markWoken                       // Wake came before Established
	markStarved                     // stands in the list of starved ones
	markStranger                    // that is Poller.strangers
	markPeer                        // counted in Poller.peers
	markSilent                      // stands in the list of silent ones
)

// Conn is a connection of a Poller. Methods are for the Poller's goroutine except Wake.
//
// It begins with what every segment touches, as tcp.Conn does: hotOctets in all.
type Conn struct {
	p       *Poller
	index   connIndex
	phase   phase
	marks   marks
	advised bool // there is advice
	upper   Upper
	ahead   Ahead // upper, when it has More

	edge    uint64
	acked   uint64
	timerAt int64 // the Upper's; 0: none
	path    pathState
	id      tcp.ID
	nextHop inet.Addr
	life    uint32 // counts the connections this slot has carried
	owedTo  uint64 // what was pulled when owedAt was set: once that is acknowledged, the peer is keeping up
	owedAt  int64  // stall.go

	tcp tcp.Conn

	listener *listener   // passive and not yet established
	home     *groupAddr  // our address, while c counts as one that uses it
	err      error       // what Closed will be given
	advice   error       // the last soft error: SoftError
	window   int         // for markWindow
	iss      tcp.Seq     // ours
	bell     atomic.Bool // rung and not yet heard: coalesces Wake
	bellNext uint32      // in Poller.bells, while bell is set

	prev, next connIndex // in the list of lingering ones, of starved ones, or of silent ones, oldest first

	_ [8]byte // the next one begins on a cache line of its own: new fields take of this
}

// Wake leads to Upper.Woken, then Pull, on the Poller's goroutine. Any goroutine; never blocks; any number of calls before
// Woken lead to one Woken. What the caller wrote before Wake is seen by Woken. On a closed or recycled Conn
// it is harmless.
func (c *Conn) Wake() {
	if c.bell.Load() || c.bell.Swap(true) {
		return
	}
	c.p.bells.ring(c)
}

// Send says that there is something to Pull.
func (c *Conn) Send() { c.p.touch(c) }

// CloseSend sends a FIN after what was pulled; nothing is pulled any more. Before the handshake is done it waits for it.
func (c *Conn) CloseSend() {
	c.marks |= markFin
	c.p.touch(c)
}

// Abort drops what was not sent and resets. Closed(ErrAborted) follows; no other call to the Upper does but the
// Acked of what was acknowledged already.
func (c *Conn) Abort() { c.p.abort(c, ErrAborted) }

// SetTimer sets the one Upper timer; 0 clears. A time that has passed fires in the next Turn.
func (c *Conn) SetTimer(at int64) {
	c.timerAt = at
	c.p.touch(c) // output arms
}

// SetReceiveWindow sets how many octets beyond the left edge the peer may send, from the end of this burst on.
// The right edge never moves back (RFC 9293 section 3.8.6). Below 0: as configured, which is how a connection begins.
func (c *Conn) SetReceiveWindow(n int) {
	c.window = n
	c.marks |= markWindow
	c.p.touch(c)
}

// SetNoDelay turns Nagle's algorithm off (true) or on: MPA wants it off (RFC 5044 appendix A.2).
// A small segment that Nagle holds goes out when it is turned off.
func (c *Conn) SetNoDelay(on bool) {
	c.tcp.SetNoDelay(on)
	c.p.touch(c)
}

// SetCongestion replaces the congestion control; cwnd and ssthresh stay.
func (c *Conn) SetCongestion(a cc.Algorithm) { c.tcp.SetCongestion(a) }

// Congestion is the name of the congestion control in use.
func (c *Conn) Congestion() string { return c.tcp.Congestion() }

// SetTOS sets the DS field of segments from now on; the two bits of ECN are not taken (RFC 9293 section 3.9.2, MUST-48).
func (c *Conn) SetTOS(tos uint8) { c.tcp.SetTOS(tos) }

// EMSS is how many octets a full segment carries now.
func (c *Conn) EMSS() int {
	c.p.followPath(c)
	return c.tcp.EMSS()
}

// SetUpper puts u in the place of the Upper that c has, for good: streaming mode gives way to MPA (RFC 5044 section
// 7.1.2). Poller goroutine, between Established and Closed. u is not told Established, and gets every call from the next
// one on; where the stream stands it learns from SentOffset and from whom it takes over. The old Upper gets none any more.
func (c *Conn) SetUpper(u Upper) {
	if u == nil || c.phase != phaseOpen {
		panic("stack: SetUpper without an Upper or on a connection that is not open")
	}
	c.upper = u
	c.ahead, _ = u.(Ahead)
	c.p.touch(c)
}

// Local is our end.
func (c *Conn) Local() netip.AddrPort {
	return netip.AddrPortFrom(c.id.Local.Netip(), c.id.LocalPort)
}

// Remote is the peer's end.
func (c *Conn) Remote() netip.AddrPort {
	return netip.AddrPortFrom(c.id.Remote.Netip(), c.id.RemotePort)
}

// SentOffset is the stream offset of the next pulled octet.
func (c *Conn) SentOffset() uint64 { return c.tcp.PushedOffset() }

// Stamp is the timestamp (RFC 7323's TSval) of the segment whose octets Upper.Arrive is being
// offered; false: it has none. A segment that the network has copied has the same one, and one that
// the peer sends again in time a later one.
func (c *Conn) Stamp() (ts uint32, ok bool) {
	o := &c.p.seg.Options
	return o.TSval, o.HasTimestamps
}

// EchoAge is how long ago at most the segment left that the peer had when it sent the one whose octets Upper.Arrive is being
// offered: no less than a round trip. False: timestamps do not tell.
func (c *Conn) EchoAge() (ns int64, ok bool) { return c.tcp.EchoAge(c.p.now, &c.p.seg) }

// State is TCP's.
func (c *Conn) State() tcp.State { return c.tcp.State() }

// Stats are those of the transport; valid until Closed returns.
func (c *Conn) Stats() tcp.Stats { return c.tcp.Stats() }

// Poller is the one this connection belongs to. Any goroutine.
func (c *Conn) Poller() *Poller { return c.p }

// touch puts c on the list that output serves, once.
func (p *Poller) touch(c *Conn) {
	if c.marks&markActive == 0 && c.phase != phaseFree {
		c.marks |= markActive
		p.active = append(p.active, c.index)
	}
}

// abort marks c; the first reason given stands.
func (p *Poller) abort(c *Conn, why error) {
	if c.phase == phaseFree || c.marks&markAbort != 0 {
		return
	}
	c.fail(why)
	c.marks |= markAbort
	p.touch(c)
}

// fail keeps the first error.
func (c *Conn) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// events acts on what tcp saw. c may be free afterwards.
func (p *Poller) events(c *Conn, ev tcp.Events) {
	if ev&tcp.EvEstablished != 0 {
		p.established(c)
	}
	if ev&tcp.EvFinAcked != 0 && c.marks&markAbort == 0 {
		if f, ok := c.upper.(Finisher); ok {
			f.FinAcked(c)
		}
	}
	if ev&tcp.EvPeerClosed != 0 && c.upper != nil && c.marks&markAbort == 0 {
		c.upper.PeerClosed(c)
	}
	if ev&tcp.EvRefused != 0 {
		c.fail(ErrRefused)
	}
	if ev&tcp.EvReset != 0 {
		c.fail(ErrReset)
	}
	if ev&tcp.EvSuspect != 0 {
		p.stalled(c)
	}
	if ev&tcp.EvTimeout != 0 {
		if c.advice != nil && c.advice != ErrStalled {
			c.fail(c.advice)
		}
		c.fail(ErrTimeout)
	}
	if ev&tcp.EvClosed != 0 {
		p.finish(c)
	} else if c.phase == phaseOpen && c.tcp.State() == tcp.TimeWait {
		p.linger(c)
	}
}

// established joins c and its Upper.
func (p *Poller) established(c *Conn) {
	if c.phase != phaseOpening {
		return
	}
	c.phase = phaseOpen
	if l := c.listener; l != nil {
		c.listener = nil
		c.upper = l.accept(c)
		p.n.Accepted++
	} else {
		p.n.Connected++
	}
	if c.upper == nil {
		p.abort(c, ErrAborted)
		return
	}
	c.ahead, _ = c.upper.(Ahead)
	if c.marks&markAbort == 0 {
		c.upper.Established(c)
	}
	if c.marks&(markWoken|markAbort) == markWoken {
		c.upper.Woken(c)
	}
}

// release frees what is acknowledged (or, when closed, abandoned) and tells the Upper. It returns how many Bufs that were.
func (p *Poller) release(c *Conn) (n int) {
	for {
		h, ok := c.tcp.Release()
		if !ok {
			break
		}
		c.path.arrived(int(p.tx.meta[h].length))
		p.dropOwner(mem.Buf(h))
		n++
	}
	if a := c.tcp.AckedOffset(); a != c.acked {
		c.acked = a
		if c.advised {
			c.advised, c.advice = false, nil
		}
		p.progressed(c)
		c.keptUp()
		if c.upper != nil {
			c.upper.Acked(c, a)
		}
	}
	return n
}

// linger ends the Upper's part while TIME-WAIT goes on: both FINs are acknowledged, it has nothing left to do.
func (p *Poller) linger(c *Conn) {
	p.release(c)
	p.leaveStarved(c)
	p.leaveSilent(c)
	p.peers.remove(c)
	c.leaveAddr()
	c.phase = phaseLingering
	c.timerAt = 0
	p.slab.lingering.pushBack(p.slab.conns, c.index)
	p.sayClosed(c)
}

// finish recycles c after its Upper has been told.
func (p *Poller) finish(c *Conn) {
	p.release(c)
	p.table.remove(c.index)
	p.timers.remove(c.index)
	if c.phase == phaseLingering {
		p.slab.lingering.remove(p.slab.conns, c.index)
	}
	c.listener = nil
	p.leaveStarved(c)
	p.leaveSilent(c)
	p.peers.remove(c)
	c.leaveAddr()
	c.phase = phaseFree
	p.sayClosed(c)
	p.n.Closed++
	p.slab.put(c)
}

func (p *Poller) sayClosed(c *Conn) {
	u := c.upper
	c.upper, c.ahead = nil, nil
	if u != nil {
		u.Closed(c, c.err)
	}
}

// slab holds all connections; free slots are reused oldest first, so that a late Wake seldom meets a new connection.
type slab struct {
	conns     []Conn
	free      []connIndex // ring
	head, n   int
	lingering list
}

func newSlab(p *Poller, connsMax int, m *tcp.Memory) slab {
	s := slab{conns: make([]Conn, connsMax), free: make([]connIndex, connsMax), n: connsMax, lingering: emptyList}
	onLargePages(s.conns)
	for i := range s.conns {
		s.conns[i].p, s.conns[i].index = p, connIndex(i)
		s.conns[i].tcp.Init(m)
		s.free[i] = connIndex(i)
	}
	return s
}

// put gives a slot back. The active mark survives: the slot may still stand in the list.
func (s *slab) put(c *Conn) {
	c.err, c.marks = nil, c.marks&markActive
	at := s.head + s.n
	if at >= len(s.free) {
		at -= len(s.free)
	}
	s.free[at] = c.index
	s.n++
}

// takeConn returns a slot for a new connection, which home has counted, nil when all are in use. With none free the connection that has been
// in TIME-WAIT longest gives way: RFC 9293 asks for the wait, a listener out of slots serves nobody. It is counted.
func (p *Poller) takeConn(id *tcp.ID, nextHop inet.Addr, home *groupAddr) *Conn {
	s := &p.slab
	if s.n == 0 && s.lingering.first != noConn {
		p.n.TimeWaitCut++
		p.cutTimeWait(&s.conns[s.lingering.first])
	}
	if s.n == 0 {
		home.leave()
		return nil
	}
	c := &s.conns[s.free[s.head]]
	if s.head++; s.head == len(s.free) {
		s.head = 0
	}
	s.n--
	c.id, c.nextHop, c.home = *id, nextHop, home
	c.upper, c.ahead, c.listener, c.err, c.advice = nil, nil, nil, nil, nil
	c.edge, c.acked, c.timerAt, c.advised = 0, 0, 0, false
	c.owedTo = 0
	c.life++
	c.phase = phaseOpening
	c.iss = p.initialSeq(id)
	p.beginPath(c)
	p.table.insert(c.index)
	p.n.Opened++
	return c
}

// slotFree says whether takeConn would find one.
func (p *Poller) slotFree() bool { return p.slab.n > 0 || p.slab.lingering.first != noConn }

// cutTimeWait ends TIME-WAIT now; nobody is told, for nobody waits (RFC 9293 section 3.10.5: ABORT in TIME-WAIT sends
// nothing).
func (p *Poller) cutTimeWait(c *Conn) {
	c.tcp.Abort(p.now)
	c.tcp.TakeEvents()
	p.finish(c)
}

// list is a doubly linked list of connections by index.
type list struct {
	first, last connIndex
	n           int
}

const noConn = connIndex(math.MaxUint32)

var emptyList = list{first: noConn, last: noConn}

func (l *list) pushBack(conns []Conn, i connIndex) {
	l.n++
	conns[i].prev, conns[i].next = l.last, noConn
	if l.last == noConn {
		l.first = i
	} else {
		conns[l.last].next = i
	}
	l.last = i
}

func (l *list) remove(conns []Conn, i connIndex) {
	l.n--
	prev, next := conns[i].prev, conns[i].next
	if prev == noConn {
		l.first = next
	} else {
		conns[prev].next = next
	}
	if next == noConn {
		l.last = prev
	} else {
		conns[next].prev = prev
	}
}
