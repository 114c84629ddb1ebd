package rnic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic/internal/connect"
)

// wakeUpFPDU is a Write of no octets, with CRC.
const wakeUpFPDU = "000e c140 00000001 00000000 00000000 ebd34c5f"

// What is sent right after the Reply is followed by one wake-up, once, at its time; what comes
// later, by none.
func TestWakeUp(t *testing.T) {
	const after = 50 * time.Millisecond
	type wakeUp struct {
		after time.Duration
		do    func(r *rig, c *end)
		comes bool
	}
	send := func(_ *rig, c *end) { c.post(c.sendQuietly(0, 0)) }
	each(t, rigConfig{}, map[string]wakeUp{
		"after what was sent": {after, send, true},
		"not asked for":       {0, send, false},
		"nothing was sent":    {after, func(r *rig, c *end) { r.pass(2 * after); send(r, c) }, false},
		"closed before":       {after, func(r *rig, c *end) { send(r, c); c.qp.Disconnect() }, false},
	}, func(t *testing.T, r *rig, x wakeUp) {
		c, p := r.dialling(connOpts(ConnParam{NoMarkers: true, Quirks: Quirks{WakeUp: x.after}}))
		p.play("< "+hexReq+"4001 0000", "> "+hexRep+"4001 0000")
		c.expectInService()
		at := r.time
		x.do(r, c)
		p.expectFPDU(sendFPDU(1, ""))
		want := StartupCounters{}
		if x.comes {
			want.WakeUps = 1
			p.expectOctets("the wake-up", unhex(t, wakeUpFPDU))
			require.InDelta(t, after, r.time-at, float64(after)/5)
		}
		r.pass(2 * time.Second)
		p.expectNothing()
		require.Equal(t, want, r.client.StartupCounters())
		require.EqualValues(t, 1, r.stats(c.qp).MessagesSent, "the ULP's")
		require.Equal(t, c.qp.State() != RTS, p.ended() != nil)
	})
}

// A peer of ours takes a wake-up for what it is: nothing. And the message of a peer-to-peer
// start-up is one of those that it follows, though the time for it comes first.
func TestWakeUpIsInvisible(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.connect(opts{}, connOpts(ConnParam{PeerToPeer: true, Quirks: Quirks{WakeUp: 1}}))
		r.until("the wake-up", func() bool { return r.client.StartupCounters().WakeUps == 1 })
		r.converse(c, s)
		r.works(s, c)
		r.close(s, c)
	})
}

// A rejected peer has the time to read why: our FIN does not come with the Reply, but when the
// peer closes, or a while later.
func TestRejectedPeerMayCloseFirst(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	reject := func() *peer {
		p := r.peerDials()
		p.write(unhex(t, hexReq+"4001 0000"))
		require.NoError(t, r.request().Reject(r.ctx, []byte("x")))
		r.until("the Reply", func() bool { return len(p.octets()) == 21 })
		return p
	}
	p := reject()
	r.pass(connect.RejectedTimeout / 2)
	require.NoError(t, p.ended())

	p.closeSend()
	p.skipToFIN()

	at := r.time
	p = reject()
	p.skipToFIN() // it does not wait for ever
	require.InDelta(t, connect.RejectedTimeout, r.time-at, float64(connect.RejectedTimeout)/5)

	p.closeSend()
	r.until("no connection", func() bool { return len(r.server.host.Live()) == 0 })
}
