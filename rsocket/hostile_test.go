package rsocket

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/rnic"
)

// raw is a peer whose every message the test writes.
type raw struct {
	t      *testing.T
	ctx    context.Context
	qp     *rnic.QueuePair
	cq     *rnic.CompletionQueue
	m      *rnic.MemoryRegion // what the other end writes, its messages first
	order  binary.ByteOrder
	gives  connData // but for where
	theirs connData
}

const rawBuffers = 64

func newRaw(t *testing.T, dev *rnic.Adapter, opt rnic.QPOptions) *raw {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	p := &raw{t: t, ctx: ctx, order: binary.LittleEndian}
	p.gives = connData{credits: rawBuffers, list: entry{length: listLen}, ring: entry{length: 1000}}
	var err error
	p.cq, err = dev.CreateCQ(1024)
	require.NoError(t, err)
	opt.PD, opt.SendCQ, opt.RecvCQ, opt.SendDepth = dev.AllocPD(), p.cq, p.cq, 512
	p.qp, err = dev.CreateQP(opt)
	require.NoError(t, err)
	p.m, err = opt.PD.RegisterWith(make([]byte, rawBuffers*messageLen+4096), rnic.RegisterOptions{Access: rnic.LocalWrite | rnic.RemoteWrite, For: p.qp})
	require.NoError(t, err)
	for i := range rawBuffers {
		require.NoError(t, p.qp.PostRecv(rnic.WorkRequest{ID: uint64(i), Local: p.m.Slice(i*messageLen, messageLen)}))
	}
	t.Cleanup(func() {
		p.qp.Abort()
		<-p.qp.Done()
		p.m.Deregister()
	})
	return p
}

// data is private data that is right: the list is behind the messages, and the ring behind the list.
func (p *raw) data() connData {
	d := p.gives
	d.bigEndian = p.order == binary.BigEndian
	d.list.to, d.list.stag = p.m.Base()+rawBuffers*messageLen, p.m.STag()
	d.ring.to, d.ring.stag = d.list.to+uint64(d.list.length)*entryLen, p.m.STag()
	return d
}

// connect makes a connection to a Listener on dev, and returns its end of it.
func (p *raw) connect(dev *rnic.Adapter, opt Options) *Conn {
	p.t.Helper()
	l, err := Listen(p.ctx, dev, ":0", ListenOptions{Options: opt})
	require.NoError(p.t, err)
	defer l.Close()
	d := p.data()
	require.NoError(p.t, p.qp.Connect(p.ctx, dialable(l), d.marshal()))
	p.theirs, err = parseConnData(p.qp.PeerPrivateData())
	require.NoError(p.t, err)
	c, err := l.Accept()
	require.NoError(p.t, err)
	p.t.Cleanup(func() { c.Close() })
	require.NoError(p.t, c.SetDeadline(time.Now().Add(patience)))
	return c.(*Conn)
}

func (p *raw) send(b []byte) {
	p.t.Helper()
	require.NoError(p.t, p.qp.PostSend(rnic.WorkRequest{Inline: b}))
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
	require.NoError(p.t, p.qp.PostWrite(rnic.WorkRequest{Inline: b, RemoteSTag: p.theirs.ring.stag, RemoteOffset: p.theirs.ring.to + off}))
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

// What a peer may not do ends its connection, with the reason, and harms nobody else.
func TestHostilePeers(t *testing.T) {
	opt := Options{ReceiveBuffer: 4096, Credits: CreditsMin}
	for _, tc := range []struct {
		name string
		do   func(p *raw)
		want string
	}{
		{"a long message", func(p *raw) { p.send(make([]byte, messageLen+1)) }, "message too long"},
		{"a short message", func(p *raw) { p.send(make([]byte, messageLen-1)) }, "a message of 3 octets, where one of 4 was due"},
		{"no octets", func(p *raw) { p.say(kindData, 0) }, "it wrote 0 octets, where it may write 1 to"},
		{"too many octets", func(p *raw) { p.say(kindData, 4097) }, "it wrote 4097 octets, where it may write 1 to"},
		{"all octets", func(p *raw) { p.say(kindData, valueMax) }, "it wrote 536870911 octets"},
		{"too many messages", func(p *raw) {
			for range CreditsMin + 1 {
				p.say(kindData, 1)
			}
		}, "more than the 16 messages that were granted"},
		{"octets behind a goodbye", func(p *raw) { p.say(kindControl, shutdown); p.say(kindData, 1) }, ""},
		{"a message of no kind", func(p *raw) { p.say(5, 1) }, "a message of kind 5, which means nothing"},
		{"a control message of no kind", func(p *raw) { p.say(kindControl, 3) }, "a control message 3, which means nothing"},
		{"a Write beyond the ring", func(p *raw) { p.write(4090, []byte("beyond it")) }, "bound"},
		{"no goodbye", func(p *raw) { p.qp.Disconnect() }, ErrVanished.Error()},
		{"a reset", func(p *raw) { p.qp.Abort() }, "reset"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
				innocent := pair(t, devs, opt)
				p := newRaw(t, devs[0], rnic.QPOptions{})
				c := p.connect(devs[1], opt)
				tc.do(p)
				select { // nobody reads, which would give the peer room
				case <-c.finished:
				case <-p.ctx.Done():
					require.FailNow(t, "the connection does not end")
				}
				_, err := io.Copy(io.Discard, c)
				if tc.want == "" { // what was said before the goodbye counts
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, tc.want)
				}
				_, err = c.Write([]byte("x"))
				require.Error(t, err)
				go func() { _, _ = innocent[0].Write([]byte("unharmed")); _ = innocent[0].CloseWrite() }()
				got, err := io.ReadAll(innocent[1])
				require.NoError(t, err)
				require.Equal(t, "unharmed", string(got))
			})
		})
	}
}

// Start-up with what is not rsockets is refused by either end, and the reason told.
func TestNoRsockets(t *testing.T) {
	good := (&connData{credits: 10, list: entry{length: 2}, ring: entry{length: 100}}).marshal()
	with := func(i int, v ...byte) []byte {
		b := append([]byte{}, good...)
		copy(b[i:], v)
		return b
	}
	devs := testnic.Sockets(t)
	for _, tc := range []struct {
		name, want string
		private    []byte
	}{
		{"nothing", "0 octets, where 40 were due", nil},
		{"short", "39 octets, where 40 were due", good[:39]},
		{"another version", "that of rsockets of version 1: it begins with 2", with(0, 2)},
		{"no credits", "0 credits", with(2, 0, 0)},
		{"too many credits", "32768 credits", with(2, 0x80, 0)},
		{"one entry", "1 entries", with(20, 0, 0, 0, 1)},
		{"too many entries", "1025 entries", with(20, 0, 0, 4, 1)},
		{"no ring", "2 times 0 octets", with(36, 0, 0, 0, 0)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			told := make(chan error, 1)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			l, err := Listen(ctx, devs[1], ":0", ListenOptions{Rejected: func(_ netip.AddrPort, err error) { told <- err }})
			require.NoError(t, err)
			defer l.Close()
			var rejected *rnic.RejectedError
			require.ErrorAs(t, newRaw(t, devs[0], rnic.QPOptions{}).qp.Connect(ctx, dialable(l), tc.private), &rejected)
			require.Empty(t, rejected.PrivateData)
			err = <-told
			require.ErrorIs(t, err, errNoRsockets)
			require.ErrorContains(t, err, tc.want)

			inner, err := devs[1].Listen(ctx, ":0", rnic.ListenOptions{})
			require.NoError(t, err)
			defer inner.Close()
			go func() {
				if req, err := inner.Accept(ctx); err == nil {
					_ = req.Accept(ctx, newRaw(t, devs[1], rnic.QPOptions{}).qp, tc.private)
				}
			}()
			_, err = Dial(ctx, devs[0], testnic.Dialable(inner.Addr()), Options{})
			require.ErrorIs(t, err, errNoRsockets)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// A peer of the other byte order: as Responder we speak its order, as Initiator we say that it cannot be.
func TestByteOrder(t *testing.T) {
	devs := testnic.Wired(t)
	p := newRaw(t, devs[0], rnic.QPOptions{})
	p.order = binary.BigEndian
	c := p.connect(devs[1], Options{ReceiveBuffer: 4096})
	require.True(t, p.theirs.bigEndian)
	p.write(0, []byte("in order"))
	p.say(kindData, 8)
	p.say(kindControl, keepAlive)
	b := make([]byte, 100)
	n, err := c.Read(b)
	require.NoError(t, err)
	require.Equal(t, "in order", string(b[:n]))
	k, value := p.hears() // with the second half of the ring
	require.Equal(t, kindGrant, k)
	require.EqualValues(t, CreditsDefault, value)
	list := p.m.Bytes()[rawBuffers*messageLen:]
	require.Equal(t, entry{}, parseEntry(list, p.order))
	require.Equal(t, entry{p.theirs.ring.to + 2048, p.theirs.ring.stag, 2048}, parseEntry(list[entryLen:], p.order))
	_, err = c.Write([]byte("hello"))
	require.NoError(t, err)
	k, value = p.hears()
	require.Equal(t, kindData, k)
	require.EqualValues(t, 5, value)
	require.Equal(t, "hello", string(list[listLen*entryLen:][:5]))
	require.NoError(t, c.CloseWrite())
	k, value = p.hears()
	require.Equal(t, kindControl, k)
	require.EqualValues(t, shutdown, value)

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	inner, err := devs[1].Listen(ctx, ":0", rnic.ListenOptions{})
	require.NoError(t, err)
	defer inner.Close()
	go func() {
		if req, err := inner.Accept(ctx); err == nil {
			p := newRaw(t, devs[1], rnic.QPOptions{})
			p.order = binary.BigEndian
			d := p.data()
			_ = req.Accept(ctx, p.qp, d.marshal())
		}
	}()
	_, err = Dial(ctx, devs[0], testnic.Dialable(inner.Addr()), Options{})
	require.ErrorContains(t, err, "byte order")
}

// A peer that grants nothing holds a Write up, no longer than its deadline; one that does not close holds Close up, no longer than Linger.
func TestSilentPeer(t *testing.T) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		p := newRaw(t, devs[0], rnic.QPOptions{AllowHalfClosed: true})
		c := p.connect(devs[1], Options{Linger: time.Millisecond})
		p.say(kindControl, keepAlive) // a Responder sends nothing before the Initiator has
		require.NoError(t, c.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
		n, err := c.Write(make([]byte, 5000))
		require.Equal(t, 1000, n)
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		require.True(t, timeout.Timeout())
		require.NoError(t, c.SetWriteDeadline(time.Now().Add(patience)))
		wrote := make(chan error, 1)
		go func() { _, err := c.Write(make([]byte, 5000)); wrote <- err }()
		require.ErrorIs(t, c.Close(), errLinger)
		require.ErrorIs(t, <-wrote, net.ErrClosed)
		require.ErrorIs(t, c.QueuePair().Err(), rnic.ErrClosed) // and not the QueuePair's own time
	})
}

// Within Linger Close does not wait for a peer that does nothing at all: the QueuePair gives it up, and Close says so.
func TestPeerDoesNotClose(t *testing.T) {
	t.Parallel() // it waits for rnic's own three seconds
	devs := testnic.Sockets(t)
	p := newRaw(t, devs[0], rnic.QPOptions{AllowHalfClosed: true})
	c := p.connect(devs[1], Options{Linger: patience})
	require.ErrorIs(t, c.Close(), errLinger)
	require.ErrorIs(t, c.QueuePair().Err(), rnic.ErrLinger)
}

// Octets that did not go out are Close's error, unless the peer has said that it receives nothing any more.
func TestLost(t *testing.T) {
	devs := testnic.Sockets(t)
	for _, gone := range []bool{false, true} {
		p := newRaw(t, devs[0], rnic.QPOptions{AllowHalfClosed: true})
		c := p.connect(devs[1], Options{})
		broken := errors.New("broken")
		if gone {
			p.say(kindControl, disconnect)
			_, err := c.Read(make([]byte, 1))
			require.Equal(t, io.EOF, err)
		}
		c.mu.Lock()
		c.carriedOut(&rnic.Completion{ID: 1<<idShift | 2, Op: rnic.OpSend, Status: rnic.Flushed})
		c.fail(broken)
		c.mu.Unlock()
		if err := c.Close(); gone {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, broken)
		}
	}
}

// Goodbyes: of one direction, of both, and what calls return behind them.
func TestGoodbyes(t *testing.T) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		c := pair(t, devs, Options{})
		_, err := c[0].Write([]byte("all of it"))
		require.NoError(t, err)
		require.NoError(t, c[0].CloseWrite())
		require.NoError(t, c[0].CloseWrite())
		_, err = c[0].Write([]byte("more"))
		require.ErrorIs(t, err, syscall.EPIPE)
		got, err := io.ReadAll(c[1])
		require.NoError(t, err)
		require.Equal(t, "all of it", string(got))
		_, err = c[1].Write([]byte("an answer"))
		require.NoError(t, err)
		require.NoError(t, c[1].Close())
		got, err = io.ReadAll(c[0])
		require.NoError(t, err)
		require.Equal(t, "an answer", string(got))
		require.NoError(t, c[0].Close())
		for _, c := range c {
			_, err = c.Read(got)
			require.ErrorIs(t, err, net.ErrClosed)
			_, err = c.Write(got)
			require.ErrorIs(t, err, net.ErrClosed)
			require.ErrorIs(t, c.CloseWrite(), net.ErrClosed)
			require.ErrorIs(t, c.SetDeadline(time.Time{}), net.ErrClosed)
			require.ErrorIs(t, c.Close(), net.ErrClosed)
			require.NoError(t, c.QueuePair().Err())
		}

		c = pair(t, devs, Options{})
		closed := make(chan error, 1)
		go func() { closed <- c[0].Close() }()
		_, err = io.ReadAll(c[1])
		require.NoError(t, err)
		_, err = c[1].Write([]byte("to nobody"))
		require.ErrorIs(t, err, syscall.EPIPE)
		require.NoError(t, <-closed)
	})
}

// A Listener that is full rejects; what waits in one that is closed is closed, too.
func TestListener(t *testing.T) {
	devs := testnic.Sockets(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	told := make(chan error, 8)
	l, err := Listen(ctx, devs[1], ":0", ListenOptions{Backlog: 1, Rejected: func(_ netip.AddrPort, err error) { told <- err }})
	require.NoError(t, err)
	c, err := Dial(ctx, devs[0], dialable(l), Options{})
	require.NoError(t, err)
	defer c.Close()
	_, err = Dial(ctx, devs[0], dialable(l), Options{})
	var rejected *rnic.RejectedError
	require.ErrorAs(t, err, &rejected)
	require.ErrorContains(t, <-told, "1 connections wait to be accepted")
	accepted, err := l.Accept()
	require.NoError(t, err)
	second, err := Dial(ctx, devs[0], dialable(l), Options{})
	require.NoError(t, err)
	defer second.Close()

	waiting := make(chan error, 1)
	go func() {
		for {
			if _, err := l.Accept(); err != nil {
				waiting <- err
				return
			}
		}
	}()
	require.NoError(t, accepted.Close())
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-waiting, net.ErrClosed)
	require.ErrorIs(t, l.Close(), net.ErrClosed)
	_, err = Dial(ctx, devs[0], dialable(l), Options{})
	require.Error(t, err)

	l, err = Listen(ctx, devs[1], ":0", ListenOptions{})
	require.NoError(t, err)
	third, err := Dial(ctx, devs[0], dialable(l), Options{})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, err = third.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
	require.NoError(t, third.Close())
}

// Options of a QueuePair that would not do for a Conn are not taken: one without inline data could say nothing, one that stays half-closed
// would leave a Read waiting for ever.
func TestForeignOptions(t *testing.T) {
	own := rnic.QPOptions{
		Dialect: rnic.RFC6581, PeerToPeer: true, RTR: 1, Nudge: 2, NoMarkers: true, NoCRC: true, DropBadCRC: true, Packing: rnic.PackFull, UserTimeout: 3,
	}
	require.Equal(t, own, (&Options{QP: own}).queuePair())
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		p := newRaw(t, devs[0], rnic.QPOptions{})
		c := p.connect(devs[1], Options{QP: rnic.QPOptions{InlineMax: rnic.NoInline, AllowHalfClosed: true, SendDepth: 1, SGEMax: -1, IRD: -1}})
		p.say(kindControl, keepAlive)
		k, _ := p.hears()
		require.Equal(t, kindGrant, k)
		p.qp.Disconnect()
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, ErrVanished)
	})
}

// A Listener closes what waits in it all at once: a peer that does not close holds the others up no longer than itself.
func TestListenerClosesTogether(t *testing.T) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		l, err := Listen(ctx, devs[1], ":0", ListenOptions{})
		require.NoError(t, err)
		var peers [2]*raw
		for i := range peers {
			peers[i] = newRaw(t, devs[0], rnic.QPOptions{AllowHalfClosed: true})
			d := peers[i].data()
			require.NoError(t, peers[i].qp.Connect(ctx, dialable(l), d.marshal()))
			peers[i].say(kindControl, keepAlive) // a Responder says no goodbye before the Initiator has said something
			k, _ := peers[i].hears()
			require.Equal(t, kindGrant, k)
		}
		closed := make(chan error, 1)
		go func() { closed <- l.Close() }()
		for _, p := range peers {
			k, value := p.hears()
			require.Equal(t, [2]uint32{uint32(kindControl), disconnect}, [2]uint32{uint32(k), value})
		}
		for _, p := range peers {
			require.NoError(t, p.qp.Close(ctx))
		}
		require.NoError(t, <-closed)
	})
}

// Options that cannot be.
func TestOptions(t *testing.T) {
	devs := testnic.Sockets(t)
	for want, opt := range map[string]Options{
		"SendBuffer of 2047 octets":         {SendBuffer: BufferMin - 1},
		"ReceiveBuffer of 268435457 octets": {ReceiveBuffer: BufferMax + 1},
		"15 credits":                        {Credits: CreditsMin - 1},
		"8193 credits":                      {Credits: CreditsMax + 1},
		"Linger -1ns":                       {Linger: -1},
	} {
		_, err := Dial(context.Background(), devs[0], "127.0.0.1:1", opt)
		require.ErrorContains(t, err, want)
		_, err = Listen(context.Background(), devs[0], ":0", ListenOptions{Options: opt})
		require.ErrorContains(t, err, want)
	}
	_, err := Listen(context.Background(), devs[0], ":0", ListenOptions{Backlog: -1})
	require.ErrorContains(t, err, "a backlog of -1")
	_, err = Listen(context.Background(), devs[0], "nowhere", ListenOptions{})
	require.Error(t, err)
	_, err = Dial(context.Background(), testnic.Open(t, rnic.Config{RegionsMax: 2}), "127.0.0.1:1", Options{})
	require.ErrorContains(t, err, "in use")
}

// However connections end, no goroutine and no region is left.
func TestNothingIsLeft(t *testing.T) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		before := runtime.NumGoroutine()
		regions := [2]int{devs[0].Table().Len(), devs[1].Table().Len()}
		for i := range 12 {
			c := pair(t, devs, Options{})
			switch i % 3 {
			case 0:
				require.NoError(t, c[0].Close())
			case 1:
				c[0].QueuePair().Abort()
			case 2:
				_, err := c[0].Write(make([]byte, 100<<10))
				require.NoError(t, err)
			}
			_ = errors.Join(c[0].Close(), c[1].Close())
		}
		for i := range devs {
			require.Equal(t, regions[i], devs[i].Table().Len())
		}
		for begin := time.Now(); runtime.NumGoroutine() > before+2; runtime.Gosched() {
			require.Less(t, time.Since(begin), patience, "goroutines are left")
		}
	})
}

// What is said at the end: that nothing follows, and where the peer has said so, too, or when the Conn is closed, that nothing is received
// any more; each once.
func TestWhatIsSaid(t *testing.T) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		for name, tc := range map[string]struct {
			peer []uint32
			do   func(c *Conn)
			want []uint32
		}{
			"Close":                           {nil, func(c *Conn) {}, []uint32{disconnect}},
			"CloseWrite":                      {nil, func(c *Conn) { _ = c.CloseWrite() }, []uint32{shutdown, disconnect}},
			"twice":                           {nil, func(c *Conn) { _ = c.CloseWrite(); _ = c.CloseWrite() }, []uint32{shutdown, disconnect}},
			"CloseWrite behind the peer's":    {[]uint32{shutdown}, func(c *Conn) { _ = c.CloseWrite() }, []uint32{disconnect}},
			"Close behind the peer's":         {[]uint32{shutdown}, func(c *Conn) {}, []uint32{disconnect}},
			"where the peer receives nothing": {[]uint32{disconnect}, func(c *Conn) { _ = c.CloseWrite() }, nil},
		} {
			t.Run(name, func(t *testing.T) {
				p := newRaw(t, devs[0], rnic.QPOptions{AllowHalfClosed: true})
				c := p.connect(devs[1], Options{ReceiveBuffer: 4096, Credits: 16})
				p.says(c, 1, 1)
				require.Len(t, p.grants(c), 1)
				p.say(kindData, 2048)
				for _, value := range tc.peer {
					p.say(kindControl, value)
				}
				if tc.peer != nil {
					c.mu.Lock()
					for c.readEnd == nil {
						c.changed.Wait()
					}
					c.mu.Unlock()
					got, err := io.ReadAll(c) // half the ring, which nobody needs again
					require.NoError(t, err)
					require.Len(t, got, 2048)
				}
				tc.do(c)
				closed := make(chan error, 1)
				go func() { closed <- c.Close() }()
				for _, value := range tc.want {
					k, got := p.hears()
					require.Equal(t, kindControl, k)
					require.Equal(t, value, got)
				}
				require.NoError(t, p.qp.Close(p.ctx))
				require.NoError(t, <-closed)
				require.EqualValues(t, 2*(1+1)+len(tc.want), messagesSent(t, c)) // and a grant and an octet, with a Write each
			})
		}
	})
}

func messagesSent(t *testing.T, c *Conn) uint64 {
	st, err := c.QueuePair().Stats(t.Context())
	require.NoError(t, err)
	return st.MessagesSent
}

// Nor of connections that did not come about: no region, and no place in the Listener.
func TestNothingIsLeftOfFailures(t *testing.T) {
	devs, stranger := testnic.Sockets(t), testnic.Open(t, rnic.Config{})
	regions := [2]int{devs[0].Table().Len(), devs[1].Table().Len()}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	inner, err := stranger.Listen(ctx, ":0", rnic.ListenOptions{})
	require.NoError(t, err)
	told := make(chan error, 8)
	l, err := Listen(ctx, devs[1], ":0", ListenOptions{Backlog: 1, Rejected: func(_ netip.AddrPort, err error) { told <- err }})
	require.NoError(t, err)
	defer l.Close()

	go func() {
		if req, err := inner.Accept(ctx); err == nil {
			_ = req.Accept(ctx, newRaw(t, stranger, rnic.QPOptions{}).qp, nil)
		}
	}()
	_, err = Dial(ctx, devs[0], testnic.Dialable(inner.Addr()), Options{})
	require.ErrorIs(t, err, errNoRsockets)
	inner.Close()
	_, err = Dial(ctx, devs[0], testnic.Dialable(inner.Addr()), Options{})
	require.Error(t, err) // nobody is there

	for range 2 { // each has the only place for a while
		require.Error(t, newRaw(t, stranger, rnic.QPOptions{}).qp.Connect(ctx, dialable(l), nil))
		require.ErrorIs(t, <-told, errNoRsockets)
	}
	other, err := devs[1].Listen(ctx, ":0", rnic.ListenOptions{})
	require.NoError(t, err)
	defer other.Close()
	p := newRaw(t, stranger, rnic.QPOptions{})
	d, connected := p.data(), make(chan error, 1)
	go func() { connected <- p.qp.Connect(ctx, testnic.Dialable(other.Addr()), d.marshal()) }()
	req, err := other.Accept(ctx)
	require.NoError(t, err)
	require.NoError(t, req.Reject(ctx, nil))
	require.Error(t, <-connected)
	_, err = l.start(ctx, req)
	require.ErrorIs(t, err, rnic.ErrState)

	c, err := Dial(ctx, devs[0], dialable(l), Options{})
	require.NoError(t, err)
	accepted, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, accepted.Close())
	require.Equal(t, regions, [2]int{devs[0].Table().Len(), devs[1].Table().Len()})
}

// What comes before a connection ends is read to its last octet, and the end is the connection's, although nothing can be granted any more
// when our half is closed already.
func TestReadBehindTheEnd(t *testing.T) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		p := newRaw(t, devs[0], rnic.QPOptions{AllowHalfClosed: true})
		c := p.connect(devs[1], Options{ReceiveBuffer: 4096})
		p.says(c, 1, 1)
		c.QueuePair().Disconnect()
		p.says(c, 1, 2047) // which is half of the memory, and would be granted
		p.say(kindData, 5)
		p.qp.Disconnect()
		got, err := io.ReadAll(c)
		require.Len(t, got, 5)
		require.ErrorIs(t, err, ErrVanished)
	})
}
