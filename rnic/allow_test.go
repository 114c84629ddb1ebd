package rnic

import (
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A connection that the program does not want from its address is reset at once, over both
// transports, and counted; the same listener takes others. Over sockets OnFailure is told.
func TestListenerAllows(t *testing.T) {
	for _, k := range []kind{sockets, turned} {
		t.Run(k.String(), func(t *testing.T) {
			refuse := true // the test's goroutine and the listener's have turns
			var from netip.AddrPort
			asked := make(chan bool, 2)
			r := newRig(t, k, rigConfig{listen: ListenOptions{Allow: func(remote netip.AddrPort) bool {
				from = remote
				defer func() { asked <- true }()
				return !refuse
			}}})
			if k == sockets {
				nc, err := net.Dial("tcp", r.listener.Addr().String())
				if err == nil { // else the reset was faster
					_, err = nc.Read(make([]byte, 1))
				}
				require.ErrorIs(t, err, syscall.ECONNRESET)
			} else {
				p := r.peerDials()
				r.until("it is over", func() bool { return p.ended() != nil })
			}
			soon(&r.driver, asked)
			require.True(t, from.Addr().IsValid() && from.Port() != 0)
			require.EqualValues(t, 1, r.server.StartupCounters().Refused.Rejected)
			require.Empty(t, r.server.host.Live())
			if k == sockets {
				require.Equal(t, from, r.failure().Remote)
			}
			refuse = false
			s, c := r.connect(opts{}, opts{})
			r.exchange(s, c)
		})
	}
}
