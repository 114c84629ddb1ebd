package perftest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rnicd/rnicd/cmd/rnicd/perf"
	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/rnic"
)

// Bounds of a test. SizeMax is perftest's own: that of its -a.
const (
	SizeMax  = 8 << 20
	DepthMax = 4096
)

// readDepth is how many Reads perftest's programs have outstanding and ask the connection for.
const readDepth = 128

const wordLen = 8

// end is the connection that is measured, with what belongs to it.
type end struct {
	perf.End
	arena   *hugepages.Arena
	program Program
	server  bool
}

// check refuses a Test that no program makes.
func check(t *perf.Test) error {
	switch {
	case t.Op != perf.Write && t.Op != perf.Read && t.Op != perf.Send:
		return fmt.Errorf("perftest: %v tests are not spoken", t.Op)
	case t.Size < 1 || t.Size > SizeMax:
		return fmt.Errorf("perftest: messages of %d octets, 1 to %d possible", t.Size, SizeMax)
	case t.Iterations < 1:
		return errors.New("perftest: a number of iterations is needed, the same at both ends")
	case t.Duration != 0 || t.Warmup != 0:
		return errors.New("perftest: neither a duration nor a warm-up: the other end would not know of them")
	case t.TxDepth < 1 || t.TxDepth > DepthMax || t.RxDepth < 1 || t.RxDepth > DepthMax:
		return fmt.Errorf("perftest: depths %d and %d, 1 to %d possible", t.TxDepth, t.RxDepth, DepthMax)
	}
	return nil
}

// rights are what the peer is allowed, and no more.
func (e *end) rights() rnic.Access {
	const local = rnic.LocalWrite
	switch {
	case e.program.Op == perf.Write && (e.server || e.program.Latency), e.Credit != nil && !e.server:
		return local | rnic.RemoteWrite
	case e.program.Op == perf.Read && e.server:
		return local | rnic.RemoteRead
	}
	return local
}

// newEnd makes an idle QueuePair with memory and the receive buffers of the test. opt says the rest of the QueuePair.
func newEnd(dev *rnic.Adapter, t *perf.Test, g terms, opt rnic.QPOptions, server bool) (e *end, err error) {
	e = &end{program: Program{t.Op, t.Latency}, server: server}
	defer func() {
		if err != nil {
			e.release()
		}
	}()
	area := (max(t.Size, g.cycle) + lineLen - 1) &^ (lineLen - 1) // perftest goes round in it where messages are short
	if e.arena, err = hugepages.New(hugepages.Config{Bytes: int64(2*area + wordLen), Page: hugepages.Normal, Node: hugepages.AnyNode}); err != nil {
		return nil, err
	}
	pd := dev.AllocPD()
	opt.PD, opt.SendDepth, opt.RecvDepth = pd, t.TxDepth+2, t.RxDepth+1
	if opt.IRD, opt.ORD = 1, 1; t.Op == perf.Read {
		opt.IRD, opt.ORD = readDepth, readDepth
	}
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
	e.RecvAt = area
	if t.Op == perf.Send && !t.Latency {
		e.Credit = &perf.Credit{Local: 2 * area}
	}
	e.Local, err = pd.RegisterWith(e.arena.Bytes()[:2*area+wordLen], rnic.RegisterOptions{Access: e.rights(), For: e.QP})
	if err != nil {
		return nil, err
	}
	return e, e.Prepare(*t, server)
}

// place is what the peer is told: of a test of Sends where the credit is, otherwise where the octets come to.
func (e *end) place() Place {
	p := Place{Reads: 1, QPN: e.QP.Number() & 0xffffff, STag: e.Local.STag(), Offset: e.Local.Base() + uint64(e.RecvAt)}
	if e.Credit != nil {
		p.Offset = e.Local.Base() + uint64(e.Credit.Local)
	}
	if e.program.Op == perf.Read {
		p.Reads = readDepth
	}
	return p
}

// peer is told of the other end's.
func (e *end) peer(p Place) {
	e.RemoteSTag, e.RemoteOffset = p.STag, p.Offset
	if e.Credit != nil {
		e.Credit.RemoteSTag, e.Credit.RemoteOffset = p.STag, p.Offset
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

// ended is how a connection ends that the peer closes, or ctx's end.
func ended(ctx context.Context, qp *rnic.QueuePair) error {
	select {
	case <-qp.Done():
		return qp.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func bigEndian(v uint32) []byte     { return binary.BigEndian.AppendUint32(nil, v) }
func fromBigEndian(b []byte) uint32 { return binary.BigEndian.Uint32(b) }
