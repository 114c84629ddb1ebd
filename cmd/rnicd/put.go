package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/cmd/rnicd/xfer"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

type putOptions struct {
	timeout time.Duration
	wait    time.Duration
	noCRC   bool
	dialect string
	quiet   bool
}

func newPut() *cobra.Command {
	o := &putOptions{}
	c := &cobra.Command{
		Use:   "put FILE HOST[:PORT]",
		Short: "Write a file into the memory of a server, over the kernel's TCP",
		Long: `put is an ordinary client: MPA over the kernel's TCP sockets. It learns STag, offset and length of the server's memory
when it connects, sends the file by tagged DDP messages straight into it, and closes with one untagged message that
carries length and SHA-256. The exit status is not 0 unless the server's memory has the same hash.`,
		Args: argsWanted(2, 2),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("dialect") && o.dialect == "" { // of an unset variable
				_, err := parseDialect("")
				return err
			}
			return putFile(c.Context(), o, args[0], args[1], c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.DurationVar(&o.timeout, "timeout", 0, "give up after so long in all; 0: never")
	f.DurationVar(&o.wait, "wait", 0, "keep trying to connect for so long, for a server that is just starting")
	f.BoolVar(&o.noCRC, "no-crc", false, "offer to go without CRC32C")
	f.StringVar(&o.dialect, "dialect", "", "MPA dialect to ask in: rddp-01, rfc5044, rtr or rfc6581 (default rfc5044, with Rev 0 for an answer too)")
	f.BoolVar(&o.quiet, "quiet", false, "no progress")
	return c
}

func putFile(ctx context.Context, o *putOptions, path, addr string, w io.Writer) error {
	if o.timeout < 0 || o.wait < 0 {
		return fmt.Errorf("--timeout %v, --wait %v: must not be negative", o.timeout, o.wait)
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	file, length, err := openSource(path)
	if err != nil {
		return err
	}
	defer file.Close()
	dev, err := rnic.Open(rnic.Config{})
	if err != nil {
		return err
	}
	if addr, err = dialAddr(addr, xfer.DefaultPort); err != nil {
		return err
	}
	warnNoCRC(w, o.noCRC)
	res, err := putWaiting(ctx, o, dev, file, length, addr)
	// The dialer has a timer of its own, which may be the first to end.
	if deadline, ok := ctx.Deadline(); err != nil && ok && !time.Now().Before(deadline) {
		return fmt.Errorf("gave up after --timeout %v: %w", o.timeout, err)
	}
	if err != nil {
		return o.explain(err, addr)
	}
	fmt.Fprintf(w, "sent        %s to %s\n", path, addr)
	printResult(w, res, false)
	return nil
}

// explain says where it went wrong, and what stands against a server that is not there.
func (o *putOptions) explain(err error, addr string) error {
	var dial *rnic.ConnectError
	var rejected *rnic.RejectedError
	var revision *rnic.RevisionError
	switch {
	case errors.As(err, &rejected) && rejected.MaybeDialect(), errors.As(err, &revision):
		return fmt.Errorf("%w; --dialect asks in another", err)
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, stack.ErrRefused):
		return fmt.Errorf("%w; %s", err, nobodyThere(o.wait))
	case errors.As(err, &dial): // has the address
		return err
	}
	return fmt.Errorf("put to %s: %w", addr, err)
}

// nobodyThere is what may help against a server that is not there.
func nobodyThere(waited time.Duration) string {
	if waited > 0 {
		return fmt.Sprintf("nobody listened there for --wait %v", waited)
	}
	return "is a server running there? --wait 5s waits for one"
}

// dialAddr completes HOST[:PORT]. An IPv6 address with a port stands in brackets, as everywhere.
func dialAddr(text string, defaultPort int) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.Trim(text, "[]"), strconv.Itoa(defaultPort)
	}
	if host == "" {
		return "", fmt.Errorf("%q names no server: want HOST or HOST:PORT", text)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("%q: port %q is not a number from 1 to 65535", text, port)
	}
	return net.JoinHostPort(host, port), nil
}

// openSource opens a regular file; its length is announced before the first octet is sent.
func openSource(path string) (*os.File, uint64, error) {
	// Without O_NONBLOCK a FIFO's open waits for its writer.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	st, err := file.Stat()
	if err == nil && st.IsDir() {
		err = fmt.Errorf("%s is a directory; want a file", path)
	} else if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file; its length must be known beforehand", path)
	}
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	return file, uint64(st.Size()), nil
}

// putWaiting retries the connection, and only that, while --wait lasts.
func putWaiting(ctx context.Context, o *putOptions, dev *rnic.Adapter, file *os.File, length uint64, addr string) (xfer.Result, error) {
	var dialect rnic.Dialect // what a connection speaks that wants nothing special
	if o.dialect != "" {
		var err error
		if dialect, err = parseDialect(o.dialect); err != nil {
			return xfer.Result{}, err
		}
	}
	until := time.Now().Add(o.wait)
	var before error // of the try before this one
	for {
		cfg := xfer.PutConfig{Adapter: dev, Addr: addr, Source: file, Length: length, NoCRC: o.noCRC, Dialect: dialect}
		end := func() {}
		if !o.quiet {
			bar := newProgress(os.Stderr, length)
			cfg.Progress, end = bar.update, bar.end
		}
		res, err := xfer.Put(ctx, cfg)
		end()
		var dial *rnic.ConnectError
		if deadline, ok := ctx.Deadline(); ok && before != nil && errors.As(err, &dial) && !time.Now().Before(deadline) {
			return res, before // this try was cut short: what stood in the way all the time
		}
		before = err
		if err == nil || !errors.As(err, &dial) || !time.Now().Before(until) || ctx.Err() != nil {
			return res, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return res, ctx.Err()
			}
			return res, err // what stood in the way all the time
		}
	}
}
