package engine

import (
	"context"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// listener is an id that listens, and the program's end of its channel.
type listener struct {
	p      *program
	id     uint64
	events int
	theirs int // the engine's end
	addr   netip.AddrPort
}

// listen makes a listener at addr; port 0: any.
func (p *program) listen(addr string) *listener { return p.listenFor(addr, 8) }

func (p *program) listenFor(addr string, backlog uint64) *listener {
	p.t.Helper()
	mine, theirs := p.channel()
	l := &listener{p: p, events: mine, theirs: theirs, id: p.do(ring.CMCreate, uint64(theirs), 1)[0]}
	var b [sockaddrLen6]byte
	n := putAddr(b[:], netip.MustParseAddrPort(addr))
	_, err := p.call(ring.CMBind, b[:n], l.id)
	require.Zero(p.t, err)
	l.addr, _ = addrOf(p.area.Calls[0].Data[:sockaddrLen4])
	p.do(ring.CMListen, l.id, backlog)
	return l
}

// request waits for a request, whose id it returns.
func (l *listener) request() uint64 {
	l.p.t.Helper()
	var ev ring.CMEvent
	must(unix.Read(l.events, octets(&ev)))(l.p.t)
	require.EqualValues(l.p.t, cmConnectRequest, ev.Type)
	return ev.Request
}

// peer is another host's adapter, with what connects to a listener; its error comes when it has
// ended.
type peer struct {
	t   *testing.T
	dev *rnic.Adapter
}

func (p *peer) connect(addr netip.AddrPort) (*rnic.QueuePair, <-chan error) {
	p.t.Helper()
	cq := must(p.dev.CreateCQ(64))(p.t)
	q, err := p.dev.CreateQP(rnic.QPOptions{PD: p.dev.AllocPD(), SendCQ: cq, RecvCQ: cq, SendDepth: 8,
		RecvDepth: 8})
	require.NoError(p.t, err)
	done := make(chan error, 1)
	go func() {
		done <- q.Connect(context.Background(), addr.String(), rnic.ConnParam{PeerToPeer: true})
	}()
	return q, done
}

// count is how many doorways are kept.
func (p *parking) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all)
}

// A listener whose id was destroyed stays as long as a connection that came by it lasts: the next
// listener there finds the requests that came meanwhile. Without a connection it is gone at once.
func TestListenerStaysWithItsConnections(t *testing.T) {
	p := newProgram(t)
	dev := must(rnic.Open(rnic.Config{}))(t)
	client := &peer{t, dev}

	first := p.listen("127.0.0.1:0")
	one, connected := client.connect(first.addr)
	id := first.request()
	p.do(ring.Adopt, id, uint64(first.theirs), 2)
	_, errno := p.call(ring.CMAccept, nil, id, 1<<40)
	require.NotZero(t, errno, "no queue pair; the request stays")
	p.do(ring.CMAccept, id, p.newQP().handle, 4, 4)
	require.NoError(t, <-connected)
	p.do(ring.CMDestroy, first.id)
	_, connected = client.connect(first.addr)
	second := p.listen(first.addr.String())
	second.request() // which the program does not take before it destroys the listener
	p.do(ring.CMDestroy, second.id)
	second = p.listen(first.addr.String())
	id = second.request()
	p.do(ring.Adopt, id, uint64(second.theirs), 2)
	p.do(ring.CMReject, id)
	require.ErrorAs(t, <-connected, new(*rnic.RejectedError))

	p.do(ring.CMDestroy, second.id) // the connection that came by it lasts, of the first listener
	require.Equal(t, 1, p.engine.parked.count())
	one.Abort()
	until(func() bool { return p.engine.parked.count() == 0 })

	third := p.listen("127.0.0.1:0")
	p.do(ring.CMDestroy, third.id)
	_, connected = client.connect(third.addr)
	require.ErrorIs(t, <-connected, stack.ErrRefused, "nothing came by it")
}

// A program that takes no requests is told of as many as its backlog; the others wait, or are
// refused, where they cost it nothing.
func TestRequestsToldAreBounded(t *testing.T) {
	const backlog, clients = 8, 14
	p := newProgram(t)
	dev := must(rnic.Open(rnic.Config{}))(t)
	client := &peer{t, dev}
	l := p.listen("127.0.0.1:0")
	id := must(find[*cmID](&p.engine.objects, l.id))(t)
	told := func() int {
		id.mu.Lock()
		defer id.mu.Unlock()
		return len(id.told)
	}
	var ids []uint64
	for i := range clients {
		q, _ := client.connect(l.addr)
		defer q.Abort()
		if i < backlog {
			ids = append(ids, l.request())
		}
	}
	for i := range clients - backlog {
		require.LessOrEqual(t, told(), backlog)
		p.do(ring.Adopt, ids[i], uint64(l.theirs), 2)
		ids = append(ids, l.request())
	}
	require.Equal(t, backlog, told())
}

// A backlog is a hint: who connects while the program is slow to take another's request waits, as
// the clients of perftest's server do, which listens for one connection at first.
func TestSmallBacklogRefusesNobody(t *testing.T) {
	const clients = 12
	p := newProgram(t)
	dev := must(rnic.Open(rnic.Config{}))(t)
	client := &peer{t, dev}
	l := p.listenFor("127.0.0.1:0", 1)
	var connected []<-chan error
	for range clients {
		q, done := client.connect(l.addr)
		defer q.Abort()
		connected = append(connected, done)
	}
	_, accepted := p.channel()
	for range clients {
		request := l.request()
		p.do(ring.Adopt, request, uint64(accepted), 2)
		p.do(ring.CMAccept, request, p.newQP().handle)
	}
	for _, done := range connected {
		require.NoError(t, <-done)
	}
}
