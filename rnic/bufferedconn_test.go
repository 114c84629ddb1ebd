package rnic

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
)

const greetingText = "220 at your service"

// keptSocket is a connection that a raw Responder rejected, with octets of its ULP's in the
// Reply's segment.
func keptSocket(t *testing.T) (r *rig, p *peer, c net.Conn) {
	t.Helper()
	r = newRig(t, sockets, rigConfig{})
	q := r.newEnd(r.client, opts{ConnParam: ConnParam{KeepRejected: true}})
	p = r.peerAccepts(q)
	p.expectFrame(mpa.Request)
	p.write(append(unhex(t, hexRep+"6001 0007"), "not now"+greetingText...))
	c = r.rejectedConn(q)
	r.deadline(c)
	return r, p, c
}

// limited is a Writer that takes n octets and then fails, or wrongly does not.
type limited struct {
	bytes.Buffer
	n   int
	err error
}

func (w *limited) Write(p []byte) (int, error) {
	n := min(len(p), w.n)
	w.n -= n
	w.Buffer.Write(p[:n])
	if n < len(p) {
		return n, w.err
	}
	return n, nil
}

// io.Copy, which prefers WriteTo, gets what came with the Reply and what came later, as Read does.
//
// req: D01-6.1-23
func TestCopyFromReturnedSocket(t *testing.T) {
	_, p, c := keptSocket(t)
	p.write([]byte(" -- bye"))
	p.closeSend()
	first := make([]byte, 4)
	_, err := io.ReadFull(c, first)
	require.NoError(t, err)
	require.Equal(t, "220 ", string(first))
	var b bytes.Buffer
	n, err := io.Copy(&b, c)
	require.NoError(t, err)
	require.Equal(t, greetingText[4:]+" -- bye", b.String())
	require.EqualValues(t, b.Len(), n)
}

// A Writer that does not take them all leaves the rest to be read.
func TestCopyFromReturnedSocketFails(t *testing.T) {
	full := errors.New("full")
	for _, tc := range []struct{ fails, want error }{{full, full}, {nil, io.ErrShortWrite}} {
		_, p, c := keptSocket(t)
		w := &limited{n: 5, err: tc.fails}
		n, err := c.(io.WriterTo).WriteTo(w)
		require.ErrorIs(t, err, tc.want)
		require.EqualValues(t, 5, n)
		p.closeSend()
		rest, err := io.ReadAll(c)
		require.NoError(t, err)
		require.Equal(t, greetingText, w.String()+string(rest))
	}
}

// Several goroutines may read a net.Conn: no octet of the front is read twice.
func TestReturnedSocketReadByMany(t *testing.T) {
	_, p, c := keptSocket(t)
	p.closeSend()
	octets := make(chan int)
	for range 4 {
		go func() {
			b, n := make([]byte, 1), 0
			for {
				if _, err := c.Read(b); err != nil {
					octets <- n
					return
				}
				n++
			}
		}()
	}
	sum := 0
	for range 4 {
		sum += <-octets
	}
	require.Equal(t, len(greetingText), sum)
}

// MPA may be tried on it again, in either role: what was read is none of its business, and what
// was not is its first octets.
//
// req: D01-6.1-23
func TestReturnedSocketEntersMPAAgain(t *testing.T) {
	t.Run("initiator", func(t *testing.T) {
		r, p, c := keptSocket(t)
		q := r.newEnd(r.client, opts{ConnParam: ConnParam{NoMarkers: true}})
		require.ErrorIs(t, q.qp.StartConnectStream(r.ctx, c, q.conn), ErrUnread)
		r.hear(c, []byte(greetingText)) // it still is the stream it was
		q = r.newEnd(r.client, opts{ConnParam: ConnParam{NoMarkers: true}})
		require.NoError(t, q.qp.StartConnectStream(r.ctx, c, q.conn))
		p.play("< "+hexReq+"4001 0000", "< "+hexReq+"4001 0000")
		p.write(unhex(t, hexRep+"4001 0000"))
		q.expectInService()
	})
	t.Run("responder", func(t *testing.T) {
		r := newRig(t, sockets, rigConfig{})
		q := r.newEnd(r.client, opts{ConnParam: ConnParam{KeepRejected: true}})
		p := r.peerAccepts(q)
		p.expectFrame(mpa.Request)
		p.write(
			append(unhex(t, hexRep+"6001 0007"),
				"not now"+greetingText+string(request(mpa.Frame{Rev: 1, CRC: true}))...))
		c := r.rejectedConn(q)
		r.deadline(c)
		r.hear(c, []byte(greetingText))
		_, err := r.client.AcceptStream(r.ctx, c, []byte("begin"))
		require.ErrorIs(t, err, ErrUnread)
		req, err := r.client.AcceptStream(r.ctx, c, nil)
		require.NoError(t, err)
		s := r.newEnd(r.client, opts{ConnParam: ConnParam{NoMarkers: true}})
		require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
		p.play("< "+hexReq+"4001 0000", "< "+hexRep+"4001 0000")
	})
}
