package transport

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/stack"
)

// What counts as one address.
func TestAddressOf(t *testing.T) {
	for in, want := range map[string]string{
		"10.9.0.1": "10.9.0.1", "::ffff:10.9.0.1": "10.9.0.1", "fe80::1%eth0": "fe80::",
		"fd00:1:2:3:4::5": "fd00:1:2:3::", "fd00:1:2:3:ffff::": "fd00:1:2:3::",
	} {
		require.Equal(t, netip.MustParseAddr(want), addressOf(netip.MustParseAddr(in)), in)
	}
}

// slotModel is what Slots promises, told without its lists.
type slotModel struct {
	slot   *Slot
	peer   netip.Addr // none: we opened it
	socket *KernelConn
	silent int // when it became silent, 0: it is not
}

// Any order of calls takes and gives back as many slots as the limits say, and the silent
// connection that gives way is the oldest: of the peer where the peer has its most, of all where
// all are taken.
func TestSlotsProperty(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	peers := []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2"),
		netip.MustParseAddr("fd09::1")}
	for range 200 {
		most, peerMost := 1+r.IntN(6), r.IntN(4)
		p := NewSlots(most, peerMost)
		var live, gone []*slotModel
		of := func(peer netip.Addr) (n int, oldest *slotModel) {
			for _, m := range live {
				if peer.IsValid() && m.peer != peer {
					continue
				}
				n++
				if m.silent > 0 && (oldest == nil || m.silent < oldest.silent) {
					oldest = m
				}
			}
			return n, oldest
		}
		drop := func(m *slotModel) {
			live = slices.DeleteFunc(live, func(o *slotModel) bool { return o == m })
			gone = append(gone, m)
		}
		for now := 1; now < 60; now++ {
			all, oldest := of(netip.Addr{})
			any := func(of []*slotModel) *slotModel { return of[r.IntN(len(of))] }
			switch op := r.IntN(7); {
			case op == 0:
				sl, gaveWay, err := p.Take()
				require.Equal(t, all < most || oldest != nil, err == nil, "seed %d", seed)
				if all < most || oldest == nil {
					require.Nil(t, gaveWay)
				} else {
					require.Same(t, oldest.socket, gaveWay, "seed %d", seed)
					drop(oldest)
				}
				if err != nil {
					require.ErrorIs(t, err, stack.ErrConnMax)
					require.NotErrorIs(t, err, ErrPeerMax)
					break
				}
				live = append(live, &slotModel{slot: sl, socket: &KernelConn{slot: sl}})
			case op <= 2:
				peer := peers[r.IntN(len(peers))]
				n, own := of(peer)
				var want error
				var way *slotModel
				switch {
				case peerMost > 0 && n >= peerMost:
					if way = own; way == nil {
						want = ErrPeerMax
					}
				case all >= most:
					if way = oldest; way == nil {
						want = stack.ErrConnMax
					}
				}
				sl, gaveWay, err := p.TakeFor(peer)
				require.ErrorIs(t, err, want, "seed %d", seed)
				require.Equal(t, want == ErrPeerMax, errors.Is(err, ErrPeerMax))
				if way == nil {
					require.Nil(t, gaveWay)
				} else {
					require.Same(t, way.socket, gaveWay, "seed %d", seed)
					drop(way)
				}
				if want == nil {
					live = append(live, &slotModel{slot: sl, peer: peer, socket: &KernelConn{slot: sl}})
				}
			case len(live) == 0:
			case op == 3:
				m := any(live)
				m.socket.Silent()
				if m.peer.IsValid() && m.silent == 0 {
					m.silent = now
				}
			case op == 4:
				m := any(live)
				require.True(t, m.socket.Spoke())
				m.silent = 0
			case op == 5:
				m := any(live)
				m.slot.Free()
				drop(m)
			case len(gone) > 0: // it has no slot: nothing of it counts
				m := any(gone)
				m.socket.Silent()
				require.False(t, m.socket.Spoke())
				m.slot.Free()
			}
			require.Equal(t, len(live), p.Count(), "seed %d", seed)
		}
		for _, m := range live {
			m.slot.Free()
		}
		require.True(t, p.Empty())
	}
}
