package stack

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/stretchr/testify/require"
)

// trial dials until the address it needs is free, as stream.Dial and rnic's Connect do.
type trial struct {
	from  netip.Addr
	err   error
	tries int
}

func (l *lab) try(h *host, to netip.AddrPort) *trial {
	l.t.Helper()
	r := &trial{}
	require.NoError(l.t, h.UntilChecked(func() (again bool) {
		r.tries++
		c, err := h.Dial(to, newPeer(l.t, 1))
		if r.err = err; err == nil {
			r.from = c.Local().Addr()
		}
		return errors.Is(err, ErrTentative)
	}))
	return r
}

// A dial from an address that is being checked says so, and which, and is made in the very Turn in
// which the address becomes usable.
func TestDialFromATentativeAddress(t *testing.T) {
	l := newLab(t, claiming)
	all := l.listenTo(l.b)
	to := addrPort(l.a, 7)
	_, err := l.b.Dial(to, newPeer(t, 1))
	require.EqualError(t, err, "stack: dial 10.0.0.1:7: from 10.0.0.2: "+ErrTentative.Error())
	_, err = l.b.DialFrom(addrPort(l.b, 0), to, newPeer(t, 1))
	require.ErrorIs(t, err, ErrTentative)
	_, err = l.b.DialFrom(netip.MustParseAddrPort("10.0.0.9:0"), to, newPeer(t, 1))
	require.ErrorIs(t, err, ErrNotLocal)

	r := l.try(l.b, to)
	require.ErrorIs(t, r.err, ErrTentative)
	l.until("dialled", func() bool { return r.err == nil })
	require.Equal(t, l.b.addr, r.from)
	require.Equal(t, map[string]string{"10.0.0.2": " probe probe probe announce",
		"10.0.0.1": " request"}, all)
	require.Equal(t, AddrUsable, l.b.status("10.0.0.2").State)
	tries := r.tries
	l.pass(100 * second)
	require.Equal(t, tries, r.tries, "not again")
	l.b.nic.onSend = nil
}

// Another host has the address: the dial fails, and its error names that host.
func TestDialFromADuplicate(t *testing.T) {
	l := newLab(t, claiming)
	r := l.try(l.b, addrPort(l.a, 7))
	l.a.nic.inject(arpFrame(inet.AnnounceARP(rivalMAC, theirs)))
	l.b.Turn()
	require.ErrorIs(t, r.err, ErrNoRoute)
	var other *AddrError
	require.ErrorAs(t, r.err, &other)
	require.Equal(t, &AddrError{l.b.addr, rivalMAC}, other)
	_, err := l.b.DialFrom(addrPort(l.b, 0), addrPort(l.a, 7), newPeer(t, 1))
	require.ErrorIs(t, err, ErrNotLocal)
}

// What is wrong with the dial besides is said at once, and an address that is removed, or the
// Poller's end, ends the wait.
func TestTentativeEnds(t *testing.T) {
	added := netip.MustParsePrefix("fd00::2/64")
	l := newLab(t, claiming)
	_, err := l.b.Dial(netip.MustParseAddrPort("224.0.0.1:7"), newPeer(t, 1))
	require.ErrorIs(t, err, ErrNetUnreachable)
	require.NoError(t, l.b.AddAddr(added))
	six := l.try(l.b, netip.MustParseAddrPort("[fd00::1]:7"))
	require.ErrorIs(t, six.err, ErrTentative)
	four := l.try(l.b, addrPort(l.a, 7))
	require.NoError(t, l.b.RemoveAddr(added.Addr()))
	require.ErrorIs(t, six.err, ErrNetUnreachable, "its prefix went with it")
	require.ErrorIs(t, four.err, ErrTentative)
	l.stop()
	require.ErrorIs(t, four.err, ErrStopped)
	require.NoError(t, l.b.UntilChecked(func() bool { return false }))
}

// A peer beyond the link is not spoken to from a link-local address because that was free first,
// and the other way about.
func TestTentativeScope(t *testing.T) {
	for _, c := range []struct {
		to, from string
	}{{"fd00::1", "fd00::2"}, {"fe80::1", "fe80::ff:fe00:2"}} {
		first := map[string]bool{}
		for seed := range byte(16) {
			l := newLab(t, func(i int, cfg *Config) {
				sixes(i, cfg)
				cfg.NoDAD, cfg.Secret[1] = i == 0, seed
			})
			r := l.try(l.b, netip.AddrPortFrom(netip.MustParseAddr(c.to), 7))
			l.until("one is usable", func() bool {
				return l.b.status("fd00::2").State == AddrUsable ||
					l.b.status("fe80::ff:fe00:2").State == AddrUsable
			})
			usable := l.b.status(c.from).State == AddrUsable
			first[map[bool]string{true: c.from, false: "the other"}[usable]] = true
			require.Equal(t, usable, r.err == nil)
			l.until("dialled", func() bool { return r.err == nil })
			require.Equal(t, c.from, r.from.String())
			l.stop()
		}
		require.Len(t, first, 2, "either was first")
	}
}

// As many wait as there may be connections, those not counted that have given up.
func TestWaitersAreBounded(t *testing.T) {
	l := newLab(t, claiming)
	waits := true
	for range l.b.cfg.ConnsMax {
		require.NoError(t, l.b.UntilChecked(func() bool { return waits }))
	}
	tried := 0
	more := func() bool { tried++; return true }
	require.ErrorIs(t, l.b.UntilChecked(more), ErrConnMax)
	require.Equal(t, uint64(1), l.b.counters().Own[DropConnMax])
	require.ErrorIs(t, <-l.await(context.Background()), ErrConnMax)
	waits = false
	require.NoError(t, l.b.UntilChecked(more))
	require.Len(t, l.b.addrWaiters, 1)
	require.Equal(t, 2, tried)
	l.pass(10 * second)
	require.Greater(t, tried, 2)
}

// await begins to wait for b's addresses; no time passes until it does.
func (l *lab) await(ctx context.Context) chan error {
	done, n := make(chan error, 1), l.b.control.ran
	go func() { done <- l.b.AwaitAddrs(ctx) }()
	for l.b.control.ran == n {
		l.b.Turn()
	}
	return done
}

// AwaitAddrs waits for all addresses, names those that others have, and ends with its context and
// with the Poller.
func TestAwaitAddrs(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) {
		claiming(i, cfg)
		cfg.Addrs = []netip.Prefix{netip.PrefixFrom(addr6(i), 64)}
	})
	ctx, cancel := context.WithCancel(context.Background())
	given := l.await(ctx)
	cancel()
	require.ErrorIs(t, <-given, context.Canceled)
	settled := l.await(context.Background())
	l.until("the first is known", func() bool { return l.b.host.Tentatives() < 3 })
	require.Len(t, l.b.addrWaiters, 1, "one gave up, one waits for the rest")
	require.Empty(t, settled)
	l.a.nic.inject(arpFrame(inet.AnnounceARP(rivalMAC, theirs)))
	l.until("all are", func() bool { return l.b.host.Tentatives() == 0 })
	require.EqualError(t, <-settled, (&AddrError{l.b.addr, rivalMAC}).Error())

	require.NoError(t, l.b.AddAddr(netip.MustParsePrefix("10.0.0.7/24")))
	stopped := l.await(context.Background())
	l.stop()
	require.ErrorIs(t, <-stopped, ErrStopped)
}
