package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/flight"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
)

// KernelConn is a connection over a kernel TCP socket: MPA over an unmodified TCP. Octets come in
// order only.
//
// A Loop drives it, and lends it the Bufs that it reads into and MPA keeps, from full operation on.
type KernelConn struct {
	member
	up     Upper
	loop   *Loop
	slot   *Slot
	reader *mem.Reader // of placements
	self   netip.AddrPort
	peer   netip.AddrPort

	// any goroutine
	heard chan struct{} // closed once the Upper was offered the first octets, or none will come
	hear  func()        // closes it
	nc    *net.TCPConn  // until Run

	// the holder of the loop
	running  bool
	timer    *awake.Timer
	timerSeq uint64
	segment  int    // EMSS
	askAt    int64  // when to ask the kernel for it again,
	askPast  uint64 // and after how many octets
	seen     Stats
	flight   *flight.Recorder // of its own, with one ring
	// the Turn in which SendLater was called; 0: it was not
	laterTurn uint64
	log       flight.Log

	pool    *bufPool // with other connections; nil before full operation
	in      arrivals
	pending *segments // that the socket has not taken; nil: none
	pulled  uint64    // octets

	finOut   bool // our half is to be closed when everything pulled is written
	aborted  bool
	finished bool
	readEnd  bool
	wroteEnd bool
	sendErr  error  // sending failed while there may be something to read
	giving   bool   // the socket is to be the ULP's again
	rest     []byte // octets that were read and are the ULP's
}

// arrivals are octets that were read and not taken yet.
type arrivals struct {
	off  uint64 // stream offset of the first
	bufs []mem.Buf
	data [][]byte
}

// NewKernelConn makes a connection over nc's socket, in a slot that it gives back at its end.
// Either Run follows, which closes nc, for the connection has a descriptor of its own that Go's
// poller does not watch; or Discard, after which nc and the slot are the caller's again, as after
// an error. reader is of all placements by l's holder. Any goroutine but the loop's holder.
func NewKernelConn(up Upper, l *Loop, nc *net.TCPConn, at *Slot,
	reader *mem.Reader) (*KernelConn, error) {
	s := &KernelConn{up: up, loop: l, slot: at, reader: reader, flight: flight.New(1), nc: nc}
	s.member.conn = s
	s.heard = make(chan struct{})
	s.hear = sync.OnceFunc(func() { close(s.heard) })
	s.self, s.peer = AddrPort(nc.LocalAddr()), AddrPort(nc.RemoteAddr())
	_ = nc.SetNoDelay(true) // the drafts' section 5.3: Nagle off
	if err := s.socket.take(nc); err != nil {
		return nil, err
	}
	if err := l.enter(&s.member); err != nil {
		s.socket.close()
		return nil, err
	}
	s.socket.urgentInline(true)
	_ = s.socket.setUserTimeout(userTimeout) // without it the kernel gives up later
	s.segment = likelyEMSS(s.querySegment())
	return s, nil
}

// Discard ends a connection that was never Run.
func (s *KernelConn) Discard() {
	s.loop.do(func() {
		s.aborted, s.finished = true, true
		s.loop.leave(&s.member)
		s.socket.close()
	})
}

// Run tells the Upper that the connection stands, sends what it has to say at once, and begins to
// read. putBack are octets that were read from the socket already, which come first. So connections
// that one goroutine runs after another are heard of in that order. Any goroutine but the loop's
// holder.
func (s *KernelConn) Run(putBack []byte) {
	_ = s.nc.Close()
	s.loop.do(func() {
		s.running = true
		s.up.Established()
		if len(putBack) > 0 {
			s.in.add(mem.NoBuf, putBack)
		}
		s.loop.list(&s.member)
		s.serve()
	})
}

// AddrPort is the address and port of a, which are none if it is not TCP's.
func AddrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		ap := t.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return netip.AddrPort{}
}

func (in *arrivals) add(b mem.Buf, data []byte) {
	in.bufs, in.data = append(in.bufs, b), append(in.data, data)
}

// drop drops the first n, of so many octets.
func (in *arrivals) drop(n, octets int) {
	in.off += uint64(octets)
	in.bufs = in.bufs[:copy(in.bufs, in.bufs[n:])]
	k := copy(in.data, in.data[n:])
	clear(in.data[k:])
	in.data = in.data[:k]
}

// receive reads what has come and offers it to the Upper, and says whether something had come. It
// is called again where more may be left.
func (s *KernelConn) receive() bool {
	if s.readEnd || s.aborted || !s.running {
		return false
	}
	if len(s.in.data) > 0 {
		if !s.offer() {
			return false
		}
		s.loop.list(&s.member)
		return true
	}
	slots := s.readSlots()
	n, err := s.socket.receive(&s.loop.vec, slots)
	switch {
	case err == unix.EAGAIN:
		return false
	case err != nil:
		s.readEnds(SocketError(os.NewSyscallError("recvmsg", err)))
		return true
	case n == 0:
		s.readEnds(nil)
		return true
	}
	full := true
	for i, slot := range slots {
		k := min(n, len(slot))
		full = k == len(slot)
		if n -= k; s.pool == nil {
			s.in.add(mem.NoBuf, slot[:k])
		} else {
			s.in.add(s.pool.taken(i), slot[:k])
		}
		if n == 0 {
			break
		}
	}
	switch more := s.offer(); {
	case more && (full || s.partly):
		s.loop.list(&s.member)
	case s.pool == nil && len(s.in.data) > 0:
		s.in.data[0] = slices.Clone(s.in.data[0]) // it is the loop's
	}
	return true
}

// readSlots is room for one read: little before full operation.
func (s *KernelConn) readSlots() [][]byte {
	l := s.loop
	slots := l.slots[:0]
	if s.pool == nil {
		return append(slots, l.first[:])
	}
	return s.pool.slots(slots)
}

// offer offers what was read to the Upper. False: it has refused some, which stays.
func (s *KernelConn) offer() bool {
	in := &s.in
	for len(in.data) > 0 {
		if s.aborted || s.giving {
			return false
		}
		if in.bufs[0] == mem.NoBuf && s.pool != nil {
			s.intoBuf()
		}
		n, v := s.up.Arrive(in.off, in.bufs, in.data)
		if in.off == 0 {
			s.hear()
		}
		octets := s.looked(n, v)
		if v == stack.Refused {
			n--
		}
		in.drop(n, octets)
		if octets > 0 && !s.aborted {
			s.up.Edge(in.off)
		}
		if v == stack.Refused && (s.pool == nil || in.bufs[0] != mem.NoBuf) {
			if s.sendErr != nil {
				s.readEnds(nil) // nobody will decide about it any more
			}
			return false
		}
	}
	return !s.aborted && !s.giving
}

// looked says how many octets the Upper has taken of those n Bufs that it has looked at, the last
// with verdict v.
func (s *KernelConn) looked(n int, v stack.Verdict) (octets int) {
	in := &s.in
	for i := range n {
		switch {
		case i < n-1 || v == stack.Taken:
			if in.bufs[i] != mem.NoBuf {
				s.pool.Free(in.bufs[i])
			}
		case v == stack.Refused:
			return octets
		}
		octets += len(in.data[i])
	}
	return octets
}

// intoBuf copies what comes next into Bufs: it was read before full operation.
func (s *KernelConn) intoBuf() {
	in := &s.in
	b := s.pool.Alloc()
	slot := s.pool.Slot(b)[mem.Headroom:]
	in.bufs[0], in.data[0] = b, slot[:copy(slot, in.data[0])]
}

// readEnds is the end of reading: the peer's half is closed, or the connection has failed.
func (s *KernelConn) readEnds(cause error) {
	s.hear()
	s.readEnd = true
	cause = cmp.Or(cause, s.sendErr)
	switch {
	case s.aborted || s.giving && s.sendErr == nil: // the stream will find what ended the reading
	case cause == nil:
		s.up.PeerClosed()
	default:
		s.up.Lost(cause)
		s.Abort()
	}
	s.loop.activate(&s.member)
}

// serve sends what there is to send, as far as the socket takes it, and ends what is over.
func (s *KernelConn) serve() {
	if !s.running || s.finished {
		return
	}
	if s.giving && !s.readEnd && !s.aborted {
		s.keepRest()
	}
	switch {
	case s.laterTurn == 0:
	case s.laterTurn == s.loop.turns:
		s.loop.wake(&s.member) // SendLater's may have been heard in this Turn
	case s.loop.toRead:
		s.loop.activate(&s.member) // what is read may be acknowledged with the rest
	default:
		s.laterTurn = 0
		s.up.Later()
	}
	if !s.aborted && !s.wroteEnd {
		s.write()
	}
	if s.aborted {
		s.hear()
		s.readEnd, s.wroteEnd = true, true
	}
	s.end()
}

// keepRest stops reading: what was read and not taken is the stream's.
func (s *KernelConn) keepRest() {
	s.hear()
	s.readEnd = true
	for _, data := range s.in.data {
		s.rest = append(s.rest, data...)
	}
	s.rest = s.rest[min(max(s.in.off, s.up.StreamBase())-s.in.off, uint64(len(s.rest))):]
	s.dropRead()
}

// dropRead forgets what was read and not taken.
func (s *KernelConn) dropRead() {
	for _, b := range s.in.bufs {
		if b != mem.NoBuf {
			s.pool.Free(b)
		}
	}
	s.in.data, s.in.bufs = nil, nil
}

// leavePool gives the Bufs back, of which the Upper has none any more.
func (s *KernelConn) leavePool() {
	s.dropRead()
	if s.pool != nil {
		s.loop.bufs.give(s.pool)
		s.pool = nil
	}
}

// write sends until there is nothing more, the socket takes no more, or others are to have their
// turn. At the end it closes our half, if that is wanted.
func (s *KernelConn) write() {
	l := s.loop
	if s.pending != nil {
		if !s.send(s.pending) {
			return
		}
		l.keep(s.pending)
		s.pending, s.blocked = nil, false
	}
	for range writesMax {
		w := l.segments()
		if !s.fill(w) {
			s.closeHalf()
			return
		}
		if !s.send(w) {
			if !s.aborted && !s.wroteEnd {
				s.pending, s.blocked, l.out = w, true, nil
			}
			return
		}
	}
	l.activate(&s.member)
}

// send sends w, and says whether all of it is out. If not it is because the socket takes no more
// now, or the connection has failed.
func (s *KernelConn) send(w *segments) bool {
	err := s.socket.send(w)
	switch {
	case err == nil:
		return true
	case err != unix.EAGAIN:
		s.pending, s.blocked, s.wroteEnd = nil, false, true
		s.sendFailed(err)
		s.loop.activate(&s.member)
	}
	return false
}

// fill pulls segments into w, and says whether there were any. The kernel is to end a segment after
// one that is not full, so that the next FPDU begins a segment of its own. A run of full segments
// is written together: the kernel cuts it at EMSS, which is where FPDUs begin.
func (s *KernelConn) fill(w *segments) bool {
	if now := s.loop.now; now >= s.askAt && s.pulled >= s.askPast {
		s.segment, s.askAt = likelyEMSS(s.querySegment()), now+segmentAskNs
		s.askPast = s.pulled + uint64(s.segment)
	}
	w.reset()
	for at := 0; len(w.out)-at >= s.segment && !w.full(); {
		dst, room := s.loop.dst[:0], min(stack.PullMax, cap(w.runs)-len(w.runs))
		for end := at + s.segment; end <= len(w.out) && len(dst) < room; end += s.segment {
			dst = append(dst, w.out[end-s.segment:end:end])
		}
		got := s.up.Pull(dst)
		for _, d := range dst[:got.N] {
			w.add(at, len(d), s.segment)
			at += s.segment
			s.pulled += uint64(len(d))
		}
		if !got.More || got.N == 0 {
			break
		}
	}
	return len(w.runs) > 0
}

// closeHalf closes our half, of which everything was sent, if that is wanted.
func (s *KernelConn) closeHalf() {
	switch {
	case s.aborted:
	case s.giving:
		s.wroteEnd = true
	case s.finOut:
		_ = s.socket.shutdown(unix.SHUT_WR) // a connection already reset says so to who reads
		s.wroteEnd = true
	}
}

// sendFailed leaves the end of the connection to the reader: what the peer sent before it reset the
// connection is still to be read, and comes before the error.
func (s *KernelConn) sendFailed(err error) {
	if s.aborted || s.sendErr != nil {
		return
	}
	s.sendErr = SocketError(err)
	if s.readEnd {
		s.up.Lost(s.sendErr)
		s.Abort()
		return
	}
	_ = s.socket.shutdown(unix.SHUT_RD) // fails on a connection that is gone, which is as good
	s.loop.list(&s.member)
}

// end closes the socket when both directions are over, and tells the Upper.
func (s *KernelConn) end() {
	if !s.readEnd || !s.wroteEnd {
		return
	}
	s.finished = true
	if !s.aborted {
		s.seen = s.kernelStats()
	}
	s.SetTimer(0)
	s.pending = nil
	s.slot.Free() // before Closed: a caller that waits for the end may dial again at once
	s.loop.leave(&s.member)
	defer s.leavePool()
	if s.giving && !s.aborted {
		s.returnSocket()
		return
	}
	s.socket.close()
	s.up.Closed(nil)
}

// returnSocket hands the socket back as a stream.
func (s *KernelConn) returnSocket() {
	nc, err := s.socket.give()
	switch {
	case err != nil: // it is broken: nothing to give back
		s.giving = false
		s.up.Closed(SocketError(err))
	case len(s.rest) == 0:
		s.up.HandBack(nc)
	default:
		s.up.HandBack(&BufferedConn{TCPConn: nc, rest: s.rest})
	}
}

// What the Upper calls: Wake and Submit from any goroutine, everything else as the loop's holder.

func (s *KernelConn) Wake() { s.loop.wake(&s.member) }

// Submit has what was refused offered again afterwards.
func (s *KernelConn) Submit(fn func()) error {
	s.loop.submit(func() {
		fn()
		if s.running && !s.finished {
			if len(s.in.data) > 0 {
				s.loop.list(&s.member)
			}
			s.loop.activate(&s.member)
		}
	})
	return nil
}

func (s *KernelConn) Send() { s.loop.activate(&s.member) }

// SendLater rings, and serve sees that the Turn is over, and that the next one has read if it
// does.
func (s *KernelConn) SendLater() {
	s.laterTurn = s.loop.turns
	s.loop.wake(&s.member)
}

// Woken does nothing: Wake leads to Send.
func (s *KernelConn) Woken() {}

// Gone does nothing: end has closed all that there was.
func (s *KernelConn) Gone() {}

func (s *KernelConn) Silent()     { s.slot.setSilent(s) }
func (s *KernelConn) Spoke() bool { return s.slot.spoke() }

// GiveWay ends the connection, whose slot another one has. Any goroutine.
func (s *KernelConn) GiveWay() {
	_ = s.Submit(func() { s.up.Fail(stack.ErrGaveWay) })
}

// EnterFull takes part in the Bufs for reads and reassembly.
func (s *KernelConn) EnterFull(kept int) { s.pool = s.loop.bufs.take(kept) }

func (s *KernelConn) Memory() Memory {
	m := Memory{Reader: s.reader, Stride: KernelStride, InOrder: true}
	if s.pool != nil {
		m.Pool = s.pool.Pool
	}
	return m
}

// Short does nothing: there are enough Bufs for all.
func (s *KernelConn) Short(bool) {}

// Unacked is not known: the kernel does not tell when octets are acknowledged.
func (s *KernelConn) Unacked() bool { return false }

// GiveUpAfter sets a user timeout and keep-alives. A connection whose keep-alives are not answered
// is ended by the kernel after the user timeout, not after their count.
func (s *KernelConn) GiveUpAfter(d time.Duration) error {
	return cmp.Or(s.socket.setUserTimeout(d),
		s.socket.setKeepAlive(min(d/keepAliveIdle, kernelKeepAliveMax),
			min(d/keepAliveInterval, kernelKeepAliveMax), keepAliveCount))
}

func (s *KernelConn) Nagle() { s.socket.nagle() }

func (s *KernelConn) CloseSend() {
	s.finOut = true
	s.loop.activate(&s.member)
}

func (s *KernelConn) Abort() {
	if s.aborted {
		return
	}
	s.aborted = true
	s.seen = s.kernelStats()
	s.socket.reset()
	s.loop.activate(&s.member)
}

// SetTimer's time goes by while this process runs: after a pause there is time to take what the
// kernel has taken in meanwhile.
func (s *KernelConn) SetTimer(at int64) {
	s.timerSeq++
	if s.timer != nil {
		s.timer.Stop()
	}
	if at == 0 || s.finished {
		return
	}
	seq := s.timerSeq
	s.timer = awake.AfterFunc(time.Duration(at-s.Now()), func() {
		_ = s.Submit(func() {
			if seq == s.timerSeq && !s.finished {
				s.up.Timer(s.Now())
			}
		})
	})
}

func (s *KernelConn) Now() int64 { return s.loop.clock() }

// Stamp is not known: the kernel does not tell.
func (s *KernelConn) Stamp() (uint32, bool) { return 0, false }

func (s *KernelConn) EMSS() int              { return s.segment }
func (s *KernelConn) Local() netip.AddrPort  { return s.self }
func (s *KernelConn) Remote() netip.AddrPort { return s.peer }

func (s *KernelConn) Record(k flight.Kind, a, b uint64) {
	s.flight.Now = s.Now()
	s.flight.Record(&s.log, k, a, b)
}

func (s *KernelConn) Events() (all []flight.Event, before uint64) { return s.flight.Events(&s.log) }

func (s *KernelConn) Stats() Stats {
	if s.aborted || s.finished {
		return s.seen
	}
	return s.kernelStats()
}

// GiveBack has reading and writing end, and leaves the socket open.
func (s *KernelConn) GiveBack() {
	s.giving = true
	s.loop.activate(&s.member)
}

// emssUnknown is the segment size where the kernel tells nothing (RFC 5044 section 5.1 and
// DECISIONS 23).
const emssUnknown = 1460

// likelyEMSS is maxSeg, the segment size that the kernel tells. If it tells none, it is what mtu,
// of the path, leaves after the headers that are to be expected; if that is unknown too, Ethernet's
// (RFC 5044 section 5.1, DECISIONS 23).
func likelyEMSS(maxSeg, mtu, headers int) int {
	n := emssUnknown
	switch {
	case maxSeg > 0:
		n = maxSeg
	case mtu > headers:
		n = mtu - headers
	}
	return min(n, socketWriteMax)
}

// deadlineError is a dial that the deadline of its context has ended: package net says either of
// two errors then, as the one timer or the other is first.
type deadlineError struct{}

func (deadlineError) Error() string   { return stack.ErrTimeout.Error() }
func (deadlineError) Unwrap() []error { return []error{stack.ErrTimeout, context.DeadlineExceeded} }

// SocketError is the stack's error for the kernel's, so that both transports fail alike. One that
// the stack does not have stays as it is.
func SocketError(err error) error {
	var op net.Error
	var call *os.SyscallError
	var own interface{ Errno() syscall.Errno }
	switch {
	case errors.As(err, &own): // the stack's
		return err
	case errors.Is(err, syscall.EADDRINUSE), errors.Is(err, syscall.EADDRNOTAVAIL) &&
		errors.As(err, &call) && call.Syscall == "connect":
		return fmt.Errorf("%w: %w", stack.ErrPortUsed, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%w: %w", stack.ErrNotLocal, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return stack.ErrRefused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return stack.ErrReset
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return deadlineError{}
	case errors.As(err, &op) && op.Timeout(): // ETIMEDOUT
		return stack.ErrTimeout
	case errors.Is(err, syscall.EHOSTUNREACH):
		return stack.ErrNoRoute
	case errors.Is(err, syscall.ENETUNREACH):
		return stack.ErrNetUnreachable
	}
	return err
}
