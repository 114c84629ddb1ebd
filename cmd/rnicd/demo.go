package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/cmd/rnicd/xfer"
	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/rnic"
)

// The two ends of a demo's cable.
const (
	demoServer = "10.9.0.1"
	demoClient = "10.9.0.2"
)

type demoOptions struct {
	nic       nicOptions
	region    size
	amount    size
	noMarkers bool
	noCRC     bool
}

func newDemo() *cobra.Command {
	o := &demoOptions{region: 256 << 20, amount: 64 << 20}
	c := &cobra.Command{
		Use:   "demo [FILE]",
		Short: "Transfer a file between two Pollers of this process, over a cable in memory (needs no root)",
		Args:  argsWanted(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			path := ""
			if len(args) == 1 {
				path = args[0]
			}
			return demo(c.Context(), o, path, c.Flags().Changed("region"), c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.IntVar(&o.nic.mtu, "mtu", 1500, "largest IP packet, octets")
	f.StringVar(&o.nic.page, "page", "auto", "page size of packet and region memory: auto, 2M, 1G or normal")
	f.StringVar(&o.nic.fault, "fault", "", "make the cable bad, as drop=1%,reorder=1%,dup=0.5%,corrupt=0.1%,seed=7")
	f.StringVar(&o.nic.capture, "capture", "", "write every frame of the server's side to this pcapng file")
	f.Var(&o.region, "region", "size of the region")
	f.Var(&o.amount, "size", "without FILE: how much to send")
	f.BoolVar(&o.noMarkers, "no-markers", false, "go without MPA markers")
	f.BoolVar(&o.noCRC, "no-crc", false, "go without CRC32C")
	return c
}

// demo moves one file. Without regionGiven the region is made as large as the file if the usual size does not suffice.
func demo(ctx context.Context, o *demoOptions, path string, regionGiven bool, w io.Writer) (err error) {
	if o.region <= 0 {
		return fmt.Errorf("--region %v: must be at least one octet", &o.region)
	}
	src, length, closeSrc, err := demoSource(o, path)
	if err != nil {
		return err
	}
	defer closeSrc()
	if !regionGiven { // any real file
		o.region = max(o.region, size(length))
	}
	o.nic.core, o.nic.node = coreNone, hugepages.AnyNode
	so := o.nic
	so.addrs = []string{demoServer + "/24"}
	if err := so.check(); err != nil {
		return err
	}
	link, err := wire.New(wire.Config{MTU: o.nic.mtu, Names: []string{"server", "client"}})
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "cable       two pollers of one process, back to back in memory; no kernel, no root")
	server, err := openNIC(&so, int64(o.region), w, func(*hugepages.Arena) (pmd.Port, error) { return link.Port(0), nil })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	co := o.nic
	co.addrs, co.fault, co.capture = []string{demoClient + "/24"}, "", ""
	client, err := openNIC(&co, 4096, io.Discard, func(*hugepages.Arena) (pmd.Port, error) { return link.Port(1), nil })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	return demoTransfer(ctx, o, server, client, src, length, w)
}

// demoTransfer serves one file on server and puts it from client.
func demoTransfer(ctx context.Context, o *demoOptions, server, client *nic, src io.Reader, length uint64, w io.Writer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sdev, err := server.adapter()
	if err != nil {
		return err
	}
	cdev, err := client.adapter()
	if err != nil {
		return err
	}
	if err := errors.Join(server.start(), client.start()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAdapter(cdev), closeAdapter(sdev)) }()
	l, err := sdev.Listen(ctx, fmt.Sprintf(":%d", xfer.DefaultPort), rnic.ListenOptions{})
	if err != nil {
		return err
	}
	defer l.Close()
	results := make(chan xfer.Result, 1)
	srv := xfer.NewServer(xfer.ServerConfig{
		Adapter: sdev, Region: server.region, NoMarkers: o.noMarkers, NoCRC: o.noCRC,
		Done: func(r xfer.Result) { results <- r },
	})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, l) }()
	bar := newProgress(os.Stderr, length)
	res, err := xfer.Put(ctx, xfer.PutConfig{
		Adapter: cdev, Addr: fmt.Sprintf("%s:%d", demoServer, xfer.DefaultPort), Source: src, Length: length,
		Progress: bar.update, QP: rnic.QPOptions{NoMarkers: o.noMarkers, NoCRC: o.noCRC},
	})
	bar.end()
	if err != nil {
		if ctx.Err() != nil { // one end was quicker, and what the other saw is its RST
			err = errors.Join(ctx.Err(), err)
		}
		cancel()
		return errors.Join(err, <-served)
	}
	fmt.Fprintln(w, "client")
	printResult(w, res, false)
	r := <-results
	cancel()
	fmt.Fprintln(w, "server")
	printServed(w, r)
	return errors.Join(r.Err, <-served)
}

// demoSource is the file, or as many random octets as asked for.
func demoSource(o *demoOptions, path string) (io.Reader, uint64, func(), error) {
	if path == "" {
		return rand.Reader, uint64(o.amount), func() {}, nil
	}
	file, length, err := openSource(path)
	if err != nil {
		return nil, 0, nil, err
	}
	return file, length, func() { file.Close() }, nil
}
