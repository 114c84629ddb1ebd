package main

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/cmd/rnicd/xfer"
)

func TestOutputTellsOfAFailureOnce(t *testing.T) {
	var b strings.Builder
	now := time.Unix(1000, 0)
	o := newOutput(&b)
	o.now = func() time.Time { return now }
	one, two := netip.MustParseAddrPort("10.9.0.254:1"), netip.MustParseAddrPort("10.9.0.254:2")
	o.failed(one, errors.New("reset"))
	o.served(xfer.Result{Remote: one, Err: errors.New("accept: reset")})
	o.refused(one, "no")
	o.refused(two, "no")
	now = now.Add(toldFor) // a new connection from the same port
	o.failed(one, errors.New("again"))
	require.Equal(t, "failed      10.9.0.254:1: reset\nrefused     10.9.0.254:2: no\nfailed      10.9.0.254:1: again\n", b.String())

	o.served(xfer.Result{Remote: one})
	o.served(xfer.Result{Remote: one})
	require.Equal(t, 2, strings.Count(b.String(), "\nreceived"), "successes are all told of")
}

func TestOutputRemembersABoundedNumber(t *testing.T) {
	var b strings.Builder
	now := time.Unix(1000, 0)
	o := newOutput(&b)
	o.now = func() time.Time { return now }
	peer := func(i int) netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10}), uint16(i)) }
	for i := range 2 * toldMax {
		o.failed(peer(i), errors.New("x"))
	}
	require.Len(t, o.told, toldMax)
	require.Equal(t, 2*toldMax, strings.Count(b.String(), "\n"), "all are told of nevertheless")
	now = now.Add(toldFor)
	o.failed(peer(0), errors.New("x"))
	require.Len(t, o.told, 1, "what is too old goes")
}
