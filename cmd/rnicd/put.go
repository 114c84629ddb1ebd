package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/cmd/rnicd/xfer"
	"github.com/rnicd/rnicd/rnic"
)

type putOptions struct {
	timeout time.Duration
	wait    time.Duration
	noCRC   bool
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
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return putFile(c.Context(), o, args[0], args[1], c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.DurationVar(&o.timeout, "timeout", 0, "give up after so long in all; 0: never")
	f.DurationVar(&o.wait, "wait", 0, "keep trying to connect for so long, for a server that is just starting")
	f.BoolVar(&o.noCRC, "no-crc", false, "offer to go without CRC32C")
	f.BoolVar(&o.quiet, "quiet", false, "no progress")
	return c
}

func putFile(ctx context.Context, o *putOptions, path, addr string, w io.Writer) error {
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
	if _, _, err := net.SplitHostPort(addr); err != nil {
		addr = net.JoinHostPort(addr, strconv.Itoa(xfer.DefaultPort))
	}
	res, err := putWaiting(ctx, o, dev, file, length, addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "sent        %s to %s\n", path, addr)
	printResult(w, res, false)
	return nil
}

// openSource opens a regular file or block device; its length is announced before the first octet is sent.
func openSource(path string) (*os.File, uint64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	st, err := file.Stat()
	if err == nil && st.IsDir() {
		err = fmt.Errorf("%s is a directory; put takes one file", path)
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
	until := time.Now().Add(o.wait)
	for {
		bar := newProgress(os.Stderr, length)
		cfg := xfer.PutConfig{Adapter: dev, Addr: addr, Source: file, Length: length, NoCRC: o.noCRC}
		if !o.quiet {
			cfg.Progress = bar.update
		}
		res, err := xfer.Put(ctx, cfg)
		bar.end()
		var dial *rnic.ConnectError
		if err == nil || !errors.As(err, &dial) || !time.Now().Before(until) || ctx.Err() != nil {
			return res, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return res, ctx.Err()
		}
	}
}
