// Package perf measures a connection: bandwidth and latency of RDMA Writes, RDMA Reads, Sends and
// atomics between two QueuePairs in service, by perftest's rules. How the two ends came to agree on
// a Test is not its business: a handshake makes an End of what it learned, and calls Prepare, then
// Run at the end that measures and Serve at the other.
//
//	bandwidth        Run posts, up to TxDepth at a time, and completes all; Serve takes Sends and gives buffers back
//	latency, Write   each end writes the number of the round into the last octet at the peer, which polls for it
//	latency, Send    each end sends when the other's message has come
//	latency, others  Run posts one and waits for its Completion; the other end's program has nothing to do
//
// Of Writes and Sends a latency is half of a round trip, of Reads and atomics all of it.
//
// # Looking into memory
//
// The latency of Writes is measured without a message, as perftest does: an end looks at one octet
// of its memory until the peer has changed it. In general that tells nothing (package rnic: what a
// peer writes may be placed in any order, and is indeterminate until a Send after it was received).
// Here it suffices: only one Write is under way in each direction, only its last octet is looked
// at, and nothing asks for the others. When a Write is one segment that octet is placed with all
// the others of it; of a longer one it may come first where a segment was lost, and the figure is a
// little too good.
//
// So that the look is defined in Go, too, it is an atomic load of the word that holds the octet,
// and the memory must be outside of the Go heap (package hugepages): the race detector would
// otherwise report Placement, which copies octets with ordinary stores.
package perf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rnicd/rnicd/rnic"
)

// Op is what is measured.
type Op int

const (
	Write Op = iota + 1
	Read
	Send
	Atomic // Fetch and Add
)

func (o Op) String() string {
	switch o {
	case Write:
		return "write"
	case Read:
		return "read"
	case Send:
		return "send"
	case Atomic:
		return "atomic"
	}
	return fmt.Sprintf("op %d", int(o))
}

// AtomicSize is the Size of an Atomic, always.
const AtomicSize = 8

// Limits of a Test.
const (
	SizeMax  = 1 << 30
	DepthMax = rnic.QueueDepthMax / 2 // leaves room for what a handshake posts itself
	// PeakMax is the most Iterations for which a peak is found, as in perftest.
	PeakMax = 20000
)

// Test says what is measured. Both ends must have the same, except for Duration and Warmup, which
// are Run's: the other end serves until the peer is done when its Iterations are 0.
type Test struct {
	Op      Op
	Latency bool // or else bandwidth
	Size    int  // octets of a message, 1 to SizeMax
	// Iterations to measure; with a Duration they are not counted, and Serve goes on until it is
	// told, with 0.
	Iterations int
	// Warmup messages or rounds go before those that are measured.
	Warmup int
	// TxDepth is how many requests Run has posted and not completed at a time (bandwidth; the
	// SendDepth of the QueuePair and the SendCQ must hold them and one more).
	TxDepth int
	// RxDepth is how many receive buffers Prepare posts (Op Send; RecvDepth and RecvCQ must hold
	// them).
	RxDepth int
	// Duration, if not 0: measure for so long instead of a number of Iterations. No peak is found
	// then.
	Duration time.Duration
}

// Credit is flow control of Sends, as perftest has it where no RNIC waits for a receive buffer: the
// receiver writes how many messages it has taken, a word of 32 bits in its host's order, into the
// sender's memory, and the sender is never further ahead than RxDepth.
type Credit struct {
	// where two words are in End.Local: the peer's, and our own to send from; aligned to 4
	Local        int
	RemoteSTag   rnic.STag // receiver: where the sender's is
	RemoteOffset uint64
}

// ErrEnded: the peer closed the connection in order, in the middle of a test.
var ErrEnded = errors.New("perf: the peer closed the connection before the test was over")

// check refuses a Test that cannot be.
func (t *Test) check() error {
	switch {
	case t.Op < Write || t.Op > Atomic:
		return fmt.Errorf("perf: %v is unknown", t.Op)
	case t.Op == Atomic && t.Size != AtomicSize:
		return fmt.Errorf("perf: an atomic has %d octets, not %d", AtomicSize, t.Size)
	case t.Size < 1 || t.Size > SizeMax:
		return fmt.Errorf("perf: size %d, 1 to %d possible", t.Size, SizeMax)
	case t.Iterations < 0 || t.Warmup < 0 || t.Duration < 0:
		return errors.New("perf: iterations, warm-up and duration must not be negative")
	case !t.Latency && (t.TxDepth < 1 || t.TxDepth > DepthMax):
		return fmt.Errorf("perf: tx-depth %d, 1 to %d possible", t.TxDepth, DepthMax)
	case t.Op == Send && (t.RxDepth < 1 || t.RxDepth > DepthMax):
		return fmt.Errorf("perf: rx-depth %d, 1 to %d possible", t.RxDepth, DepthMax)
	}
	return nil
}

// Prepare posts the receive buffers that a Test needs: before the peer can begin. The QueuePair may
// be idle still. For both ends; server says which. A receive buffer has Size octets at RecvAt, one
// memory for all of them.
func (e *End) Prepare(t Test, server bool) error {
	if err := errors.Join(t.check(), e.check(&t)); err != nil {
		return err
	}
	if t.Op != Send || !t.Latency && !server {
		return nil
	}
	r := run{End: e, Test: t}
	for range t.RxDepth {
		if err := r.postRecv(); err != nil {
			return err
		}
	}
	return nil
}

// Run measures. It returns when the Test is over, with what was found; or with the connection's
// error, ErrEnded, or that of ctx. One goroutine, which polls: it takes a core, and gives it up
// only where nothing has moved for some time.
func (e *End) Run(ctx context.Context, t Test) (Result, error) {
	if err := errors.Join(t.check(), e.check(&t)); err != nil {
		return Result{}, err
	}
	if t.Iterations == 0 && t.Duration == 0 {
		return Result{}, errors.New("perf: neither iterations nor a duration")
	}
	switch r := newRun(ctx, e, t); {
	case !t.Latency:
		return r.bandwidth()
	case t.Op == Write || t.Op == Send:
		return r.pingPong()
	default:
		return r.roundTrips()
	}
}

// Serve is the other end. It returns nil when Iterations (and Warmup) are done, when the peer has
// sent a Send with Solicited Event, of any content, for which a buffer must be there, or when
// Iterations is 0 and the peer has closed in order; at once where the peer needs no help.
// Errors are Run's.
func (e *End) Serve(ctx context.Context, t Test) error {
	if err := errors.Join(t.check(), e.check(&t)); err != nil {
		return err
	}
	r := newRun(ctx, e, t)
	var err error
	switch {
	case t.Latency && (t.Op == Write || t.Op == Send):
		err = r.pongs()
	case t.Op == Send:
		err = r.take()
	}
	if errors.Is(err, errFinished) || errors.Is(err, ErrEnded) && t.Iterations == 0 {
		return nil
	}
	return err
}
