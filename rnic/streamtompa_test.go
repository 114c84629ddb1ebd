package rnic

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

const streamPort = 7175

// blocking runs f, which may block, while a turned rig turns. Virtual time moves only once f has
// had real time to run.
func (r *rig) blocking(f func() error) {
	r.t.Helper()
	if r.kind != turned {
		require.NoError(r.t, f())
		return
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	for steps := 0; ; steps++ {
		require.Less(r.t, steps, stepsMax, "steps")
		for r.hosts[0].poller.Turn()+r.hosts[1].poller.Turn() > 0 {
			r.time += stepNs
		}
		select {
		case err := <-done:
			require.NoError(r.t, err)
			return
		case <-time.After(20 * time.Millisecond): // it waits for what only time will bring
			r.step()
		}
	}
}

// listenStream waits for connections in streaming mode at the server's host.
func (r *rig) listenStream() (net.Listener, error) {
	if r.kind == sockets {
		return net.Listen("tcp", "127.0.0.1:0")
	}
	return stream.Listen([]*stack.Poller{r.hosts[0].poller}, streamPort, stream.Options{})
}

// streams is both ends of a connection in streaming mode, the server's, which was dialled, and
// the client's.
func (r *rig) streams() (s, c net.Conn) {
	r.t.Helper()
	r.blocking(func() (err error) {
		l, err := r.listenStream()
		if err != nil {
			return err
		}
		if r.kind == sockets {
			c, err = net.Dial("tcp", l.Addr().String())
		} else {
			c, err = stream.Dial(r.ctx, []*stack.Poller{r.hosts[1].poller},
				netip.AddrPortFrom(r.hosts[0].poller.Addr(), streamPort), stream.Options{})
		}
		if err == nil {
			s, err = l.Accept()
		}
		return errors.Join(err, l.Close())
	})
	end := time.Now().Add(patience)
	for _, x := range []net.Conn{s, c} {
		require.NoError(r.t, x.SetDeadline(end))
		r.t.Cleanup(func() { _ = x.Close() }) // most have been given up
	}
	return s, c
}

// say sends octets of one end's and reads them at the other.
func (r *rig) say(from, to net.Conn, b []byte) {
	r.t.Helper()
	r.blocking(func() error {
		_, err := from.Write(b)
		return err
	})
	r.hear(to, b)
}

func (r *rig) hear(to net.Conn, want []byte) {
	r.t.Helper()
	got := make([]byte, len(want))
	r.blocking(func() error {
		_, err := io.ReadFull(to, got)
		return err
	})
	require.True(r.t, bytes.Equal(want, got), "streamed octets")
}

// chat is streaming mode both ways; the octets each end said are counted.
func (r *rig) chat(s, c net.Conn, seed uint64) (bySrv, byCli int) {
	rng := rand.New(rand.NewPCG(seed, 3))
	for i := range 4 {
		a, b := randomBytes(seed+uint64(i), 1+rng.IntN(9000)),
			randomBytes(seed+uint64(i)+50, 1+rng.IntN(9000))
		r.say(c, s, a)
		r.say(s, c, b)
		byCli, bySrv = byCli+len(a), bySrv+len(b)
	}
	return bySrv, byCli
}

var helloAck = []byte("as you wish: MPA from here on")

// delayed starts MPA on a connection in streaming mode by the book: the Responder enters it with
// the last streaming message.
func (r *rig) delayed(responder, initiator *end, rconn, iconn net.Conn, private []byte) {
	r.t.Helper()
	l := must(responder.qp.adapter.respond(r.ctx, rconn, helloAck, ListenOptions{}))
	r.hear(iconn, helloAck)
	r.finishDelayed(responder, initiator, l, iconn, private)
}

func (r *rig) finishDelayed(responder, initiator *end, l awaited, iconn net.Conn, private []byte) {
	r.t.Helper()
	require.NoError(r.t, initiator.qp.StartConnectStream(r.ctx, iconn, initiator.with(private)))
	req := must(l.nextRequest(r.ctx))
	require.True(r.t, bytes.Equal(private, req.PrivateData()))
	require.NoError(r.t, req.Accept(r.ctx, responder.qp, responder.with([]byte("welcome"))))
	r.until("the Initiator in service", func() bool { return initiator.qp.State() != Connecting })
	require.Equal(r.t, RTS, initiator.qp.State(), "%v", initiator.qp.Err())
	require.Equal(r.t, RTS, responder.qp.State())
	require.Equal(r.t, "welcome", string(initiator.qp.PeerPrivateData()))
}

// works writes and sends both ways; the Initiator goes first.
func (r *rig) works(responder, initiator *end) {
	r.t.Helper()
	r.exchange(responder, initiator)
	for _, n := range []int{1, 511, 512, 5000, 30_000} {
		r.sendAndWrite(responder, initiator, n)
	}
}

// noBufLost: what the Pollers' pools gave out came back, except the one at hand.
func (r *rig) noBufLost() {
	r.t.Helper()
	for i, h := range r.hosts {
		if h == nil {
			continue
		}
		r.until(fmt.Sprintf("all Bufs of host %d", i), func() bool {
			free := make(chan int, 1)
			require.NoError(r.t, h.poller.Submit(func() { free <- h.pool.Available() }))
			if r.kind == turned {
				r.step()
			}
			return <-free >= h.pool.Size()-1
		})
	}
}

// Streaming mode both ways, then MPA on the same connection, whichever end dialled it; both
// halves change at once, each at its own octet.
//
// req: D01-6.1-1, D01-6.1-2, D01-6.1-4, D01-6.1-8, D01-6.1-9, D01-6.1.2-1, D01-6.1.3-1, D01-6.1.4-2
// req: P2P-16, P2P-19
func TestDelayedStartup(t *testing.T) {
	for _, dialled := range []string{"dialler initiates", "dialler responds"} {
		t.Run(dialled, func(t *testing.T) {
			over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
				s, c := r.newEnd(r.server, opts{}), r.newEnd(r.client, opts{})
				sc, cc := r.streams()
				r.chat(sc, cc, 7)
				local, remote := cc.LocalAddr().String(), cc.RemoteAddr().String()
				if dialled == "dialler initiates" {
					r.delayed(s, c, sc, cc, []byte("hello"))
					r.works(s, c)
				} else {
					r.delayed(c, s, cc, sc, randomBytes(1, mpa.PrivateDataMax))
					r.works(c, s)
				}
				require.Equal(t, local, c.qp.LocalAddr().String())
				require.Equal(t, remote, c.qp.RemoteAddr().String())
				// req: 5040-6.1-1
				for _, x := range []net.Conn{sc, cc} {
					_, err := x.Write([]byte("more"))
					require.Error(t, err, "a stream that was given up")
				}
				r.close(s, c)
				require.Zero(t, len(r.client.host.Live())+len(r.server.host.Live()))
				r.noBufLost()
			})
		})
	}
}

// A deadline that was set in streaming mode, and a Read that still waits, do not reach MPA; the
// Read fails.
func TestStreamingModeLeavesNothingBehind(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.newEnd(r.server, opts{}), r.newEnd(r.client, opts{})
		sc, cc := r.streams()
		reading := make(chan error, 1)
		l := must(r.server.respond(r.ctx, sc, nil, ListenOptions{}))
		require.NoError(t, cc.SetDeadline(time.Now().Add(100*time.Millisecond)))
		go func() {
			_, err := cc.Read(make([]byte, 1))
			reading <- err
		}()
		r.finishDelayed(s, c, l, cc, nil)
		require.Error(t, <-reading)
		r.exchange(s, c)
		past := time.NewTimer(120 * time.Millisecond)
		<-past.C
		r.exchange(s, c)
		require.Error(t, sc.SetDeadline(time.Now()))
		_ = sc.Close()
		r.exchange(s, c)
		r.close(s, c)
	})
}

// Nothing but start-up stands between streaming mode and FPDUs, markers count from after the
// start-up frame, and from there on every segment holds whole FPDUs; before, segments are what an
// ordinary TCP makes of a stream.
//
// req: D01-6.1-1, D01-3.1.1-4, D01-3.1.1-5, C02-5.1.1-4, C02-5.1.1-5, D01-3.1.2-12, C02-5.1.2-12
// req: D01-6.1-5
// req: D01-1.2-1
func TestRulesBeginAfterStreamingMode(t *testing.T) {
	for name, opt := range framings {
		t.Run(name, func(t *testing.T) {
			r, log := logged(t, rigConfig{})
			log.port = streamPort
			s, c := r.newEnd(r.server, opt), r.newEnd(r.client, opt)
			sc, cc := r.streams()
			_, said := r.chat(sc, cc, 9)
			r.delayed(s, c, sc, cc, nil)
			r.works(s, c)
			c.post(c.write(s, 1, 0, 50_000))
			c.await(1)
			r.close(s, c)
			sent := log.stream()
			f, n, err := mpa.ParseFrame(sent[said:], mpa.Request, mpa.PrivateDataMax)
			require.NoError(t, err)
			require.Equal(t, startupLen, n)
			require.Equal(t, !opt.NoMarkers, f.Markers)
			bounds := fpduBounds(t, sent, said+startupLen, !opt.NoMarkers)
			full := 0
			for _, g := range log.segs {
				end := g.off + len(g.data)
				switch {
				case g.off < said:
					require.LessOrEqual(t, end, said, "a segment of both modes")
					if len(g.data) == 1448 {
						full++
					}
				case g.off == said:
					require.Equal(t, said+startupLen, end, "the Request travels alone")
				default:
					require.True(t, bounds[g.off] && bounds[end], "segment at %d", g.off)
				}
			}
			require.Positive(t, full, "segments of streaming mode are filled to EMSS")
		})
	}
}

// Loss, repetition and reordering while stacks are switched are TCP's business, in each dialect and
// whichever end is quicker: no octet of either mode is taken for the other's.
//
// req: 5044-7.1.5-1, D01-6.1.4-3, P2P-20, D01-3.1.2-11, C02-5.1.2-11, C02-8.1-1, C02-8.1-2
// req: C02-8.1-5
func TestDelayedStartupOverABadNetwork(t *testing.T) {
	bad := fault.Faults{Drop: 0.1, Reorder: 0.2, Duplicate: 0.05}
	for seed := range uint64(10) {
		d, late := Culley02+Dialect(seed%5), seed >= 5
		t.Run(fmt.Sprintf("%v, late %v", d, late), func(t *testing.T) {
			r := newRig(t, turned, rigConfig{faults: true})
			s := r.newEnd(r.server, opts{})
			c := r.newEnd(r.client, connOpts(ConnParam{Dialect: d, PeerToPeer: d >= RTR}))
			sc, cc := r.streams()
			r.pass(time.Duration(seed) * time.Millisecond)
			r.faults(bad)
			r.say(cc, sc, randomBytes(seed, 5000))
			r.say(sc, cc, randomBytes(seed, 5000))
			respond := func(last []byte) awaited {
				return must(r.server.respond(r.ctx, sc, last, ListenOptions{Dialects: []Dialect{d}}))
			}
			var l awaited
			if late { // the Request may be there first, or on its way
				r.say(sc, cc, helloAck)
			} else {
				l = respond(helloAck)
				r.hear(cc, helloAck)
			}
			require.NoError(t, c.qp.StartConnectStream(r.ctx, cc, c.conn))
			if late {
				r.pass(time.Duration(seed) * 100 * time.Microsecond)
				l = respond(nil)
			}
			req := must(l.nextRequest(r.ctx))
			require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
			c.expectInService()
			if d >= RTR || d == Culley02 {
				r.converse(s, c)
			}
			r.works(s, c)
			r.faults(fault.Faults{})
			r.close(s, c)
			r.noBufLost()
		})
	}
}

// Who waits for a Request in a simulation does not turn when it is there, or one seed would give
// many runs.
func TestNextRequestThatIsThere(t *testing.T) {
	for range 20 {
		turns := 0
		a := must(Open(Config{Manual: func() { turns++ }}))
		l := awaited{connect.NewConnection(&a.host), make(chan *ConnRequest, 1)}
		l.requests <- &ConnRequest{connection: l.Connection}
		must(l.nextRequest(t.Context()))
		require.Zero(t, turns)
	}
}

// MPA is not started while streaming octets are unread, and the connection stays the stream it
// was: they can be read, and then it starts.
//
// req: D01-6.1.4-1
func TestUnreadStreamingOctets(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		sc, cc := r.streams()
		r.say(cc, sc, []byte("x")) // what is below is after it
		for i, x := range []net.Conn{cc, sc} {
			peer := []net.Conn{sc, cc}[i]
			n := must(peer.Write([]byte("one thing more")))
			r.untilUnread(x, peer, n)
		}
		c := r.newEnd(r.client, opts{})
		err := c.qp.StartConnectStream(r.ctx, cc, c.conn)
		require.ErrorIs(t, err, ErrUnread)
		require.ErrorContains(t, err, "rnic: connect to "+cc.RemoteAddr().String()+
			": rnic: octets of the peer's are unread")
		require.True(t, isDone(c.qp))
		_, err = r.server.AcceptStream(r.ctx, sc, helloAck)
		require.ErrorIs(t, err, ErrUnread)
		require.ErrorContains(t, err, "rnic: accept on the connection with "+sc.RemoteAddr().String()+
			": rnic: octets")
		require.Zero(t, len(r.server.host.Live())+len(r.client.host.Live()))

		r.hear(cc, []byte("one thing more"))
		r.hear(sc, []byte("one thing more"))
		s, c := r.newEnd(r.server, opts{}), r.newEnd(r.client, opts{})
		r.delayed(s, c, sc, cc, nil)
		r.exchange(s, c)
		r.close(s, c)
		r.noBufLost()
	})
}

// untilUnread waits until the n octets that from has written are at its peer c, which reads none.
func (r *rig) untilUnread(c, from net.Conn, n int) {
	r.t.Helper()
	if k, ok := c.(*net.TCPConn); ok {
		r.until("octets at the socket", func() bool {
			have := must(transport.UnreadOctets(k))
			return have == n
		})
		return
	}
	var answer chan stream.Info
	r.until("acknowledgements", func() bool {
		if answer == nil {
			answer = make(chan stream.Info, 1)
			go func() {
				i, err := from.(*stream.Conn).Info(r.ctx)
				assert.NoError(r.t, err)
				answer <- i
			}()
		}
		select {
		case i := <-answer:
			answer = nil
			return i.Unacked == 0
		default:
			runtime.Gosched()
			return false
		}
	})
}

// What MPA cannot start on is said before anything is done.
func TestDelayedStartupMistakes(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		sc, cc := r.streams()
		c := r.newEnd(r.client, opts{})
		for _, tc := range []struct {
			conn net.Conn
			want string
		}{
			{tls.Client(cc, nil), "rnic: MPA starts on a *stream.Conn or a *net.TCPConn itself, not on a " +
				"*tls.Conn"},
			{pipe(t), "not on a *net.pipe"},
			{nil, "not on a <nil>"},
		} {
			require.ErrorContains(t, c.qp.ConnectStream(r.ctx, tc.conn, c.conn), tc.want)
			_, err := r.client.AcceptStream(r.ctx, tc.conn, nil)
			require.ErrorContains(t, err, tc.want)
		}
		require.ErrorContains(t, c.qp.ConnectStream(r.ctx, cc, c.with(make([]byte, 513))),
			"513 octets of private data")
		if r.kind != sockets {
			require.ErrorContains(t, c.qp.ConnectStream(r.ctx, sc, c.conn),
				`poller "`+r.hosts[0].poller.Name()+`" is none of the adapter's`)
			_, err := r.client.AcceptStream(r.ctx, sc, nil)
			require.ErrorContains(t, err, "is none of the adapter's: name it in Config.Pollers")
		}
		require.Equal(t, Idle, c.qp.State(), "nothing happened")
		s := r.newEnd(r.server, opts{})
		r.delayed(s, c, sc, cc, nil)
		require.ErrorIs(t, c.qp.ConnectStream(r.ctx, cc, c.conn), ErrState)
		r.exchange(s, c)
		r.close(s, c)

		// Given up or closed, it is no connection any more.
		for range 2 {
			again := r.newEnd(r.client, opts{})
			require.Error(t, again.qp.ConnectStream(r.ctx, cc, again.conn))
			require.True(t, isDone(again.qp))
			_, err := r.server.AcceptStream(r.ctx, sc, helloAck)
			require.Error(t, err)
			_ = cc.Close() // the first time it does nothing
			_ = sc.Close()
		}
		sc, cc = r.streams()
		require.NoError(t, sc.Close())
		require.NoError(t, cc.Close())
		_, err := r.server.AcceptStream(r.ctx, sc, nil)
		require.ErrorIs(t, err, net.ErrClosed)
		again := r.newEnd(r.client, opts{})
		require.ErrorIs(t, again.qp.ConnectStream(r.ctx, cc, again.conn), net.ErrClosed)
		require.Zero(t, len(r.server.host.Live())+len(r.client.host.Live()))
		require.Zero(t, r.server.slotsTaken())
		require.Zero(t, r.client.slotsTaken())
	})
}

func pipe(t *testing.T) net.Conn {
	a, b := net.Pipe()
	t.Cleanup(func() {
		_ = a.Close()
		_ = b.Close()
	})
	return a
}

// A peer that closes its half, or resets, before it has sent a Request.
//
// req: C02-5.1-1, D01-3.1-1
func TestPeerEndsStreamBeforeRequest(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		for _, early := range []bool{true, false} {
			sc, cc := r.streams()
			var l awaited
			var err error
			enter := func() { l = must(r.server.respond(r.ctx, sc, nil, ListenOptions{})) }
			if !early {
				enter()
			}
			require.NoError(t, cc.(interface{ CloseWrite() error }).CloseWrite())
			if early {
				r.blocking(func() error {
					if _, err := sc.Read(make([]byte, 1)); err != io.EOF {
						return os.ErrInvalid
					}
					return nil
				})
				enter()
			}
			_, err = l.nextRequest(r.ctx)
			require.ErrorIs(t, err, ErrPeerClosed)

			sc, cc = r.streams()
			enter()
			require.NoError(t, cc.(interface{ SetLinger(int) error }).SetLinger(0))
			require.NoError(t, cc.Close())
			_, err = l.nextRequest(r.ctx)
			require.ErrorIs(t, err, stack.ErrReset)
		}
		r.noBufLost()
	})
}

// The context, Abort and the Adapter's Close end what is still coming about.
func TestDelayedStartupGivenUp(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		sc, cc := r.streams()
		ctx, cancel := context.WithCancel(r.ctx)
		accepted := make(chan error, 1)
		go func() {
			_, err := r.server.AcceptStream(ctx, sc, nil)
			accepted <- err
		}()
		// before, it would stay a stream
		r.until("the connection", func() bool { return len(r.server.host.Live()) == 1 })
		cancel()
		require.ErrorIs(t, <-accepted, context.Canceled)
		require.NoError(t, cc.SetReadDeadline(time.Now().Add(connect.RequestTimeout/2)))
		_, err := cc.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)

		for _, by := range []struct {
			name string
			end  func(q *QueuePair)
		}{
			{"abort", (*QueuePair).Abort}, {"disconnect", (*QueuePair).Disconnect},
			{"adapter", func(*QueuePair) { require.NoError(t, r.client.Close(r.ctx)) }},
		} {
			name, end := by.name, by.end
			_, cc := r.streams()
			c, late := r.newEnd(r.client, opts{}), r.newEnd(r.client, opts{})
			failed := make(chan error, 1)
			go func() { failed <- c.qp.ConnectStream(r.ctx, cc, c.conn) }()
			r.until("the connection of "+name, func() bool { return len(r.client.host.Live()) == 1 })
			end(c.qp)
			require.ErrorIs(t, <-failed, ErrClosed, name)
			c.awaitClosed()
			if name == "adapter" {
				_, cc := r.streams()
				require.ErrorIs(t, late.qp.ConnectStream(r.ctx, cc, late.conn), ErrClosed)
				_, err := r.client.AcceptStream(r.ctx, cc, nil)
				require.ErrorIs(t, err, ErrClosed)
			}
		}
	})
}

// Abort that comes while ConnectStream waits for the Poller: nobody takes the stream over, and an
// Adapter's Close that has seen the connection does not wait for it.
func TestAbortMeetsConnectStream(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	sc, cc := r.streams()
	c := r.newEnd(r.client, opts{})
	r.between(r.client, c.qp.Abort)
	require.ErrorIs(t, c.qp.StartConnectStream(r.ctx, cc, c.conn), ErrClosed)
	require.True(t, isDone(c.qp))
	select {
	case <-c.qp.end.Connection.Load().Gone.C():
	default:
		t.Fatal("Close would wait for ever")
	}
	require.Empty(t, r.client.host.Live())
	r.chat(sc, cc, 5)
}

// Octets that cannot be sent hold a Detach up: the context ends it, the stream stays, and a
// QueuePair that is aborted meanwhile is told so.
func TestDetachHeldUp(t *testing.T) {
	over(t, []kind{running}, rigConfig{}, func(t *testing.T, r *rig) {
		_, cc := r.streams()
		require.NoError(t, cc.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
		for {
			if _, err := cc.Write(make([]byte, 1<<16)); err != nil {
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				break
			}
		}
		require.NoError(t, cc.SetWriteDeadline(time.Time{}))
		c := r.newEnd(r.client, opts{})
		ctx, cancel := context.WithTimeout(r.ctx, 20*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, c.qp.ConnectStream(ctx, cc, c.conn), context.DeadlineExceeded)
		c = r.newEnd(r.client, opts{})
		failed := make(chan error, 1)
		go func() { failed <- c.qp.ConnectStream(r.ctx, cc, c.conn) }()
		r.until("it is under way", func() bool {
			_, err := cc.Write(nil)
			return errors.Is(err, stream.ErrDetached)
		})
		c.qp.Abort()
		require.ErrorIs(t, <-failed, ErrClosed)
		require.NoError(t, r.ctx.Err(), "it waited for the peer")
		require.Empty(t, r.client.host.Live())
		require.NoError(t, cc.SetDeadline(time.Now().Add(patience)), "it is a stream")
	})
}
