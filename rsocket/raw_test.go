package rsocket

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic"
)

// raw is a peer whose every message the test writes.
type raw struct {
	t      *testing.T
	ctx    context.Context
	qp     *rnic.QueuePair
	conn   rnic.ConnParam
	cq     *rnic.CompletionQueue
	m      *rnic.MemoryRegion // what the other end writes, its messages first
	order  binary.ByteOrder
	gives  connData // except for where
	theirs connData
}

const rawBuffers = 64

func newRaw(t *testing.T, dev *rnic.Adapter, conn rnic.ConnParam) *raw {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	p := &raw{t: t, conn: conn, ctx: ctx, order: binary.LittleEndian}
	p.gives = connData{credits: rawBuffers, list: entry{length: listLen}, ring: entry{length: 1000}}
	var err error
	p.cq, err = dev.CreateCQ(1024)
	require.NoError(t, err)
	opt := rnic.QPOptions{PD: dev.AllocPD(), SendCQ: p.cq, RecvCQ: p.cq, SendDepth: 512}
	p.qp, err = dev.CreateQP(opt)
	require.NoError(t, err)
	p.m, err = opt.PD.RegisterWith(make([]byte, rawBuffers*messageLen+4096),
		rnic.RegisterOptions{Access: rnic.LocalWrite | rnic.RemoteWrite, For: p.qp})
	require.NoError(t, err)
	for i := range rawBuffers {
		require.NoError(t, errOf(p.qp.PostRecv(rnic.WorkRequest{ID: uint64(i),
			Local: p.m.Slice(i*messageLen, messageLen)})))
	}
	t.Cleanup(func() {
		p.qp.Abort()
		<-p.qp.Done()
		p.m.Deregister()
	})
	return p
}

// data is private data that is right: the list is after the messages, and the ring after the list.
func (p *raw) data() connData {
	d := p.gives
	d.bigEndian = p.order == binary.BigEndian
	d.list.to, d.list.stag = p.m.Base()+rawBuffers*messageLen, p.m.STag()
	d.ring.to, d.ring.stag = d.list.to+uint64(d.list.length)*entryLen, p.m.STag()
	return d
}

// with is how it connects, with private data.
func (p *raw) with(private []byte) rnic.ConnParam {
	conn := p.conn
	conn.PrivateData = private
	return conn
}

// connect makes a connection to a Listener on dev, and returns its end of it.
func (p *raw) connect(dev *rnic.Adapter, opt Options) *Conn {
	p.t.Helper()
	l := must(Listen(p.ctx, dev, ":0", ListenOptions{Options: opt}))(p.t)
	defer l.Close()
	d := p.data()
	require.NoError(p.t, p.qp.Connect(p.ctx, dialable(l), p.with(d.marshal())))
	p.theirs = must(parseConnData(p.qp.PeerPrivateData()))(p.t)
	c := must(l.Accept())(p.t)
	p.t.Cleanup(func() { c.Close() })
	require.NoError(p.t, c.SetDeadline(time.Now().Add(patience)))
	return c.(*Conn)
}

func (p *raw) send(b []byte) {
	p.t.Helper()
	require.NoError(p.t, errOf(p.qp.PostSend(rnic.WorkRequest{Op: rnic.OpSend, Inline: b})))
}

func (p *raw) say(k kind, value uint32) {
	p.t.Helper()
	b := make([]byte, messageLen)
	p.order.PutUint32(b, message(k, value))
	p.send(b)
}

// write writes into the other end's ring.
func (p *raw) write(off uint64, b []byte) {
	p.t.Helper()
	require.NoError(p.t, errOf(p.qp.PostSend(rnic.WorkRequest{Op: rnic.OpWrite, Inline: b,
		RemoteSTag: p.theirs.ring.stag, RemoteOffset: p.theirs.ring.to + off})))
}

// hears waits for the other end's next message.
func (p *raw) hears() (kind, uint32) {
	p.t.Helper()
	var c [1]rnic.Completion
	for {
		for p.cq.Poll(c[:]) == 0 {
			require.NoError(p.t, p.cq.Wait(p.ctx))
		}
		if c[0].Op == rnic.OpRecv {
			require.Equal(p.t, rnic.Success, c[0].Status)
			return parseMessage(p.order.Uint32(p.m.Bytes()[c[0].ID*messageLen:]))
		}
	}
}
