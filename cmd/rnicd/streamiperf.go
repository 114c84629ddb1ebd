package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/internal/tools/iperf3"
)

func newStreamServer() *cobra.Command {
	o, once := &streamOptions{}, false
	c := &cobra.Command{
		Use:   "server",
		Short: "Serve the tests of iperf3 -c, one at a time",
		Args:  argsWanted(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return streamServe(c.Context(), o, once, newReporter(c, o.json))
		},
	}
	o.flags(c.Flags())
	o.serverFlags(c.Flags())
	c.Flags().BoolVar(&once, "once", false,
		"end after the first test; the exit status is its result. A connection that is none of "+
			"iperf3's, or comes during a test, is none")
	return c
}

func streamServe(ctx context.Context, o *streamOptions, once bool, r *reporter) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	defer r.serving().close()
	ctx, n, err := openStreamNet(ctx, &o.nic, r)
	if err != nil {
		return err
	}
	defer func() { err = ending(err, n.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := n.listen(ctx, o.port)
	if err != nil {
		return err
	}
	first := make(chan error, 1) // result of the first test
	over := func(err error) {
		if !once {
			return
		}
		select {
		case first <- err:
			cancel()
		default:
		}
	}
	srv := iperf3.NewServer(iperf3.ServerConfig{
		Transport: n.transport, Idle: o.idle,
		Began: func(remote net.Addr, p iperf3.Params) {
			r.remark("test        %s with %v", describe(p, true), remote)
		},
		Done: func(rep *iperf3.Report) { r.report(rep); over(nil) },
		Failed: func(remote net.Addr, err error) {
			r.remarks.failure(remote.String(), oneLine(cutShort(err)))
			var stray *iperf3.StrayError
			if !errors.As(err, &stray) {
				over(err)
			}
		},
	})
	defer r.remarks.settle()
	r.remark("ready       %v, for iperf3 -c", l.Addr())
	if err := srv.Serve(ctx, l); err != nil || !once {
		return err
	}
	select {
	case err := <-first:
		return err
	default:
		return context.Canceled // interrupted before anything came
	}
}

// describe says which way octets go, for how long.
func describe(p iperf3.Params, server bool) string {
	end := "without an end"
	switch {
	case p.Bytes > 0:
		end = octets(p.Bytes)
	case p.Blocks > 0:
		end = fmt.Sprintf("%d blocks of %s", p.Blocks, octets(uint64(p.Length)))
	case p.Time > 0:
		end = p.Time.String()
	}
	direction := "receiving"
	switch {
	case p.Bidir:
		direction = "both ways"
	case p.Reverse == server:
		direction = "sending"
	}
	return fmt.Sprintf("%s, %s, %d x TCP", direction, end, p.Streams)
}

type clientOptions struct {
	streamOptions
	params         iperf3.Params
	tos            trafficClass
	length, window size
	bytes          size
	rate           bits
}

func newStreamClient() *cobra.Command {
	o := &clientOptions{length: iperf3.LengthDefault}
	c := &cobra.Command{
		Use:   "client HOST[:PORT]",
		Short: "Run a test against iperf3 -s or stream server",
		Args:  argsWanted(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return streamTest(c.Context(), o, args[0], newReporter(c, o.json))
		},
	}
	f := c.Flags()
	f.StringVarP(&o.params.Congestion, "congestion", "C", "",
		"name of the congestion control at both ends")
	o.flags(f)
	o.waitFlag(f)
	f.VarP((*timeSpan)(&o.params.Time), "time", "t",
		"how long to send; 10s unless --bytes or --blocks is given")
	f.VarP(&o.bytes, "bytes", "n", "how much to send in each direction, instead of --time")
	f.Uint64VarP(&o.params.Blocks, "blocks", "k", 0,
		"how many blocks to send in each direction, instead of --time")
	f.VarP((*timeSpan)(&o.params.Omit), "omit", "O", "do not count so long at the beginning")
	f.IntVarP(&o.params.Streams, "parallel", "P", 1, "streams in each direction, 1 to 128")
	f.VarP(&o.length, "length", "l", "size of a block")
	f.BoolVarP(&o.params.Reverse, "reverse", "R", false, "the server sends")
	f.BoolVar(&o.params.Bidir, "bidir", false, "both send")
	f.VarP(&o.rate, "rate", "b", "bit/s of each stream, as 100M; 0: no limit")
	f.BoolVarP(&o.params.NoDelay, "no-delay", "N", false, "switch Nagle's algorithm off")
	f.VarP(&o.window, "window", "w", "size of the sockets' buffers; 0: their own choice")
	f.VarP(&o.tos, "tos", "S", "TOS octet of IPv4, or traffic class of IPv6, at both ends, as 184 "+
		"or 0xb8; ECN's two bits are not ours to set")
	f.BoolVar(&o.params.ServerOutput, "get-server-output", false, "show what the server prints")
	return c
}

// complete makes the parameters of the flags.
func (o *clientOptions) complete() (iperf3.Params, error) {
	p := o.params
	p.TOS = int(o.tos)
	p.Bytes, p.Length, p.Window, p.Rate, p.Version = uint64(o.bytes), int(o.length), int(o.window),
		uint64(o.rate), "3.12"
	if p.Time <= 0 && len(o.nic.given("time")) > 0 {
		return p, fmt.Errorf("--time %v: must be positive", p.Time)
	}
	ends := 0
	for _, given := range []bool{p.Time != 0, p.Bytes != 0, p.Blocks != 0} {
		if given {
			ends++
		}
	}
	switch {
	case ends > 1:
		return p, errors.New("only one of --time, --bytes and --blocks can end a test")
	case ends == 0:
		p.Time = 10 * time.Second
	}
	return p, p.Check()
}

func streamTest(ctx context.Context, o *clientOptions, host string, r *reporter) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	p, err := o.complete()
	if err != nil {
		return err
	}
	addr, err := dialAddr(host, int(o.port))
	if err != nil {
		return err
	}
	defer func() { err = kernelHint(&o.nic, err) }()
	o.nic.congestion = p.Congestion // from the SYN on: some want ECN
	ctx, n, err := openStreamNet(ctx, &o.nic, r)
	if err != nil {
		return err
	}
	defer func() { err = ending(err, n.Close()) }()
	r.remark("test        %s with %s", describe(p, false), addr)
	rep, err := iperf3.Run(ctx, iperf3.ClientConfig{
		Params: p, Transport: n.transport, Idle: o.idle,
		Dial: func(ctx context.Context) (net.Conn, error) { return n.dialWaiting(ctx, addr, o.wait) },
	})
	if err != nil {
		return err
	}
	r.report(rep)
	return nil
}

// trafficClass is the value of --tos.
type trafficClass uint8

func (c *trafficClass) Type() string { return "number" }

func (c *trafficClass) String() string { return strconv.Itoa(int(*c)) }

func (c *trafficClass) Set(text string) error {
	v, err := strconv.ParseUint(text, 0, 8)
	if err != nil || v&0x03 != 0 {
		return errors.New("want 0 to 252, or 0 to 0xfc, in steps of 4: the last two bits are ECN's")
	}
	*c = trafficClass(v)
	return nil
}

// bits is a flag value in bit/s: 1000, 64k, 100M, 1G, in units of a thousand, as iperf3 -b.
type bits uint64

func (b *bits) Type() string { return "bit/s" }

func (b *bits) String() string { return strconv.FormatUint(uint64(*b), 10) }

func (b *bits) Set(text string) error {
	num, unit := text, uint64(1)
	if i := strings.IndexAny(text, "kKmMgG"); i > 0 && i == len(text)-1 {
		num = text[:i]
		unit = map[byte]uint64{'k': 1e3, 'm': 1e6, 'g': 1e9}[text[i]|0x20]
	}
	v, err := strconv.ParseUint(num, 10, 64)
	if err != nil || v > 1<<53/unit {
		return fmt.Errorf("%q is not a bit rate; write 1000, 64k, 100M or 1G", text)
	}
	*b = bits(v * unit)
	return nil
}
