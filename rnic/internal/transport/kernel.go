package transport

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/flight"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
)

// KernelConn is a connection over a kernel TCP socket: MPA over an unmodified TCP. Octets come in
// order only.
//
// Two goroutines drive it: read takes octets in, write pulls and sends. They call the Upper with mu
// held, and hold mu in no system call that may block. The buffers that FPDUs need, some 700 KiB,
// are made at full operation: a peer that says nothing does not cost them.
type KernelConn struct {
	up    Upper
	nc    *net.TCPConn
	slot  *Slot
	raw   syscall.RawConn
	start time.Time // where Now begins
	woken chan struct{}
	heard chan struct{} // closed once the Upper was offered the first octets, or none will come
	hear  func()        // closes it

	reader *mem.Reader // of placements
	pool   *mem.Pool   // nil before full operation

	mu       sync.Mutex
	bufs     [1]mem.Buf // a vector of one, for calls of the Upper
	data     [1][]byte
	changed  *sync.Cond // the reader waits here while octets are refused
	timer    *awake.Timer
	timerSeq uint64
	finOut   bool // our half is to be closed when everything pulled is written
	aborted  bool
	finished bool
	readEnd  bool
	wroteEnd bool
	sendErr  error // sending failed while the reader may still find something
	segment  int   // EMSS
	seen     Stats
	flight   *flight.Recorder // of its own, with one ring
	log      flight.Log
	ends     [2]netip.AddrPort

	putBack []byte // octets that were read before MPA had the socket, no more than one startupReadMax
	giving  bool   // the socket is to be the ULP's again
	rest    []byte // octets that were read and are the ULP's
}

var noDeadline time.Time

// NewKernelConn makes a connection over nc, in a slot that it gives back at its end. It closes
// reader at its end, or if it returns an error; nc and the slot are then still the caller's. Any
// goroutine.
func NewKernelConn(up Upper, nc *net.TCPConn, at *Slot, reader *mem.Reader,
	start time.Time) (*KernelConn, error) {
	raw, err := nc.SyscallConn()
	if err != nil {
		reader.Close()
		return nil, err
	}
	s := &KernelConn{up: up, nc: nc, slot: at, raw: raw, reader: reader, start: start,
		woken: make(chan struct{}, 1), flight: flight.New(1)}
	s.heard = make(chan struct{})
	s.hear = sync.OnceFunc(func() { close(s.heard) })
	s.changed = sync.NewCond(&s.mu)
	s.ends = [2]netip.AddrPort{AddrPort(nc.LocalAddr()), AddrPort(nc.RemoteAddr())}
	_ = nc.SetNoDelay(true)           // the drafts' section 5.3: Nagle off
	_ = s.setUserTimeout(userTimeout) // without it the kernel gives up later
	s.segment = likelyEMSS(s.querySegment())
	return s, nil
}

// PutBack has octets come first that were read from the socket already, no more than
// startupReadMax. Before Run.
func (s *KernelConn) PutBack(octets []byte) { s.putBack = octets }

// AddrPort is the address and port of a, which are none if it is not TCP's.
func AddrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		ap := t.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return netip.AddrPort{}
}

// Run tells the Upper that the connection stands, sends what it has to say at once, and starts the
// goroutines: connections that one goroutine runs after another are heard of in that order.
func (s *KernelConn) Run() {
	s.mu.Lock()
	s.up.Established()
	s.mu.Unlock()
	go s.read()
	w := new(segments)
	if _, more := s.writeOnce(w); more {
		go s.write(w)
	}
}

// read takes octets in until the peer ends or the connection fails.
func (s *KernelConn) read() {
	var off uint64
	var cause error
	b, slot := mem.NoBuf, make([]byte, startupReadMax)
	for more := true; more; {
		n, err := s.receive(slot)
		if n > 0 {
			b, more = s.take(off, b, slot[:n])
			off += uint64(n)
			if b != mem.NoBuf {
				slot = s.pool.Slot(b)[mem.Headroom:]
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				cause = SocketError(err)
			}
			break
		}
	}
	s.hear()
	s.mu.Lock()
	s.readEnd = true
	if cause == nil {
		cause = s.sendErr
	}
	if s.giving && !s.aborted && s.sendErr == nil {
		// The stream will find what ended the reading.
	} else if cause == nil && !s.aborted {
		s.up.PeerClosed()
	} else if !s.aborted {
		s.up.Lost(cause)
		s.Abort()
	}
	s.end()
	s.mu.Unlock()
	s.Wake()
}

// receive reads the next octets of the connection.
func (s *KernelConn) receive(b []byte) (int, error) {
	if len(s.putBack) > 0 {
		n := copy(b, s.putBack)
		s.putBack = s.putBack[n:]
		return n, nil
	}
	return s.nc.Read(b)
}

// take offers octets to the Upper until they are taken, and returns a Buf for the next read: none
// before full operation. more is false when no more octets are wanted.
func (s *KernelConn) take(off uint64, b mem.Buf, data []byte) (next mem.Buf, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.aborted {
		if b == mem.NoBuf && s.pool != nil {
			b = s.pool.Alloc()
			slot := s.pool.Slot(b)[mem.Headroom:]
			data = slot[:copy(slot, data)]
		}
		v := s.offer(off, b, data)
		switch {
		case v == stack.Refused && b == mem.NoBuf && s.pool != nil:
			continue // start-up's last frame came first: what is after it needs a Buf
		case v == stack.Refused && s.giving:
			s.rest = append(s.rest, data[max(off, s.up.StreamBase())-off:]...)
			return mem.NoBuf, false
		case v == stack.Refused && s.sendErr != nil:
			return mem.NoBuf, false
		case v == stack.Refused:
			s.changed.Wait() // until the ULP has decided about the Request
			continue
		case v == stack.Kept:
			if b = s.pool.Alloc(); b == mem.NoBuf {
				panic("rnic: reassembly kept more than its budget")
			}
		}
		s.up.Edge(off + uint64(len(data)))
		return b, !s.giving
	}
	return mem.NoBuf, false
}

// offer offers the octets of one read to the Upper. mu is held.
func (s *KernelConn) offer(off uint64, b mem.Buf, data []byte) stack.Verdict {
	s.bufs[0], s.data[0] = b, data
	_, v := s.up.Arrive(off, s.bufs[:], s.data[:])
	if off == 0 {
		s.hear()
	}
	return v
}

// pull has the Upper fill b, the next segment, and returns how many octets it has put there. mu is
// held.
func (s *KernelConn) pull(b []byte) int {
	s.data[0] = b
	if s.up.Pull(s.data[:]).N == 0 {
		return 0
	}
	return len(s.data[0])
}

// segments are what one write sends.
type segments struct {
	out  []byte
	ends []int // in out
	vec  *msgVec
}

// room makes buffers for what may be sent now: one segment in start-up, many in full operation.
func (w *segments) room(s *KernelConn) {
	switch {
	case s.pool != nil && cap(w.ends) < socketEndsMax:
		w.make(socketWriteMax, socketEndsMax)
	case len(w.out) < s.segment && s.up.More():
		w.make(s.segment, 1)
	}
}

func (w *segments) make(octets, ends int) {
	w.out, w.ends, w.vec = make([]byte, octets), make([]int, 0, ends), newMsgVec(ends)
}

// write pulls FPDUs and sends them until our half is closed.
func (s *KernelConn) write(w *segments) {
	for n, more := 0, true; more; n, more = s.writeOnce(w) {
		if n == 0 {
			<-s.woken
		}
	}
}

// writeOnce sends n octets, of the segments that there are now. more is false when our half is
// closed.
func (s *KernelConn) writeOnce(w *segments) (n int, more bool) {
	n, fin, over := s.fill(w)
	if n > 0 {
		if err := w.vec.send(s.raw, w.out[:n], w.ends); err != nil {
			s.mu.Lock()
			s.sendFailed(err)
			s.mu.Unlock()
			fin = true
		}
	}
	if !fin && !over {
		return n, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.aborted && !s.giving {
		_ = s.nc.CloseWrite() // a connection already reset says so to the reader
	}
	s.wroteEnd = true
	s.end()
	return n, false
}

// sendFailed leaves the end of the connection to the reader: what the peer sent before it reset the
// connection is still to be read, and comes before the error. mu is held.
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
	_ = s.nc.CloseRead() // fails on a connection that is gone, which is as good
	s.changed.Broadcast()
}

// fill pulls n octets of segments into w. w.ends says where the kernel has to end a segment: after
// one that is not full, so that the next FPDU begins a segment of its own. A run of full segments
// is written together: the kernel cuts it at EMSS, which is where FPDUs begin. fin: our half is to
// be closed. over: nothing more is to be written.
func (s *KernelConn) fill(w *segments) (n int, fin, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aborted {
		return 0, false, true
	}
	s.segment = likelyEMSS(s.querySegment())
	w.room(s)
	full := false
	for w.ends = w.ends[:0]; len(w.out)-n >= s.segment && len(w.ends) < cap(w.ends); {
		k := s.pull(w.out[n : n+s.segment : n+s.segment])
		if k == 0 {
			break
		}
		n += k
		if full {
			w.ends[len(w.ends)-1] = n
		} else {
			w.ends = append(w.ends, n)
		}
		full = k == s.segment
	}
	return n, s.finOut && n == 0, s.giving && n == 0
}

// end closes the socket when both directions are over, and tells the Upper. mu is held.
func (s *KernelConn) end() {
	if s.finished || !s.readEnd || !s.wroteEnd {
		return
	}
	s.finished = true
	s.seen = s.kernelStats()
	if s.giving && !s.aborted {
		s.SetTimer(0)
		s.slot.Free()
		s.returnSocket()
		s.reader.Close()
		return
	}
	_ = s.nc.Close() // both directions have ended already
	s.SetTimer(0)
	s.reader.Close() // nothing more is placed
	s.slot.Free()    // before Closed: a caller that waits for the end may dial again at once
	s.up.Closed(nil)
}

// EnterFull makes the Bufs for reassembly.
func (s *KernelConn) EnterFull(kept int) {
	bufs := kept + 2 // the one being read into, and one that the Upper looks at
	pool, err := mem.NewPool(hugepages.Heap((bufs+1)*socketStride),
		mem.PoolConfig{Bufs: bufs, Stride: socketStride})
	if err != nil {
		panic(err) // the sizes are ours
	}
	s.pool = pool
}

func (s *KernelConn) Memory() Memory {
	return Memory{Reader: s.reader, Pool: s.pool, Stride: socketStride, InOrder: true}
}

// Short does nothing: the Bufs are this connection's own.
func (s *KernelConn) Short(bool) {}

// What the Upper calls: Wake and Submit from any goroutine, everything else with mu held.

func (s *KernelConn) Wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

func (s *KernelConn) Submit(fn func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
	s.changed.Broadcast()
	return nil
}

func (s *KernelConn) Send() { s.Wake() }

// Woken does nothing: the writer looks for itself.
func (s *KernelConn) Woken() {}

// Gone does nothing: end has closed all that there was.
func (s *KernelConn) Gone() {}

func (s *KernelConn) Silent()     { s.slot.setSilent(s) }
func (s *KernelConn) Spoke() bool { return s.slot.spoke() }

// GiveWay ends the connection, whose slot another one has. Any goroutine.
func (s *KernelConn) GiveWay() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up.Fail(stack.ErrGaveWay)
}

// Unacked is not known: the kernel does not tell when octets are acknowledged.
func (s *KernelConn) Unacked() bool { return false }

// GiveUpAfter sets a user timeout and keep-alives. A connection whose keep-alives are not answered
// is ended by the kernel after the user timeout, not after their count.
func (s *KernelConn) GiveUpAfter(d time.Duration) error {
	return cmp.Or(s.setUserTimeout(d), s.nc.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: min(d/keepAliveIdle, kernelKeepAliveMax),
		Interval: min(d/keepAliveInterval, kernelKeepAliveMax), Count: keepAliveCount,
	}))
}

func (s *KernelConn) Nagle() { _ = s.nc.SetNoDelay(false) }

func (s *KernelConn) CloseSend() {
	s.finOut = true
	s.Wake()
}

func (s *KernelConn) Abort() {
	if s.aborted {
		return
	}
	s.aborted = true
	s.seen = s.kernelStats()
	_ = s.nc.SetLinger(0) // RST, not FIN
	Disconnect(s.raw)
	_ = s.nc.Close() // ends a blocked read and write
	s.changed.Broadcast()
	s.Wake()
}

// SetTimer's time goes by while this process runs: after a pause the reader has time to take what
// the kernel has taken in meanwhile.
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
		s.mu.Lock()
		defer s.mu.Unlock()
		if seq == s.timerSeq && !s.finished {
			s.up.Timer(s.Now())
		}
	})
}

func (s *KernelConn) Now() int64 { return int64(time.Since(s.start)) }

// Stamp is not known: the kernel does not tell.
func (s *KernelConn) Stamp() (uint32, bool) { return 0, false }

func (s *KernelConn) EMSS() int              { return s.segment }
func (s *KernelConn) Local() netip.AddrPort  { return s.ends[0] }
func (s *KernelConn) Remote() netip.AddrPort { return s.ends[1] }

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

// GiveBack has the goroutines end and leave the socket open.
func (s *KernelConn) GiveBack() {
	s.giving = true
	_ = s.nc.SetReadDeadline(s.start) // long ago: ends a blocked read
	s.changed.Broadcast()
	s.Wake()
}

// returnSocket hands the socket back as a stream. Both goroutines have ended. mu is held.
func (s *KernelConn) returnSocket() {
	if err := s.nc.SetReadDeadline(noDeadline); err != nil {
		s.giving = false // it is broken: nothing to give back
		_ = s.nc.Close()
		s.up.Closed(SocketError(err))
		return
	}
	if len(s.rest) == 0 {
		s.up.HandBack(s.nc)
		return
	}
	s.up.HandBack(&BufferedConn{TCPConn: s.nc, rest: s.rest})
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

// SocketError is the stack's error for the kernel's, so that both transports fail alike. One that
// the stack does not have stays as it is.
func SocketError(err error) error {
	var op net.Error
	var call *os.SyscallError
	switch {
	case errors.Is(err, syscall.EADDRINUSE), errors.Is(err, syscall.EADDRNOTAVAIL) &&
		errors.As(err, &call) && call.Syscall == "connect":
		return fmt.Errorf("%w: %w", stack.ErrPortUsed, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%w: %w", stack.ErrNotLocal, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return stack.ErrRefused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return stack.ErrReset
	case errors.As(err, &op) && op.Timeout(): // ETIMEDOUT, and a context's deadline
		return stack.ErrTimeout
	case errors.Is(err, syscall.EHOSTUNREACH):
		return stack.ErrNoRoute
	case errors.Is(err, syscall.ENETUNREACH):
		return stack.ErrNetUnreachable
	}
	return err
}
