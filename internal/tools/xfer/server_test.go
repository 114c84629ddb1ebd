package xfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/tools/peer"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// What cannot be served is rejected with a text, and costs nothing.
func TestServerRefuses(t *testing.T) {
	wrongVersion := request{op: OpPut}.marshal()
	wrongVersion[4] = 7
	for _, tc := range []struct {
		name    string
		private []byte
		want    string
	}{
		{"too large", request{op: OpPut, length: 100_001}.marshal(),
			"100001 octets offered, the region holds 100000; start the server with a larger --region"},
		{"absurdly large", request{op: OpPut, length: 1<<64 - 1}.marshal(),
			"18446744073709551615 octets offered"},
		{"get", request{op: OpGet}.marshal(), "this server has no file to read; start it with --file"},
		{"unknown", request{op: 3, length: 1}.marshal(), "operation 3 is not served"},
		{"version", wrongVersion, "protocol version 7, this server speaks 1"},
		{"nothing", nil, "the private data (0 octets) is not a transfer request"},
		{"something else", []byte("hello, is this the web?"), "is not a transfer request"},
		{"one octet short", request{op: OpPut}.marshal()[:15], "is not a transfer request"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, 100_000, ServerConfig{})
			c := r.newRogue(r.client)
			var no *peer.RefusedError
			require.ErrorAs(t, peer.Refusal("xfer", c.connect(tc.private)), &no)
			require.Contains(t, no.Text, tc.want)
			require.Contains(t, wait(r, r.refused), tc.want)
			require.Empty(t, r.done)
			require.Zero(t, r.server.Served.Load())
		})
	}
}

// While a transfer holds the memory the next one is refused; when it is gone the next one fits.
func TestServerNoRoom(t *testing.T) {
	r := newRig(t, 100_000, ServerConfig{})
	holder, _ := r.putting(60_000)
	_, err := r.put(content(1, 50_000))
	require.EqualError(t, err, "xfer: the server refused: no room for 50000 octets while 1 other "+
		"transfers run; try again later")
	small := content(2, 30_000)
	r.moves(small)
	require.Equal(t, small, r.region[61_440:91_440], "after the holder's pages")

	holder.qp.Abort()
	require.ErrorIs(t, r.result().Err, stack.ErrReset)
	r.until(func() bool {
		r.server.cfg.Memory.mu.Lock()
		defer r.server.cfg.Memory.mu.Unlock()
		return r.server.cfg.Memory.room.inUse() == 0
	})
	large := content(3, 100_000)
	r.moves(large)
	require.Equal(t, large, r.region)
}

// The room is free when the client hears of its end: a client that has heard may come again at once
// with as much, though the server is not done.
func TestServerRoomAfterTheAnswer(t *testing.T) {
	r := newRig(t, 50_000, ServerConfig{})
	data := content(1, 50_000)
	first, g := r.putting(50_000)
	first.write(g, 0, data)
	require.True(t, first.finishes(finish{length: 50_000, digest: sha256.Sum256(data)}).match)
	data = content(2, 50_000)
	r.moves(data)
	require.Equal(t, data, r.region)
	require.NoError(t, first.qp.Close(r.ctx))
	require.NoError(t, r.result().Err)
}

// A client that closes with another length, or has not written what it asked for, has no match and
// costs no hashing.
func TestServerClosedTooEarly(t *testing.T) {
	data := content(1, 5000)
	for _, tc := range []struct {
		name    string
		written int
		finish  finish
		want    string
	}{
		{"other length", 5000, finish{length: 4999, digest: sha256.Sum256(data)},
			"asked for 5000 octets, wrote 5000 and closed with a length of 4999"},
		{"one octet missing", 4999, finish{length: 5000, digest: sha256.Sum256(data)},
			"asked for 5000 octets, wrote 4999 and closed with a length of 5000"},
		{"nothing written", 0, finish{length: 5000, digest: sha256.Sum256(make([]byte, 5000))},
			"asked for 5000 octets, wrote 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, 10_000, ServerConfig{})
			c, g := r.putting(5000)
			c.write(g, 0, data[:tc.written])
			a := c.finishes(tc.finish)
			require.False(t, a.match)
			require.Zero(t, a.digest)
			require.NoError(t, c.qp.Close(r.ctx))
			require.ErrorContains(t, r.result().Err, tc.want)
		})
	}
}

// What one client wrote is gone before the next may write there, and no answer lets a client find
// it out: not a client that leaves octets as they are, and writes others twice so that the count is
// right.
func TestServerForgets(t *testing.T) {
	const n = 2*wipeStep + 5000
	secret := content(1, n)
	r := newRig(t, n, ServerConfig{})
	r.moves(secret)

	for _, guess := range [][]byte{secret[:100], make([]byte, 100), nil} {
		c, g := r.putting(100)
		for range 2 { // the first half, twice
			c.write(g, 0, secret[:50])
		}
		left := append(bytes.Clone(secret[:50]), make([]byte, 50)...)
		f := finish{length: 100, digest: sha256.Sum256(guess)}
		if guess == nil {
			f.digest = sha256.Sum256(left)
		}
		a := c.finishes(f)
		require.Equal(t, guess == nil, a.match, "what is not written is 0")
		if !a.match {
			require.Zero(t, a.digest)
		}
		require.NoError(t, c.qp.Close(r.ctx))
		r.result()
		if !raceEnabled {
			require.Equal(t, left, r.region[:100], "cleared, and half written")
			require.Equal(t, secret[extentAlign:], r.region[extentAlign:], "nobody's yet")
		}
	}
	c, _ := r.putting(n)
	require.NoError(t, c.qp.Close(r.ctx))
	r.result()
	if !raceEnabled {
		require.Equal(t, make([]byte, n), r.region)
	}
}

// A request that ends while its memory is being cleared takes no more time.
func TestWipeEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b := []byte{1}
	require.ErrorIs(t, wipe(ctx, b), context.Canceled)
	require.Equal(t, []byte{1}, b)
}

// A client that is to write may not so much as ask for a Read.
func TestPutMayNotRead(t *testing.T) {
	r := newRig(t, 10_000, ServerConfig{})
	c := r.newRogueWith(r.client, rnic.ConnParam{ORD: 4})
	require.NoError(t, c.connect(request{op: OpPut, length: 5000}.marshal()))
	require.ErrorIs(t, c.post(rnic.OpRead, grant{}, 0), rnic.ErrReadDepth)
	c.qp.Abort()
	require.Error(t, r.result().Err)
}

// The room of a transfer is free before anybody hears that it is over.
func TestRoomIsFreeAtTheEnd(t *testing.T) {
	server, inUse := make(chan *Server, 1), -1
	r := newRig(t, 5000, ServerConfig{Done: func(Result) {
		s := <-server
		s.cfg.Memory.mu.Lock()
		defer s.cfg.Memory.mu.Unlock()
		inUse = s.cfg.Memory.room.inUse()
	}})
	server <- r.server
	data := content(1, 5000)
	_, err := Put(r.ctx, PutConfig{Adapter: r.client, Addr: r.addr, Source: bytes.NewReader(data),
		Length: 5000})
	require.NoError(t, err)
	require.NoError(t, r.result().Err)
	require.Zero(t, inUse)
}

// What is no closing message is answered "no match".
func TestServerMalformedFinish(t *testing.T) {
	for name, b := range map[string][]byte{"empty": {}, "short": make([]byte, finishLen-1),
		"other": make([]byte, finishLen)} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 10_000, ServerConfig{})
			c, _ := r.putting(100)
			c.send(b)
			a := must(parseAnswer(c.receive()))(t)
			require.False(t, a.match)
			require.NoError(t, c.qp.Close(r.ctx))
			require.ErrorIs(t, r.result().Err, errMalformed)
		})
	}
}

// Memory that was hashed cannot be written any more.
//
// req: 5042-A-1, 5042-6.2.2-1
func TestServerRevokesBeforeItHashes(t *testing.T) {
	r := newRig(t, 10_000, ServerConfig{})
	data := content(1, 5000)
	c, g := r.putting(5000)
	c.write(g, 0, data)
	require.True(t, c.finishes(finish{length: 5000, digest: sha256.Sum256(data)}).match)
	c.write(g, 0, []byte("too late"))
	var te *rnic.TerminateError
	require.ErrorAs(t, c.untilDone(), &te)
	require.True(t, te.Remote)
	require.ErrorContains(t, te, "invalid STag")
	require.ErrorContains(t, r.result().Err, "invalid STag")
	require.Equal(t, data, r.region[:5000])
}

// A grant is for its octets and its connection alone.
//
// req: 5042-6.3.4-1, 5041-8.3.1-3, 5041-8.3.1-2, 5042-6.1.1-1, 5042-6.4.5-1
func TestServerGrantsNoMore(t *testing.T) {
	for name, off := range map[string]int{"one octet further": 1, "far off": 1 << 40} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 100_000, ServerConfig{})
			c, g := r.putting(5000)
			c.write(g, off, content(1, 5000))
			require.ErrorContains(t, c.untilDone(), "base or bounds violation")
			require.ErrorContains(t, r.result().Err, "base or bounds violation")
			require.Equal(t, make([]byte, 95_000), r.region[5000:])
		})
	}
	t.Run("another connection", func(t *testing.T) {
		r := newRig(t, 100_000, ServerConfig{})
		_, first := r.putting(5000)
		second, _ := r.putting(5000)
		second.write(first, 0, content(1, 100))
		require.ErrorContains(t, second.untilDone(), "not associated with the stream")
		require.ErrorContains(t, r.result().Err, "not associated with the stream")
		require.Equal(t, make([]byte, 100_000), r.region)
	})
}

// A client on which nothing arrives is cut off.
//
// req: D01-6.1-36
func TestServerIdleTimeout(t *testing.T) {
	r := newRig(t, 10_000, ServerConfig{IdleTimeout: 30 * time.Millisecond})
	begin := time.Now()
	c, _ := r.putting(5000)
	res := r.result()
	require.EqualError(t, res.Err, "xfer: nothing was written by the client for 30ms")
	require.GreaterOrEqual(t, time.Since(begin), 30*time.Millisecond)
	require.ErrorIs(t, c.untilDone(), stack.ErrReset)
	require.Equal(t, uint64(5000), res.Length)
	require.True(t, res.Remote.IsValid())
}

// A client that only keeps its connection alive is idle all the same.
func TestServerIdleButAlive(t *testing.T) {
	r := newRig(t, 10_000, ServerConfig{IdleTimeout: 60 * time.Millisecond})
	c, g := r.putting(5000)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for c.qp.State() == rnic.RTS {
		<-tick.C
		require.NoError(t, r.ctx.Err())
		// of nothing; the end may come between
		_, _ = c.qp.PostSend(rnic.WorkRequest{Op: rnic.OpWrite, RemoteSTag: g.stag})
	}
	require.EqualError(t, r.result().Err, "xfer: nothing was written by the client for 60ms")
}

// A client that keeps writing, however slowly the whole goes, is not idle.
func TestServerSlowClient(t *testing.T) {
	r := newRig(t, 10_000, ServerConfig{IdleTimeout: time.Second})
	c, g := r.putting(5000)
	tick := time.NewTicker(60 * time.Millisecond)
	defer tick.Stop()
	data := content(1, 5000)
	for i := range 20 { // longer than the idle timeout in all
		<-tick.C
		c.write(g, i*250, data[i*250:(i+1)*250])
	}
	require.True(t, c.finishes(finish{length: 5000, digest: sha256.Sum256(data)}).match)
	require.NoError(t, c.qp.Close(r.ctx))
	require.NoError(t, r.result().Err)
}

// A client that got its answer and stays is cut off too.
func TestServerClientStays(t *testing.T) {
	r := newRig(t, 10_000, ServerConfig{IdleTimeout: 500 * time.Millisecond})
	c, _ := r.putting(0)
	require.True(t, c.finishes(finish{digest: sha256.Sum256(nil)}).match)
	require.ErrorContains(t, r.result().Err, "did not close the connection after the answer")
	require.ErrorIs(t, c.untilDone(), stack.ErrReset)
}

// A client that closes, or vanishes, before its closing message.
func TestServerClientLeaves(t *testing.T) {
	r := newRig(t, 10_000, ServerConfig{})
	c, g := r.putting(5000)
	c.write(g, 0, content(1, 100))
	require.NoError(t, c.qp.Close(r.ctx))
	require.EqualError(t, r.result().Err,
		"xfer: the client closed the connection before its closing message")
	c, g = r.putting(5000)
	c.write(g, 0, content(1, 100))
	c.qp.Abort()
	require.ErrorIs(t, r.result().Err, stack.ErrReset)
}

// When a server cannot take what a transfer needs, its client is told, and nothing is left behind.
func TestServerOutOfRegions(t *testing.T) {
	for room := range 3 { // regions still to be had; a transfer takes three
		t.Run(fmt.Sprint(room), func(t *testing.T) {
			r := newRigWith(t, 10_000, ServerConfig{}, rnic.Config{RegionsMax: 8})
			var held []*rnic.MemoryRegion
			for range 8 - room {
				m := must(r.dev.AllocPD().Register(make([]byte, 1), 0))(t)
				held = append(held, m)
			}
			_, err := r.put(content(1, 100))
			require.ErrorContains(t, err, "the server refused: rnic: ")
			require.ErrorContains(t, err, "all 8 memory regions are in use")
			require.ErrorContains(t, r.result().Err, "all 8 memory regions are in use")
			r.until(func() bool { return r.dev.Regions() == 8-room })
			for _, m := range held {
				m.Deregister()
			}
			must(r.put(content(1, 100)))(t)
		})
	}
}

// Serve ends with its context: transfers under way are aborted, their memory comes back.
func TestServeEnds(t *testing.T) {
	r := newRig(t, 100_000, ServerConfig{})
	waiting, _ := r.putting(5000)
	answered, _ := r.putting(0)
	f := finish{digest: sha256.Sum256(nil)}
	answered.send(f.marshal(make([]byte, finishLen)))
	answered.receive()
	require.NoError(t, r.stop())
	for range 2 {
		require.Error(t, r.result().Err)
	}
	require.ErrorIs(t, waiting.untilDone(), stack.ErrReset)
	require.ErrorIs(t, answered.untilDone(), stack.ErrReset)
}

// Serve ends with its Listener.
func TestServeListenerCloses(t *testing.T) {
	dev := must(rnic.Open(rnic.Config{}))(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := dev.Listen(ctx, "127.0.0.1:0", rnic.ListenOptions{})
	require.NoError(t, err)
	l.Close()
	err = NewServer(ServerConfig{Adapter: dev}).Serve(ctx, l)
	require.True(t, errors.Is(err, rnic.ErrClosed), "%v", err)
}
