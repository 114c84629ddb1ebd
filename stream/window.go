package stream

import "github.com/rnicd/rnicd/stack"

// window decides how far beyond the left edge the peer may send: what the application has not read
// is taken off.
//
// Its size follows the application by dynamic right-sizing (M. Fisk, W. Feng, "Dynamic Right-Sizing
// in TCP", LACSI 2001, as Linux's tcp_rcv_space_adjust does it): twice what was read in the last
// round trip, and never less than it was. The round trip is TCP's, measured on what we sent, if
// only the handshake, where a lost ACK makes any time; or, if that is shorter, what cannot take
// less than one: the time in which a window came, or, with timestamps, the age of an ACK of ours
// that the peer had when it sent octets of this measurement (Linux: tcp_rcv_rtt_measure_ts).
type window struct {
	size, max int
	min       int    // SetReadBuffer's, as soon as there is a place for it
	told      uint64 // octets read, as of when the right edge moved last

	// One measurement.
	rttNs     int64
	since     int64  // ns
	echoNs    int64  // least age of an ACK that octets have answered since; 0: unknown
	readAt    uint64 // octets read by then
	space     uint64 // most read in one so far
	passNs    int64  // shortest time of one window; 0: unknown
	passSince int64
	passEdge  uint64
}

const (
	// segments added to twice what was read: Linux's allowance for a sender that doubles
	windowSlack = 16
	tellShare   = 8 // the right edge moves by one part in so many of the window
	wakeShare   = 4 // the reader calls for that when it has read one part in so many
)

func (w *window) init(ps *pollerState, opts *Options) {
	w.max = min(opts.ReceiveWindowMax, ps.windowMax())
	w.size = min(opts.ReceiveWindow, w.max)
}

// start is called when the connection is open.
func (w *window) start(c *stack.Conn, now int64) {
	w.since, w.passSince, w.passEdge = now, now, uint64(w.size)
	w.space = uint64(w.size) / 2
	w.rttNs = c.Stats().SRTTNs
}

// arrived takes the age of the ACK that the octets being offered answer.
func (w *window) arrived(c *stack.Conn) {
	if w.size >= w.max {
		return
	}
	if age, ok := c.EchoAge(); ok && (w.echoNs == 0 || age < w.echoNs) {
		w.echoNs = age
	}
}

// wanted is the size the window should have, once in a round trip; else what it is.
func (w *window) wanted(c *stack.Conn, now int64, edge, read uint64) int {
	if edge >= w.passEdge {
		if d := now - w.passSince; d > 0 && (w.passNs == 0 || d < w.passNs) {
			w.passNs = d
		}
		w.passSince, w.passEdge = now, edge+uint64(w.size)
	}
	if w.size < w.min {
		return w.min
	}
	rttNs := w.rttNs
	if w.echoNs > 0 {
		rttNs = min(rttNs, w.echoNs)
	}
	if w.size >= w.max || now-w.since < max(rttNs, 1) {
		return w.size
	}
	got := read - w.readAt
	w.since, w.readAt, w.echoNs = now, read, 0
	if w.rttNs = c.Stats().SRTTNs; w.passNs > 0 && w.passNs < w.rttNs || w.rttNs == 0 {
		w.rttNs = w.passNs
	}
	if got <= w.space {
		return w.size
	}
	w.space = got
	return max(w.size, min(w.max, int(2*got)+windowSlack*c.EMSS()))
}

// update frees what was read and tells TCP the window. Poller's goroutine, whenever the left edge
// or the reader moved.
func (u *upper) update(c *stack.Conn) {
	w := &u.window
	u.shared.kept -= u.rx.free(u.shared.pool)
	read := u.rx.taken.Load()
	if u.readShut {
		read = u.edge
	}
	if want := w.wanted(c, u.shared.poller.Now(), u.edge, read); want > w.size {
		u.enlarge(want)
	}
	if read-w.told >= uint64(w.size/tellShare) || read == u.edge {
		w.told = read
	}
	u.told.Store(read)
	size := w.size
	if u.shared.kept > u.shared.budget.Squeeze {
		size = min(size, pressureSegments*c.EMSS())
	}
	c.SetReceiveWindow(max(0, int(int64(w.told)+int64(size)-int64(u.edge))))
}

// resize does what SetReadBuffer and SetWriteBuffer have asked for. A smaller window takes effect
// as the left edge moves: the right edge never moves back. A larger one update brings about.
func (u *upper) resize() {
	if n := int(u.settings.readBuffer.Swap(0)); n > 0 {
		w := &u.window
		w.max = min(n, u.shared.windowMax(), windowMaxMax)
		w.min, w.size = w.max, min(w.size, w.max)
		u.windowSize.Store(int64(w.size))
		u.rx.spilled.max.Store(int64(powerOfTwo(max(spillMin, w.max))))
	}
	u.writer.wake() // the buffer may be larger
	u.notice.tell(Writable)
}

// enlarge makes the window larger, if there are Bufs for it and the reader lets go of the ring for
// a moment.
func (u *upper) enlarge(want int) {
	ps := u.shared
	if ps.kept > ps.budget.Grow {
		return
	}
	if slots := ps.slotsFor(want); slots > len(u.rx.slots) {
		if !u.gate.CompareAndSwap(gateIdle, gateBusy) {
			return // with the next measurement
		}
		u.rx.grow(slots)
		u.gate.Store(gateIdle)
	}
	u.window.size = want
	u.windowSize.Store(int64(want))
	ps.n.windowGrown.Add(1)
}
