package main

import (
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/wire"
)

// heard is what the registered driver was told last.
var heard pmd.DriverConfig

var registerCable = sync.OnceFunc(func() {
	pmd.Register(pmd.Driver{Name: "cable", Open: func(c pmd.DriverConfig) (pmd.Port, error) {
		heard = c
		link, err := wire.New(wire.Config{MTU: c.MTU})
		if err != nil {
			return nil, err
		}
		return link.Port(0), nil
	}})
})

// A driver that another program registers is one of --pmd: it hears what the flags say of its
// device, and Pollers run on its port.
func TestRegisteredDriver(t *testing.T) {
	registerCable()
	o := linkFlags(t, strings.Fields("--pmd cable --dev dev7 --eal=a --mtu 1280 --no-offload --mac "+
		"02:00:00:00:00:07 --page normal --no-dad")...)
	require.NoError(t, o.checkDevice())
	n := must(openNIC(o, 1<<20, io.Discard))(t)
	defer func() { require.NoError(t, n.Close()) }()
	require.NotNil(t, heard.Arena)
	heard.Arena = nil
	require.Equal(t, pmd.DriverConfig{Device: "dev7", Args: []string{"a"}, MTU: 1280, Queues: 1,
		MAC: [6]byte{2, 0, 0, 0, 0, 7}, NoOffload: true}, heard)
	require.NoError(t, n.Start())

	o = linkFlags(t, strings.Fields("--pmd cable --socket s --pci 1")...)
	require.EqualError(t, o.checkDevice(), "--pmd cable has no use for --pci, --socket: leave it out")
	require.EqualError(t, linkFlags(t, "--pmd", "banana").checkDevice(),
		`--pmd "banana": want tap, dpdk, memif, kernel or cable`)
}
