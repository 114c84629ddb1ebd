package stack

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A storm of everything that may happen, from one seed: connections come and go, octets flow under loss, the device
// stalls and keeps Bufs, Uppers refuse. The oracles: peer's (each octet once and right, calls in order), every
// connection ends with one Closed, and every Buf comes back.
func TestStorm(t *testing.T) {
	base := uint64(time.Now().UnixNano())
	for i := range uint64(12) {
		seed := base + i
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { storm(t, seed) })
	}
}

func storm(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 4))
	labOffload = seed%2 == 0 // only then are segments joined, and headers copied
	defer func() { labOffload = false }()
	l := newLab(t, func(i int, cfg *Config) {
		cfg.ConnsMax = 8
		cfg.PendingMax = 64
		cfg.TCP.SentMax = 64
		cfg.TCP.TimeWaitNs = second
		cfg.TCP.UserTimeoutNs = 30 * second
		cfg.TCP.NoSACK = r.IntN(4) == 0
		cfg.TCP.NoTimestamps = r.IntN(4) == 0
	})
	l.listen(l.b, 7, 4)
	loss := 0
	for _, h := range l.hosts {
		h.nic.lose = func([]byte) bool { return r.IntN(100) < loss }
	}
	var all []*peer
	picked := func() *peer { // one that is not closed
		live := append(append([]*peer(nil), all...), l.accepted...)
		r.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
		for _, u := range live {
			if u.closed == 0 {
				return u
			}
		}
		return nil
	}
	for range 250 {
		h := l.hosts[r.IntN(2)]
		u := picked()
		switch action := r.IntN(14); {
		case action < 2:
			v := newPeer(t, 1)
			v.toSend = uint64(r.IntN(50_000))
			v.chunk = r.IntN(3) * 700
			c, err := l.a.Dial(addrPort(l.b, 7), v)
			if err != nil {
				require.ErrorIs(t, err, ErrConnMax)
				break
			}
			v.conn = c
			all = append(all, v)
		case action == 2:
			loss = r.IntN(30)
		case action == 3:
			h.nic.txMax = []int{-1, -1, 0, 1, 3}[r.IntN(5)]
		case action == 4:
			h.nic.reap()
			h.nic.hold = r.IntN(2) == 0
		case action < 8:
			l.pass(r.Int64N(400 * ms))
		case u == nil:
		case action == 8:
			u.send(r.IntN(100_000))
		case action == 9:
			u.conn.Abort()
		case action == 10:
			u.closeSend()
		case action == 11:
			u.conn.Wake()
			u.conn.SetTimer(l.now + r.Int64N(second))
		case action == 12:
			u.conn.SetReceiveWindow(r.IntN(1 << 20))
		case action == 13:
			p := r.IntN(20)
			u.verdict = func(uint64, int) Verdict {
				if r.IntN(100) < p {
					return Refused
				}
				return Taken
			}
		}
		for range r.IntN(5) {
			l.a.Turn()
			l.b.Turn()
		}
	}
	loss = 0
	for _, h := range l.hosts {
		h.nic.txMax, h.nic.hold = -1, false
		h.nic.reap()
	}
	for _, u := range append(all, l.accepted...) {
		u.verdict = nil
		if u.closed == 0 {
			u.conn.SetReceiveWindow(1 << 20)
			u.closeSend()
		}
	}
	// Some are accepted only now. One whose peer reset while nothing came through is never told, without
	// keep-alives: such are aborted in the end.
	for range 20 {
		for _, u := range l.accepted {
			if u.closed == 0 {
				u.closeSend()
			}
		}
		l.pass(10 * second)
	}
	for _, u := range append(all, l.accepted...) {
		if u.closed == 0 {
			u.conn.Abort()
		}
	}
	l.pass(200 * second)
	require.Zero(t, l.a.counters().Conns+l.b.counters().Conns)
	l.whole()
	for _, u := range append(all, l.accepted...) {
		require.Equal(t, 1, u.closed)
		if u.err == nil {
			require.True(t, u.peerFin)
			require.Equal(t, u.sent, u.acked)
			continue
		}
		require.True(t, errors.Is(u.err, ErrAborted) || errors.Is(u.err, ErrReset) || errors.Is(u.err, ErrTimeout) ||
			errors.Is(u.err, ErrNoRoute) || errors.Is(u.err, ErrRefused), "%v", u.err)
	}
}
