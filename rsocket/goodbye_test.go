package rsocket

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/rnic"
)

// Within Linger Close does not wait for a peer that does nothing at all: the QueuePair gives it up,
// and Close says so.
func TestPeerDoesNotClose(t *testing.T) {
	t.Parallel() // it waits for a real second
	devs := testnic.Sockets(t)
	p := newRaw(t, devs[0], rnic.ConnParam{AllowHalfClosed: true})
	c := p.connect(devs[1], Options{Linger: patience, Conn: rnic.ConnParam{UserTimeout: time.Second}})
	require.ErrorIs(t, c.Close(), errLinger)
	require.ErrorIs(t, c.QueuePair().Err(), rnic.ErrLinger)
}

// Octets that did not go out are Close's error, unless the peer has said that it receives nothing
// any more.
func TestLost(t *testing.T) {
	devs := testnic.Sockets(t)
	for _, gone := range []bool{false, true} {
		p := newRaw(t, devs[0], rnic.ConnParam{AllowHalfClosed: true})
		c := p.connect(devs[1], Options{})
		broken := errors.New("broken")
		if gone {
			p.say(kindControl, disconnect)
			require.Equal(t, io.EOF, errOf(c.Read(make([]byte, 1))))
		}
		c.mu.Lock()
		c.completeSend(&rnic.Completion{ID: 1<<idShift | 2, Op: rnic.OpSend, Status: rnic.Flushed})
		c.fail(broken)
		c.mu.Unlock()
		if err := c.Close(); gone {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, broken)
		}
	}
}

// Goodbyes: of one direction, of both, and what calls return after them.
func TestGoodbyes(t *testing.T) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		c := pair(t, devs, Options{})
		must(c[0].Write([]byte("all of it")))(t)
		require.NoError(t, c[0].CloseWrite())
		require.NoError(t, c[0].CloseWrite())
		require.ErrorIs(t, errOf(c[0].Write([]byte("more"))), syscall.EPIPE)
		got := must(io.ReadAll(c[1]))(t)
		require.Equal(t, "all of it", string(got))
		must(c[1].Write([]byte("an answer")))(t)
		require.NoError(t, c[1].Close())
		got = must(io.ReadAll(c[0]))(t)
		require.Equal(t, "an answer", string(got))
		require.NoError(t, c[0].Close())
		for _, c := range c {
			require.ErrorIs(t, errOf(c.Read(got)), net.ErrClosed)
			require.ErrorIs(t, errOf(c.Write(got)), net.ErrClosed)
			require.ErrorIs(t, c.CloseWrite(), net.ErrClosed)
			require.ErrorIs(t, c.SetDeadline(time.Time{}), net.ErrClosed)
			require.ErrorIs(t, c.Close(), net.ErrClosed)
			require.NoError(t, c.QueuePair().Err())
		}

		c = pair(t, devs, Options{})
		closed := make(chan error, 1)
		go func() { closed <- c[0].Close() }()
		must(io.ReadAll(c[1]))(t)
		require.ErrorIs(t, errOf(c[1].Write([]byte("to nobody"))), syscall.EPIPE)
		require.NoError(t, <-closed)
	})
}

// What is said at the end: that nothing follows, and where the peer has said so, too, or when the
// Conn is closed, that nothing more is received; each once.
func TestWhatIsSaid(t *testing.T) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		for name, tc := range map[string]struct {
			peer []uint32
			do   func(c *Conn)
			want []uint32
		}{
			"Close": {nil, func(c *Conn) {}, []uint32{disconnect}},
			"CloseWrite": {nil, func(c *Conn) {
				_ = c.CloseWrite()
			}, []uint32{shutdown, disconnect}},
			"twice": {nil, func(c *Conn) {
				_ = c.CloseWrite()
				_ = c.CloseWrite()
			}, []uint32{shutdown, disconnect}},
			"CloseWrite after the peer's": {[]uint32{shutdown}, func(c *Conn) {
				_ = c.CloseWrite()
			}, []uint32{disconnect}},
			"Close after the peer's": {[]uint32{shutdown}, func(c *Conn) {}, []uint32{disconnect}},
			"where the peer receives nothing": {[]uint32{disconnect}, func(c *Conn) {
				_ = c.CloseWrite()
			}, nil},
		} {
			t.Run(name, func(t *testing.T) {
				p := newRaw(t, devs[0], rnic.ConnParam{AllowHalfClosed: true})
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
					got, err := io.ReadAll(c) // half the ring, which is not needed again
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
				// and a grant and an octet, with a Write each
				require.EqualValues(t, 2*(1+1)+len(tc.want), messagesSent(t, c))
			})
		}
	})
}

func messagesSent(t *testing.T, c *Conn) uint64 {
	st := must(c.QueuePair().Stats(t.Context()))(t)
	return st.MessagesSent
}

// What comes before a connection ends is read to its last octet, and the end is the connection's,
// although nothing more can be granted when our half is closed already.
func TestReadAfterTheEnd(t *testing.T) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		p := newRaw(t, devs[0], rnic.ConnParam{AllowHalfClosed: true})
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
