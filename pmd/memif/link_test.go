package memif

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/mem"
)

// Accept hands out one port for each client, as wide as that is; who the client is, is the
// kernel's word, and the caller's to decide on.
func TestAccept(t *testing.T) {
	seen := make(chan Peer, 4)
	l := listen(t, ListenConfig{Backlog: 2, Queues: 4, Admit: func(p Peer) error {
		seen <- p
		if p.Secret == "bad" {
			return errors.New("Not you")
		}
		return nil
	}})
	refused := must(Dial(Config{Socket: l.cfg.Socket, ID: 9, Secret: "bad"}))(t)
	p := <-seen
	<-seen // it comes again
	require.ErrorContains(t, refused.Err(), "Not you")
	require.NoError(t, refused.Close())
	require.Equal(t, Peer{
		ID: 9, Name: "rnicd", PID: int32(os.Getpid()), UID: uint32(os.Getuid()), GID: uint32(os.Getgid()),
		Secret: "bad",
	}, p)
	for len(seen) > 0 {
		<-seen
	}
	for range 3 {
		var clients, servers []*side
		for id, queues := range []int{1, 4} {
			c := dialSide(t, Config{Socket: l.cfg.Socket, ID: uint32(id), Queues: queues, Name: "eth"},
				false, 256)
			port := must(l.Accept(within(t)))(t)
			require.Equal(t, queues, port.Caps().Queues)
			s := openSide(t, port, nil, 256)
			joined(t, c, s)
			who, ok := port.Peer()
			require.True(t, ok)
			require.Equal(t, "eth", who.Interface)
			clients, servers = append(clients, c), append(servers, s)
			<-seen
		}
		for i := range clients {
			bothWays(t, newRand(t), clients[i], servers[i], 3)
		}
		for i := range clients {
			clients[i].closed(t)
			<-servers[i].port.Gone()
			require.False(t, servers[i].port.LinkUp())
			servers[i].closed(t)
		}
	}
}

// Clients for which there is no interface, no room, or no second place are refused, and the owner
// is told of each.
func TestRefusedClients(t *testing.T) {
	told := make(chan string, 16)
	l := listen(t, ListenConfig{Backlog: 1, ClientsMax: 3, Refused: func(p Peer, err error) {
		told <- fmt.Sprintf("%d %d: %v", p.PID, p.ID, err)
	}})
	connected := func(id uint32) *rawClient {
		c := rawDial(t, l.cfg.Socket)
		c.attached(layout{id: id})
		c.tells(interfaceMessage(msgConnect, "x"), -1)
		return c
	}
	first := connected(1)
	require.Equal(t, msgConnected, first.next().typ())
	connected(2).refused("No connections are accepted")
	second := rawDial(t, l.cfg.Socket)
	i := goodInit()
	i.id = 1
	second.tells(i.message(), -1)
	second.refused("Already connected")
	for _, id := range []uint32{3, 4} {
		i.id = id
		rawDial(t, l.cfg.Socket).does(i.message(), -1)
	}
	fourth := rawDial(t, l.cfg.Socket)
	i.id = 5
	fourth.tells(i.message(), -1)
	fourth.refused("Too many clients")
	for _, want := range []string{"2: No connections are accepted at the moment",
		"1: Already connected: end the other client of interface 1", "5: Too many clients"} {
		select {
		case got := <-told:
			require.Equal(t, fmt.Sprint(os.Getpid(), " ", want), got)
		case <-within(t).Done():
			require.Fail(t, "not told", want)
		}
	}
	require.Empty(t, told)
	ctx, cancel := context.WithCancel(within(t))
	cancel()
	_, err := l.Accept(within(t))
	require.NoError(t, err)
	_, err = l.Accept(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, l.Close())
	require.ErrorIs(t, errOf(l.Accept(within(t))), ErrClosed)
	first.refused("Server closed")
}

// The link goes down when the peer goes, frames are lost meanwhile, and it comes up again; a
// watcher is told.
func TestReconnect(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		client, server, l := newPair(t, pairConfig{zero: k.zero})
		ups := make(chan struct{}, 16)
		require.NoError(t, client.port.WatchLink(func() { ups <- struct{}{} }))
		require.Error(t, client.port.WatchLink(func() {}))
		r := newRand(t)
		for range 3 {
			server.closed(t)
			require.NoError(t, client.port.AwaitLink(within(t), false))
			require.ErrorContains(t, client.port.Err(), "Interface closed")
			require.Equal(t, 1, client.tx(t, frame(r, 60)))
			require.NotZero(t, client.queues[0].Drops().Down)
			client.left(t)
			require.Equal(t, bufsOfSide, client.pools[0].Available(), "nothing lies in rings")
			server = bind(t, l, BindConfig{}, bufsOfSide)
			<-ups
			joined(t, client, server)
			bothWays(t, r, client, server, 3)
		}
	})
}

// What was sent before the end arrives after it, in either direction.
func TestLastFrames(t *testing.T) {
	for _, k := range kinds {
		for _, way := range []string{"up", "down"} {
			t.Run(k.name+"/"+way, func(t *testing.T) {
				from, to, _ := newPair(t, pairConfig{zero: k.zero})
				if way == "down" {
					from, to = to, from
				}
				r := newRand(t)
				var want [][]byte
				for range 100 {
					want = append(want, frame(r, frameOctets(r)))
				}
				from.send(t, 0, want...)
				closed := make(chan error)
				go func() {
					err := from.port.Close()
					clear(from.pools[0].Memory()) // the other end has no business there now
					closed <- err
				}()
				require.NoError(t, to.port.AwaitLink(within(t), false))
				require.Equal(t, want, to.receive(t, 0, 100))
				to.left(t)
				require.NoError(t, <-closed)
				require.Equal(t, bufsOfSide, to.pools[0].Available())
			})
		}
	}
}

// A client that goes on sending after the end does not keep the server in its memory.
func TestEndlessLastFrames(t *testing.T) {
	h := newHostileClient(t)
	h.server.poll()
	require.NoError(t, h.conn.Close())
	require.NoError(t, h.server.port.AwaitLink(within(t), false))
	got := 0
	for range 40 {
		h.put(newDesc(0, 0, 60, 4096))
		got += len(h.server.take(0))
	}
	require.Equal(t, 16, got)
	require.Nil(t, h.server.queues[0].session)
}

// A peer that asks for interrupts has its eventfd written to, once for a burst; one that masks
// them has not.
func TestInterrupts(t *testing.T) {
	out := rawEventfd(t)
	h := newHostile(t, ListenConfig{}, layout{bell: out})
	s, tx, rx := h.server, h.tx, h.rx
	s.poll()
	require.False(t, tx.wanted(), "the server polls, and says so")
	tx.advance(1)
	require.False(t, tx.wanted(), "head stands in the same word")
	tx.advance(1<<16 - 1)
	h.post(slices.Repeat([]desc{newDesc(0, 0, 2048, 4096)}, 16)...)
	s.poll()
	r := newRand(t)
	bufs := []mem.Buf{s.buf(t, 0, frame(r, 60)), s.buf(t, 0, frame(r, 60))}
	count := func() uint64 {
		poll := []unix.PollFd{{Fd: int32(out), Events: unix.POLLIN}}
		n := must(unix.Poll(poll, int(patience.Milliseconds())))(t)
		require.Equal(t, 1, n, "no interrupt")
		var b [8]byte
		must(unix.Read(out, b[:]))(t)
		return native.Uint64(b[:])
	}
	require.Equal(t, 2, s.queues[0].Tx(bufs))
	require.EqualValues(t, 1, count())
	rx.maskInterrupts()
	require.Equal(t, 2, s.queues[0].Tx(bufs))
	rings := s.port.current.Load().rings
	require.False(t, rings[0].tx.wanted())
	s.pools[0].FreeN(bufs)
	s.closed(t)
	var b [8]byte
	require.ErrorIs(t, errOf(unix.Read(out, b[:])), unix.EAGAIN)
}

// An eventfd that takes no more, from the start or once the client has had it block, holds up
// neither the queue that rings it nor the port.
func TestBellsThatBlock(t *testing.T) {
	for _, later := range []bool{false, true} {
		bell := must(unix.Eventfd(0, unix.EFD_CLOEXEC))(t)
		defer unix.Close(bell)
		require.NoError(t, unix.SetNonblock(bell, later))
		h := newHostile(t, ListenConfig{}, layout{bell: bell})
		require.NoError(t, unix.SetNonblock(bell, false))
		fill(t, bell)
		h.post(slices.Repeat([]desc{newDesc(0, 0, 2048, 8192)}, 16)...)
		f := frame(newRand(t), 60)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for range 16 {
				h.server.try(f)
			}
		}()
		select {
		case <-sent:
		case <-within(t).Done():
			require.Fail(t, "the queue waits for its peer's eventfd")
		}
		require.EqualValues(t, 16, h.server.queues[0].Counters().TxFrames)
		require.EqualValues(t, 16, h.rx.tail())
		h.server.closed(t)
		_, err := unix.Read(bell, make([]byte, 8)) // lets the writer go
		require.NoError(t, err)
	}
}

// fill makes an eventfd as full as can be.
func fill(t testing.TB, fd int) {
	t.Helper()
	must(unix.Write(fd, []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}))(t)
}

// A socket in the abstract namespace, and a path left behind by a server that is gone.
func TestSockets(t *testing.T) {
	name := "@rnicd-test-" + t.TempDir()
	for range 2 {
		l := listen(t, ListenConfig{Socket: name})
		server := bind(t, l, BindConfig{}, 256)
		client := dialSide(t, Config{Socket: name}, false, 256)
		joined(t, client, server)
		bothWays(t, newRand(t), client, server, 1)
		bothClosed(t, client, server)
		require.NoError(t, l.Close())
	}
}

// Admit is asked again once a client has attached, so that no client gets in while it becomes
// stricter; and Disconnect ends the connection of one that has.
func TestAdmissionThatEnds(t *testing.T) {
	asked := 0
	refused := make(chan error, 1)
	l := listen(t, ListenConfig{Admit: func(Peer) error {
		if asked++; asked == 2 {
			return errors.New("not any more")
		}
		return nil
	}, Refused: func(_ Peer, err error) { refused <- err }})
	p := bind(t, l, BindConfig{}, bufsOfSide).port
	p.Disconnect("nobody is there")
	client := must(Dial(Config{Socket: l.cfg.Socket}))(t)
	openSide(t, client, nil, bufsOfSide)
	select {
	case err := <-refused:
		require.ErrorContains(t, err, "not any more")
	case <-within(t).Done():
		require.Fail(t, "it was admitted")
	}
	require.NoError(t, client.AwaitLink(within(t), true))
	require.NoError(t, p.AwaitLink(within(t), true))
	ups := client.LinkUps()
	p.Disconnect("you have to go")
	require.Eventually(t, func() bool {
		return client.LinkUps() > ups
	}, patience, time.Millisecond, "and comes again")
	require.NoError(t, client.Close())
	require.NoError(t, p.Close())
}
