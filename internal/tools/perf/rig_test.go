package perf

import (
	"bytes"
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/rnic"
)

const patience = 30 * time.Second

// pair is two Ends of one connection, each with memory of 2*areaMax octets and a word after, all
// known to the peer.
type pair struct {
	t    *testing.T
	ctx  context.Context
	ends [2]*End // client, server
}

const (
	areaMax  = 1 << 16
	creditAt = 2 * areaMax
	memory   = 2*areaMax + 8
	depth    = 64
)

// deep lets both ends read.
var deep = rnic.ConnParam{Dialect: rnic.RFC6581, IRD: 16, ORD: 16}

// connect makes a pair, prepared for a test.
func connect(t *testing.T, devs [2]*rnic.Adapter, test Test) *pair {
	t.Helper()
	p := &pair{t: t}
	var cancel context.CancelFunc
	p.ctx, cancel = context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	for i, dev := range devs {
		p.ends[i] = newEnd(t, dev)
		require.NoError(t, p.ends[i].Prepare(test, i == 1))
	}
	l, err := devs[1].Listen(p.ctx, ":0", rnic.ListenOptions{})
	require.NoError(t, err)
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		req, err := l.Accept(p.ctx)
		if err == nil {
			err = req.Accept(p.ctx, p.ends[1].QP, deep)
		}
		accepted <- err
	}()
	require.NoError(t, p.ends[0].QP.Connect(p.ctx, testnic.Dialable(l.Addr()), deep))
	require.NoError(t, <-accepted)
	for i, e := range p.ends {
		peer := p.ends[1-i]
		e.RemoteSTag, e.RemoteOffset = peer.Local.STag(), uint64(peer.RecvAt)
		if test.Op == Atomic {
			e.RemoteOffset = 0
		}
	}
	t.Cleanup(func() {
		for _, e := range p.ends {
			e.QP.Abort()
			<-e.QP.Done()
			e.Local.Deregister()
		}
	})
	return p
}

func newEnd(t *testing.T, dev *rnic.Adapter) *End {
	t.Helper()
	e := &End{RecvAt: areaMax}
	var err error
	e.SendCQ, err = dev.CreateCQ(4 * depth)
	require.NoError(t, err)
	e.RecvCQ, err = dev.CreateCQ(4 * depth)
	require.NoError(t, err)
	pd := dev.AllocPD()
	e.QP, err = dev.CreateQP(rnic.QPOptions{PD: pd, SendCQ: e.SendCQ, RecvCQ: e.RecvCQ,
		SendDepth: 2 * depth, RecvDepth: 2 * depth})
	require.NoError(t, err)
	arena, err := hugepages.New(hugepages.Config{Bytes: memory, Page: hugepages.Normal,
		Node: hugepages.AnyNode})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, arena.Close()) })
	e.Local, err = pd.RegisterWith(arena.Bytes()[:memory], rnic.RegisterOptions{
		Access: rnic.LocalWrite | rnic.RemoteRead | rnic.RemoteWrite, For: e.QP,
	})
	require.NoError(t, err)
	return e
}

// withCredit adds flow control of Sends.
func (p *pair) withCredit() *pair {
	client, server := p.ends[0], p.ends[1]
	client.Credit = &Credit{Local: creditAt, RemoteSTag: server.Local.STag(), RemoteOffset: creditAt}
	server.Credit = &Credit{Local: creditAt, RemoteSTag: client.Local.STag(), RemoteOffset: creditAt}
	return p
}

// fill puts octets that no test before had where the test's come from.
func (p *pair) fill(test Test) *pair {
	for _, e := range p.ends {
		_, _ = rand.Read(e.Local.Bytes()[e.SendAt:][:areaMax])
	}
	if test.Op == Read {
		server := p.ends[1]
		_, _ = rand.Read(server.Local.Bytes()[server.RecvAt:][:areaMax])
	}
	return p
}

// requireMoved closes the connection in order, so that everything has arrived, and compares.
// Atomics are TestAtomicsCount's.
func (p *pair) requireMoved(test Test, name string) {
	p.t.Helper()
	require.NoError(p.t, p.ends[0].QP.Close(p.ctx), name)
	<-p.ends[1].QP.Done()
	at := func(e *End, off int) []byte { return e.Local.Bytes()[off:][:test.Size] }
	client, server := p.ends[0], p.ends[1]
	switch {
	case test.Op == Read:
		require.True(p.t, bytes.Equal(at(server, server.RecvAt), at(client, client.RecvAt)), name)
	case test.Op != Atomic:
		require.True(p.t, bytes.Equal(at(client, client.SendAt), at(server, server.RecvAt)), name)
		if test.Latency {
			require.True(p.t, bytes.Equal(at(server, server.SendAt), at(client, client.RecvAt)), name)
		}
	}
}

// serve runs Serve; the function waits for what it returned.
func (p *pair) serve(test Test) func() error {
	ended := make(chan error, 1)
	go func() { ended <- p.ends[1].Serve(p.ctx, test) }()
	return func() error { return <-ended }
}
