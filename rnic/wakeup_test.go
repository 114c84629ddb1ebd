package rnic

import (
	"io"
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
	const send = "0012 4143 00000000 00000000 00000001 00000000"
	startUp := func(t *testing.T, r *rig, opt opts) (*end, *peer) {
		opt.NoMarkers = true
		c, p := r.dialling(opt)
		p.play("< "+hexReq+"4001 0000", "> "+hexRep+"4001 0000")
		c.expectInService()
		return c, p
	}
	// rest: after the Request come these octets and, in virtual time, no others.
	rest := func(t *testing.T, r *rig, p *peer, want ...string) {
		var octets []byte
		for _, w := range want {
			octets = append(octets, unhex(t, w)...)
		}
		r.until("octets", func() bool { return len(p.octets()) >= 20+len(octets) })
		r.pass(2 * time.Second)

		require.Equal(t, octets, p.octets()[20:])
	}
	t.Run("after what was sent", func(t *testing.T) {
		r := newRig(t, turned, rigConfig{})
		c, p := startUp(t, r, connOpts(ConnParam{Quirks: Quirks{WakeUp: after}}))
		at := r.time
		c.post(c.sendQuietly(0, 0))
		r.until("the wake-up", func() bool { return len(p.octets()) > 20+24 })
		require.InDelta(t, after, r.time-at, float64(after)/5)

		rest(t, r, p, withCRC(t, send), wakeUpFPDU)
		require.Equal(t, StartupCounters{WakeUps: 1}, r.client.StartupCounters())
		require.EqualValues(t, 1, r.stats(c.qp).MessagesSent, "the ULP's")
	})
	t.Run("nothing was sent", func(t *testing.T) {
		r := newRig(t, turned, rigConfig{})
		c, p := startUp(t, r, connOpts(ConnParam{Quirks: Quirks{WakeUp: after}}))
		r.pass(2 * after)
		c.post(c.sendQuietly(0, 0))
		rest(t, r, p, withCRC(t, send))
		require.Zero(t, r.client.StartupCounters())
	})
	t.Run("not asked for", func(t *testing.T) {
		r := newRig(t, turned, rigConfig{})
		c, p := startUp(t, r, opts{})
		c.post(c.sendQuietly(0, 0))
		rest(t, r, p, withCRC(t, send))
	})
	t.Run("closed before", func(t *testing.T) {
		r := newRig(t, turned, rigConfig{})
		c, p := startUp(t, r, connOpts(ConnParam{Quirks: Quirks{WakeUp: after}}))
		c.post(c.sendQuietly(0, 0))
		c.qp.Disconnect()
		rest(t, r, p, withCRC(t, send))
		require.ErrorIs(t, p.ended(), io.EOF)
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
