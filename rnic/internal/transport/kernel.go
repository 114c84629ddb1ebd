package transport

import (
	"cmp"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
)

// Sizes of a connection over a kernel socket.
const (
	startupReadMax = 2 << 10   // octets of one read before full operation
	socketReadMax  = 64 << 10  // octets of one read
	socketWriteMax = 128 << 10 // octets framed before one write
	socketEndsMax  = socketWriteMax / 64
	socketStride   = socketReadMax + mem.Headroom
	userTimeout    = 100 * time.Second // as tcp.Config.UserTimeoutNs: unacknowledged for so long, the peer is gone
)

// kernelKeepAliveMax is the longest time between keep-alives that Linux takes (MAX_TCP_KEEPIDLE and
// MAX_TCP_KEEPINTVL).
const kernelKeepAliveMax = 32767 * time.Second

// KernelConn is a connection over a kernel TCP socket: MPA over an unmodified TCP. Octets come in
// order only.
//
// Two goroutines share what is above it under mu: read (octets in) and write (pull and send).
// Neither holds mu in a system call. The Bufs and buffers that FPDUs need, some 700 KiB, come with
// full operation: a peer that says nothing shall not cost them.
type KernelConn struct {
	up    Upper
	nc    *net.TCPConn
	place *Place
	raw   syscall.RawConn
	start time.Time
	woken chan struct{}
	// reader and pool are of placements; no pool before full operation.
	reader *mem.Reader
	pool   *mem.Pool

	mu       sync.Mutex
	changed  *sync.Cond // the reader waits here while octets are refused
	timer    *time.Timer
	timerSeq uint64
	finOut   bool // close our half when everything pulled is written
	aborted  bool
	finished bool
	readEnd  bool
	wroteEnd bool
	sendErr  error // sending failed while the reader may still find something
	segment  int   // EMSS
	seen     Stats
	ends     [2]netip.AddrPort

	Front  []byte // octets that were read before MPA had the socket, no more than one startupReadMax
	giving bool   // the socket is to be the ULP's again
	rest   []byte // octets that were read and are the ULP's
}

var noDeadline time.Time

// NewKernelConn stands on nc, at a place that it gives back at its end. With an error that is the
// caller's to do.
func NewKernelConn(up Upper, nc *net.TCPConn, at *Place, reader *mem.Reader, start time.Time) (*KernelConn, error) {
	raw, err := nc.SyscallConn()
	if err != nil {
		reader.Close()
		return nil, err
	}
	s := &KernelConn{up: up, nc: nc, place: at, raw: raw, reader: reader, start: start, woken: make(chan struct{}, 1)}
	s.changed = sync.NewCond(&s.mu)
	s.ends = [2]netip.AddrPort{AddrPort(nc.LocalAddr()), AddrPort(nc.RemoteAddr())}
	_ = nc.SetNoDelay(true)           // the drafts' section 5.3: Nagle off
	_ = s.setUserTimeout(userTimeout) // without it the kernel gives up later
	s.segment = s.queryEMSS()
	return s, nil
}

// Socket is what it stands on.
func (s *KernelConn) Socket() *net.TCPConn { return s.nc }

// Control calls f with the socket's descriptor; not when the socket is closed.
func (s *KernelConn) Control(f func(fd uintptr)) error { return s.raw.Control(f) }

// AddrPort is a's address and port, if it is TCP's.
func AddrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		ap := t.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return netip.AddrPort{}
}

// Run starts the connection's goroutines.
func (s *KernelConn) Run() {
	s.mu.Lock()
	s.up.Established()
	s.mu.Unlock()
	go s.read()
	go s.write()
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
	s.mu.Lock()
	s.readEnd = true
	if cause == nil {
		cause = s.sendErr
	}
	if s.giving && !s.aborted && s.sendErr == nil {
		// What ended the reading is the stream's to find.
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

// receive is the next octets of the connection.
func (s *KernelConn) receive(b []byte) (int, error) {
	if len(s.Front) > 0 {
		n := copy(b, s.Front)
		s.Front = s.Front[n:]
		return n, nil
	}
	return s.nc.Read(b)
}

// take offers octets until they are taken, and returns a Buf for the next read: none before full
// operation. more is false when nothing more is wanted.
func (s *KernelConn) take(off uint64, b mem.Buf, data []byte) (next mem.Buf, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.aborted {
		if b == mem.NoBuf && s.pool != nil {
			b = s.pool.Alloc()
			slot := s.pool.Slot(b)[mem.Headroom:]
			data = slot[:copy(slot, data)]
		}
		v := s.up.Arrive(off, b, data)
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

// segments are what one write sends.
type segments struct {
	out  []byte
	ends []int // in out
	vec  *msgVec
}

// room makes place for what may be said now: one segment for start-up, many in full operation.
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
func (s *KernelConn) write() {
	var w segments
	for {
		n, fin, over := s.fill(&w)
		if n > 0 {
			if err := w.vec.send(s.raw, w.out[:n], w.ends); err != nil {
				s.mu.Lock()
				s.SendFailed(err)
				s.mu.Unlock()
				fin = true
			}
		}
		if fin || over {
			s.mu.Lock()
			if !s.aborted && !s.giving {
				_ = s.nc.CloseWrite() // a connection already reset says so to the reader
			}
			s.wroteEnd = true
			s.end()
			s.mu.Unlock()
			return
		}
		if n == 0 {
			<-s.woken
		}
	}
}

// SendFailed leaves the end of the connection to the reader: what the peer said before it reset the
// connection still lies there, and the kernel hands it out before the end that it is told of here.
// mu is held.
func (s *KernelConn) SendFailed(err error) {
	if s.aborted || s.sendErr != nil {
		return
	}
	s.sendErr = SocketError(err)
	if s.readEnd {
		s.up.Lost(s.sendErr)
		s.Abort()
		return
	}
	_ = s.nc.CloseRead() // a connection that is gone already needs no telling
	s.changed.Broadcast()
}

// fill pulls n octets of segments into w, whose ends say where the kernel is to end a segment:
// after one that is not full, so that the next FPDU begins a segment of its own. A run of full ones
// stays together: the kernel cuts it at EMSS, which is where FPDUs begin. fin: our half is to be
// closed after them.
func (s *KernelConn) fill(w *segments) (n int, fin, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aborted {
		return 0, false, true
	}
	if e := s.queryEMSS(); e != s.segment {
		s.segment = e
	}
	w.room(s)
	full := false
	for w.ends = w.ends[:0]; len(w.out)-n >= s.segment && len(w.ends) < cap(w.ends); {
		k := s.up.Pull(w.out[n : n+s.segment])
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

// end closes the socket when both directions are over, and tells the connection. mu is held.
func (s *KernelConn) end() {
	if s.finished || !s.readEnd || !s.wroteEnd {
		return
	}
	s.finished = true
	s.seen = s.kernelStats()
	if s.giving && !s.aborted {
		s.SetTimer(0)
		s.place.Leave()
		s.returnSocket()
		s.reader.Close()
		return
	}
	_ = s.nc.Close() // both directions have ended already
	s.SetTimer(0)
	s.reader.Close() // nothing is placed any more
	s.place.Leave()  // before whoever waits for the end dials again
	s.up.Over(nil)
}

// EnterFull makes the Bufs for reassembly.
func (s *KernelConn) EnterFull(kept int) {
	bufs := kept + 2 // the one being read into, and one that the upper looks at
	pool, err := mem.NewPool(hugepages.Heap((bufs+1)*socketStride), mem.PoolConfig{Bufs: bufs, Stride: socketStride})
	if err != nil {
		panic(err) // the sizes are ours
	}
	s.pool = pool
}

func (s *KernelConn) Memory() Memory {
	return Memory{Reader: s.reader, Pool: s.pool, Stride: socketStride, InOrder: true}
}

// Short: the Bufs are this connection's own.
func (s *KernelConn) Short() {}

// The transport. All but wake and submit are called with mu held.

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

func (s *KernelConn) Silent()     { s.place.setSilent(s) }
func (s *KernelConn) Spoke() bool { return s.place.spoke() }

// GiveWay ends the connection, whose place another one has.
func (s *KernelConn) GiveWay() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up.Fail(stack.ErrGaveWay)
}

// Unacked is not known of a kernel socket, which tells nobody when octets are acknowledged.
func (s *KernelConn) Unacked() bool { return false }

// GiveUpAfter: a kernel with a user timeout ends by that, and not by the count, a connection whose
// keep-alives are not answered.
func (s *KernelConn) GiveUpAfter(d time.Duration) error {
	return cmp.Or(s.setUserTimeout(d), s.nc.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: min(d/keepAliveIdle, kernelKeepAliveMax), Interval: min(d/keepAliveInterval, kernelKeepAliveMax), Count: keepAliveCount,
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
	_ = s.nc.Close()      // ends a blocked read and write
	s.changed.Broadcast()
	s.Wake()
}

func (s *KernelConn) SetTimer(at int64) {
	s.timerSeq++
	if s.timer != nil {
		s.timer.Stop()
	}
	if at == 0 || s.finished {
		return
	}
	seq := s.timerSeq
	s.timer = time.AfterFunc(time.Duration(at-s.Now()), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if seq == s.timerSeq && !s.finished {
			s.up.Timer()
		}
	})
}

// Timed says whether the timer was ever set.
func (s *KernelConn) Timed() bool { return s.timer != nil }

func (s *KernelConn) Now() int64 { return int64(time.Since(s.start)) }

// Stamp: a kernel does not tell.
func (s *KernelConn) Stamp() (uint32, bool)  { return 0, false }
func (s *KernelConn) EMSS() int              { return s.segment }
func (s *KernelConn) Local() netip.AddrPort  { return s.ends[0] }
func (s *KernelConn) Remote() netip.AddrPort { return s.ends[1] }

func (s *KernelConn) Stats() Stats {
	if s.aborted || s.finished {
		return s.seen
	}
	return s.kernelStats()
}

// GiveBack makes the goroutines end and leave the socket open.
func (s *KernelConn) GiveBack() {
	s.giving = true
	_ = s.nc.SetReadDeadline(s.start) // long ago: ends a blocked read
	s.changed.Broadcast()
	s.Wake()
}

// returnSocket is the last thing of the connection's: both goroutines have ended. mu is held.
func (s *KernelConn) returnSocket() {
	if err := s.nc.SetReadDeadline(noDeadline); err != nil {
		s.giving = false // it is broken: nothing to give back
		_ = s.nc.Close()
		s.up.Over(SocketError(err))
		return
	}
	if len(s.rest) == 0 {
		s.up.HandBack(s.nc)
		return
	}
	s.up.HandBack(&BufferedConn{TCPConn: s.nc, rest: s.rest})
}

// SocketError says in the stack's words what the kernel reported, so that both transports fail
// alike.
func SocketError(err error) error {
	var op net.Error
	switch {
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
