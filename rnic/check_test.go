package rnic

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Reply that ConnParam.Check refuses makes no connection: nothing that was posted is sent, and
// what the peer sends at once is not placed.
func TestCheckOfReply(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		private, refused := []byte("what the peer says"), errors.New("not what was agreed")
		for _, verdict := range []error{nil, refused} {
			var heard []byte
			check := func(b []byte) error {
				heard = bytes.Clone(b)
				return verdict
			}
			s := r.newEnd(r.server, opts{})
			c := r.newEnd(r.client, connOpts(ConnParam{Check: check, Dialect: RFC6581}))
			s.postRecv(s.recvAt(1, 0, 8))
			conn := s.conn
			conn.PrivateData = private
			require.NoError(t, r.dial(c, nil).StartAccept(r.ctx, s.qp, conn))
			if verdict == nil {
				c.expectInService()
				require.Equal(t, private, c.qp.PeerPrivateData())
			} else {
				c.awaitClosed()
				require.ErrorIs(t, c.qp.Err(), refused)
				s.awaitClosed()
				require.Zero(t, r.stats(s.qp).MessagesRecvd)
				require.Equal(t, Flushed, s.await(1)[0].Status)
			}
			require.Equal(t, private, heard)
		}
	})
}
