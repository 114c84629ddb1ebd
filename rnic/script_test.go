package rnic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// A test of this package is a script: a conversation that reads from top to bottom. Who speaks is
// of one of two kinds.
//
// An end (rig_test.go) is a QueuePair of ours and its memory:
//
//	s, c := r.connect(opts{}, opts{})
//	s.postRecv(s.recvAt(1, 0, 100)) // and post, for the send queue
//	s.expectCompletions(Completion{ID: 1, Op: OpRecv, Len: 5}) // the next ones, in order
//	s.expectState(Closing)
//	s.expectClosed() // in order; expectClosedBy(err): not so
//
// A peer (peer_test.go) is the test itself: it writes octets of its own making, and need not obey
// any rule.
//
//	p, reply := r.peerConnects(s, false) // through start-up; peerDials, peerAccepts: before it
//	p.inject(sendFPDU(1, "hello"), sendFPDU(2, "you")) // in one segment; write: any octets
//	p.expectFPDU(sendFPDU(1, "hello yourself"))
//	p.expectTerminate(rdmap.Terminate{Cause: 0x1100}) // expectTerminateFor: only its cause
//	p.closeSend()
//	p.expectFIN() // and nothing before it that was not expected; expectReset
//
// Its octets travel over a Poller's TCP or the kernel's, or in segments that
// the test makes too (forged_test.go). Start-up is written in octets, by play.
//
// Every expectation ends: in virtual time after a number of steps, otherwise after patience. Where
// it is not met, the test fails with what came instead, decoded.

// driver makes time pass until what a test waits for has happened.
type driver struct {
	t    testing.TB
	ctx  context.Context
	time int64  // virtual
	move func() // one step of virtual time; nil: time is real
	left int    // steps that one expectation may take; 0: stepsMax
}

// until waits for cond.
func (d *driver) until(what string, cond func() bool) {
	d.t.Helper()
	d.expect(what, cond, nil)
}

// expect waits for cond, and fails with what came instead.
func (d *driver) expect(what string, cond func() bool, instead func() string) {
	d.t.Helper()
	fail := func(limit any) {
		d.t.Helper()
		text := fmt.Sprintf("want %s: not within %v", what, limit)
		if instead != nil {
			text += "; " + instead()
		}
		d.t.Fatal(text)
	}
	if d.move != nil {
		steps := cmp.Or(d.left, stepsMax)
		for range steps {
			if cond() {
				return
			}
			d.move()
		}
		fail(fmt.Sprintf("%d steps", steps))
	}
	tick := time.NewTicker(50 * time.Microsecond)
	defer tick.Stop()
	for spins := 0; !cond(); spins++ {
		if spins < 100 {
			runtime.Gosched()
			continue
		}
		select {
		case <-tick.C:
		case <-d.ctx.Done():
			fail(patience)
		}
	}
}

// must is v. An error of what a test only begins with is a panic.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// errorAs is the error of type E that err is, or wraps.
func errorAs[E error](t testing.TB, err error) (e E) {
	t.Helper()
	require.ErrorAs(t, err, &e)
	return e
}

func connOpts(c ConnParam) opts { return opts{ConnParam: c} }
func qpOpts(q QPOptions) opts   { return opts{QPOptions: q} }

var unmarked = connOpts(ConnParam{NoMarkers: true})

// post posts requests to e's send queue, and all are taken.
func (e *end) post(wrs ...WorkRequest) {
	e.d.t.Helper()
	n := must(e.qp.PostSend(wrs...))
	require.Equal(e.d.t, len(wrs), n, "requests that were posted")
}

// postRecv posts receive buffers at e, and all are taken.
func (e *end) postRecv(wrs ...WorkRequest) {
	e.d.t.Helper()
	n := must(e.qp.PostRecv(wrs...))
	require.Equal(e.d.t, len(wrs), n, "buffers that were posted")
}

// postRecvs posts n buffers of size octets, one after the other in e's inbox, with IDs from 0.
func (e *end) postRecvs(n, size int) {
	e.d.t.Helper()
	for i := range n {
		e.postRecv(e.recvAt(uint64(i), i*size, size))
	}
}

// send is a Send of octets [off, off+n) of e's source; sendQuietly, one that nobody is told of.
func (e *end) send(id uint64, off, n int) WorkRequest {
	return WorkRequest{Op: OpSend, ID: id, Local: e.source.Slice(off, n), Signaled: true}
}

func (e *end) sendQuietly(off, n int) WorkRequest {
	return WorkRequest{Op: OpSend, Local: e.source.Slice(off, n)}
}

// poll collects completions.
func (e *end) poll() {
	var cs [32]Completion
	for {
		n := e.cq.Poll(cs[:])
		if n == 0 {
			return
		}
		e.done = append(e.done, cs[:n]...)
	}
}

// await returns e's next n completions.
func (e *end) await(n int) []Completion {
	e.d.t.Helper()
	e.d.expect(fmt.Sprintf("%d completions", n), func() bool {
		e.poll()
		return len(e.done) >= n
	}, e.state)
	cs := e.done[:n:n]
	e.done = e.done[n:]
	return cs
}

// expectCompletions waits for e's next completions, which are these. They are of its own QueuePair,
// unless they name another.
func (e *end) expectCompletions(want ...Completion) {
	e.d.t.Helper()
	want = slices.Clone(want)
	for i := range want {
		if want[i].QP == 0 {
			want[i].QP = e.qp.Number()
		}
	}
	enough := func() bool {
		e.poll()
		return len(e.done) >= len(want) || e.differs(want) >= 0
	}
	e.d.expect("completions:\n\t"+showCompletions(want), enough, e.state)
	if i := e.differs(want); i >= 0 {
		e.d.t.Fatalf("completion %d: want\n\t%v\n%+v\n%s", i, want[i], want[i], e.state())
	}
	e.flushedBy()
	e.done = e.done[len(want):]
}

// expectEach waits for e's next n completions, which are all first except that their IDs count up.
func (e *end) expectEach(n int, first Completion) {
	e.d.t.Helper()
	var want []Completion
	for range n {
		want = append(want, first)
		first.ID++
	}
	e.expectCompletions(want...)
}

// differs is the first completion that is there and not what is wanted; -1: none.
func (e *end) differs(want []Completion) int {
	for i := range min(len(want), len(e.done)) {
		w := want[i]
		if w.Status != Success && w.Terminate == 0 {
			w.Terminate = e.done[i].Terminate // flushedBy looks at it
		}
		if w != e.done[i] {
			return i
		}
	}
	return -1
}

// flushedBy requires that what was flushed says which Terminate has ended the connection.
func (e *end) flushedBy() {
	e.d.t.Helper()
	for _, c := range e.done {
		if isDone(e.qp) && c.Status == Flushed && c.Terminate != terminateOf(e.qp.Err()) {
			e.d.t.Fatalf("%v: want Terminate 0x%x\n%s", c, terminateOf(e.qp.Err()), e.state())
		}
	}
}

// terminateOf is Completion.Terminate of what was flushed by an error.
func terminateOf(err error) uint32 {
	var end *TerminateError
	if !errors.As(err, &end) {
		return 0
	}
	layer, errType, code := end.Control()
	return wq.TerminateOf(end.Remote, layer, errType, code)
}

// expectNoCompletion looks whether e has one already.
func (e *end) expectNoCompletion() {
	e.d.t.Helper()
	if e.poll(); len(e.done) > 0 {
		e.d.t.Fatal("want no completion; " + e.state())
	}
}

// expectState waits for e's QueuePair to be so.
func (e *end) expectState(want State) {
	e.d.t.Helper()
	e.d.expect(fmt.Sprintf("state %v", want), func() bool {
		return e.qp.State() == want || isDone(e.qp)
	}, e.state)
	if e.qp.State() != want {
		e.d.t.Fatalf("want state %v; %s", want, e.state())
	}
}

// expectInService waits for the end of e's start-up, and that it worked.
func (e *end) expectInService() {
	e.d.t.Helper()
	e.d.expect("the end of start-up", func() bool { return e.qp.State() != Connecting }, e.state)
	if e.qp.State() != RTS {
		e.d.t.Fatalf("want a queue pair in service; %s", e.state())
	}
}

// awaitClosed waits for the end of e's connection.
func (e *end) awaitClosed() {
	e.d.t.Helper()
	e.d.expect(fmt.Sprintf("the end of queue pair %d", e.qp.Number()), func() bool {
		return isDone(e.qp)
	}, e.state)
}

// expectClosed waits for the end of e's connection, which is in order.
func (e *end) expectClosed() {
	e.d.t.Helper()
	e.awaitClosed()
	if err := e.qp.Err(); err != nil {
		e.d.t.Fatalf("want an end in order, have %v", err)
	}
}

// expectClosedBy waits for the end of e's connection, for which cause is the reason.
func (e *end) expectClosedBy(cause error) {
	e.d.t.Helper()
	e.awaitClosed()
	require.ErrorIs(e.d.t, e.qp.Err(), cause)
}

// awaitClosed waits for the end of the connections of all.
func awaitClosed(all ...*end) {
	for _, e := range all {
		e.d.t.Helper()
		e.awaitClosed()
	}
}

// expectToldOf looks for the Terminate that ended e's connection, which the peer has sent.
func (e *end) expectToldOf(cause rdmap.Cause) {
	e.d.t.Helper()
	require.Equal(e.d.t, cause, errorAs[*PeerError](e.d.t, e.qp.Err()).said.Terminate.Cause)
}

// expectMPAError looks for the error of MPA's that ended e's connection.
func (e *end) expectMPAError(code mpa.ErrorCode) {
	e.d.t.Helper()
	require.Equal(e.d.t, code, errorAs[*mpa.Error](e.d.t, e.qp.Err()).Code)
}

// state is what a test is told of e when something did not come.
func (e *end) state() string {
	e.poll()
	text := fmt.Sprintf("queue pair %d is %v", e.qp.Number(), e.qp.State())
	if err := e.qp.Err(); err != nil {
		text += fmt.Sprintf(", %v", err)
	}
	if len(e.done) == 0 {
		return text + "; no completions"
	}
	return text + "; completions:\n\t" + showCompletions(e.done)
}

func showCompletions(cs []Completion) string {
	var lines []string
	for _, c := range cs {
		lines = append(lines, c.String())
	}
	return strings.Join(lines, "\n\t")
}
