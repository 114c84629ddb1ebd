package connect

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/flight"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/rnicd/rnicd/rnic/internal/transport"
)

// abortable is a transport that carries nothing and counts how often it was aborted. It has the
// test's clock, and the timer as it was set last.
type abortable struct {
	transport.Conn
	aborts, ends     int // calls of Abort and of CloseSend
	sends, givesBack int
	silent, lost     bool // Silent was called; Spoke comes too late
	now, timer       int64
	progress, stamps uint64
	pulled, taken    uint64
	unacked          bool
	kinds            []flight.Kind
	told             []wq.EventKind
	memory           transport.Memory
	giveUp           time.Duration // as it was set last
	refuses          error         // what GiveUpAfter returns
}

func (a *abortable) Abort()                                   { a.aborts++ }
func (a *abortable) Send()                                    { a.sends++ }
func (*abortable) SendLater()                                 {}
func (a *abortable) Record(k flight.Kind, _ uint64, _ uint64) { a.kinds = append(a.kinds, k) }
func (*abortable) Events() ([]flight.Event, uint64)           { return nil, 0 }
func (a *abortable) CloseSend()                               { a.ends++ }
func (a *abortable) GiveBack()                                { a.givesBack++ }
func (a *abortable) Silent()                                  { a.silent = true }
func (a *abortable) Spoke() bool                              { return !a.lost }
func (*abortable) EnterFull(int)                              {}
func (*abortable) Local() netip.AddrPort {
	return netip.MustParseAddrPort("10.9.0.1:1")
}
func (*abortable) Remote() netip.AddrPort {
	return netip.MustParseAddrPort("10.9.0.2:2")
}
func (a *abortable) Stamp() (uint32, bool) {
	a.stamps++
	return 0, false
}
func (a *abortable) SetTimer(at int64) { a.timer = at }
func (a *abortable) Now() int64        { return a.now }
func (*abortable) EMSS() int           { return 1460 }
func (a *abortable) Unacked() bool     { return a.unacked }
func (a *abortable) Progress() uint64  { return a.progress }
func (a *abortable) Taken() (pulled, taken uint64) {
	return a.pulled, a.taken
}
func (a *abortable) Memory() transport.Memory { return a.memory }
func (a *abortable) GiveUpAfter(d time.Duration) error {
	a.giveUp = d
	return a.refuses
}
func (*abortable) Stats() transport.Stats { return transport.Stats{} }

// Tell is qp.Teller.
func (a *abortable) Tell(k wq.EventKind, _ uint64, _ error) { a.told = append(a.told, k) }

// starting makes an endpoint that is Connecting, and a connection for it that has not begun, on an
// abortable transport.
func starting(t *testing.T, p Param) (*Connection, *Endpoint, *abortable) {
	t.Helper()
	table, tr := mem.NewTable(4), &abortable{now: 1}
	ring := func() *mem.MPSC[wq.WQE] { return mem.NewMPSC(make([]mem.MPSCSlot[wq.WQE], 32)) }
	var cq qp.CQ
	cq.Init(mem.NewMPSC(make([]mem.MPSCSlot[wq.CQE], 8)), 8)
	q := &qp.Engine{SQ: ring(), RQ: ring(), Config: qp.Config{
		Table: table, Domain: table.AllocDomain(), Stream: 1, SendCQ: &cq, RecvCQ: &cq, SendDepth: 4,
		RecvDepth: 4, SGEMax: 1, RecvRanges: 1, InlineMax: 256,
		Teller: tr,
	}}
	host := &Host{}
	host.Init(HostConfig{Public: func(err error) error { return err }})
	e := &Endpoint{}
	e.Init(host, q)
	require.NoError(t, e.BeginConnecting(p))
	pool, err := mem.NewPool(hugepages.Heap(8<<10), mem.PoolConfig{Bufs: 2, Stride: 2 << 10})
	require.NoError(t, err)
	tr.memory = transport.Memory{Pool: pool, Stride: pool.Stride(), Reader: table.NewReader(),
		InOrder: true}
	c := NewConnection(host)
	require.True(t, host.addConnection(c))
	c.Transport, c.Memory = tr, tr.memory
	return c, e, tr
}

// inService makes a connection in full operation on an abortable transport.
func inService(t *testing.T) (*Connection, *abortable) {
	t.Helper()
	_, e, tr := starting(t, Param{})
	mode := mpa.Mode{CRC: true}
	return initiated(e, tr, mpa.Agreement{Send: mode, Receive: mode, Version: 1}), tr
}

// initiated makes a connection in full operation for e, as start-up leaves it that agreed on a.
func initiated(e *Endpoint, tr *abortable, a mpa.Agreement) *Connection {
	c := NewConnection(e.host)
	c.Transport, c.Memory = tr, tr.memory
	c.phase, c.engine, c.endpoint = phaseFull, e.engine, e
	c.start(&mpa.Terms{Agreement: a})
	return c
}

// An engine may have met the peer's fault and one of its own before its connection looks: one event
// tells of the end, with the error that came first, and the connection is reset.
func TestOneEventOfTwoFaults(t *testing.T) {
	local := errors.New("our own fault")
	for _, tc := range []struct {
		name  string
		first error
		want  wq.EventKind
	}{
		{"the peer's first", &qp.TerminateError{Cause: errors.New("the peer's fault")},
			wq.EventTerminated},
		{"our own first", local, wq.EventFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, tr := inService(t)
			c.carryOut(qp.EffectFail|qp.EffectLeave, tc.first)
			require.Equal(t, 1, tr.aborts)
			c.over(nil)
			require.Equal(t, []wq.EventKind{tc.want}, tr.told)
			require.Equal(t, tc.first, c.endpoint.Err)
		})
	}
}

// EffectCloseHalf closes our half and bounds the wait for the peer's; where that has begun, the
// bound stays as it was.
func TestCloseHalfOnce(t *testing.T) {
	c, tr := inService(t)
	c.carryOut(qp.EffectCloseHalf, nil)
	require.Equal(t, halfClosed, c.half)
	bound := tr.timer
	require.Equal(t, tr.now+int64(CloseTimeout), bound)
	tr.now += 5
	c.carryOut(qp.EffectCloseHalf, nil)
	require.Equal(t, bound, tr.timer)
}

// A Responder that may send has no pause to wait for: its timer is cleared, and one that is set
// later is not for the pause. While our half closes, the timer bounds that and stays.
func TestOpenedEndsThePause(t *testing.T) {
	c, tr := inService(t)
	for _, p := range []purpose{timerFrame, timerSendFirst} {
		c.sendFirstAt, c.phase = 7, phaseRtr
		c.setTimerAt(p, 7)
		c.carryOut(qp.EffectOpened, nil)
		require.Zero(t, tr.timer)
		require.Zero(t, c.sendFirstAt)
		require.Equal(t, phaseFull, c.phase)
	}
	c.sendFirstAt = tr.now + 7
	c.closing()
	require.Equal(t, tr.now+7, tr.timer, "it still may, before that")
	c.carryOut(qp.EffectOpened, nil)
	require.Equal(t, tr.now+int64(CloseTimeout), tr.timer)
	c.carryOut(qp.EffectOpened, nil)
	require.Equal(t, tr.now+int64(CloseTimeout), tr.timer)
}
