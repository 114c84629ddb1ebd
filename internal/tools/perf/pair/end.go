package pair

import (
	"fmt"

	"github.com/rnicd/rnicd/internal/tools/perf"
	"github.com/rnicd/rnicd/rnic"
)

// ReadDepth is how many Reads and atomics an end of ours serves, and asks for, at a time.
const ReadDepth = rnic.ReadDepthDefault

const wordLen = 8

// end is one end of a test.
type end struct{ *perf.End }

// newEnd makes one, and posts a receive buffer for the other end's last message besides those of
// the test.
func newEnd(dev *rnic.Adapter, t *perf.Test, server bool) (end, error) {
	area := (t.Size + wordLen - 1) &^ (wordLen - 1)
	e, err := perf.Open(dev, t, area, server)
	if err != nil {
		return end{}, err
	}
	if _, err := e.QP.PostRecv(rnic.WorkRequest{Local: e.Local.Slice(e.RecvAt, t.Size)}); err != nil {
		e.Release()
		return end{}, err
	}
	return end{e}, nil
}

// connParam is how it connects; conn says the rest.
func connParam(conn rnic.ConnParam, private []byte) rnic.ConnParam {
	conn.IRD, conn.ORD, conn.PrivateData = ReadDepth, ReadDepth, private
	return conn
}

// place is what the peer is told of this end's memory: an atomic's word is the first of it, the
// others are where it receives.
func (e end) place(t *perf.Test) place {
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
func (e end) peer(p place) {
	e.RemoteSTag, e.RemoteOffset = p.stag, p.to
	if e.Credit != nil {
		e.Credit.RemoteSTag, e.Credit.RemoteOffset = p.stag, p.credit
	}
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
