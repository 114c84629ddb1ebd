package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/daemon/command"
	"github.com/rnicd/rnicd/internal/tools/xfer"
	"github.com/rnicd/rnicd/rnic"
)

type putOptions struct {
	dialOptions
	noMarkers bool
	quiet     bool
	name      keptName
}

func newPut() *cobra.Command {
	o := &putOptions{}
	c := &cobra.Command{
		Use:   "put FILE HOST[:PORT]",
		Short: "Write a file into the memory of a server",
		Long: `put learns STag, offset and length of the server's memory when it connects, sends the file by tagged DDP messages
straight into it, and closes with one untagged message that carries length and SHA-256. The exit status is not 0 unless
the server's memory has the same hash.

Without --pmd it is an ordinary client: MPA over the kernel's TCP sockets. With it our own TCP does it, on a device of its own.`,
		Args: command.ArgsWanted(2, 2),
		RunE: func(c *cobra.Command, args []string) error {
			return putFile(c.Context(), o, args[0], args[1], newReporter(c, o.json))
		},
	}
	f := c.Flags()
	o.flags(f)
	o.dialectFlag(f, "rfc5044, with Rev 0 for an answer too")
	f.BoolVar(&o.noMarkers, "no-markers", false, "do not ask the server for MPA markers")
	f.BoolVar(&o.quiet, "quiet", false, "no progress")
	f.Var(&o.name, "name", "have the server keep it under this name, for others to get; an empty "+
		"FILE takes away what is there")
	o.jsonFlag(f)
	return c
}

func putFile(ctx context.Context, o *putOptions, path, addr string, r *reporter) error {
	dialect, err := o.check()
	if err != nil {
		return err
	}
	ctx, cancel := o.within(ctx)
	defer cancel()
	file, length, err := openSource(path)
	if errors.Is(err, fs.ErrNotExist) && swapped(addr, path) {
		return fmt.Errorf("%w; the file comes first: rnicd put FILE HOST[:PORT]", err)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if addr, err = dialAddr(addr, xfer.DefaultPort); err != nil {
		return err
	}
	put := xfer.PutConfig{Addr: addr, Source: file, Length: length, Name: string(o.name),
		Conn: o.connParam(dialect, o.noMarkers)}
	if err = hashApart(ctx, &put, file); err != nil {
		return err
	}
	return o.client(ctx, r.remarks, func(ctx context.Context, dev *rnic.Adapter) error {
		var res xfer.Result
		err := o.connecting(ctx, func() (err error) {
			cfg := put
			cfg.Adapter = dev
			end := func() {}
			if !o.quiet {
				bar := newProgress(os.Stderr, length)
				cfg.Progress, end = bar.update, bar.end
			}
			res, err = xfer.Put(ctx, cfg)
			end()
			return err
		})
		if err != nil {
			return o.explain(ctx, err, "put to", addr)
		}
		r.transferred(path, addr, res)
		return nil
	})
}

// keptName is a flag that is not given or names a file that a server keeps. An empty one is
// refused, as it may be a variable of a script that was not set.
type keptName string

func (n *keptName) String() string { return string(*n) }
func (n *keptName) Type() string   { return "string" }

func (n *keptName) Set(text string) error {
	*n = keptName(text)
	return xfer.CheckName(text)
}

// hashApart hashes a file before it is sent, if that is better than doing it meanwhile.
func hashApart(ctx context.Context, cfg *xfer.PutConfig, source io.ReaderAt) error {
	if cfg.Length == 0 || cfg.Length > xfer.HashApartMax {
		return nil
	}
	digest, took, err := xfer.Digest(ctx, source, cfg.Length)
	cfg.Digest, cfg.Hashed = &digest, took
	return err
}

// nobodyThere is what may help against a server that is not there.
func nobodyThere(waited time.Duration) string {
	if waited > 0 {
		return fmt.Sprintf("no server listened there for --wait %v", waited)
	}
	return "is a server running there? --wait 5s waits for one"
}

// dialAddr completes HOST[:PORT]. An IPv6 address with a port stands in brackets, as everywhere.
func dialAddr(text string, defaultPort int) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.Trim(text, "[]"), strconv.Itoa(defaultPort)
	}
	if host == "" || strings.Contains(host, "/") {
		return "", fmt.Errorf("%q names no server: want HOST or HOST:PORT", text)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("%q: port %q is not a number from 1 to 65535", text, port)
	}
	return net.JoinHostPort(host, port), nil
}

// swapped says of a name that no server was found by, and of one that is no file's, whether they
// may have changed places.
func swapped(host, path string) bool {
	if _, err := os.Stat(host); err == nil || strings.Contains(host, "/") {
		return true
	}
	_, addr := netip.ParseAddr(path)
	_, addrPort := netip.ParseAddrPort(path)
	return addr == nil || addrPort == nil
}

// openSource opens a regular file; its length is announced before the first octet is sent.
func openSource(path string) (*os.File, uint64, error) {
	if path == "-" {
		return nil, 0, errors.New("-: the length must be known beforehand, and standard input has " +
			"none; a file of that name is ./-")
	}
	if path == "" {
		return nil, 0, errors.New("the name of the file is empty")
	}
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
