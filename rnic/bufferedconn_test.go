package rnic

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
)

const greetingText = "220 at your service"

// keptSocket is a connection that a raw Responder rejected, with octets of its ULP's in the
// Reply's segment, which were read.
func keptSocket(t *testing.T, more []byte) (r *rig, p *peer, c net.Conn) {
	t.Helper()
	r = newRig(t, sockets, rigConfig{})
	q := r.newEnd(r.client, connOpts(ConnParam{KeepRejected: true}))
	p = r.peerAccepts(q)
	p.expectFrame(mpa.Request)
	p.write(append(unhex(t, hexRep+"6001 0007"), "not now"+greetingText+string(more)...))
	c = r.rejectedConn(q)
	r.deadline(c)
	return r, p, c
}

// MPA may be tried on it again, in either role: what was read is none of its business, and what
// was not is its first octets.
//
// req: D01-6.1-23
func TestReturnedSocketEntersMPAAgain(t *testing.T) {
	t.Run("initiator", func(t *testing.T) {
		r, p, c := keptSocket(t, nil)
		for _, unread := range []string{greetingText[:18], greetingText[18:]} { // one octet counts
			q := r.newEnd(r.client, unmarked)
			require.ErrorIs(t, q.qp.StartConnectStream(r.ctx, c, q.conn), ErrUnread)
			r.hear(c, []byte(unread)) // it still is the stream it was
		}
		q := r.newEnd(r.client, unmarked)
		require.NoError(t, q.qp.StartConnectStream(r.ctx, c, q.conn))
		p.play("< "+hexReq+"4001 0000", "< "+hexReq+"4001 0000")
		p.write(unhex(t, hexRep+"4001 0000"))
		q.expectInService()
	})
	t.Run("responder", func(t *testing.T) {
		r, p, c := keptSocket(t, request(mpa.Frame{Rev: 1, CRC: true}))
		r.hear(c, []byte(greetingText))
		_, err := r.client.AcceptStream(r.ctx, c, []byte("begin"))
		require.ErrorIs(t, err, ErrUnread)
		req := must(r.client.AcceptStream(r.ctx, c, nil))
		s := r.newEnd(r.client, unmarked)
		require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
		p.play("< "+hexReq+"4001 0000", "< "+hexRep+"4001 0000")
	})
}
