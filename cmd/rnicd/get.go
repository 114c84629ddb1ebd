package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/internal/daemon/command"
	"github.com/rnicd/rnicd/internal/tools/xfer"
	"github.com/rnicd/rnicd/rnic"
)

type getOptions struct {
	dialOptions
	noMarkers bool
	quiet     bool
	name      keptName
	sizeMax   size
}

func newGet() *cobra.Command {
	o := &getOptions{}
	c := &cobra.Command{
		Use:   "get HOST[:PORT] FILE",
		Short: "Read the file that a server offers, by RDMA Reads",
		Long: `get learns STag, offset, length and SHA-256 of what rnicd serve --file offers, reads it by RDMA Reads, as many at a time as
start-up settled, and writes it to FILE, which appears, or is replaced, only when all of it is there and has that hash. If FILE is a symbolic
link, that goes for the file it leads to.

Without --pmd it is an ordinary client: MPA over the kernel's TCP sockets. With it our own TCP does it, on a device of its own.`,
		Args: command.ArgsWanted(2, 2),
		RunE: func(c *cobra.Command, args []string) error {
			return getFile(c.Context(), o, args[0], args[1], newReporter(c, o.json))
		},
	}
	f := c.Flags()
	o.flags(f)
	o.dialectFlag(f, "rfc6581, or rfc5044 where the server knows only that")
	f.BoolVar(&o.noMarkers, "no-markers", false,
		"do not ask the server for MPA markers (no placement ahead of a gap)")
	f.BoolVar(&o.quiet, "quiet", false, "no progress")
	f.Var(&o.sizeMax, "size-max", "largest file that is taken; 0: as large as there is room for")
	f.Var(&o.name, "name", "read what was put under this name, from a region that keeps it")
	o.jsonFlag(f)
	return c
}

func getFile(ctx context.Context, o *getOptions, addr, path string, r *reporter) error {
	dialect, err := o.check()
	if err != nil {
		return err
	}
	ctx, cancel := o.within(ctx)
	defer cancel()
	host := addr
	if addr, err = dialAddr(host, xfer.DefaultPort); err != nil {
		return serverFirst(err, host, path)
	}
	sink, err := newSink(path, uint64(o.sizeMax))
	if err != nil {
		return err
	}
	defer sink.discard()
	return o.client(ctx, r.remarks, func(ctx context.Context, dev *rnic.Adapter) error {
		cfg := xfer.GetConfig{Adapter: dev, Addr: addr, Name: string(o.name), Begin: sink.begin,
			Conn: o.connParam(dialect, o.noMarkers)}
		end := func() {}
		if !o.quiet {
			var bar *progress
			cfg.Progress = func(done, length uint64) {
				if bar == nil {
					bar = newProgress(os.Stderr, length)
					bar.receives, end = true, bar.end
				}
				bar.update(done)
			}
		}
		var res xfer.Result
		err := o.connecting(ctx, func() (err error) {
			res, err = xfer.Get(ctx, cfg)
			return err
		})
		end()
		if err != nil {
			return serverFirst(o.explain(ctx, err, "get from", addr), host, path)
		}
		if err := sink.commit(); err != nil {
			return err
		}
		r.transferred(path, addr, res)
		return nil
	})
}

// serverFirst adds to the error of a name that cannot be a server's, or that cannot be resolved,
// what may have led to it.
func serverFirst(err error, host, path string) error {
	var unknown *net.DNSError
	if (strings.Contains(host, "/") || errors.As(err, &unknown)) && swapped(host, path) {
		return fmt.Errorf("%w; the server comes first: rnicd get HOST[:PORT] FILE", err)
	}
	return err
}
