package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/tools/xfer"
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
	f.BoolVar(&o.nic.zeroCopy, "zero-copy", false, "hand packet buffers over the cable instead of copying frames, as DPDK's net_ring does")
	f.StringVar(&o.nic.capture, "capture", "", "write every frame of the server's side to this pcapng file")
	f.Var(&o.region, "region", "size of the region")
	f.Var(&o.amount, "size", "without FILE: how much to send")
	f.BoolVar(&o.noMarkers, "no-markers", false, "go without MPA markers")
	f.BoolVar(&o.noCRC, "no-crc", false, "go without CRC32C")
	return c
}

// demo moves one file. Without regionGiven the region is made as large as the file if the usual
// size does not suffice.
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
	return onCable(ctx, o.nic, o.region, xfer.DefaultPort, newOutput(w), func(ctx context.Context, c *cable) error {
		return demoTransfer(ctx, o, c, src, length, w)
	})
}

// demoTransfer serves one file at the server's end and puts it from the client's.
func demoTransfer(ctx context.Context, o *demoOptions, c *cable, src io.Reader, length uint64, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan xfer.Result, 1)
	srv := xfer.NewServer(xfer.ServerConfig{
		Adapter: c.server, Region: c.region, NoMarkers: o.noMarkers, NoCRC: o.noCRC,
		Done: func(r xfer.Result) { results <- r },
	})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, c.listener) }()
	bar := newProgress(os.Stderr, length)
	res, err := xfer.Put(ctx, xfer.PutConfig{
		Adapter: c.client, Addr: c.addr, Source: src, Length: length,
		Progress: bar.update, Conn: rnic.ConnParam{NoMarkers: o.noMarkers, NoCRC: o.noCRC},
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
	if r.Err == nil {
		fmt.Fprintln(w, "server")
		printServed(w, r)
	}
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
