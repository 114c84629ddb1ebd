package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic"
)

// starts is connections with MPA's start-up between two hosts, so many at once: each is opened,
// comes into service at both ends, and is aborted, and the next one takes its place.
type starts struct {
	g        *together
	ctx      context.Context
	listener *rnic.Listener
	opt      [2]rnic.QPOptions
	pairs    []startPair
	made     int // connections that were in service at both ends, and are over
	failed   error
	ready    [2][]*rnic.QueuePair // made beforehand
	private  []byte               // of the connection that is being opened: its number, startPrivate
}

// startPair is the ends of one of them: the server's is known once its request was taken.
type startPair struct {
	qps [2]*rnic.QueuePair
	got bool // in service at both ends, and aborted
}

var startPrivate = []byte("who I am")

func newStarts(t testing.TB, outstanding int) *starts {
	s := &starts{g: newCable(t, cable{mtu: 1500, manual: true, conns: 4 * outstanding}),
		ctx: context.Background(), pairs: make([]startPair, outstanding)}
	var err error
	s.listener, err = s.g.server.dev.Listen(s.ctx, ":7174",
		rnic.ListenOptions{Backlog: 2 * outstanding})
	require.NoError(t, err)
	t.Cleanup(func() { s.listener.Close() })
	for i, h := range [2]*host{s.g.server, s.g.client} {
		s.opt[i].PD = h.dev.AllocPD()
		cq := must(h.dev.CreateCQ(1 << 16))(t)
		s.opt[i].SendCQ, s.opt[i].RecvCQ, s.opt[i].SendDepth, s.opt[i].RecvDepth = cq, cq, 1, 1
	}
	return s
}

// prepare makes so many QueuePairs for each end.
func (s *starts) prepare(n int) {
	for i := range s.ready {
		for k := len(s.ready[i]); k < n; k++ {
			s.ready[i] = append(s.ready[i], s.create(i))
		}
	}
}

// qp is one for the server, 0, or the client: one that is there, or else made now.
func (s *starts) qp(i int) *rnic.QueuePair {
	if n := len(s.ready[i]) - 1; n >= 0 {
		q := s.ready[i][n]
		s.ready[i] = s.ready[i][:n]
		return q
	}
	return s.create(i)
}

func (s *starts) create(i int) *rnic.QueuePair {
	q, err := [2]*host{s.g.server, s.g.client}[i].dev.CreateQP(s.opt[i])
	if err != nil {
		s.failed = err
	}
	return q
}

// step turns both hosts once and does what can be done for each connection.
func (s *starts) step() {
	for i := range s.pairs {
		p := &s.pairs[i]
		if p.qps[1] == nil {
			p.qps[1] = s.qp(1)
			s.private = append(binary.NativeEndian.AppendUint32(s.private[:0], uint32(i)), startPrivate...)
			err := p.qps[1].StartConnect(s.ctx, "10.9.0.1:7174", rnic.ConnParam{PrivateData: s.private})
			if err != nil {
				s.failed = errors.Join(s.failed, err)
				return
			}
		}
	}
	s.g.turn()
	for req := s.listener.Poll(); req != nil; req = s.listener.Poll() {
		s.accept(req)
	}
	for i := range s.pairs {
		p := &s.pairs[i]
		switch {
		case p.got:
			if p.qps[0].State() == rnic.Closed && p.qps[1].State() == rnic.Closed {
				*p = startPair{}
				s.made++
			}
		case p.qps[1].State() == rnic.Closed:
			s.failed = errors.Join(s.failed, fmt.Errorf("%w", p.qps[1].Err()))
		case p.qps[0] != nil && p.qps[0].State() == rnic.RTS && p.qps[1].State() == rnic.RTS:
			p.qps[1].Abort()
			p.got = true
		}
	}
}

// accept takes a request, whose private data says which connection it is of.
func (s *starts) accept(req *rnic.ConnRequest) {
	private := req.PrivateData()
	if len(private) != len(startPrivate)+4 || !bytes.Equal(private[4:], startPrivate) {
		s.failed = errors.New("private data is not what was sent")
		return
	}
	p := &s.pairs[binary.NativeEndian.Uint32(private)]
	p.qps[0] = s.qp(0)
	if err := req.StartAccept(s.ctx, p.qps[0], rnic.ConnParam{}); err != nil {
		s.failed = errors.Join(s.failed, err)
	}
}

// A start-up, both ends, takes no more allocations and octets than it does today: two QueuePairs
// with their rings, two connections, the request, private data, what the Pollers are given to do,
// and the error and flight record of the end that was reset.
func TestStartupAllocations(t *testing.T) {
	const (
		startups    = 2000
		allocsMax   = 15
		octetsMax   = 6144
		outstanding = 32
	)
	s := newStarts(t, outstanding)
	run := func() {
		for until := s.made + startups; s.made < until && s.failed == nil; {
			s.step()
		}
		require.NoError(t, s.failed)
	}
	run() // what is kept for later ones is there
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	allocs := testing.AllocsPerRun(1, run) // runs it twice
	runtime.ReadMemStats(&after)
	octets := float64(after.TotalAlloc-before.TotalAlloc) / (2 * startups)
	t.Logf("%.1f allocations, %.0f octets a start-up", allocs/startups, octets)
	require.LessOrEqual(t, allocs/startups, float64(allocsMax))
	require.LessOrEqual(t, octets, float64(octetsMax))
}
