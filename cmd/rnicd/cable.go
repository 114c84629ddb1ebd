package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
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

// sharedPools are the packet buffers of both NICs of a cable that copies nothing.
func sharedPools(o *nicOptions) (*hugepages.Arena, [2]*mem.Pool, error) {
	var pools [2]*mem.Pool
	page, err := parsePage(o.page)
	if err != nil {
		return nil, pools, err
	}
	stride := o.stride()
	arena, err := hugepages.New(hugepages.Config{Bytes: int64(2*poolBufs*stride) + arenaExtra, Page: page, Node: o.node})
	if err != nil {
		return nil, pools, err
	}
	if pools, err = mem.NewPair(arena, mem.PoolConfig{Bufs: poolBufs, Stride: stride}); err != nil {
		return nil, pools, errors.Join(err, arena.Close())
	}
	return arena, pools, nil
}

// onCable runs do with a cable. The flags of a NIC are about the server's end; it has a region.
func onCable(ctx context.Context, o nicOptions, region size, port uint16, log *output, do func(context.Context, *cable) error) (err error) {
	o.core, o.node, o.noDAD = coreNone, hugepages.AnyNode, true // nobody else is on the cable
	co := o
	o.addrs = []string{demoServer + "/24"}
	co.addrs, co.fault, co.capture = []string{demoClient + "/24"}, "", ""
	if err := o.check(); err != nil {
		return err
	}
	link, err := wire.New(wire.Config{MTU: o.mtu, ZeroCopy: o.zeroCopy, Names: []string{"server", "client"}})
	if err != nil {
		return err
	}
	if o.zeroCopy {
		arena, pools, failed := sharedPools(&o)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, arena.Close()) }() // after both NICs
		o.pool, co.pool = pools[0], pools[1]
	}
	var server, client *nic
	log.do(func(w io.Writer) {
		fmt.Fprintln(w, "cable       two pollers of one process, back to back in memory; no kernel, no root")
		server, err = openNIC(&o, int64(region), w, func(*hugepages.Arena) (pmd.Port, error) { return link.Port(0), nil })
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	client, err = openNIC(&co, clientRegion, io.Discard, func(*hugepages.Arena) (pmd.Port, error) { return link.Port(1), nil })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()

	c := &cable{region: server.region, addr: net.JoinHostPort(demoServer, strconv.Itoa(int(port)))}
	if c.server, err = server.adapter(); err != nil {
		return err
	}
	if c.client, err = client.adapter(); err != nil {
		return err
	}
	if err := errors.Join(server.start(), client.start()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAdapter(c.client), closeAdapter(c.server)) }()
	c.listener, err = c.server.Listen(ctx, net.JoinHostPort("", strconv.Itoa(int(port))), rnic.ListenOptions{})
	if err != nil {
		return err
	}
	defer c.listener.Close()
	return do(ctx, c)
}
