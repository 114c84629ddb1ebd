package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	chacha "math/rand/v2"
	"os"

	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/internal/daemon/command"
	"github.com/rnicd/rnicd/internal/tools/xfer"
	"github.com/rnicd/rnicd/rnic"
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
		Use: "demo [FILE]",
		Short: "Transfer a file between two Pollers of this process, over a cable in memory " +
			"(needs no root)",
		Args: command.ArgsWanted(0, 1),
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
	f.StringVar(&o.nic.page, "page", "auto",
		"page size of packet and region memory: auto, 2M, 1G or normal")
	f.StringVar(&o.nic.fault, "fault", "",
		"make the cable bad, as drop=1%,reorder=1%,dup=0.5%,corrupt=0.1%,seed=7")
	f.BoolVar(&o.nic.zeroCopy, "zero-copy", false,
		"hand packet buffers over the cable instead of copying frames, as DPDK's net_ring does")
	f.StringVar(&o.nic.capture, "capture", "",
		"write every frame of the server's side to this pcapng file")
	f.Var(&o.region, "region", "size of the region")
	f.Var(&o.amount, "size", "without FILE: how much to send")
	f.BoolVar(&o.noMarkers, "no-markers", false, "go without MPA markers")
	f.BoolVar(&o.noCRC, "no-crc", false, "go without CRC32C")
	return c
}

// demo moves one file. Without regionGiven the region is made as large as the file if the usual
// size does not suffice.
func demo(ctx context.Context, o *demoOptions, path string, regionGiven bool,
	w io.Writer) (err error) {
	if o.region <= 0 {
		return fmt.Errorf("--region %v: must be at least one octet", &o.region)
	}
	o.nic.apart = true // the application has nothing to do while octets are on their way
	src, err := newDemoSource(o, path)
	if err != nil {
		return err
	}
	defer src.close()
	if !regionGiven { // any real file
		o.region = max(o.region, size(src.Length))
	}
	return onCable(ctx, o.nic, o.region, xfer.DefaultPort, newOutput(w),
		func(ctx context.Context, c *cable) error {
			if err := src.load(ctx); err != nil {
				return err
			}
			return demoTransfer(ctx, o, c, src.PutConfig, w)
		})
}

// demoTransfer serves one file at the server's end and puts it from the client's.
func demoTransfer(ctx context.Context, o *demoOptions, c *cable, put xfer.PutConfig,
	w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan xfer.Result, 1)
	srv := xfer.NewServer(xfer.ServerConfig{
		Adapter: c.server, Region: c.region, NoMarkers: o.noMarkers, NoCRC: o.noCRC,
		Done: func(r xfer.Result) { results <- r },
	})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, c.listener) }()
	bar := newProgress(os.Stderr, put.Length)
	put.Adapter, put.Addr, put.Progress = c.client, c.addr, bar.update
	put.Conn = rnic.ConnParam{NoMarkers: o.noMarkers, NoCRC: o.noCRC}
	res, err := xfer.Put(ctx, put)
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

// demoMemoryMax is the longest file that the demo has in memory before the transfer begins, beside
// the region that it is for: what is measured then is the transfer alone.
const demoMemoryMax = 4 << 30

// demoSource is what the demo sends: the file, or as many random octets as asked for.
type demoSource struct {
	xfer.PutConfig
	file *os.File // nil: random octets
}

func newDemoSource(o *demoOptions, path string) (s *demoSource, err error) {
	s = &demoSource{}
	if path == "" {
		s.Source, s.Length = noise(), uint64(o.amount)
		return s, nil
	}
	s.file, s.Length, err = openSource(path)
	s.Source = s.file
	return s, err
}

// noise is random octets without end, as fast as they are to be had.
func noise() io.Reader {
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // never fails
	return chacha.NewChaCha8(seed)
}

// load takes into memory what is to be sent, and hashes it.
func (s *demoSource) load(ctx context.Context) error {
	switch {
	case s.Length <= demoMemoryMax:
		memory := make([]byte, s.Length)
		if n, err := io.ReadFull(s.Source, memory); err != nil {
			return fmt.Errorf("reading the file at octet %d of %d: %w", n, s.Length, err)
		}
		s.Memory, s.Source = memory, nil
		digest, took, err := xfer.Digest(ctx, bytes.NewReader(memory), s.Length)
		s.Digest, s.Hashed = &digest, took
		return err
	}
	return nil // longer than HashApartMax, too
}

func (s *demoSource) close() {
	if s.file != nil {
		s.file.Close()
	}
}
