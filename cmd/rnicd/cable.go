package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/rnic"
)

// The two ends of a demo's cable.
const (
	demoServer = "10.9.0.1"
	demoClient = "10.9.0.2"
)

// cable is two NICs of this process, back to back in memory, and a Listener at the server's.
type cable struct {
	server, client *rnic.Adapter
	region         []byte // the server's
	listener       *rnic.Listener
	addr           string // of the Listener
}

// coresApart are the last two CPUs that this process may use, one for each Poller; none where there
// is one.
func coresApart() (server, client int) {
	var may unix.CPUSet
	server, client = coreNone, coreNone
	if unix.SchedGetaffinity(0, &may) != nil || may.Count() < 2 {
		return server, client
	}
	for c := range port.CPUMax + 1 {
		if may.IsSet(c) {
			server, client = c, server
		}
	}
	return server, client
}

// cableEnds are the options of the two NICs of a cable.
func cableEnds(o nicOptions) (server, client nicOptions) {
	o.node, o.noDAD = hugepages.AnyNode, true // the cable has no other host
	server, client = o, o
	server.core, client.core = coreNone, coreNone
	if o.apart {
		server.core, client.core = coresApart()
	}
	server.addrs = []string{demoServer + "/24"}
	client.addrs, client.fault, client.capture = []string{demoClient + "/24"}, "", ""
	return server, client
}

// onePool gives both NICs pools of one arena, which the caller closes after them: so the cable can
// lend frames instead of copying them.
func onePool(server, client *nicOptions, cable port.Driver) (*hugepages.Arena, error) {
	shared, err := server.portConfig(cable)
	if err != nil {
		return nil, err
	}
	arena, pools, err := port.PairPools(&shared)
	if err != nil {
		return nil, err
	}
	server.pool, client.pool = pools[0], pools[1]
	return arena, nil
}

// onCable runs do with a cable. The flags of a NIC are about the server's end; it has a region.
func onCable(ctx context.Context, o nicOptions, region size, tcpPort uint16, log *output,
	do func(context.Context, *cable) error) (err error) {
	o, co := cableEnds(o)
	if err := o.check(); err != nil {
		return err
	}
	// What is damaged on its way must have its checksum; what is not needs none.
	link, err := wire.New(wire.Config{
		MTU: o.mtu, ZeroCopy: o.zeroCopy, ChecksumOffload: o.fault == "",
		Names: []string{"server", "client"},
	})
	if err != nil {
		return err
	}
	if o.zeroCopy {
		arena, failed := onePool(&o, &co, port.Of("wire", wire.MTUMax, link.Port(0)))
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, arena.Close()) }() // after both NICs
	}
	var server, client *port.Port
	log.do(func(w io.Writer) {
		fmt.Fprintln(w, "cable       two pollers of one process, back to back in memory; no "+
			"kernel, no root")
		server, err = openNIC(&o, int64(region), w, port.Of("wire", wire.MTUMax, link.Port(0)))
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	client, err = openNIC(&co, clientRegion, io.Discard, port.Of("wire", wire.MTUMax, link.Port(1)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()

	c := &cable{region: server.Region(),
		addr: net.JoinHostPort(demoServer, strconv.Itoa(int(tcpPort)))}
	if c.server, err = server.Adapter(); err != nil {
		return err
	}
	if c.client, err = client.Adapter(); err != nil {
		return err
	}
	if err := errors.Join(server.Start(), client.Start()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAdapter(c.client), closeAdapter(c.server)) }()
	c.listener, err = c.server.Listen(ctx, net.JoinHostPort("", strconv.Itoa(int(tcpPort))),
		rnic.ListenOptions{})
	if err != nil {
		return err
	}
	defer c.listener.Close()
	return do(ctx, c)
}
