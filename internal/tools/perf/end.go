package perf

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/tools/peer"
	"github.com/rnicd/rnicd/rnic"
)

// End is one end of a connection that is to be measured. All of it stays the caller's, and must
// stay as it is until Run or Serve has returned. While they run no other goroutine polls its
// queues.
type End struct {
	QP             *rnic.QueuePair
	SendCQ, RecvCQ *rnic.CompletionQueue // may be the same
	// Local is the memory of this end, not on the Go heap, aligned to 8 octets, with the rights
	// that the Op needs. Its octets are written by both ends and mean nothing.
	Local *rnic.MemoryRegion
	// SendAt and RecvAt are where in Local the octets to be sent are, and where those of the
	// peer's, or of a Read, come to; Size octets each, apart from each other. In a latency test of
	// Writes the last one at RecvAt must be 0 before the peer can begin.
	SendAt, RecvAt int
	// RemoteSTag and RemoteOffset are the peer's memory: where its RecvAt is for a Write, or what
	// is read, or the aligned word of an atomic.
	RemoteSTag   rnic.STag
	RemoteOffset uint64
	// Credit is the flow control of a bandwidth test of Sends, nil for none.
	Credit *Credit
	// Flush, if set, is called by Run when all of a bandwidth test has completed, and returns when
	// the peer has all of it: the test ends then. It may poll the queues.
	Flush func(context.Context) error

	arena *hugepages.Arena // of Open
}

// Open makes an End for a Test, with an idle QueuePair, queues and memory of its own, prepared:
// what is sent is at the front of Local, what comes is after area octets, and the word of a Credit
// after twice as many. The peer has no right that the Test does not need. There is room for one
// message more each way than the Test has.
func Open(dev *rnic.Adapter, t *Test, area int, server bool) (e *End, err error) {
	e = &End{RecvAt: area}
	defer func() {
		if err != nil {
			e.Release()
			e = nil
		}
	}()
	bytes := 2*area + creditRoom
	if e.arena, err = hugepages.New(hugepages.Config{Bytes: int64(bytes), Page: hugepages.Normal,
		Node: hugepages.AnyNode}); err != nil {
		return e, err
	}
	pd := dev.AllocPD()
	opt := rnic.QPOptions{PD: pd, SendDepth: t.TxDepth + 2, RecvDepth: t.RxDepth + 1}
	if e.SendCQ, err = dev.CreateCQ(2 * opt.SendDepth); err != nil {
		return e, err
	}
	if e.RecvCQ, err = dev.CreateCQ(2 * opt.RecvDepth); err != nil {
		return e, err
	}
	opt.SendCQ, opt.RecvCQ = e.SendCQ, e.RecvCQ
	if e.QP, err = dev.CreateQP(opt); err != nil {
		return e, err
	}
	e.Local, err = pd.RegisterWith(e.arena.Bytes()[:bytes],
		rnic.RegisterOptions{Access: rights(t, server), For: e.QP})
	if err != nil {
		return e, err
	}
	if t.Op == Send && !t.Latency {
		e.Credit = &Credit{Local: 2 * area}
	}
	return e, e.Prepare(*t, server)
}

// creditRoom is for the words of a Credit.
const creditRoom = creditWords

// rights of the peer's are those that the test needs, and no others. Credits are written to the
// sender, which is the client.
func rights(t *Test, server bool) rnic.Access {
	const local = rnic.LocalWrite
	switch {
	case t.Op == Write && (server || t.Latency):
		return local | rnic.RemoteWrite
	case t.Op == Send && !server && !t.Latency:
		return local | rnic.RemoteWrite
	case t.Op == Read && server:
		return local | rnic.RemoteRead
	case t.Op == Atomic && server:
		return local | rnic.RemoteRead | rnic.RemoteWrite
	}
	return local
}

// Release ends the connection of an End of Open if it has not ended, and gives the memory back.
func (e *End) Release() {
	peer.Release(e.QP, e.Local)
	if e.arena != nil {
		_ = e.arena.Close() // unmapping what was mapped
	}
}

// Moved is what shows that the peer of a test is at work.
type Moved struct {
	placed                 rnic.Placed
	reads, fpdus, messages uint64
}

// MovedOver counts what has moved over a connection.
func MovedOver(ctx context.Context, qp *rnic.QueuePair) (Moved, error) {
	st, err := qp.Stats(ctx)
	return Moved{st.Placed, st.ReadsServed, st.FPDUsSent, st.MessagesRecvd}, err
}

// check refuses memory that is not there. The programmer's error, but a handshake may have
// computed it from a peer's words.
func (e *End) check(t *Test) error {
	if e.QP == nil || e.SendCQ == nil || e.RecvCQ == nil || e.Local == nil {
		return errors.New("perf: an End needs QP, SendCQ, RecvCQ and Local")
	}
	b := e.Local.Bytes()
	if len(b) == 0 || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%8 != 0 {
		return errors.New("perf: Local must be aligned to 8 octets")
	}
	n := len(b) &^ 7 // all the words that can be loaded whole
	inside := func(at, size int) bool { return at >= 0 && at <= n && size <= n-at }
	if !inside(e.SendAt, t.Size) || !inside(e.RecvAt, t.Size) {
		return fmt.Errorf("perf: %d octets at %d and at %d are not inside of Local, of %d", t.Size,
			e.SendAt, e.RecvAt, len(b))
	}
	if c := e.Credit; c != nil && (!inside(c.Local, creditWords) || c.Local%creditLen != 0) {
		return fmt.Errorf("perf: no word of credit at %d of %d octets", c.Local, len(b))
	}
	return nil
}
