package perftest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/tools/perf"
	"github.com/rnicd/rnicd/rnic"
)

// readDepth is how many Reads perftest's programs have outstanding and ask the connection for.
const readDepth = 128

// end is one connection that is measured.
type end struct {
	*perf.End
	plan *plan
}

// newEnd makes an idle QueuePair with memory and the receive buffers of the test. pd is that of all
// connections of the test, where there are several.
func newEnd(dev *rnic.Adapter, p *plan, g terms, pd *rnic.ProtectionDomain,
	server bool) (*end, error) {
	// perftest goes round in it where messages are short
	area := (max(p.Size, g.cycle) + lineLen - 1) &^ (lineLen - 1)
	e, err := perf.Open(dev, &p.Test, area, pd, server)
	if err != nil {
		return nil, err
	}
	e.RecvMax = p.Size
	return &end{End: e, plan: p}, nil
}

// connParam is how a connection that is measured is made; conn says the rest.
func (p *plan) connParam(conn rnic.ConnParam) rnic.ConnParam {
	if conn.IRD, conn.ORD = 1, 1; p.Op == perf.Read {
		conn.IRD, conn.ORD = readDepth, readDepth
	}
	return conn
}

// place is what the peer is told: of a test of Sends where the credit is, otherwise where the
// octets come to.
func (e *end) place() Place {
	p := Place{Reads: 1, QPN: e.QP.Number() & 0xffffff, STag: e.Local.STag(),
		Offset: e.Local.Base() + uint64(e.RecvAt)}
	if e.Credit != nil {
		p.Offset = e.Local.Base() + uint64(e.Credit.Local)
	}
	if e.plan.Op == perf.Read {
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

// ends are all connections that are measured, in the order in which the client has made them.
type ends []*end

func (es ends) release() {
	for _, e := range es {
		e.Release()
	}
}

func (es ends) places() (all []Place) {
	for _, e := range es {
		all = append(all, e.place())
	}
	return all
}

func (es ends) peers(all []Place) {
	for i, e := range es {
		e.peer(all[i])
	}
}

// perf are the Ends to measure with. over says that the peer is done; began is when it may have
// begun.
func (es ends) perf(began time.Time, over func() bool) perf.Ends {
	var all []*perf.End
	for _, e := range es {
		all = append(all, e.End)
	}
	return perf.Ends{All: all, Began: began, Over: over}
}

// whileSound is a context that ends when a Terminate has ended a connection that is measured, and
// for that reason: the peer, which is told of it there, may say no more on the connection of the
// handshake, or close that.
func (es ends) whileSound(ctx context.Context) (sound context.Context, stop func()) {
	sound, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	for _, e := range es {
		watching.Go(func() {
			select {
			case <-e.QP.Done():
				if err := e.terminated(); err != nil {
					end(err)
				}
			case <-sound.Done():
			}
		})
	}
	return sound, func() { end(nil); watching.Wait() }
}

// terminated is the error that a Terminate, of either end, has told the other of.
func (e *end) terminated() error {
	var told *rnic.TerminateError
	if err := e.QP.Err(); errors.As(err, &told) {
		return fmt.Errorf("%v: %w%s", e.plan, err, sameAtBothEnds)
	}
	return nil
}

// sameAtBothEnds is what most errors of a test come of.
const sameAtBothEnds = "; do both ends run the same program, with the same -n and -s, and -a, " +
	"-b and -q?"

// reason prefers what has ended a connection that is measured over what went wrong for that.
func (es ends) reason(ctx context.Context, err error) error {
	for _, e := range es {
		switch e.QP.State() {
		case rnic.Terminating, rnic.Error, rnic.Closed:
			<-e.QP.Done() // it is about to be: 3 s at most
			if told := e.terminated(); told != nil {
				return told
			}
		}
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// came counts what the peer has sent, in octets, or read, in Reads.
func (es ends) came(ctx context.Context) (n uint64, err error) {
	for _, e := range es {
		st, err := e.QP.Stats(ctx)
		if err != nil {
			return n, err
		}
		if e.plan.Op == perf.Read {
			n += st.ReadsServed
		} else {
			n += st.Placed.Direct + st.Placed.Reassembled
		}
	}
	return n, nil
}

// comeTimeout is how long octets may take that the peer says it has sent: they may have to be sent
// again.
const comeTimeout = 5 * time.Second

// awaitCome waits until n have come, as came counts them, and says how many have in the time for
// it.
func (es ends) awaitCome(ctx context.Context, n uint64) (uint64, error) {
	late, stop := awake.After(comeTimeout)
	defer stop()
	tick := time.NewTicker(comeLook)
	defer tick.Stop()
	for {
		got, err := es.came(ctx)
		if err != nil || got >= n {
			return got, err
		}
		select {
		case <-tick.C:
		case <-late:
			return got, nil
		case <-ctx.Done():
			return got, ctx.Err()
		}
	}
}

const comeLook = 5 * time.Millisecond

// due is what comes of the peer in a test in both directions, as came counts it; at least one where
// there is no number.
func (p *plan) due() (n uint64) {
	for _, t := range p.tests() {
		messages := uint64(t.Iterations * p.QPs)
		if t.Op == perf.Read {
			n += messages
		} else {
			n += messages * uint64(t.Size)
		}
	}
	return max(n, 1)
}

// checkBoth says so where a test in both directions had only one: the messages of the handshake
// would be the same.
func (es ends) checkBoth(ctx context.Context, p *plan) error {
	if !p.Shape.Both || p.Op == perf.Send { // whose messages are counted
		return nil
	}
	got, err := es.awaitCome(ctx, p.due())
	if err == nil && got < p.due() {
		what := map[perf.Op]string{perf.Write: "octets came", perf.Read: "Reads were asked"}[p.Op]
		return fmt.Errorf("perftest: %d %s of the other end, where %d were due: was it told -b, and "+
			"the same -n and -s?", got, what, p.due())
	}
	return err
}

func bigEndian(v uint32) []byte     { return binary.BigEndian.AppendUint32(nil, v) }
func fromBigEndian(b []byte) uint32 { return binary.BigEndian.Uint32(b) }
