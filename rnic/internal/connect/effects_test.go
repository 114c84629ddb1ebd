package connect

import (
	"errors"
	"testing"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/stretchr/testify/require"
)

// abortable is a transport that carries nothing and counts how often it was aborted.
type abortable struct {
	transport.Conn
	aborts int
}

func (a *abortable) Abort()                 { a.aborts++ }
func (*abortable) Send()                    {}
func (*abortable) CloseSend()               {}
func (*abortable) SetTimer(int64)           {}
func (*abortable) Now() int64               { return 1 }
func (*abortable) EMSS() int                { return 1460 }
func (*abortable) Unacked() bool            { return false }
func (*abortable) Progress() uint64         { return 0 }
func (*abortable) Memory() transport.Memory { return transport.Memory{} }
func (*abortable) Stats() transport.Stats   { return transport.Stats{} }

// inService makes a connection in full operation on an abortable transport.
func inService(t *testing.T, told *[]qp.Event) (*Connection, *abortable) {
	t.Helper()
	table := mem.NewTable(4)
	ring := func() *mem.MPSC[qp.WQE] { return mem.NewMPSC(make([]mem.MPSCSlot[qp.WQE], 4)) }
	var cq qp.CQ
	cq.Init(mem.NewMPSC(make([]mem.MPSCSlot[qp.CQE], 8)), 8)
	q := &qp.Engine{SQ: ring(), RQ: ring(), Config: qp.Config{
		Table: table, Domain: table.AllocDomain(), Stream: 1, SendCQ: &cq, RecvCQ: &cq, SendDepth: 4, RecvDepth: 4, SGEMax: 1, RecvRanges: 1,
		Tell: func(k qp.Event, _ uint64, _ error) { *told = append(*told, k) },
	}}
	host := &Host{}
	host.Init(HostConfig{Public: func(err error) error { return err }})
	e := &Endpoint{}
	e.Init(host, q)
	require.NoError(t, e.BeginConnecting(Param{}))
	tr := &abortable{}
	l := newConnection(host)
	l.Transport, l.initiator, l.phase, l.engine, l.endpoint = tr, true, phaseFull, q, e
	pool, err := mem.NewPool(hugepages.Heap(8<<10), mem.PoolConfig{Bufs: 2, Stride: 2 << 10})
	require.NoError(t, err)
	l.Pool, l.Stride, l.Reader, l.InOrder = pool, pool.Stride(), table.NewReader(), true
	l.start(&mpa.Terms{Agreement: mpa.Agreement{Send: mpa.Mode{CRC: true}, Receive: mpa.Mode{CRC: true}, Version: 1}})
	return l, tr
}

// pullOfNoRegion pulls a Send whose octets lie in no region.
func pullOfNoRegion(t *testing.T, q *qp.Engine) {
	require.NoError(t, q.PostSend(&qp.WQE{Op: qp.OpSend, Local: qp.SGE{STag: 1, Length: 10}}, nil, nil))
	q.Pull(make([]byte, 1460), false)
}

// An engine may have met the peer's fault and one of its own before its connection looks: one event
// tells of the end, with the error that came first, and the connection is reset.
func TestOneEventOfTwoFaults(t *testing.T) {
	fault := errors.New("the peer's fault")
	for _, tc := range []struct {
		name string
		call func(q *qp.Engine)
		want qp.Event
	}{
		{"the peer's first", func(q *qp.Engine) { q.ReceiveError(fault); q.Effects |= qp.EffectFail }, qp.EventTerminated},
		{"our own first", func(q *qp.Engine) { pullOfNoRegion(t, q); q.ReceiveError(fault) }, qp.EventFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var told []qp.Event
			l, tr := inService(t, &told)
			tc.call(l.engine)
			require.Equal(t, qp.EffectFail|qp.EffectLeave, l.engine.Effects&(qp.EffectFail|qp.EffectLeave))
			l.heed()
			require.Equal(t, 1, tr.aborts)
			l.Over(nil)
			require.Equal(t, []qp.Event{tc.want}, told)
			require.Equal(t, tc.want == qp.EventFailed, errors.Is(l.endpoint.Err, qp.ErrLocalRange))
			require.Equal(t, tc.want == qp.EventTerminated, errors.Is(l.endpoint.Err, fault))
		})
	}
}
