package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/internal/daemon/command"
	"github.com/rnicd/rnicd/internal/tools/bytestream"
)

// plainMax bounds the connections that a listening sink, source or echo has at once; further ones
// wait to be accepted.
const plainMax = 64

type plainOptions struct {
	streamOptions
	mode   string
	once   bool
	length size
	bytes  size
	time   time.Duration
	from   uint16 // local port
	conns  int    // to HOST
}

var plainText = map[string]struct{ short, long string }{
	"sink": {"Read connections to their end and count", "sink reads everything and sends nothing."},
	"source": {"Write to connections, for so long or so much",
		"source writes random octets, and ends when the peer has closed too. What the peer sends back " +
			"must be the same octets."},
	"echo": {"Send everything back", "echo sends back what it reads, and closes when the peer has."},
}

func newPlain(mode string) *cobra.Command {
	o := &plainOptions{mode: mode, length: bytestream.LengthDefault}
	c := &cobra.Command{
		Use:   mode + " [HOST[:PORT]]",
		Short: plainText[mode].short,
		Long:  plainText[mode].long + " With HOST it connects; without, it listens.",
		Args:  command.ArgsWanted(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return runPlain(c.Context(), o, args, newReporter(c, o.json))
		},
	}
	f := c.Flags()
	o.flags(f)
	o.serverFlags(f)
	o.waitFlag(f)
	f.BoolVar(&o.once, "once", false, "end after the first connection; the exit status is its result")
	f.VarP(&o.length, "length", "l", "size of a Read or Write")
	f.Var(&number{&o.from, 1, math.MaxUint16}, "local-port",
		"TCP port to connect to HOST from, instead of any that is free")
	f.IntVarP(&o.conns, "parallel", "P", 1, fmt.Sprintf("connections to HOST, 1 to %d", plainMax))
	if mode == "source" {
		f.VarP(&o.bytes, "bytes", "n", "how much to send on each connection, instead of --time")
		f.VarP((*timeSpan)(&o.time), "time", "t", "how long to send; 10s unless --bytes is given")
	}
	return c
}

func (o *plainOptions) check() error {
	var errs [4]error
	if o.length < 1 || o.length > bytestream.LengthMax {
		errs[0] = fmt.Errorf("--length %v: want 1 to %d", &o.length, bytestream.LengthMax)
	}
	switch {
	case o.conns < 1 || o.conns > plainMax:
		errs[1] = fmt.Errorf("--parallel %d: want 1 to %d", o.conns, plainMax)
	case o.conns > 1 && o.from != 0:
		errs[1] = errors.New("--local-port is of no use to several connections: leave it or " +
			"--parallel out")
	}
	switch {
	case o.time < 0 || o.time == 0 && len(o.nic.given("time")) > 0:
		errs[2] = fmt.Errorf("--time %v: must be positive", o.time)
	case o.time != 0 && o.bytes != 0:
		errs[2] = errors.New("only one of --time and --bytes can end the sending")
	case o.time == 0 && o.bytes == 0:
		o.time = 10 * time.Second
	}
	errs[3] = o.streamOptions.check()
	return errors.Join(errs[:]...)
}

// checkRole refuses what is of no use to the end that dials, or to the one that listens.
func (o *plainOptions) checkRole(dials bool) error {
	if useless := o.nic.given("wait", "local-port", "parallel"); !dials && len(useless) > 0 {
		return fmt.Errorf("%s: of no use without HOST: leave it out", strings.Join(useless, ", "))
	}
	if useless := o.nic.given("peer-max"); dials && len(useless) > 0 {
		return fmt.Errorf("%s: of no use with HOST: leave it out", strings.Join(useless, ", "))
	}
	return nil
}

func runPlain(ctx context.Context, o *plainOptions, args []string, r *reporter) (err error) {
	if err := errors.Join(o.check(), o.checkRole(len(args) > 0)); err != nil {
		return err
	}
	defer func() {
		if len(args) > 0 {
			err = kernelHint(&o.nic, err)
		}
	}()
	if len(args) == 0 {
		defer r.serving().close()
	}
	ctx, n, err := openStreamNet(ctx, &o.nic, r)
	if err != nil {
		return err
	}
	defer func() { err = ending(err, n.Close()) }()
	n.localPort = o.from
	if len(args) == 0 {
		l, err := n.listen(ctx, o.port)
		if err != nil {
			return err
		}
		return servePlain(ctx, o, l, r)
	}
	addr, err := dialAddr(args[0], int(o.port))
	if err != nil {
		return err
	}
	return o.dial(ctx, n, addr, r)
}

// dial serves as many connections to addr as --parallel says.
func (o *plainOptions) dial(ctx context.Context, n *streamNet, addr string, r *reporter) error {
	conns, errs := make([]net.Conn, o.conns), make([]error, o.conns)
	for i := range conns {
		var err error
		if conns[i], err = n.dialWaiting(ctx, addr, o.wait); err != nil {
			for _, c := range conns[:i] {
				_ = c.Close()
			}
			return err
		}
	}
	var running sync.WaitGroup
	for i, c := range conns {
		running.Go(func() { errs[i] = o.serve(ctx, c, r) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// servePlain serves each connection on a goroutine of its own, plainMax of them at most.
func servePlain(ctx context.Context, o *plainOptions, l net.Listener, r *reporter) error {
	var running sync.WaitGroup
	defer r.remarks.settle()
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	defer l.Close()
	r.remark("ready       %v, %s", l.Addr(), o.mode)
	slots := make(chan struct{}, plainMax)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		conn, err := l.Accept()
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if o.once {
			return o.serve(ctx, conn, r)
		}
		running.Go(func() {
			if err := o.serve(ctx, conn, r); err != nil {
				r.remarks.failure(conn.RemoteAddr().String(), command.OneLine(cutShort(err)))
			}
			<-slots
		})
	}
}

// serve does what the command is for with one connection, and closes it.
func (o *plainOptions) serve(ctx context.Context, conn net.Conn, r *reporter) error {
	defer conn.Close()
	p := &plain{o, conn, bytestream.Session{Conn: conn, Length: int(o.length), Idle: o.idle,
		Bytes: uint64(o.bytes), Time: o.time}}
	err := p.Run(ctx, o.mode)
	p.report(r, err)
	return err
}

// plain is one connection of a sink, source or echo.
type plain struct {
	*plainOptions
	conn net.Conn
	bytestream.Session
}

// plainResult is a connection's outcome as JSON. Bytes went the way that the mode is about.
type plainResult struct {
	Mode    string  `json:"mode"`
	Remote  string  `json:"remote"`
	Bytes   uint64  `json:"bytes"`
	Back    uint64  `json:"bytes_back"` // the other way: of an echo
	Seconds float64 `json:"seconds"`
	Gbit    float64 `json:"gbit_per_second"`
	Resent  int64   `json:"retransmits"` // segments of ours; -1: not known
	Error   string  `json:"error,omitempty"`
}

func (p *plain) report(r *reporter, err error) {
	res := plainResult{Mode: p.mode, Remote: p.conn.RemoteAddr().String(), Bytes: p.Received,
		Back: p.Sent, Seconds: p.Took.Seconds()}
	label, verb := "received", "from"
	if p.mode == "source" {
		res.Bytes, res.Back, label, verb = p.Sent, p.Received, "sent", "to"
	}
	bps := float64(res.Bytes) * 8 / max(res.Seconds, 1e-9)
	res.Gbit, res.Resent = bps/1e9, bytestream.Retransmits(p.conn)
	if err != nil {
		res.Error = command.OneLine(err)
	}
	r.do(func(w io.Writer) {
		if r.json {
			_ = json.NewEncoder(w).Encode(res)
			return
		}
		fmt.Fprintf(w, "%-11s %s in %.3f s, %s, %s %s", label, octets(res.Bytes), res.Seconds,
			bitrate(bps), verb, res.Remote)
		if res.Back > 0 {
			fmt.Fprintf(w, "; %s back", octets(res.Back))
		}
		fmt.Fprintln(w)
		if p.Sent > 0 && res.Resent >= 0 {
			fmt.Fprintf(w, "            %d segments retransmitted\n", res.Resent)
		}
	})
}
