package stack

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rnicd/rnicd/internal/sample"
	"github.com/stretchr/testify/require"
)

// A storm of everything that may happen, from one seed: connections come and go, octets flow under
// loss, the device stalls and keeps Bufs, Uppers refuse. The oracles: peer's (each octet once and
// right, calls in order), every connection ends with one Closed, and every Buf comes back.
func TestStorm(t *testing.T) {
	base := uint64(time.Now().UnixNano())
	for i := range uint64(sample.Count(4, 12)) {
		seed := base + i
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { storm(t, seed) })
	}
}

// weather is the storm's state: two hosts, what befalls them, and the one that dialled.
type weather struct {
	*lab
	r       *rand.Rand
	loss    int // percent of the frames
	dialled []*peer
}

func storm(t *testing.T, seed uint64) {
	labOffload = seed%2 == 0 // only then are segments coalesced, and headers copied
	defer func() { labOffload = false }()
	w := newWeather(t, seed)
	for range 250 {
		w.befall(w.hosts[w.r.IntN(2)], w.pick(), w.r.IntN(14))
		for range w.r.IntN(5) {
			w.a.Turn()
			w.b.Turn()
		}
	}
	w.calm()
	w.check()
}

func newWeather(t *testing.T, seed uint64) *weather {
	w := &weather{r: rand.New(rand.NewPCG(seed, 4))}
	w.lab = newLab(t, func(i int, cfg *Config) {
		cfg.ConnsMax = 8
		cfg.PendingMax = 64
		cfg.TCP.SentMax = 64
		cfg.TCP.TimeWaitNs = second
		cfg.TCP.UserTimeoutNs = 30 * second
		cfg.TCP.NoSACK = w.r.IntN(4) == 0
		cfg.TCP.NoTimestamps = w.r.IntN(4) == 0
	})
	if w.r.IntN(4) > 0 {
		w.vectors = func(n int) int { return w.r.IntN(n + 1) }
	}
	w.listen(w.b, 7, 4)
	for _, h := range w.hosts {
		h.nic.lose = func([]byte) bool { return w.r.IntN(100) < w.loss }
	}
	return w
}

// all are both ends of every connection.
func (w *weather) all() []*peer { return slices.Concat(w.dialled, w.accepted) }

// pick returns one that is not closed, nil when there is none.
func (w *weather) pick() *peer {
	live := w.all()
	w.r.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
	for _, u := range live {
		if u.closed == 0 {
			return u
		}
	}
	return nil
}

// befall lets one thing happen: to the host h, or to u if there is one.
func (w *weather) befall(h *host, u *peer, action int) {
	r := w.r
	switch {
	case action < 2:
		w.dialAny()
	case action == 2:
		w.loss = r.IntN(30)
	case action == 3:
		h.nic.txMax = []int{-1, -1, 0, 1, 3}[r.IntN(5)]
	case action == 4:
		h.nic.reap()
		h.nic.hold = r.IntN(2) == 0
	case action < 8:
		w.pass(r.Int64N(400 * ms))
	case u == nil:
	case action == 8:
		u.send(r.IntN(100_000))
	case action == 9:
		u.conn.Abort()
	case action == 10:
		u.closeSend()
	case action == 11:
		u.conn.Wake()
		u.conn.SetTimer(w.now + r.Int64N(second))
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
}

// dialAny opens a connection with some octets to send, if there is room for one.
func (w *weather) dialAny() {
	v := newPeer(w.t, 1)
	v.toSend = uint64(w.r.IntN(50_000))
	v.chunk = w.r.IntN(3) * 700
	v.vectors = w.vectors
	c, err := w.a.Dial(addrPort(w.b, 7), v)
	if err != nil {
		require.ErrorIs(w.t, err, ErrConnMax)
		return
	}
	v.conn = c
	w.dialled = append(w.dialled, v)
}

// calm ends the storm and closes every connection.
func (w *weather) calm() {
	w.loss = 0
	for _, h := range w.hosts {
		h.nic.txMax, h.nic.hold = -1, false
		h.nic.reap()
	}
	for _, u := range w.all() {
		u.verdict = nil
		if u.closed == 0 {
			u.conn.SetReceiveWindow(1 << 20)
			u.closeSend()
		}
	}
	// Some are accepted only now. One whose peer reset while nothing came through is never told,
	// without keep-alives: such are aborted in the end.
	for range 20 {
		for _, u := range w.accepted {
			if u.closed == 0 {
				u.closeSend()
			}
		}
		w.pass(10 * second)
	}
	for _, u := range w.all() {
		if u.closed == 0 {
			u.conn.Abort()
		}
	}
	w.pass(200 * second)
}

// check looks that nothing is left, and that each connection ended once, with all octets through or
// for a reason.
func (w *weather) check() {
	t := w.t
	require.Zero(t, w.a.counters().Conns+w.b.counters().Conns)
	w.whole()
	for _, u := range w.all() {
		require.Equal(t, 1, u.closed)
		if u.err == nil {
			require.True(t, u.peerFin)
			require.Equal(t, u.sent, u.acked)
			continue
		}
		reason := func(err error) bool { return errors.Is(u.err, err) }
		require.True(t, slices.ContainsFunc([]error{ErrAborted, ErrReset, ErrTimeout, ErrNoRoute,
			ErrRefused}, reason), "%v", u.err)
	}
}
