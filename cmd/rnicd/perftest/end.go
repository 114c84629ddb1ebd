package perftest

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rnicd/rnicd/cmd/rnicd/perf"
	"github.com/rnicd/rnicd/rnic"
)

// Bounds of a test. SizeMax is perftest's own: that of its -a.
const (
	SizeMax  = 8 << 20
	DepthMax = 4096
)

// readDepth is how many Reads perftest's programs have outstanding and ask the connection for.
const readDepth = 128

// end is the connection that is measured.
type end struct {
	*perf.End
	program Program
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

// newEnd makes an idle QueuePair with memory and the receive buffers of the test. opt says the rest of the QueuePair.
func newEnd(dev *rnic.Adapter, t *perf.Test, g terms, opt rnic.QPOptions, server bool) (*end, error) {
	if opt.IRD, opt.ORD = 1, 1; t.Op == perf.Read {
		opt.IRD, opt.ORD = readDepth, readDepth
	}
	area := (max(t.Size, g.cycle) + lineLen - 1) &^ (lineLen - 1) // perftest goes round in it where messages are short
	e, err := perf.Open(dev, t, area, opt, server)
	if err != nil {
		return nil, err
	}
	return &end{End: e, program: Program{t.Op, t.Latency}}, nil
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

func bigEndian(v uint32) []byte     { return binary.BigEndian.AppendUint32(nil, v) }
func fromBigEndian(b []byte) uint32 { return binary.BigEndian.Uint32(b) }
