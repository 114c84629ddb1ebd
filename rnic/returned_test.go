package rnic

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/stack"
)

// deadline bounds what a returned connection may wait.
func (r *rig) deadline(conns ...net.Conn) {
	r.t.Helper()
	for _, c := range conns {
		require.NoError(r.t, c.SetDeadline(time.Now().Add(patience)))
		r.t.Cleanup(func() { _ = c.Close() }) // the test may have closed it, or given it up
	}
}

// rejectedConn waits for the Initiator's rejection and returns its connection.
func (r *rig) rejectedConn(c *end) net.Conn {
	r.t.Helper()
	r.untilDone(c.qp)
	var no *RejectedError
	require.ErrorAs(r.t, c.qp.Err(), &no)
	require.Equal(r.t, "not now", string(no.PrivateData))
	require.NotNil(r.t, no.Conn)
	return no.Conn
}

// A rejection leaves the TCP connection to both ULPs, in streaming mode: they talk, and may even try MPA again, on it.
//
// req: D01-6.1-17, D01-6.1-18, D01-6.1-23, D01-6.1-15, D01-6.1-28
func TestRejectedConnectionIsAStream(t *testing.T) {
	for _, d := range []Dialect{RDDP01, RFC5044, RTR, RFC6581} {
		t.Run(d.String(), func(t *testing.T) {
			over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
				c := r.newEnd(r.client, QPOptions{Dialect: d, KeepRejected: true})
				sc, cc := r.streams()
				r.chat(sc, cc, 5)
				l, err := r.server.respond(r.ctx, sc, helloAck)
				require.NoError(t, err)
				r.hear(cc, helloAck)
				require.NoError(t, c.qp.StartConnectStream(r.ctx, cc, []byte("please")))
				req, err := l.nextRequest(r.ctx)
				require.NoError(t, err)
				sc, err = req.RejectStream(r.ctx, []byte("not now"))
				require.NoError(t, err)
				cc = r.rejectedConn(c)
				r.deadline(sc, cc)
				require.Zero(t, r.client.linkCount()+r.server.linkCount())
				r.chat(sc, cc, 6)
				r.chat(cc, sc, 7)

				s2, c2 := r.newEnd(r.server, QPOptions{}), r.newEnd(r.client, QPOptions{Dialect: d})
				r.delayed(s2, c2, sc, cc, []byte("again"))
				r.works(s2, c2)
				r.close(s2, c2)
				r.noBufLost()
			})
		})
	}
}

// The same for a connection that began with MPA, and either end may close it.
//
// req: D01-6.1-17, D01-6.1-18, D01-6.1-23
func TestRejectedDialIsAStream(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		for _, closes := range []string{"initiator", "responder"} {
			c := r.newEnd(r.client, QPOptions{KeepRejected: true})
			sc, err := r.dial(c, nil).RejectStream(r.ctx, []byte("not now"))
			require.NoError(t, err)
			cc := r.rejectedConn(c)
			r.deadline(sc, cc)
			r.chat(sc, cc, 8)
			from, to := sc, cc
			if closes == "initiator" {
				from, to = cc, sc
			}
			require.NoError(t, from.Close())
			r.blocking(func() error {
				if _, err := to.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
					return errors.New("no end of the stream")
				}
				return nil
			})
			require.NoError(t, to.Close())
		}
		r.noBufLost()
	})
}

// Octets of streaming mode right behind the Reply, in its segment, are the ULP's.
//
// req: D01-6.1-23
func TestStreamRightBehindTheReply(t *testing.T) {
	over(t, all[:1], rigConfig{}, testStreamBehindReply)
	over(t, []transport{sockets}, rigConfig{}, testStreamBehindReply)
}

func testStreamBehindReply(t *testing.T, r *rig) {
	c := r.newEnd(r.client, QPOptions{KeepRejected: true, NoMarkers: true})
	p := r.startConnect(c)
	waitFrame(r, p, mpa.Request)
	p.write(append(unhex(t, hexRep+"6001 0007"), "not now220 at your service"...))
	cc := r.rejectedConn(c)
	r.deadline(cc)
	r.hear(cc, []byte("220 at your service"))
	r.blocking(func() error {
		_, err := cc.Write([]byte("EHLO"))
		return err
	})
	r.play(p, "< "+hexReq+"4001 0000", "< 45484c4f")
	p.closeSend()
	r.blocking(func() error {
		if _, err := cc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			return errors.New("no end of the stream")
		}
		return nil
	})
}

// There is no stream without a Reply, with too much to say in it, or when the connection is gone.
func TestRejectStreamRefuses(t *testing.T) {
	over(t, both, rigConfig{listen: ListenOptions{Dialects: []Dialect{Culley02}}}, func(t *testing.T, r *rig) {
		r.dialRaw()
		req := r.request()
		_, err := req.RejectStream(r.ctx, nil)
		require.ErrorIs(t, err, ErrState)
		require.NoError(t, req.Reject(r.ctx, nil))
	})
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		p := r.dialRaw()
		p.write(request(mpa.Frame{Rev: 1, CRC: true}))
		req := r.request()
		_, err := req.RejectStream(r.ctx, make([]byte, 513))
		require.ErrorContains(t, err, "513 octets")
		p.reset()
		r.until("the reset", func() bool { return r.server.linkCount() == 0 })
		_, err = req.RejectStream(r.ctx, nil)
		require.ErrorIs(t, err, stack.ErrReset)
	})
}

// By default a rejected connection is closed, as it always was.
func TestRejectedIsClosedByDefault(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		c := r.newEnd(r.client, QPOptions{})
		p := r.startConnect(c)
		waitFrame(r, p, mpa.Request)
		p.write(unhex(t, hexRep+"6001 0000"))
		r.untilDone(c.qp)
		var no *RejectedError
		require.ErrorAs(t, c.qp.Err(), &no)
		require.Nil(t, no.Conn)
		require.ErrorIs(t, untilEnded(r, p), stack.ErrReset)
	})
}
