package rnic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
)

// An RTR message that is a Send takes none of the receive buffers: as many Sends may follow in its segment as were posted.
func TestSendsRightBehindTheRTRSend(t *testing.T) {
	for _, depth := range []int{1, 3, 4} {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			s := r.newEnd(r.server, QPOptions{RecvDepth: depth, NoMarkers: true})
			for i := range depth {
				require.NoError(t, s.qp.PostRecv(s.recvAt(uint64(i+1), 16*i, 16)))
			}
			p := &rawInitiator{rawPeer: r.dialRaw(), r: r}
			party := mpa.Party{CRC: true, PeerToPeer: true, RTR: mpa.RTRSend}
			f := party.Request(RFC6581, nil)
			p.write(f.Append(nil))
			require.NoError(t, r.request().Accept(r.ctx, s.qp, nil))
			p.reply(mpa.Reply)
			p.tx.Init(mpa.Mode{CRC: true})
			b := p.fpdu(sendOf(1), nil)
			for i := range depth {
				b = append(b, p.fpdu(sendOf(uint32(i+2)), []byte("message"))...)
			}
			p.write(b)
			for i, c := range r.await(s, depth) {
				require.Equal(t, Completion{ID: uint64(i + 1), QP: s.qp.Number(), Op: OpRecv, Len: 7}, c, "%v", s.qp.Err())
			}
		})
	}
}
