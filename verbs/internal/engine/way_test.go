package engine

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// newNumbered makes a queue pair that is to be connected by number.
func (p *udProgram) newNumbered() (*udEnd, *qp) {
	p.t.Helper()
	u := &udEnd{p: p, testQP: p.newQueues(ring.CreateQP, 256, 128, 3)}
	return u, must(find[*qp](&p.engine.objects, u.handle))(p.t)
}

// connect moves a queue pair to RTR, towards a number of this host, and to RTS without an end of
// patience.
func (u *udEnd) connect(number uint32) {
	u.p.t.Helper()
	_, err := u.p.call(ring.ConnectQP, append(udHere[:], udHere[:]...), u.handle, uint64(number), 4)
	require.Zero(u.p.t, err)
	u.p.do(ring.TimeQP, u.handle, 0, 7, forEver, 1, 1)
}

// What the program posts while its queue pair goes to ERR completes after what was posted before.
func TestPostsDuringTheEndCompleteInOrder(t *testing.T) {
	p := newUDProgram(t)
	a, q := p.newNumbered()
	b, _ := p.newNumbered()
	a.connect(b.number)
	b.connect(a.number)
	a.recv(0, p.sge(0, 64))
	a.send(wq.WQE{ID: 0, Op: wq.OpSend, Flags: wq.FlagSignaled, Local: p.sge(0, 16)})
	until(func() bool {
		var taken bool // by the connection; the peer has no buffer for it
		p.engine.whenQuiet(func() { taken = q.sends.head == 1 && q.recvs.head == 1 })
		return taken
	})
	ended := make(chan struct{})
	p.engine.whenQuiet(func() { // which holds up the goroutine that drives the connection
		go func() {
			q.way.abort()
			close(ended)
		}()
		until(func() bool { return q.way.in(wayOver) })
		a.recv(1, p.sge(0, 64))
		a.send(wq.WQE{ID: 1, Op: wq.OpSend, Flags: wq.FlagSignaled, Local: p.sge(0, 16)})
		q.doorbell()
	})
	<-ended
	next := map[wq.Opcode]uint64{}
	for range 4 {
		c := a.poll()
		require.Equal(t, next[c.Op], c.ID, "of %v", c.Op)
		require.EqualValues(t, rnic.Flushed, c.Status)
		next[c.Op]++
	}
}

// A queue pair whose connection has ended has told of its last receive buffer, and does not again
// when the program moves it to ERR meanwhile.
func TestLastBufferIsToldOnce(t *testing.T) {
	p := newUDProgram(t)
	srq := p.do(ring.CreateSRQ, p.pd, 16, 1, 3, p.ctx)[0]
	c := p.do(ring.CreateCQ, 64, ^uint64(0), 1, p.ctx)
	o := p.do(ring.CreateQP, p.pd, c[0], c[0], srq, 16, 16, 4, 64, 7, p.ctx)
	q := must(find[*qp](&p.engine.objects, o[0]))(t)
	q.way.end(q.way.now(), 0)
	q.way.abort()
	q.ctx.tell(eventQPFatal, &q.subject)
	require.EqualValues(t, eventQPLastWQE, p.event().Type)
	require.EqualValues(t, eventQPFatal, p.event().Type)
}

// gate is a log that holds up the goroutine that writes the first line with a word.
type gate struct {
	word           string
	once           sync.Once
	reached, opens chan struct{}
}

func newGate(word string) *gate {
	return &gate{word: word, reached: make(chan struct{}), opens: make(chan struct{})}
}

func (g *gate) Write(b []byte) (int, error) {
	if strings.Contains(string(b), g.word) {
		g.once.Do(func() {
			close(g.reached)
			<-g.opens
		})
	}
	return len(b), nil
}

// restarted is what the program does after the move to RESET.
func (u *udEnd) restarted() { u.posted, u.buffers = 0, 0 }

// A connection's end that comes late, after the program has moved its queue pair to RESET and to
// RTR again, is not the end of what it is connected to now.
func TestLateEndIsOfWhatWasBeforeReset(t *testing.T) {
	p := newUDProgram(t)
	log := newGate("ended, ")
	p.engine.log = log
	a, q := p.newNumbered()
	b, _ := p.newNumbered()
	c, _ := p.newNumbered()
	a.connect(b.number)
	b.connect(a.number)
	a.send(wq.WQE{ID: 0, Op: wq.OpSend, Flags: wq.FlagSignaled, Local: p.sge(0, 16)})
	until(func() bool { return q.way.in(wayServed) })
	p.do(ring.DestroyQP, b.handle)
	require.EqualValues(t, rnic.RetryExceeded, a.poll().Status)
	<-log.reached
	p.do(ring.ResetQP, a.handle)
	a.restarted()
	a.connect(c.number)
	c.connect(a.number)
	close(log.opens)
	for id := range uint64(64) {
		c.recv(id, p.sge(0, 64))
		a.send(wq.WQE{ID: id, Op: wq.OpSend, Flags: wq.FlagSignaled, Local: p.sge(64, 16)})
		require.EqualValues(t, rnic.Success, a.poll().Status)
	}
	require.True(t, q.way.in(wayServed))
}

// A program moves a queue pair to RESET in one thread and to RTR in another: RTR waits, and what it
// began ends with the queue pair.
func TestConnectDuringResetWaits(t *testing.T) {
	p := newUDProgram(t)
	for range 20 {
		a, q := p.newNumbered()
		a.connect(a.number | 0x800) // nobody's, and a connects
		both := make(chan syscall.Errno, 2)
		p.engine.whenQuiet(func() { // for which a reset waits
			go func() {
				_, err := p.callIn(1, ring.ResetQP, nil, a.handle)
				both <- err
			}()
			until(func() bool { return q.way.in(wayUnset) })
			go func() {
				_, err := p.callIn(2, ring.ConnectQP, append(udHere[:], udHere[:]...), a.handle,
					uint64(a.number|0x800), 4)
				both <- err
			}()
			until(func() bool { return atomic.LoadUint32(&p.area.Calls[2].State) == ring.CallTaken })
		})
		require.Zero(t, <-both)
		require.Zero(t, <-both)
		seeker := q.way.seeker
		require.NotNil(t, seeker)
		p.do(ring.DestroyQP, a.handle)
		<-seeker
	}
}

// A connection that ends before it is known to be in service, but has worked, is the one that there
// was: its peer is gone. So is one that ends by a message of the peer's. Another is an attempt,
// as one that fails in start-up.
func TestEndBeforeService(t *testing.T) {
	p := newUDProgram(t)
	for worked, want := range map[bool]wayState{true: wayLost, false: waySeeking} {
		a, q := p.newNumbered()
		a.connect(a.number - 1) // which connects, were it there
		l := must(q.way.begin(true, true))(t)
		l.worked = worked
		l.rnic.Abort()
		<-l.watched
		until(func() bool { return len(q.ends()) == 0 })
		require.True(t, q.way.in(want), "worked: %v", worked)
		require.False(t, q.way.serve(l))
	}
	for _, c := range []struct {
		err  error
		want wayState
	}{
		{rnic.ErrHoarding, wayOver}, {&rnic.TerminateError{Cause: &ddp.Error{Type: 1, Code: 1}}, wayOver},
		{&rnic.TerminateError{Cause: mpa.ErrIRD}, waySeeking},
	} {
		a, q := p.newNumbered()
		a.connect(a.number - 1)
		l := must(q.way.begin(true, true))(t)
		q.way.lifeOver(l, c.err)
		require.True(t, q.way.in(c.want), "%v", c.err)
		if c.want == wayOver {
			require.False(t, q.way.serve(l))
		}
		l.end()
	}
}

// RESET returns when no Request of before is being accepted any more.
func TestResetWaitsForTheAcceptor(t *testing.T) {
	p := newUDProgram(t)
	a, acceptor := p.newNumbered()
	b, q := p.newNumbered()
	if a.number < b.number { // which connects
		a, b, acceptor = b, a, q
	}
	log := newGate(fmt.Sprintf("connected by number, 0x%06x with", a.number))
	p.engine.log = log
	a.connect(b.number)
	b.connect(a.number)
	<-log.reached
	go func() {
		until(func() bool { return acceptor.way.in(wayUnset) })
		for range 8 { // the loop is what a reset waits for, too
			p.engine.whenQuiet(func() {})
		}
		close(log.opens)
	}()
	p.do(ring.ResetQP, a.handle)
	acceptor.way.mu.Lock()
	defer acceptor.way.mu.Unlock()
	require.Nil(t, acceptor.way.acceptor)
}

// A receive buffer of a shared receive queue that a connection has taken for a message of which the
// rest never came is the program's again when the queue pair is destroyed, whichever is first.
func TestDestroyGivesSharedBuffersBack(t *testing.T) {
	p := newUDProgram(t)
	s := p.do(ring.CreateSRQ, p.pd, 8, 1, 7, p.ctx)
	returned := entries[uint64](s[3], 0, 1)
	c := p.do(ring.CreateCQ, 256, ^uint64(0), 1, p.ctx)
	o := p.do(ring.CreateQP, p.pd, c[0], c[0], s[0], 8, 8, 1, 64, 7, p.ctx)
	q := must(find[*qp](&p.engine.objects, o[0]))(t)
	l := must(q.newLife(true, true))(t)
	l.received(rnic.Completion{ID: 3, Op: rnic.OpRecv, Status: rnic.Flushed})
	require.Zero(t, returned[0])
	p.do(ring.DestroyQP, o[0])
	require.EqualValues(t, 1<<3, returned[0])
	l.received(rnic.Completion{ID: 4, Op: rnic.OpRecv, Status: rnic.Flushed})
	require.EqualValues(t, 1<<3|1<<4, returned[0])
	l.end()
}
