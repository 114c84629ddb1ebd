package rsocket

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/rnic"
)

// A Listener that is full rejects; what waits in one that is closed is closed, too.
func TestListener(t *testing.T) {
	devs := testnic.Sockets(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	told := make(chan error, 8)
	l := must(Listen(ctx, devs[1], ":0",
		ListenOptions{Backlog: 1, Rejected: func(_ netip.AddrPort, err error) { told <- err }}))(t)
	c := must(Dial(ctx, devs[0], dialable(l), Options{}))(t)
	defer c.Close()
	_, err := Dial(ctx, devs[0], dialable(l), Options{})
	var rejected *rnic.RejectedError
	require.ErrorAs(t, err, &rejected)
	err = <-told
	require.ErrorContains(t, err, "1 connections wait to be accepted")
	require.ErrorIs(t, err, ErrBusy)
	accepted := must(l.Accept())(t)
	second := must(Dial(ctx, devs[0], dialable(l), Options{}))(t)
	defer second.Close()

	waiting := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err == nil { // second: it came before Close, and is ours to close
				err = c.Close()
			}
			if err != nil {
				waiting <- err
				return
			}
		}
	}()
	require.NoError(t, accepted.Close())
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-waiting, net.ErrClosed)
	require.ErrorIs(t, l.Close(), net.ErrClosed)
	require.Error(t, errOf(Dial(ctx, devs[0], dialable(l), Options{})))

	l = must(Listen(ctx, devs[1], ":0", ListenOptions{}))(t)
	third := must(Dial(ctx, devs[0], dialable(l), Options{}))(t)
	require.NoError(t, l.Close())
	require.Equal(t, io.EOF, errOf(third.Read(make([]byte, 1))))
	require.NoError(t, third.Close())
}

// What of ConnParam would not do for a Conn is not taken: one that stays half-closed would leave a
// Read waiting for ever.
func TestForeignOptions(t *testing.T) {
	own := rnic.ConnParam{Dialect: rnic.RFC6581, PeerToPeer: true, RTR: 1,
		Quirks: rnic.Quirks{WakeUp: 2}, NoMarkers: true, NoCRC: true, DropBadCRC: true,
		Packing: rnic.PackFull, UserTimeout: 3}
	require.Equal(t, own, (&Options{Conn: own}).connParam())
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		p := newRaw(t, devs[0], rnic.ConnParam{})
		c := p.connect(devs[1],
			Options{Conn: rnic.ConnParam{AllowHalfClosed: true, PrivateData: make([]byte, 1000), IRD: -1}})
		p.say(kindControl, keepAlive)
		k, _ := p.hears()
		require.Equal(t, kindGrant, k)
		p.qp.Disconnect()
		require.ErrorIs(t, errOf(c.Read(make([]byte, 1))), ErrVanished)
	})
}

// A Listener closes what waits in it all at once: a peer that does not close holds the others up no
// longer than itself.
func TestListenerClosesTogether(t *testing.T) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		l := must(Listen(ctx, devs[1], ":0", ListenOptions{}))(t)
		var peers [2]*raw
		for i := range peers {
			peers[i] = newRaw(t, devs[0], rnic.ConnParam{AllowHalfClosed: true})
			d := peers[i].data()
			require.NoError(t, peers[i].qp.Connect(ctx, dialable(l), peers[i].with(d.marshal())))
			// a Responder says no goodbye before the Initiator has said something
			peers[i].say(kindControl, keepAlive)
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
		require.ErrorContains(t, errOf(Dial(context.Background(), devs[0], "127.0.0.1:1", opt)), want)
		_, err := Listen(context.Background(), devs[0], ":0", ListenOptions{Options: opt})
		require.ErrorContains(t, err, want)
	}
	_, err := Listen(context.Background(), devs[0], ":0", ListenOptions{Backlog: -1})
	require.ErrorContains(t, err, "a backlog of -1")
	require.Error(t, errOf(Listen(context.Background(), devs[0], "nowhere", ListenOptions{})))
}

// Where there is no room for what a connection needs, last the connection itself,
// Dial says so, and a Listener, which rejects.
func TestNoRoom(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	there := testnic.Open(t, rnic.Config{})
	for regions := 1; regions <= 4; regions++ {
		dev := testnic.Open(t, rnic.Config{RegionsMax: regions})
		require.ErrorContains(t, errOf(Dial(ctx, dev, "127.0.0.1:1", Options{})), "in use")
		told := make(chan error, 1)
		l := must(Listen(ctx, dev, "127.0.0.1:0",
			ListenOptions{Rejected: func(_ netip.AddrPort, err error) { told <- err }}))(t)
		_, err := Dial(ctx, there, dialable(l), Options{})
		require.ErrorAs(t, err, new(*rnic.RejectedError))
		require.ErrorContains(t, <-told, "in use")
		require.NoError(t, l.Close())
	}
}

// However connections end, no goroutine and no region is left.
func TestNothingIsLeft(t *testing.T) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		before := runtime.NumGoroutine()
		regions := [2]int{devs[0].Regions(), devs[1].Regions()}
		for i := range 12 {
			c := pair(t, devs, Options{})
			switch i % 3 {
			case 0:
				require.NoError(t, c[0].Close())
			case 1:
				c[0].QueuePair().Abort()
			case 2:
				must(c[0].Write(make([]byte, 100<<10)))(t)
			}
			_ = errors.Join(c[0].Close(), c[1].Close())
		}
		for i := range devs {
			require.Equal(t, regions[i], devs[i].Regions())
		}
		for begin := time.Now(); runtime.NumGoroutine() > before+2; runtime.Gosched() {
			require.Less(t, time.Since(begin), patience, "goroutines are left")
		}
	})
}

// Nor of connections that did not come about: no region, and no place in the Listener.
func TestNothingIsLeftOfFailures(t *testing.T) {
	devs, stranger := testnic.Sockets(t), testnic.Open(t, rnic.Config{})
	regions := [2]int{devs[0].Regions(), devs[1].Regions()}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	inner := must(stranger.Listen(ctx, ":0", rnic.ListenOptions{}))(t)
	told := make(chan error, 8)
	l := must(Listen(ctx, devs[1], ":0",
		ListenOptions{Backlog: 1, Rejected: func(_ netip.AddrPort, err error) { told <- err }}))(t)
	defer l.Close()

	go func() {
		if req, err := inner.Accept(ctx); err == nil {
			_ = req.Accept(ctx, newRaw(t, stranger, rnic.ConnParam{}).qp, rnic.ConnParam{})
		}
	}()
	_, err := Dial(ctx, devs[0], testnic.Dialable(inner.Addr()), Options{})
	require.ErrorIs(t, err, errNoRsockets)
	inner.Close()
	// nobody is there
	require.Error(t, errOf(Dial(ctx, devs[0], testnic.Dialable(inner.Addr()), Options{})))

	for range 2 { // each has the only place for a while
		require.Error(t, newRaw(t, stranger, rnic.ConnParam{}).qp.Connect(ctx, dialable(l),
			rnic.ConnParam{}))
		require.ErrorIs(t, <-told, errNoRsockets)
	}
	other := must(devs[1].Listen(ctx, ":0", rnic.ListenOptions{}))(t)
	defer other.Close()
	p := newRaw(t, stranger, rnic.ConnParam{})
	d, connected := p.data(), make(chan error, 1)
	go func() {
		connected <- p.qp.Connect(ctx, testnic.Dialable(other.Addr()),
			rnic.ConnParam{PrivateData: d.marshal()})
	}()
	req := must(other.Accept(ctx))(t)
	require.NoError(t, req.Reject(ctx, nil))
	require.Error(t, <-connected)
	require.ErrorIs(t, errOf(l.start(ctx, req)), rnic.ErrState)

	c := must(Dial(ctx, devs[0], dialable(l), Options{}))(t)
	accepted := must(l.Accept())(t)
	require.NoError(t, c.Close())
	require.NoError(t, accepted.Close())
	require.Equal(t, regions, [2]int{devs[0].Regions(), devs[1].Regions()})
}
