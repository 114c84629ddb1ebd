package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rnicd/rnicd/internal/daemon/command"
)

const (
	streamPort  = 5201
	dialTimeout = 10 * time.Second
	redialEvery = 50 * time.Millisecond
)

func newStream() *cobra.Command {
	c := &cobra.Command{
		Use:   "stream",
		Short: "Byte streams over TCP, to measure and to try interoperation: sink, source, echo",
		Long:  `stream moves octets over plain TCP connections and says how fast. Nothing is needed at the other end but TCP.`,
		Args:  cobra.ArbitraryArgs,
		RunE:  command.OnlyCommands,
	}
	c.AddCommand(newPlain("sink"), newPlain("source"), newPlain("echo"),
		newRemoved("server", "iperf3"), newRemoved("client", "iperf3"))
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
	o.port = streamPort
	f.VarP(&number{&o.port, 1, math.MaxUint16}, "port", "p",
		"TCP port: to listen on, or of HOST when that names none")
	f.BoolVar(&o.json, "json", false,
		"print results as one line of JSON each; everything else goes to standard error")
	f.DurationVar(&o.idle, "idle-timeout", 30*time.Second,
		"end a connection on which nothing moves for so long")
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
	var errs [5]error
	if o.idle <= 0 {
		errs[0] = fmt.Errorf("--idle-timeout %v: must be positive", o.idle)
	}
	if o.wait < 0 {
		errs[1] = fmt.Errorf("--wait %v: must not be negative", o.wait)
	}
	if o.nic.pmd == "kernel" && o.nic.counters {
		errs[2] = errors.New("--pmd kernel has no use for --counters here: leave it out")
	}
	if o.nic.pmd == "kernel" && len(o.nic.given("peer-max")) > 0 {
		errs[3] = errors.New("--pmd kernel has no use for --peer-max here: the kernel accepts what " +
			"comes; leave it out")
	}
	errs[4] = o.nic.checkDevice()
	return errors.Join(errs[:]...)
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
