package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rnicd/rnicd/internal/printable"
	"github.com/rnicd/rnicd/internal/tools/iperf3"
)

const (
	iperfPort   = 5201 // iperf3's
	dialTimeout = 10 * time.Second
	redialEvery = 50 * time.Millisecond
)

func newStream() *cobra.Command {
	c := &cobra.Command{
		Use:   "stream",
		Short: "Byte streams over TCP, to measure and to try interoperation: iperf3, sink, source, echo",
		Long: `stream moves octets over plain TCP connections and says how fast. server and client speak iperf3's own protocol, so the
other end can be the stock iperf3; sink, source and echo need nothing at the other end but TCP.`,
		Args: cobra.ArbitraryArgs,
		RunE: onlyCommands,
	}
	c.AddCommand(newStreamServer(), newStreamClient(), newPlain("sink"), newPlain("source"),
		newPlain("echo"))
	return c
}

// streamOptions are the flags of all stream commands.
type streamOptions struct {
	nic  nicOptions
	port uint16
	json bool
	idle time.Duration
	wait time.Duration
}

func (o *streamOptions) flags(f *pflag.FlagSet) {
	o.nic.flags(f)
	o.port = iperfPort
	f.VarP(&number{&o.port, 1, math.MaxUint16}, "port", "p",
		"TCP port: to listen on, or of HOST when that names none")
	f.BoolVar(&o.json, "json", false,
		"print results as one line of JSON each; everything else goes to standard error")
	f.DurationVar(&o.idle, "idle-timeout", 30*time.Second,
		"end a connection or a test in which nothing moves for so long")
}

// waitFlag is for commands that dial.
func (o *streamOptions) waitFlag(f *pflag.FlagSet) {
	f.DurationVar(&o.wait, "wait", 0,
		"keep trying to connect for so long, for a server that is just starting")
}

// serverFlags are those of servers alone.
func (o *streamOptions) serverFlags(f *pflag.FlagSet) {
	o.nic.peerMaxFlag(f, "of our stack: beyond that it does not answer")
}

func (o *streamOptions) check() error {
	switch {
	case o.idle <= 0:
		return fmt.Errorf("--idle-timeout %v: must be positive", o.idle)
	case o.wait < 0:
		return fmt.Errorf("--wait %v: must not be negative", o.wait)
	case o.nic.pmd == "kernel" && o.nic.counters:
		return errors.New("--pmd kernel has no use for --counters here: leave it out")
	case o.nic.pmd == "kernel" && len(o.nic.given("peer-max")) > 0:
		return errors.New("--pmd kernel has no use for --peer-max here: the kernel accepts what comes; " +
			"leave it out")
	}
	return o.nic.checkDevice()
}

// reporter prints results to one place and remarks to another.
type reporter struct {
	*output // results
	remarks *output
	json    bool
}

// newReporter sends remarks to standard error when results are for a program to read.
func newReporter(c *cobra.Command, json bool) *reporter {
	r := &reporter{output: newOutput(c.OutOrStdout()), json: json}
	r.remarks = r.output
	if json {
		r.remarks = newOutput(c.ErrOrStderr())
	}
	return r
}

// serving is the reporter of a server, which goes on whether its lines are read or not; for close.
func (r *reporter) serving() *reporter {
	one := r.remarks == r.output
	r.output = servingOutput(r.output.to)
	if one {
		r.remarks = r.output
	} else {
		r.remarks = servingOutput(r.remarks.to)
	}
	return r
}

func (r *reporter) close() {
	r.output.close()
	if r.remarks != r.output {
		r.remarks.close()
	}
}

func (r *reporter) remark(format string, args ...any) {
	r.remarks.do(func(w io.Writer) { fmt.Fprintf(w, format+"\n", args...) })
}

func (r *reporter) report(rep *iperf3.Report) {
	r.do(func(w io.Writer) {
		if r.json {
			_ = rep.WriteJSON(w)
			return
		}
		printStreamReport(w, rep)
	})
}

// printStreamReport prints a line a direction.
func printStreamReport(w io.Writer, rep *iperf3.Report) {
	for _, out := range rep.Directions() {
		sum, n := rep.Sum(out), rep.Params.Streams
		streams := strconv.Itoa(n) + " streams"
		if n == 1 {
			streams = "1 stream"
		}
		label, direction := "received", "from"
		if out {
			label, direction = "sent", "to"
		}
		fmt.Fprintf(w, "%-11s %s in %.3f s, %s, %s %v (%s)\n", label, octets(sum.ReceivedOctets),
			sum.ReceivedSeconds,
			bitrate(iperf3.BitsPerSecond(sum.ReceivedOctets, sum.ReceivedSeconds)), direction,
			rep.Remote, streams)
		if sum.SentOctets != sum.ReceivedOctets {
			fmt.Fprintf(w, "            the sender counted %s in %.3f s\n", octets(sum.SentOctets),
				sum.SentSeconds)
		}
		if sum.Retransmits >= 0 {
			fmt.Fprintf(w, "            %d segments retransmitted\n", sum.Retransmits)
		}
	}
	fmt.Fprintf(w, "CPU         %.0f %% of a core here, %.0f %% there\n", rep.CPU.Total,
		rep.PeerCPU.Total)
	if rep.ServerOutput != "" {
		fmt.Fprintf(w, "server output\n%s\n", printable.Lines(rep.ServerOutput))
	}
}
