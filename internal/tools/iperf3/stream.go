package iperf3

import (
	"crypto/rand"
	"errors"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
)

// receiveMax bounds a receiver's buffer: its blocks need not be as long as the sender's.
const receiveMax = 128 << 10

// stream is one data connection. Its goroutine runs from transfer.start to done.
type stream struct {
	id      int
	sends   bool
	conn    net.Conn
	moved   atomic.Uint64 // octets
	skipped atomic.Uint64 // of them in the time that is not counted
	lastNs  atomic.Int64  // when the last octet moved, since transfer.begin
	target  atomic.Uint64 // a receiver ends when it has so many
	done    chan struct{} // closed at the end; err is settled then
	err     error
	info    Info // settled by transfer.over
}

// counted is what is reported.
func (s *stream) counted() uint64 { return s.moved.Load() - s.skipped.Load() }

// transfer moves a test's octets: one goroutine for each data connection.
//
//	start -> (endOmit) -> stopSenders -> drain or stopReceivers -> close
type transfer struct {
	params  Params
	tr      Transport // may be nil
	streams []*stream
	block   []byte // what is sent, shared
	begin   time.Time
	stop    chan struct{} // closed: senders end
	failed  chan error    // of the first stream that failed
	reached chan struct{} // receivers together have limit octets
	omit    *time.Timer   // nil without Omit

	limit     uint64 // what all senders send, and all receivers want, together; 0: none
	sendLeft  atomic.Int64
	received  atomic.Uint64
	omitting  atomic.Bool
	countedNs atomic.Int64 // counting began, since begin
	endNs     int64        // the test was over, since begin
	stopping  atomic.Bool
	closing   sync.Once
}

// newTransfer takes the data connections over, in the order in which they were opened.
func newTransfer(p Params, tr Transport, conns []net.Conn, server bool) *transfer {
	t := &transfer{
		params: p, tr: tr, stop: make(chan struct{}), failed: make(chan error, 1),
		reached: make(chan struct{}, 1),
		limit:   p.limit(), block: make([]byte, p.Length),
	}
	_, _ = rand.Read(t.block) // never fails; random, so that nothing on the way compresses it
	t.sendLeft.Store(math.MaxInt64)
	if t.limit > 0 {
		t.sendLeft.Store(int64(t.limit))
	}
	for i, sends := range p.layout(server) {
		s := &stream{id: streamID(i), sends: sends, conn: conns[i], done: make(chan struct{})}
		s.target.Store(math.MaxUint64)
		s.info.Retransmits = unknown
		t.streams = append(t.streams, s)
	}
	return t
}

func (t *transfer) start() {
	t.begin = time.Now()
	if t.params.Omit > 0 {
		t.omitting.Store(true)
		t.omit = time.AfterFunc(t.params.Omit, t.endOmit)
	}
	for _, s := range t.streams {
		go func() {
			defer close(s.done)
			if s.sends {
				s.err = t.write(s)
			} else {
				s.err = t.read(s)
			}
			if s.err != nil {
				select {
				case t.failed <- s.err:
				default:
				}
			}
		}()
	}
}

func (t *transfer) endOmit() {
	for _, s := range t.streams {
		s.skipped.Store(s.moved.Load())
	}
	t.countedNs.Store(int64(time.Since(t.begin)))
	t.omitting.Store(false)
}

func (t *transfer) write(s *stream) error {
	for {
		select {
		case <-t.stop:
			return nil
		default:
		}
		n := t.take()
		if n == 0 || !t.pace(s) {
			return nil
		}
		w, err := s.conn.Write(t.block[:n])
		t.note(s, w)
		if err != nil {
			if t.stopping.Load() {
				return nil
			}
			return err
		}
	}
}

// take is how long the next block is: what is left of the limit, which is counted from the end of
// the omitted time.
func (t *transfer) take() int {
	n := int64(len(t.block))
	if t.limit == 0 || t.omitting.Load() {
		return int(n)
	}
	left := t.sendLeft.Add(-n)
	return int(max(0, min(n, left+n)))
}

// pace waits until the stream's rate allows a block more; false: the test is over.
func (t *transfer) pace(s *stream) bool {
	if t.params.Rate == 0 {
		return true
	}
	due := time.Duration(float64(s.moved.Load()) * 8 / float64(t.params.Rate) * float64(time.Second))
	wait := due - time.Since(t.begin)
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.stop:
		return false
	}
}

func (t *transfer) read(s *stream) error {
	buf := make([]byte, min(t.params.Length, receiveMax))
	for {
		n, err := s.conn.Read(buf)
		t.note(s, n)
		if t.limit > 0 && n > 0 && !t.omitting.Load() && t.received.Add(uint64(n)) >= t.limit {
			select {
			case t.reached <- struct{}{}:
			default:
			}
		}
		switch {
		case s.moved.Load() >= s.target.Load():
			return nil
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && t.stopping.Load():
			return nil
		case err != nil:
			return err
		}
	}
}

func (t *transfer) note(s *stream, n int) {
	if n > 0 {
		s.moved.Add(uint64(n))
		s.lastNs.Store(int64(time.Since(t.begin)))
	}
}

// total is what has moved so far, to see whether anything does.
func (t *transfer) total() (n uint64) {
	for _, s := range t.streams {
		n += s.moved.Load()
	}
	return n
}

// over ends the measured time and all sending. It returns when no sender runs.
func (t *transfer) over() {
	if !t.stopping.CompareAndSwap(false, true) {
		return
	}
	t.endNs = int64(time.Since(t.begin))
	if t.omit != nil && t.omit.Stop() {
		t.endOmit() // over before anything was to be counted
	}
	close(t.stop)
	for _, s := range t.streams {
		if s.sends {
			_ = s.conn.SetWriteDeadline(time.Unix(1, 0))
		}
	}
	for _, s := range t.streams {
		if s.sends {
			<-s.done
		}
		if t.tr != nil {
			s.info = t.tr.Info(s.conn)
		}
	}
}

// drain lets receivers read on until they have what the sender sent (sent says of a stream how
// much; nil: until its end), for at most limit. They are done when it returns.
func (t *transfer) drain(sent func(s *stream) uint64, limit time.Duration) {
	for _, s := range t.streams {
		if s.sends {
			continue
		}
		// Reader and drainer each write one of target and moved and then read the other: one of
		// them sees that it is enough.
		if sent != nil {
			s.target.Store(sent(s))
		}
		if s.moved.Load() >= s.target.Load() {
			_ = s.conn.SetReadDeadline(time.Unix(1, 0))
		} else {
			defer awake.Deadline(limit, s.conn.SetReadDeadline).Stop()
		}
	}
	for _, s := range t.streams {
		if !s.sends {
			<-s.done
		}
	}
}

// sendersDone is closed when all senders are done; at once if there are none.
func (t *transfer) sendersDone() <-chan struct{} {
	ch := make(chan struct{})
	go func() {
		defer close(ch)
		for _, s := range t.streams {
			if s.sends {
				<-s.done
			}
		}
	}()
	return ch
}

// closeSenders shows the peer where the octets end.
func (t *transfer) closeSenders() {
	for _, s := range t.streams {
		if s.sends {
			_ = s.conn.Close()
		}
	}
}

// close ends everything; no goroutine of the transfer is left.
func (t *transfer) close() {
	t.closing.Do(func() {
		t.over()
		for _, s := range t.streams {
			_ = s.conn.Close()
		}
		for _, s := range t.streams {
			<-s.done
		}
	})
}

// seconds is how long the stream took, without the omitted time: to the end of the test or to the
// octet that came after.
func (t *transfer) seconds(s *stream) float64 {
	return float64(max(t.endNs-t.countedNs.Load(), s.lastNs.Load()-t.countedNs.Load(), 0)) / 1e9
}

// sends says whether octets go in a direction; true is from this side to the peer.
func (t *transfer) sends(out bool) bool {
	for _, s := range t.streams {
		if s.sends == out {
			return true
		}
	}
	return false
}
