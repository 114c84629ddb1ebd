package connect

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/flight"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/stack"
)

// A Responder is told of an end that its host did not want: whether it came in full operation, and
// whether the ULP has the Request. A Request that was not taken by then cannot be taken any more.
func TestReportOfAnEnd(t *testing.T) {
	lost := errors.New("lost")
	for _, was := range []phase{phaseConnecting, phaseRequest, phaseDecide, phaseFull} {
		for _, taken := range []bool{false, true} {
			for _, err := range []error{lost, ErrClosed, fmt.Errorf("more: %w", ErrClosed)} {
				c, _, _, _ := responder(t, mpa.DialectsOf(mpa.RFC5044))
				type report struct{ started, offered bool }
				var got []report
				c.Responder.Report = func(d *Connection, started, offered bool, why error) {
					require.Same(t, c, d)
					require.Equal(t, err, why)
					got = append(got, report{started, offered})
				}
				if taken {
					require.True(t, c.Claimed())
				}
				c.report(was, err)
				if errors.Is(err, ErrClosed) {
					require.Empty(t, got)
					continue
				}
				require.Equal(t, []report{{was.inService(), taken}}, got, "phase %d", was)
				require.False(t, c.Claimed())
				c.Responder.Report = nil
				c.report(was, err) // nobody asks
			}
		}
	}
}

// The first reason of an end stands. A rejected Initiator may end the connection as it likes, and a
// connection that is over ends no more.
func TestFirstReasonStands(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	c, tr := inService(t)
	c.Lost(first)
	require.ErrorIs(t, c.Err, first)
	c.Lost(second)
	c.Fail(second)
	require.NotErrorIs(t, c.Err, second)
	require.Equal(t, 1, tr.aborts)
	c.over(second)
	require.ErrorIs(t, c.endpoint.Err, first)
	c.Fail(second)
	require.Equal(t, 1, tr.aborts, "after the end")
	c.over(second) // would panic as a second end

	c, _ = inService(t)
	c.phase = phaseRejecting
	c.Lost(first)
	require.NoError(t, c.Err)
}

// A connection that was given up for the memory that its peer holds says so as it is; where this
// end gave up while its address was being checked, both reasons are told.
func TestReasonsOfTheStack(t *testing.T) {
	c, _ := inService(t)
	c.over(stack.ErrHoarding)
	require.Equal(t, error(stack.ErrHoarding), c.endpoint.Err)

	c, e, _ := starting(t, Param{})
	c.initiate(e, []mpa.Dialect{mpa.RFC5044})
	c.note(ErrClosed)
	c.over(stack.ErrTentative)
	require.ErrorIs(t, e.Err, ErrClosed)
	require.ErrorIs(t, e.Err, stack.ErrTentative)
}

// An Initiator whose own end may be another Poller's tries that, unless it is not wanted any more
// or the connection has failed for another reason.
func TestElsewhere(t *testing.T) {
	for _, tc := range []struct {
		err      error
		unwanted bool
		want     bool
	}{
		{stack.ErrOtherMember, false, true}, {stack.ErrNotLocal, false, true},
		{stack.ErrNoRoute, false, false},
		{stack.ErrOtherMember, true, false}, {stack.ErrNotLocal, true, false},
	} {
		c, e, _ := starting(t, Param{})
		c.initiate(e, []mpa.Dialect{mpa.RFC5044})
		tried := 0
		c.elsewhere = func() { tried++ }
		e.Unwanted.Store(tc.unwanted)
		c.over(tc.err)
		require.Equal(t, tc.want, tried == 1, "%+v", tc)
		require.Equal(t, !tc.want, e.Done.Given(), "%+v", tc)
		require.True(t, c.Gone.Given())
		require.Empty(t, c.Host.Live())
		if !tc.want {
			require.ErrorIs(t, e.result(), tc.err)
		}
	}
}

// An older dialect is tried after an end that a peer may have made because it knows no newer one.
func TestFallsBack(t *testing.T) {
	older, newer := &Revision{Lower: true}, &Revision{}
	for _, tc := range []struct {
		name string
		set  func(c *Connection)
		was  phase
		err  error
		want bool
	}{
		{"a FIN", nil, phaseReply, ErrPeerClosed, true},
		{"a reset", nil, phaseReply, stack.ErrReset, true},
		{"an older Revision", nil, phaseReply, older, true},
		{"a newer Revision", nil, phaseReply, newer, false},
		{"silence", nil, phaseReply, ErrStartupTimeout, false},
		{"before the Request", nil, phaseConnecting, stack.ErrReset, false},
		{"in full operation", nil, phaseFull, stack.ErrReset, false},
		{"the last dialect", func(c *Connection) { c.older = nil }, phaseReply, stack.ErrReset, false},
		{"no way to try", func(c *Connection) { c.again = nil }, phaseReply, stack.ErrReset, false},
		{"unwanted", func(c *Connection) {
			c.endpoint.Unwanted.Store(true)
		}, phaseReply, stack.ErrReset, false},
		{"a Responder", func(c *Connection) {
			c.Responder = &Responder{}
		}, phaseReply, stack.ErrReset, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, e, _ := starting(t, Param{})
			c.initiate(e, []mpa.Dialect{mpa.RFC6581, mpa.RFC5044})
			tried := 0
			c.again = func() { tried++ }
			if tc.set != nil {
				tc.set(c)
			}
			c.phase = tc.was
			if tc.was == phaseFull {
				require.Equal(t, tc.want, c.fallsBack(tc.was, tc.err))
				return
			}
			c.over(tc.err)
			require.Equal(t, tc.want, tried == 1)
			require.Equal(t, tc.want, c.Host.Startup.Fallbacks.Load() == 1)
			require.Equal(t, !tc.want, e.Done.Given())
			require.True(t, c.Gone.Given())
		})
	}
}

// Our half is closed once everything was pulled, and once only. How long the peer may take depends
// on what ends: a connection in order has the application's time or CloseTimeout, one that failed
// LingerTimeout.
func TestClosing(t *testing.T) {
	failed := errors.New("failed")
	for _, tc := range []struct {
		phase     phase
		err       error
		given     time.Duration
		sendFirst time.Duration // from now, 0: none
		want      time.Duration
	}{
		{phaseFull, nil, 0, 0, CloseTimeout}, {phaseFull, nil, time.Minute, 0, time.Minute},
		{phaseFull, failed, 0, 0, LingerTimeout}, {phaseFull, failed, time.Minute, 0, LingerTimeout},
		{phaseRejecting, nil, time.Minute, 0, LingerTimeout},
		{phaseFull, nil, 0, time.Second, time.Second},
		{phaseFull, nil, time.Millisecond, time.Second, time.Millisecond},
	} {
		c, tr := inService(t)
		tr.now, tr.progress = 77, 5
		c.phase, c.Err, c.endpoint.param.UserTimeout = tc.phase, tc.err, tc.given
		if tc.sendFirst != 0 {
			c.sendFirstAt = tr.now + int64(tc.sendFirst)
		}
		c.out = []byte("the last frame of start-up")
		sends := tr.sends
		c.closing()
		require.Equal(t, tr.now+int64(tc.want), tr.timer, "%+v", tc)
		require.Equal(t, tr.progress, c.progressSeen)
		require.Equal(t, halfClosing, c.half)
		require.Zero(t, tr.ends)
		require.Equal(t, sends+1, tr.sends, "what is left has to be pulled")
		require.Equal(t, flight.Closing, tr.kinds[len(tr.kinds)-1])
		records := len(tr.kinds)
		c.out = nil
		c.closing()
		require.Equal(t, 1, tr.ends)
		c.closing()
		require.Equal(t, 1, tr.ends)
		require.Len(t, tr.kinds, records, "told once")

		c.phase, tr.timer = phaseOver, 0
		c.closing()
		require.Zero(t, tr.timer)
	}
}

// The application's close is orderly in full operation alone, and begins once.
func TestShutdownByPhase(t *testing.T) {
	for _, p := range []phase{phaseConnecting, phaseRequest, phaseDecide, phaseReply, phaseRejecting,
		phaseFull} {
		c, tr := inService(t)
		c.engine.Move(wq.Connecting, wq.RTS)
		c.phase = p
		c.Shutdown()
		if p != phaseFull {
			require.Equal(t, ErrClosed, c.Err)
			require.Equal(t, 1, tr.aborts)
			continue
		}
		require.NoError(t, c.Err)
		require.Zero(t, tr.aborts)
		require.Equal(t, 1, tr.ends)
		require.Equal(t, wq.Closing, c.engine.State())
		bound := tr.timer
		tr.now++
		c.Shutdown()
		require.Equal(t, bound, tr.timer, "the peer's time does not begin again")
	}
}

// emptyWrite is a Write of no octets, which is accepted.
func emptyWrite() []byte {
	h := ddp.Header{Tagged: true, Last: true, Version: 1, ULP: rdmap.Control(1, rdmap.OpWrite)}
	ulpdu := make([]byte, ddp.TaggedLen)
	h.Put(ulpdu)
	return ulpdu
}

// A reset waits for the peer where that is to be told of a message and its TCP does not have all
// that was sent: for a moment, in which nothing is received.
func TestResetTellsThePeer(t *testing.T) {
	for name, tc := range map[string]struct {
		accepted bool
		takes    bool // the peer's TCP
		err      error
		waits    bool
	}{
		"nothing to tell":   {false, false, ErrClosed, false},
		"all taken":         {true, true, ErrClosed, false},
		"not taken":         {true, false, ErrClosed, true},
		"an error":          {true, false, errUnacknowledging, true},
		"nobody is there":   {true, false, ErrNoAnswer, false},
		"nobody, all taken": {true, true, ErrNoAnswer, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, tr := acknowledged(t)
			if tc.accepted {
				hear(c, emptyWrite())
			}
			c.Fail(tc.err)
			require.Zero(t, tr.aborts)
			n := pullOne(c, make([]byte, 1460))
			require.Equal(t, tc.accepted, n > 0)
			if tr.pulled = 5000; tc.takes {
				tr.taken = tr.pulled
			}
			c.Later()
			if !tc.waits {
				require.Equal(t, []int{1, 0}, []int{tr.aborts, tr.ends})
				return
			}
			hear(c, []byte("no FPDU of DDP"))
			c.PeerClosed()
			c.Fail(ErrClosed)
			c.Later()
			begin := tr.now
			for tr.aborts == 0 {
				require.Less(t, tr.now-begin, int64(ResetTimeout))
				require.Equal(t, tr.now+int64(resetTick), tr.timer)
				tr.now = tr.timer
				c.Timer(tr.now)
			}
			require.Equal(t, int64(ResetTimeout), tr.now-begin)
			require.Equal(t, tc.err, c.Err)
		})
	}
}

// It comes as soon as the peer's TCP has all, the acknowledgement too.
func TestResetAfterTheAcknowledgement(t *testing.T) {
	c, tr := acknowledged(t)
	hear(c, emptyWrite())
	c.Fail(ErrClosed)
	c.Later() // over our TCP of the same Turn
	c.Later()
	require.Zero(t, tr.aborts)
	require.Positive(t, pullOne(c, make([]byte, 1460)))
	tr.now = tr.timer
	c.Timer(tr.now)
	require.Equal(t, []int{1, 0}, []int{tr.aborts, tr.ends})
}
