package rnic

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
)

// A peer that vanishes without a word is noticed within the UserTimeout, of either end, whether
// something is in flight or the end only waits.
//
// req: 9293-MUST-21
func TestUserTimeout(t *testing.T) {
	const after = 2 * time.Second
	cut := fault.Faults{Drop: 1}
	for name, inFlight := range map[string]bool{"in flight": true, "waiting": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, turned, rigConfig{faults: true})
			s, c := r.connect(opts{ConnParam: ConnParam{UserTimeout: after}},
				opts{ConnParam: ConnParam{UserTimeout: after}})
			r.exchange(s, c)
			require.NoError(t, r.hosts[0].faulty.Set(cut, cut))
			begin := r.time
			for _, x := range [][2]*end{{s, c}, {c, s}} {
				if inFlight {
					x[0].post(x[0].write(x[1], 1, 0, 100))
				}
			}
			for _, e := range []*end{s, c} {
				e.expectClosedBy(stack.ErrTimeout)
			}
			require.LessOrEqual(t, time.Duration(r.time-begin), after+time.Millisecond)
			require.Greater(t, time.Duration(r.time-begin), after/2)
		})
	}
}

// A peer that has nothing to say for a long time answers keep-alives, and stays.
func TestUserTimeoutOfAQuietPeer(t *testing.T) {
	const after = 2 * time.Second
	r := newRig(t, turned, rigConfig{})
	s, c := r.connect(opts{}, opts{ConnParam: ConnParam{UserTimeout: after}})
	r.exchange(s, c)
	r.pass(10 * after)
	r.exchange(s, c)
}

// Without one, nothing is asked of a quiet peer: a QueuePair over our TCP stays for as long as
// nothing is in flight (RFC 9293 section 3.8.4: keep-alives are off by default).
//
// req: 9293-MUST-25
func TestNoUserTimeout(t *testing.T) {
	r := newRig(t, turned, rigConfig{faults: true})
	s, c := r.connect(opts{}, opts{})
	r.exchange(s, c)
	sent := r.stats(c.qp).TCP.SegmentsOut
	r.pass(3 * time.Hour)
	require.Equal(t, RTS, c.qp.State())
	require.Equal(t, sent, r.stats(c.qp).TCP.SegmentsOut)
}

// The kernel is told the same, whole seconds where it knows no others, and no more of them than
// it can count.
func TestUserTimeoutOfSockets(t *testing.T) {
	const most = 32767
	for after, want := range map[time.Duration][4]int{
		1:                       {1, 1, 1, 4},
		10 * time.Microsecond:   {1, 1, 1, 4},
		2500 * time.Millisecond: {2500, 2, 1, 4},
		50 * 24 * time.Hour:     {math.MaxInt32, most, most, 4},
	} {
		r := newRig(t, sockets, rigConfig{})
		s, _ := r.connect(opts{ConnParam: ConnParam{UserTimeout: after}}, opts{})
		var got [4]int
		require.NoError(t, s.qp.end.Connection.Load().Transport.(*transport.KernelConn).Control(
			func(fd uintptr) {
				for i, opt := range []int{unix.TCP_USER_TIMEOUT, unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL,
					unix.TCP_KEEPCNT} {
					v, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, opt)
					require.NoError(t, err)
					got[i] = v
				}
				on, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
				require.NoError(t, err)
				require.Equal(t, 1, on)
			}))
		require.Equal(t, want, got, after)
	}
}
