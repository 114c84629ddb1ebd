package pair

import (
	"errors"
	"fmt"

	"github.com/rnicd/rnicd/cmd/rnicd/perf"
	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/rnic"
)

// ReadDepth is how many Reads and atomics an end of ours serves, and asks for, at a time.
const ReadDepth = rnic.ReadDepthDefault

const wordLen = 8

// end is one end of a test with what belongs to it.
type end struct {
	perf.End
	arena *hugepages.Arena
}

// rights of the peer's are those that the test needs, and no others. Credits are written to the sender, who is the client.
func rights(t *perf.Test, server bool) rnic.Access {
	const local = rnic.LocalWrite
	switch {
	case t.Op == perf.Write && (server || t.Latency):
		return local | rnic.RemoteWrite
	case t.Op == perf.Send && !server && !t.Latency:
		return local | rnic.RemoteWrite
	case t.Op == perf.Read && server:
		return local | rnic.RemoteRead
	case t.Op == perf.Atomic && server:
		return local | rnic.RemoteRead | rnic.RemoteWrite
	}
	return local
}

// newEnd makes a QueuePair with memory, and posts what a test needs: its own receive buffers, and one for the other end's last
// message. opt says the rest of the QueuePair.
func newEnd(dev *rnic.Adapter, t *perf.Test, opt rnic.QPOptions, server bool) (e *end, err error) {
	e = &end{}
	defer func() {
		if err != nil {
			e.release()
		}
	}()
	area := (t.Size + wordLen - 1) &^ (wordLen - 1)
	bytes := 2*area + wordLen
	if e.arena, err = hugepages.New(hugepages.Config{Bytes: int64(bytes), Page: hugepages.Normal, Node: hugepages.AnyNode}); err != nil {
		return nil, err
	}
	pd := dev.AllocPD()
	opt.PD, opt.SendDepth, opt.RecvDepth, opt.IRD, opt.ORD = pd, t.TxDepth+2, t.RxDepth+1, ReadDepth, ReadDepth
	if e.SendCQ, err = dev.CreateCQ(2 * opt.SendDepth); err != nil {
		return nil, err
	}
	if e.RecvCQ, err = dev.CreateCQ(2 * opt.RecvDepth); err != nil {
		return nil, err
	}
	opt.SendCQ, opt.RecvCQ = e.SendCQ, e.RecvCQ
	if e.QP, err = dev.CreateQP(opt); err != nil {
		return nil, err
	}
	e.Local, err = pd.RegisterWith(e.arena.Bytes()[:bytes], rnic.RegisterOptions{Access: rights(t, server), For: e.QP})
	if err != nil {
		return nil, err
	}
	e.RecvAt = area
	if t.Op == perf.Send && !t.Latency {
		e.Credit = &perf.Credit{Local: 2 * area}
	}
	if err = e.Prepare(*t, server); err != nil {
		return nil, err
	}
	return e, e.QP.PostRecv(rnic.WorkRequest{Local: e.Local.Slice(e.RecvAt, t.Size)})
}

// place is what the peer is told of this end's memory: an atomic's word is the first of it, the others are where it receives.
func (e *end) place(t *perf.Test) place {
	p := place{stag: e.Local.STag(), to: e.Local.Base() + uint64(e.RecvAt)}
	if t.Op == perf.Atomic {
		p.to = e.Local.Base()
	}
	if e.Credit != nil {
		p.credit = e.Local.Base() + uint64(e.Credit.Local)
	}
	return p
}

// peer is told of the other end's memory.
func (e *end) peer(p place) {
	e.RemoteSTag, e.RemoteOffset = p.stag, p.to
	if e.Credit != nil {
		e.Credit.RemoteSTag, e.Credit.RemoteOffset = p.stag, p.credit
	}
}

// release ends the connection if it has not ended, and gives the memory back.
func (e *end) release() {
	if e.QP != nil {
		if e.QP.State() != rnic.Closed {
			e.QP.Abort()
		}
		<-e.QP.Done()
	}
	if e.Local != nil {
		e.Local.Deregister()
	}
	if e.arena != nil {
		_ = e.arena.Close() // unmapping what was mapped
	}
}

// explain prefers the connection's own reason over what it did to a request.
func (e *end) explain(err error) error {
	if cause := e.QP.Err(); cause != nil && !errors.Is(cause, rnic.ErrClosed) {
		return cause
	}
	return err
}

// checkTest refuses what this protocol cannot say, or a server does not serve.
func checkTest(t *perf.Test, sizeMax int) error {
	switch {
	case t.Op < perf.Write || t.Op > perf.Atomic:
		return fmt.Errorf("operation %d is not served", int(t.Op))
	case t.Size < 1 || t.Size > sizeMax:
		return fmt.Errorf("messages of %d octets asked for, 1 to %d served", t.Size, sizeMax)
	case t.Op == perf.Atomic && t.Size != perf.AtomicSize:
		return fmt.Errorf("atomics of %d octets asked for, they have %d", t.Size, perf.AtomicSize)
	case t.RxDepth < 1 || t.RxDepth > DepthMax:
		return fmt.Errorf("%d receive buffers asked for, 1 to %d served", t.RxDepth, DepthMax)
	}
	return nil
}
