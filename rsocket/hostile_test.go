package rsocket

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/rnic"
)

// What a peer may not do ends its connection, with the reason, and harms no other connection.
func TestHostilePeers(t *testing.T) {
	opt := Options{ReceiveBuffer: 4096, Credits: CreditsMin}
	for _, tc := range []struct {
		name string
		do   func(p *raw)
		want string
	}{
		{"a long message", func(p *raw) { p.send(make([]byte, messageLen+1)) }, "message too long"},
		{"a short message", func(p *raw) {
			p.send(make([]byte, messageLen-1))
		}, "a message of 3 octets, where one of 4 was due"},
		{"no octets", func(p *raw) { p.say(kindData, 0) }, "it wrote 0 octets, where it may write 1 to"},
		{"too many octets", func(p *raw) {
			p.say(kindData, 4097)
		}, "it wrote 4097 octets, where it may write 1 to"},
		{"all octets", func(p *raw) { p.say(kindData, valueMax) }, "it wrote 536870911 octets"},
		{"too many messages", func(p *raw) {
			for range CreditsMin + 1 {
				p.say(kindData, 1)
			}
		}, "more than the 16 messages that were granted"},
		{"octets after a goodbye", func(p *raw) { p.say(kindControl, shutdown); p.say(kindData, 1) }, ""},
		{"a message of no kind", func(p *raw) {
			p.say(5, 1)
		}, "a message of kind 5, which means nothing"},
		{"a control message of no kind", func(p *raw) {
			p.say(kindControl, 3)
		}, "a control message 3, which means nothing"},
		{"a Write beyond the ring", func(p *raw) { p.write(4090, []byte("beyond it")) }, "bound"},
		{"no goodbye", func(p *raw) { p.qp.Disconnect() }, ErrVanished.Error()},
		{"a reset", func(p *raw) { p.qp.Abort() }, "reset"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
				innocent := pair(t, devs, opt)
				p := newRaw(t, devs[0], rnic.ConnParam{})
				c := p.connect(devs[1], opt)
				tc.do(p)
				select { // no read gives the peer room
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
				require.Error(t, errOf(c.Write([]byte("x"))))
				go func() { _, _ = innocent[0].Write([]byte("unharmed")); _ = innocent[0].CloseWrite() }()
				got := must(io.ReadAll(innocent[1]))(t)
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
			l := must(Listen(ctx, devs[1], ":0", ListenOptions{Rejected: func(_ netip.AddrPort, err error) {
				told <- err
			}}))(t)
			defer l.Close()
			var rejected *rnic.RejectedError
			require.ErrorAs(t, newRaw(t, devs[0], rnic.ConnParam{}).qp.Connect(ctx, dialable(l),
				rnic.ConnParam{PrivateData: tc.private}), &rejected)
			require.Empty(t, rejected.PrivateData)
			err := <-told
			require.ErrorIs(t, err, errNoRsockets)
			require.ErrorContains(t, err, tc.want)

			inner := must(devs[1].Listen(ctx, ":0", rnic.ListenOptions{}))(t)
			defer inner.Close()
			go func() {
				if req, err := inner.Accept(ctx); err == nil {
					_ = req.Accept(ctx, newRaw(t, devs[1], rnic.ConnParam{}).qp,
						rnic.ConnParam{PrivateData: tc.private})
				}
			}()
			_, err = Dial(ctx, devs[0], testnic.Dialable(inner.Addr()), Options{})
			require.ErrorIs(t, err, errNoRsockets)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// A peer of the other byte order: as Responder we speak its order, as Initiator we say that it
// cannot be.
func TestByteOrder(t *testing.T) {
	devs := testnic.Wired(t)
	p := newRaw(t, devs[0], rnic.ConnParam{})
	p.order = binary.BigEndian
	c := p.connect(devs[1], Options{ReceiveBuffer: 4096})
	require.True(t, p.theirs.bigEndian)
	p.write(0, []byte("in order"))
	p.say(kindData, 8)
	p.say(kindControl, keepAlive)
	b := make([]byte, 100)
	n := must(c.Read(b))(t)
	require.Equal(t, "in order", string(b[:n]))
	k, value := p.hears() // with the second half of the ring
	require.Equal(t, kindGrant, k)
	require.EqualValues(t, creditsDefault, value)
	list := p.m.Bytes()[rawBuffers*messageLen:]
	require.Equal(t, entry{}, parseEntry(list, p.order))
	require.Equal(t, entry{p.theirs.ring.to + 2048, p.theirs.ring.stag, 2048},
		parseEntry(list[entryLen:], p.order))
	must(c.Write([]byte("hello")))(t)
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
	inner := must(devs[1].Listen(ctx, ":0", rnic.ListenOptions{}))(t)
	defer inner.Close()
	go func() {
		if req, err := inner.Accept(ctx); err == nil {
			p := newRaw(t, devs[1], rnic.ConnParam{})
			p.order = binary.BigEndian
			d := p.data()
			_ = req.Accept(ctx, p.qp, p.with(d.marshal()))
		}
	}()
	_, err := Dial(ctx, devs[0], testnic.Dialable(inner.Addr()), Options{})
	require.ErrorContains(t, err, "byte order")
}

// A peer that grants nothing holds a Write up, no longer than its deadline; one that does not close
// holds Close up, no longer than Linger.
func TestSilentPeer(t *testing.T) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		p := newRaw(t, devs[0], rnic.ConnParam{AllowHalfClosed: true})
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
