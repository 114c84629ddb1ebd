package rnic

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/stack"
)

// crowd is many clients that send to QueuePairs of one Adapter, which share buffers. Each client
// has window messages under way, and sends the next when one was answered.
type crowd struct {
	t       testing.TB
	ctx     context.Context
	shared  *pool
	cq      *CompletionQueue // receives of the server
	servers map[uint32]*QueuePair
	next    map[uint32]uint64 // number of the message that is due, by QueuePair
	clients []*end
}

const (
	crowdWindow = 4
	crowdEach   = 2000
)

// One SharedReceiveQueue under QueuePairs of two Pollers that run, and under several sockets'
// goroutines: every message comes once, in its stream's order and with its octets, and every
// buffer goes round.
func TestSharedReceiveQueueOfMany(t *testing.T) {
	const each = 3
	t.Run("two Pollers", func(t *testing.T) {
		one, two := newRig(t, running, rigConfig{}), newRig(t, running, rigConfig{})
		all, err := Open(Config{Pollers: []*stack.Poller{one.hosts[0].poller, two.hosts[0].poller}})
		require.NoError(t, err)
		l, err := all.Listen(one.ctx, ":9000", ListenOptions{})
		require.NoError(t, err)
		c := newCrowd(one, all, 2*each)
		for range each {
			c.join(one, l, "10.9.0.1:9000")
			c.join(two, l, "10.9.0.1:9000")
		}
		c.play()
		l.Close()
		require.NoError(t, all.Close(one.ctx))
	})
	t.Run("sockets", func(t *testing.T) {
		r := newRig(t, sockets, rigConfig{})
		c := newCrowd(r, r.server, 2*each)
		for range 2 * each {
			c.join(r, r.listener, r.addr())
		}
		c.play()
	})
}

func newCrowd(r *rig, a *Adapter, n int) *crowd {
	r.t.Helper()
	pd := a.AllocPD()
	depth := CQMinSize(n * crowdWindow)
	cq, err := a.CreateCQ(depth)
	require.NoError(r.t, err)
	return &crowd{
		t: r.t, ctx: r.ctx, cq: cq, shared: newPool(r.t, pd, depth, depth),
		servers: map[uint32]*QueuePair{}, next: map[uint32]uint64{},
	}
}

// join connects a client of r's.
func (c *crowd) join(r *rig, l *Listener, addr string) {
	r.t.Helper()
	client := r.newEnd(r.client, opts{})
	for range crowdWindow {
		client.postRecv(client.recvAt(0, 0, 8))
	}
	require.NoError(r.t, client.qp.StartConnect(r.ctx, addr, client.conn))
	var req *ConnRequest
	r.until("a connection request", func() bool { req = l.Poll(); return req != nil })
	send, err := c.cq.adapter.CreateCQ(QueueDepthDefault)
	require.NoError(r.t, err)
	q, err := c.cq.adapter.CreateQP(
		QPOptions{PD: c.shared.pd, SendCQ: send, RecvCQ: c.cq, SRQ: c.shared.SharedReceiveQueue,
			RecvDepth: crowdWindow})
	require.NoError(r.t, err)
	require.NoError(r.t, req.Accept(r.ctx, q, ConnParam{}))
	client.expectState(RTS)
	c.servers[q.Number()] = q
	c.clients = append(c.clients, client)
}

func (c *crowd) play() {
	c.t.Helper()
	var wg sync.WaitGroup
	failed := make(chan error, len(c.clients))
	for _, client := range c.clients {
		wg.Go(func() { failed <- c.speak(client) })
	}
	var cs [16]Completion
	for left := len(c.clients) * crowdEach; left > 0; {
		n := c.cq.Poll(cs[:])
		for _, got := range cs[:n] {
			require.Equal(c.t, Success, got.Status)
			require.Equal(c.t, c.next[got.QP], binary.BigEndian.Uint64(c.shared.octets(got)))
			c.next[got.QP]++
			require.NoError(c.t, c.shared.post(got.ID))
			require.NoError(c.t, errOf(c.servers[got.QP].PostSend(WorkRequest{Op: OpSend})))
		}
		if left -= n; n == 0 {
			require.NoError(c.t, c.cq.Wait(c.ctx))
		}
	}
	wg.Wait()
	for range c.clients {
		require.NoError(c.t, <-failed)
	}
	require.Equal(c.t, c.shared.Depth(), c.shared.Left())
	require.Zero(c.t, c.cq.q.Promised())
}

// speak sends a client's messages, each with its number.
func (c *crowd) speak(e *end) error {
	var cs [16]Completion
	for sent, answered := 0, 0; answered < crowdEach; {
		for ; sent < crowdEach && sent < answered+crowdWindow; sent++ {
			at := sent % crowdWindow * 8
			binary.BigEndian.PutUint64(e.source.Bytes()[at:], uint64(sent))
			if _, err := e.qp.PostSend(WorkRequest{Op: OpSend, Local: e.source.Slice(at, 8)}); err != nil {
				return err
			}
		}
		if err := e.cq.Wait(c.ctx); err != nil {
			return err
		}
		n := e.cq.Poll(cs[:])
		for range n {
			if _, err := e.qp.PostRecv(e.recvAt(0, 0, 8)); err != nil {
				return err
			}
		}
		answered += n
	}
	return nil
}
