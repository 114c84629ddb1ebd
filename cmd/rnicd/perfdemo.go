package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/internal/daemon/command"
	"github.com/rnicd/rnicd/internal/tools/perf"
	"github.com/rnicd/rnicd/internal/tools/perf/pair"
	"github.com/rnicd/rnicd/rnic"
)

type perfDemoOptions struct {
	nic nicOptions
	perfOptions
	noMarkers bool
	noCRC     bool
	json      bool
}

func newPerfDemo() *cobra.Command {
	o := &perfDemoOptions{}
	c := &cobra.Command{
		Use:   "demo write|read|send|atomic bw|lat",
		Short: "Measure between two Pollers of this process, over a cable in memory (needs no root)",
		Args:  command.ArgsWanted(2, 2),
		RunE: func(c *cobra.Command, args []string) error {
			return perfDemo(c.Context(), o, args[0], args[1], newReporter(c, o.json))
		},
	}
	f := c.Flags()
	f.IntVar(&o.nic.mtu, "mtu", 1500, "largest IP packet, octets")
	f.StringVar(&o.nic.page, "page", "auto", "page size of packet memory: auto, 2M, 1G or normal")
	f.BoolVar(&o.nic.spin, "spin", false,
		"never give up a core, even when idle; of use with four of them, one for each Poller "+
			"and each end")
	f.StringVar(&o.nic.fault, "fault", "",
		"make the cable bad, as drop=1%,reorder=1%,dup=0.5%,corrupt=0.1%,seed=7")
	f.BoolVar(&o.nic.zeroCopy, "zero-copy", false,
		"hand packet buffers over the cable instead of copying frames, as DPDK's net_ring does")
	f.StringVar(&o.nic.capture, "capture", "",
		"write every frame of the server's side to this pcapng file")
	f.BoolVar(&o.noMarkers, "no-markers", false, "go without MPA markers")
	f.BoolVar(&o.noCRC, "no-crc", false, "go without CRC32C")
	f.BoolVar(&o.json, "json", false,
		"print results as one line of JSON each; everything else goes to standard error")
	o.perfOptions.flags(f)
	return c
}

func perfDemo(ctx context.Context, o *perfDemoOptions, op, kind string, r *reporter) (err error) {
	for _, known := range perfOps {
		if known.String() == op {
			o.op = known
		}
	}
	var unknown error
	if o.op == perf.Op(0) {
		unknown = fmt.Errorf("%q: want write, read, send or atomic", op)
	}
	if err := errors.Join(unknown, o.about(kind), o.perfOptions.check()); err != nil {
		return err
	}
	return onCable(ctx, o.nic, clientRegion, pair.DefaultPort, r.remarks,
		func(ctx context.Context, c *cable) error {
			return o.between(ctx, c, r)
		})
}

// between measures from client to server.
func (o *perfDemoOptions) between(ctx context.Context, c *cable, r *reporter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn := rnic.ConnParam{NoMarkers: o.noMarkers, NoCRC: o.noCRC}
	served := make(chan error, 1)
	srv := pair.NewServer(pair.ServerConfig{Adapter: c.server, Conn: conn})
	go func() { served <- srv.Serve(ctx, c.listener) }()
	cfg := pair.ClientConfig{Adapter: c.client, Addr: c.addr, Conn: conn}
	err := o.measure(ctx, cfg, &dialOptions{}, r)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	cancel()
	return errors.Join(err, <-served)
}
