package stream

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
)

// upper is a connection's half that belongs to the Poller, and the words both halves share.
type upper struct {
	// Shared.
	rx         recvRing
	tx         octetQueue
	gate       atomic.Uint32 // who may touch what rx.read touches
	requests   atomic.Uint32 // to the Poller
	state      atomic.Uint32 // from the Poller
	told       atomic.Uint64 // octets read that the Poller knows of
	written    atomic.Uint64 // octets put into tx, ever
	windowSize atomic.Int64
	waker      atomic.Pointer[stack.Conn]
	reader     parker
	writer     parker
	detach     atomic.Pointer[Detachment]
	hold       atomic.Uint32 // cork.go
	heldFrom   atomic.Uint64 // as written: octets before it were there when hold began
	notice     notice
	settings   settings

	// The Poller's, and to be read by others once the bit of state that says so is set.
	err error // stateDead
	// stateDead and gateGone: octets unread when the connection ended; the reader's from then on
	rest   []byte
	opened chan struct{}
	// closed when all octets and the FIN are acknowledged after Close, or the connection is over
	flush chan struct{}

	// The Poller's.
	shared   *pollerState
	conn     *stack.Conn
	edge     uint64
	acked    uint64
	early    early
	owed     stack.PeerClock // for the gaps before early
	window   window
	cork     cork
	closed   bool // by Close: there are no more Reads
	readShut bool // by CloseRead
	finAsked bool // CloseWrite or Close: a FIN goes after what is queued
	finSent  bool
	finAcked bool // and the peer has not closed its half
	flushed  bool
	flushNs  int64
	flushAt  uint64 // acked when the flush timer was set
	info     Info   // at the end; to be read by others once stateDead is set
}

// gate states. The reader passes it for each Read; the Poller does when it must take the Bufs back:
// at the end.
const (
	gateIdle uint32 = iota
	gateBusy
	gateGone // there are no Bufs any more: what is unread stands in rest
)

// requests bits.
const (
	requestFin uint32 = 1 << iota
	requestClose
	requestReset
	requestReadShut
	requestOptions
	requestDetach
	requestReadable // a Read is over that somebody found under way
	requestWritable // a Write
)

// state bits.
const (
	stateEOF      uint32 = 1 << iota // the peer's FIN: nothing is pushed after it
	stateDead                        // Closed was called
	stateDetached                    // another Upper has taken over
	stateOpen                        // Established was called
)

var _ stack.Upper = (*upper)(nil)

func (u *upper) init(ps *pollerState, opts *Options) {
	u.shared = ps
	u.early = noEarly
	u.window.init(ps, opts)
	u.windowSize.Store(int64(u.window.size))
	u.rx.init(ps.slotsFor(u.window.size), powerOfTwo(max(spillMin, u.window.max)))
	u.tx.init(opts.SendBuffer)
	u.reader, u.writer = newParker(), newParker()
	u.opened = make(chan struct{}, 1)
	u.flush = make(chan struct{})
	u.flushNs = int64(opts.FlushTimeout)
	u.settings.init(opts)
}

// attach is called when c is known, before Established.
func (u *upper) attach(c *stack.Conn) {
	u.conn = c
	u.waker.Store(c)
}

// wake is the way from the application to Woken. After Closed it does nothing.
func (u *upper) wake() {
	if c := u.waker.Load(); c != nil {
		c.Wake()
	}
}

// request leaves bits for the Poller.
func (u *upper) request(bits uint32) {
	u.requests.Or(bits)
	u.wake()
}

// tell sets bits for the application.
func (u *upper) tell(bits uint32) {
	u.state.Or(bits)
	u.reader.wake()
	u.writer.wake()
	u.notice.tell(Readable | Writable)
}

// Established implements stack.Upper.
func (u *upper) Established() {
	c := u.conn
	c.SetTimer(0) // Dial's
	u.settings.apply(c)
	u.window.start(c, u.shared.poller.Now())
	c.SetReceiveWindow(u.window.size)
	u.tell(stateOpen)
	u.applyRequests(c)
	u.opened <- struct{}{}
}

// Arrive implements stack.Upper.
func (u *upper) Arrive(off uint64, bufs []mem.Buf, data [][]byte) (n int, v stack.Verdict) {
	if u.readShut {
		return len(data), stack.Taken
	}
	u.window.arrived(u.conn)
	for ; v == stack.Taken && n < len(data); n++ {
		v = u.take(off, bufs[n], data[n])
		off += uint64(len(data[n]))
	}
	return n, v
}

// take takes one segment.
func (u *upper) take(off uint64, b mem.Buf, data []byte) stack.Verdict {
	if off < u.edge { // of before Attach
		skip := u.edge - off
		if skip >= uint64(len(data)) {
			return stack.Taken
		}
		off, data = u.edge, data[skip:]
	}
	ps := u.shared
	small := len(data) <= ps.room/2
	inOrder := off == u.edge
	if small && (inOrder && u.rx.extend(ps.pool, data) || !inOrder && ps.merge(&u.early, off, data)) {
		ps.n.merged.Add(1)
		if inOrder {
			u.edge += uint64(len(data))
		}
		return stack.Taken
	}
	switch u.admit(inOrder) {
	case copied:
		if !u.rx.spill(data) {
			ps.n.refusedSlots.Add(1)
			return stack.Refused
		}
		u.edge += uint64(len(data))
		ps.n.spilled.Add(1)
		return stack.Taken
	case denied:
		return stack.Refused
	case short:
		u.conn.WantBufs()
		return stack.Refused
	}
	ps.kept++
	at := place(ps.pool, b, data)
	if inOrder {
		u.rx.push(b, at, uint32(len(data)))
		u.edge += uint64(len(data))
	} else {
		ps.insert(&u.early, b, off, at, uint32(len(data)))
		u.owed.Advance(u.edge, off+uint64(len(data)), ps.poller.Now())
	}
	return stack.Kept
}

// admission is what becomes of one more segment.
type admission uint8

const (
	kept   admission = iota
	copied           // there is room for the octets and none for the Buf
	denied           // the connection keeps too many Bufs
	short            // all connections do
)

// admit decides. What waits after a gap takes half of the slots at most, and never the last
// quarter of what the pool has for all: what fills gaps and frees them must be able to come in.
func (u *upper) admit(inOrder bool) admission {
	ps := u.shared
	slots := len(u.rx.slots)
	if u.rx.used()+u.early.n >= slots || ps.kept >= ps.budget.Unread/2 {
		ps.kept -= u.rx.free(ps.pool)
	}
	switch {
	case u.rx.used()+u.early.n >= slots, !inOrder && u.early.n >= slots/2:
		ps.n.refusedSlots.Add(1)
	case inOrder && ps.kept < ps.budget.Unread, !inOrder && ps.kept < ps.budget.OutOfOrder:
		return kept
	case inOrder:
		return copied
	default:
		ps.n.refusedPool.Add(1)
		return short
	}
	return denied
}

// place is where data stands within b's slot.
func place(pool *mem.Pool, b mem.Buf, data []byte) uint32 {
	return uint32(uintptr(unsafe.Pointer(unsafe.SliceData(data))) - uintptr(
		unsafe.Pointer(unsafe.SliceData(pool.Slot(b)))))
}

// Edge implements stack.Upper: what waited for the gap that was filled is in order now.
func (u *upper) Edge(edge uint64) {
	ps := u.shared
	for u.early.n > 0 && ps.pieces[u.early.first].at == u.edge {
		b, p := ps.pop(&u.early)
		u.edge += uint64(p.n)
		if int(p.n) <= ps.room/2 && u.rx.extend(ps.pool, ps.pool.Slot(b)[p.off:p.off+p.n]) {
			ps.n.merged.Add(1)
			ps.free(b)
			continue
		}
		u.rx.push(b, p.off, p.n) // admit kept a slot free for it
	}
	// The same, except for octets that CloseRead had thrown away after a gap, and for those that
	// Attach was told are read already: TCP's edge is before them until they have come once more.
	u.edge = max(u.edge, edge)
	if u.early.n > 0 {
		u.owed.Advance(u.edge, ps.end(&u.early), ps.poller.Now())
	}
	u.reader.wake()
	u.notice.tell(Readable)
	u.update(u.conn)
}

// Held implements stack.Upper: what the application does not read is not its peer's fault, what
// waits after a gap is.
func (u *upper) Held() (bufs int, since int64) {
	since, owes := u.owed.Owes(u.edge)
	if !owes {
		return 0, since
	}
	return u.early.n, since
}

// Pull implements stack.Upper. A segment that is not full is the last: for Nagle's algorithm.
func (u *upper) Pull(dst [][]byte) (got stack.Pulled) {
	c := u.conn
	at := c.SentOffset()
	for full := true; full && got.N < len(dst); got.N++ {
		if u.hold.Load() != 0 && u.holdBack(c, at) {
			break
		}
		room := dst[got.N]
		n := u.tx.read(room)
		if n == 0 {
			break
		}
		dst[got.N] = room[:n]
		at += uint64(n)
		full = n == len(room)
		if u.tx.pushed() { // with the end of a Write
			got.Ends |= 1 << got.N
		}
	}
	if u.tx.roomy() {
		u.writer.wake()
		u.notice.tell(Writable)
	}
	got.More = u.tx.pending()
	if (u.finAsked || u.detach.Load() != nil) && !got.More {
		c.Wake() // what was pulled is in a segment when Woken comes
	}
	return got
}

// Acked implements stack.Upper. What waits for the Write that WriteMore promised goes with the next
// acknowledgment, as Linux has it (tcp_data_snd_check); a cork does not come out for it.
func (u *upper) Acked(edge uint64) {
	if u.acked = edge; u.hold.Load() == holdMore {
		u.release(u.conn)
	}
}

// FinAcked implements stack.Upper. From here on only the peer's FIN is missing: after Close TCP
// waits for that, as long as SetFinWait2 or tcp.Config.FinWait2Ns says.
func (u *upper) FinAcked() {
	u.finAcked = true
	if u.closed {
		u.conn.SetTimer(0)
		u.sayFlushed()
	}
}

func (u *upper) sayFlushed() {
	if !u.flushed {
		u.flushed = true
		close(u.flush)
	}
}

// PeerClosed implements stack.Upper.
func (u *upper) PeerClosed() { u.tell(stateEOF) }

// Advice implements stack.Upper: Conn.SoftError has it for who asks.
func (u *upper) Advice(error) {}

// Woken implements stack.Upper.
func (u *upper) Woken() {
	c := u.conn
	u.applyRequests(c)
	if u.finAsked && !u.finSent && !u.tx.pending() {
		u.finSent = true
		c.CloseSend()
	}
	u.update(c)
	u.handOver(c)
}

// applyRequests does what the application asked for.
func (u *upper) applyRequests(c *stack.Conn) {
	if u.requests.Load() == 0 {
		return
	}
	requests := u.requests.Swap(0)
	if requests&requestOptions != 0 {
		if u.settings.changed.Load()&noDelayChanged != 0 && u.settings.noDelay.Load() {
			u.release(c)
		}
		u.settings.apply(c)
		u.resize()
	}
	if requests&(requestReadable|requestWritable) != 0 {
		u.notice.tell(readinessOf(requests))
	}
	if requests&requestReadShut != 0 && !u.readShut && !u.shutRead() {
		u.requests.Or(requestReadShut)
		c.Wake() // a Read is under way: again in the next Turn
	}
	if requests&(requestFin|requestClose) != 0 {
		u.finAsked = true
	}
	if requests&requestClose != 0 {
		u.close(c)
	}
	if requests&requestReset != 0 {
		u.closed = true
		c.Abort()
	}
}

// close is Close: octets that will not be read are answered by a RST (RFC 9293 section 3.6.1,
// SHLD-3), as by Linux, those that are here and, by SetOrphaned, those that come later.
func (u *upper) close(c *stack.Conn) {
	u.closed = true
	if !u.readShut && u.edge != u.rx.taken.Load() {
		u.shared.n.unreadAtClose.Add(1)
		c.Abort()
		return
	}
	c.SetOrphaned()
	if u.finAcked { // CloseWrite was long ago
		u.sayFlushed()
		return
	}
	u.flushAt = u.acked
	c.SetTimer(u.shared.poller.Now() + u.flushNs)
}

// Timer implements stack.Upper: Dial took too long, what Close left to be sent does not move, or a
// cork has been in for long enough.
func (u *upper) Timer(now int64) {
	c := u.conn
	switch {
	case u.closed && u.acked != u.flushAt:
		u.flushAt = u.acked
		c.SetTimer(now + u.flushNs)
	case u.closed:
		u.shared.n.flushTimeouts.Add(1)
		c.Abort()
	case u.state.Load()&stateOpen != 0:
		u.cork.over(c)
	default:
		c.Abort()
	}
}

// Closed implements stack.Upper.
func (u *upper) Closed(err error) {
	u.waker.Store(nil)
	u.info = u.measure(u.conn)
	u.conn = nil
	u.err = err
	switch {
	case errors.Is(err, stack.ErrUnread):
		u.shared.n.afterClose.Add(1)
	case u.closed && u.finAcked && errors.Is(err, stack.ErrTimeout):
		u.shared.n.finWait2Timeouts.Add(1)
	}
	u.dropEarly()
	u.tell(stateDead)
	u.sayFlushed()
	select {
	case u.opened <- struct{}{}:
	default:
	}
	if d := u.detach.Swap(nil); d != nil {
		d.fail(err)
	}
	u.surrender()
}

func (u *upper) dropEarly() {
	for u.early.n > 0 {
		b, _ := u.shared.pop(&u.early)
		u.shared.free(b)
	}
}

// surrender takes all Bufs back from a connection that is over; what is unread is copied, once. The
// reader may stand in the gate at this moment: then the next Turn tries again. A Poller that stops
// has none and waits for the reader, which is busy copying and nothing else.
func (u *upper) surrender() {
	for !u.takeBack(!u.closed && !u.readShut) {
		if u.shared.poller.Submit(u.surrender) == nil {
			return
		}
		yield()
	}
}

// takeBack empties the ring into rest, or into nothing, and shuts the gate; false: the reader
// stands in it.
func (u *upper) takeBack(keep bool) bool {
	if !u.gate.CompareAndSwap(gateIdle, gateBusy) {
		return u.gate.Load() == gateGone
	}
	pool := u.shared.pool
	u.shared.kept -= u.rx.free(pool)
	if left := u.edge - u.rx.taken.Load(); keep && left > 0 {
		u.rest = make([]byte, 0, left)
	}
	u.rx.unread(pool, make([]byte, u.shared.room), func(b mem.Buf, data []byte) {
		if keep {
			u.rest = append(u.rest, data...)
		}
		if b != mem.NoBuf {
			u.shared.free(b)
		}
	})
	u.gate.Store(gateGone)
	return true
}

// shutRead is CloseRead: what is unread and what will come is thrown away.
func (u *upper) shutRead() bool {
	if !u.takeBack(false) {
		return false
	}
	u.readShut = true
	u.dropEarly()
	return true
}
