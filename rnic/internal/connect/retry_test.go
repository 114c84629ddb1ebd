package connect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// acknowledged is inService of a connection in acknowledged mode.
func acknowledged(t *testing.T) (*Connection, *abortable) {
	_, e, tr := starting(t, Param{Acknowledged: true})
	mode := mpa.Mode{CRC: true}
	return initiated(e, tr, mpa.Agreement{Send: mode, Receive: mode, Version: 1}), tr
}

// The time for an answer, or for sending again, is over before that of a connection that closes,
// which goes on.
func TestRetryBeforeLinger(t *testing.T) {
	c, tr := acknowledged(t)
	const wait = time.Second
	c.engine.SetRetry(qp.Retry{Unanswered: wait, Tries: -1})
	require.NoError(t, c.engine.PostSend(&wq.WQE{Op: wq.OpSend}, nil, nil))
	tr.pulled = uint64(pullOne(c, make([]byte, 1460)))
	require.Equal(t, tr.now+int64(wait), tr.timer)
	tr.taken = tr.pulled // the peer's TCP has it
	c.Shutdown()
	linger := c.timerAt
	require.Greater(t, linger, tr.now+2*int64(wait))

	tr.now += int64(wait)
	c.Timer(tr.now)
	require.NoError(t, c.Err, "now the peer is to answer")
	require.Equal(t, timerLinger, c.timer)
	require.Equal(t, tr.now+int64(wait), tr.timer)

	c.retryIn(wait, true) // as after NotReady
	tr.now += int64(wait)
	c.Timer(tr.now)
	require.NoError(t, c.Err)
	require.Zero(t, c.retryAt)
	require.Equal(t, timerLinger, c.timer)
	require.Equal(t, linger, tr.timer, "the other time goes on")

	tr.now = linger
	c.Timer(tr.now)
	require.ErrorIs(t, c.Err, ErrLinger)
}

// What is left, or posted late, is flushed where this end has closed the connection; where the peer
// has, its first request says so.
func TestWhoHasClosed(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(*Connection)
		want wq.Status
	}{
		"this end":             {func(c *Connection) { c.Shutdown(); c.PeerClosed() }, wq.Flushed},
		"the peer":             {(*Connection).PeerClosed, wq.RetryExceeded},
		"the peer, then this":  {func(c *Connection) { c.PeerClosed(); c.Shutdown() }, wq.RetryExceeded},
		"this end, by a reset": {func(c *Connection) { c.Fail(ErrClosed); c.Later() }, wq.Flushed},
	} {
		c, tr := acknowledged(t)
		tc.end(c)
		engine := c.engine
		for id := range uint64(2) {
			require.NoError(t, engine.PostSend(&wq.WQE{ID: id, Op: wq.OpSend}, nil, nil))
		}
		c.over(nil)
		require.NotZero(t, tr.ends+tr.aborts)
		var got [4]wq.CQE
		n := engine.SendCQ.Poll(got[:])
		require.Equal(t, []wq.CQE{{ID: 0, Op: wq.OpSend, Status: tc.want},
			{ID: 1, Op: wq.OpSend, Status: wq.Flushed}}, got[:n], name)
	}
}

// asking is a connection in acknowledged mode that gives its peer up after wait, and memory.
type asking struct {
	*Connection
	tr     *abortable
	region *mem.MemoryRegion
}

const answerWait = time.Second

func newAsking(t *testing.T) *asking {
	c, tr := acknowledged(t)
	c.engine.SetRetry(qp.Retry{Unanswered: answerWait, Tries: -1})
	region, err := c.engine.Table.Register(c.engine.Domain, make([]byte, 4096), mem.RegionOptions{})
	require.NoError(t, err)
	return &asking{c, tr, region}
}

// pull pulls a segment.
func (a *asking) pull() { a.tr.pulled += uint64(pullOne(a.Connection, make([]byte, 1460))) }

// send posts a Send of so many octets, and pulls a segment.
func (a *asking) send(t *testing.T, octets uint32) {
	t.Helper()
	require.NoError(t, a.engine.PostSend(&wq.WQE{Op: wq.OpSend, Flags: wq.FlagSignaled,
		Local: wq.SGE{STag: a.region.STag(), Offset: a.region.Base(), Length: octets}}, nil, nil))
	a.pull()
}

// passes lets the time for an answer go by.
func (a *asking) passes(t *testing.T) {
	t.Helper()
	require.Equal(t, a.tr.now+int64(answerWait), a.tr.timer)
	a.tr.now = a.tr.timer
	a.Timer(a.tr.now)
}

// answered has the peer say that it has accepted one message.
func (a *asking) answered() {
	m := rdmap.Reliability{Kind: rdmap.Acknowledge, Count: 1}
	h := ddp.Header{Last: true, Version: 1, ULP: rdmap.Control(1, rdmap.OpReliability),
		QN: rdmap.QNReliability, MSN: 1}
	ulpdu := make([]byte, ddp.UntaggedLen+rdmap.ReliabilityLen)
	h.Put(ulpdu)
	m.Put(ulpdu[ddp.UntaggedLen:])
	hear(a.Connection, ulpdu)
}

// hear has the peer's first FPDU come.
func hear(c *Connection, ulpdu []byte) {
	var tx mpa.Sender
	tx.Init(mpa.Mode{CRC: true})
	b := c.Pool.Alloc()
	octets := c.Pool.Slot(b)[:tx.Size(len(ulpdu))]
	tx.Put(octets, [][]byte{ulpdu})
	c.Arrive(c.rxBase, []mem.Buf{b}, [][]byte{octets})
	c.Edge(c.rxBase + uint64(len(octets)))
}

// A peer whose TCP takes a request, and that does not answer it, is given up after twice the time,
// whatever else is sent and comes meanwhile. While it takes a long request it cannot have answered.
func TestTakenAndUnanswered(t *testing.T) {
	for name, tc := range map[string]struct {
		octets uint32 // of the oldest request
		each   func(*asking)
		want   int // times until the end
	}{
		"nothing taken":              {8, func(*asking) {}, 1},
		"taken":                      {8, func(a *asking) { a.tr.taken = a.tr.pulled }, 2},
		"another request each time":  {8, func(a *asking) { a.send(t, 8); a.tr.taken = a.tr.pulled }, 2},
		"a peer that says something": {8, func(a *asking) { a.tr.taken = 32; a.tr.progress++ }, 2},
		"one octet a time":           {8, func(a *asking) { a.tr.taken++ }, 1 + 2 + 18 + 8 + 4},
		"pulled in three times":      {3000, func(a *asking) { a.pull(); a.tr.taken = a.tr.pulled }, 3},
	} {
		a := newAsking(t)
		a.send(t, tc.octets)
		n := 0
		for ; a.Err == nil && n < 100; n++ {
			tc.each(a)
			a.passes(t)
		}
		require.ErrorIs(t, a.Err, ErrNoAnswer, name)
		require.Equal(t, tc.want, n, name)
		a.Later()
		require.Equal(t, 1, a.tr.aborts, name)
	}
}

// An answer to any request begins the time anew.
func TestAnsweredInTime(t *testing.T) {
	a := newAsking(t)
	a.send(t, 8)
	a.send(t, 8)
	a.tr.taken = a.tr.pulled
	a.passes(t)
	a.answered()
	for range 2 { // the time that was going on, and the one for the second request
		require.NoError(t, a.Err)
		a.passes(t)
	}
	require.ErrorIs(t, a.Err, ErrNoAnswer)
	var got [4]wq.CQE
	require.Equal(t, 1, a.engine.SendCQ.Poll(got[:]))
	require.Equal(t, wq.Success, got[0].Status)
}

// Nothing is awaited where nothing is on its way, or there is no limit.
func TestNothingAwaited(t *testing.T) {
	a := newAsking(t)
	a.send(t, 8)
	a.answered()
	a.passes(t)
	require.NoError(t, a.Err)
	require.Zero(t, a.tr.timer)
	a.engine.SetRetry(qp.Retry{Tries: -1})
	a.send(t, 8)
	require.Zero(t, a.tr.timer)
}
