package main

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/tools/xfer"
	"github.com/rnicd/rnicd/pmd/tap"
	"github.com/rnicd/rnicd/rnic"
)

// Not one octet of what hostile peers write lands anywhere in registered memory or beside it; of a
// proper transfer every octet does, and none beside it. What was granted is cleared before, and is
// 0 from then on.
func TestCanaries(t *testing.T) {
	const (
		before = 128 << 10
		// Enough for the transfer between those of all peers before it, of up to 64 KiB each: how
		// soon the Adapter hears of a peer's end is not the test's to say.
		region = 32 << 20
		memory = before + region + 128<<10
	)
	ns := newNamespace(t)
	o := nicOptions{addrs: []string{serverHost + "/24"}, mtu: 1500, page: "normal", core: coreNone,
		node: hugepages.AnyNode, noDAD: true}
	var device *tap.Port
	var err error
	ns.Do(func() {
		device, err = tap.New(tap.Config{Name: "rnic0", Addr: netip.MustParsePrefix(kernelHost + "/24")})
	})
	require.NoError(t, err)
	n, err := openNIC(&o, memory, io.Discard, port.Of("tap", tap.MTUMax, device))
	require.NoError(t, err)
	defer func() { require.NoError(t, n.Close()) }()
	want := bytes.Repeat([]byte{canary}, memory)
	copy(n.Region(), want)
	dev, err := n.Adapter()
	require.NoError(t, err)
	require.NoError(t, n.Start())
	ctx, cancel := context.WithCancel(context.Background())
	l, err := dev.Listen(ctx, ":7174", rnic.ListenOptions{})
	require.NoError(t, err)
	results := make(chan xfer.Result, len(attacks)+100)
	srv := xfer.NewServer(xfer.ServerConfig{
		Adapter: dev, Region: n.Region()[before : before+region : before+region],
		Done: func(r xfer.Result) { results <- r },
	})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, l) }()

	for _, a := range attacks {
		ns.Do(func() { a.run(t) })
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	ns.Do(func() {
		for range 30 {
			storm(t, r)
		}
	})

	data := garbage(3, 200_001)
	ns.Do(func() {
		kernel, err := rnic.Open(rnic.Config{})
		require.NoError(t, err)
		_, err = xfer.Put(ctx, xfer.PutConfig{Adapter: kernel, Addr: serverAddr,
			Source: bytes.NewReader(data), Length: uint64(len(data))})
		require.NoError(t, err)
	})
	cancel()
	l.Close()
	require.NoError(t, <-served)
	require.NoError(t, closeAdapter(dev))
	// The transfer lies somewhere in the region: where there was room beside connections not yet
	// over.
	at := bytes.Index(n.Region(), data)
	require.GreaterOrEqual(t, at, before)
	require.LessOrEqual(t, at+len(data), before+region)
	for i := before; i < before+region; i++ {
		if n.Region()[i] == 0 {
			want[i] = 0
		}
	}
	copy(want[at:], data)
	require.True(t, bytes.Equal(want, n.Region()), "octets were written that no peer was granted")
}
