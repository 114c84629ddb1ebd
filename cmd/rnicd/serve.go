package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rnicd/rnicd/internal/daemon"
	"github.com/rnicd/rnicd/internal/daemon/command"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/tools/xfer"
	"github.com/rnicd/rnicd/rnic"
)

type serveOptions struct {
	listenOptions
	file         string
	config       string
	dialectNames []string
	noMarkers    bool
	dropBadCRC   bool
}

func newServe() *cobra.Command {
	o := &serveOptions{listenOptions: listenOptions{region: 256 << 20}}
	c := &cobra.Command{
		Use:   "serve",
		Short: "Advertise memory that clients write files into, and a file that they read",
		Long: `serve runs a poll-mode core on a device of its own, with our TCP, MPA and DDP, and lets clients (rnicd put) write
files straight into a region of registered, hugepage-backed memory. With --file it keeps a copy of that file in memory,
which clients (rnicd get) read by RDMA Reads.

With --config it serves what a file says, any number of services on any number of ports, until SIGTERM, which lets connections come
to their end; SIGHUP reads the file again.`,
		Args: command.ArgsWanted(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("config") {
				return serveConfig(c, o.config)
			}
			return serve(c.Context(), o, c.OutOrStdout())
		},
	}
	f := c.Flags()
	o.flagsWithout(f, xfer.DefaultPort)
	f.StringVar(&o.config, "config", "", "serve what this file says; no other flag may be given then")
	f.Var(&o.region, "region", "size of the region")
	f.StringVar(&o.file, "file", "", "a file that rnicd get may read, as it is now")
	f.BoolVar(&o.noMarkers, "no-markers", false,
		"do not ask clients for MPA markers (no placement ahead of a gap)")
	f.StringSliceVar(&o.dialectNames, "dialect", nil,
		"MPA dialects to serve: "+strings.Join(framedDialects(), ", ")+" (default all)")
	f.BoolVar(&o.dropBadCRC, "drop-bad-crc", false,
		"drop a segment with a bad CRC so that it is sent again, instead of ending the connection")
	return c
}

// serveConfig is the daemon.
func serveConfig(c *cobra.Command, file string) error {
	var others []string
	c.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "config" {
			others = append(others, "--"+f.Name)
		}
	})
	if len(others) > 0 {
		return fmt.Errorf("--config: the file says everything; leave out %s", strings.Join(others, ", "))
	}
	return command.OfConfigFlag(
		daemon.Run(file, port.All(), daemon.Options{Log: c.ErrOrStderr(), Version: version}))
}

func serve(ctx context.Context, o *serveOptions, w io.Writer) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	offered, err := loadOffered(o, w)
	if err != nil {
		return err
	}
	defer offered.release()
	o.offers = fmt.Sprintf(", region of %v%s", &o.region, offered)
	return o.listen(ctx, w, func(ctx context.Context, s *endpoint, l *rnic.Listener, out *output,
		done func(error)) error {
		return xfer.NewServer(xfer.ServerConfig{
			Adapter: s.dev, Region: s.region, File: offered.content, IdleTimeout: o.idle,
			NoMarkers: o.noMarkers, NoCRC: o.noCRC, DropBadCRC: o.dropBadCRC,
			Done: func(r xfer.Result) {
				out.served(r)
				done(r.Err)
			},
			Refused: out.refusedAs(done),
		}).Serve(ctx, l)
	})
}

// warnNoCRC says what --no-crc gives up (RFC 5044 section 4.4).
func warnNoCRC(w io.Writer, noCRC bool) {
	if noCRC {
		fmt.Fprintln(w, "warning     --no-crc: if the other end agrees, only TCP's checksum guards "+
			"octets; for paths with an integrity check of their own")
	}
}

// check refuses what cannot be, before any memory is mapped or any device made.
func (o *serveOptions) check() error {
	var region, dialect error
	if o.region <= 0 {
		region = fmt.Errorf("--region %v: must be at least one octet", &o.region)
	}
	names := o.dialectNames
	if len(names) == 0 && len(o.nic.given("dialect")) > 0 {
		names = []string{""} // of an unset variable: not a reason to serve all
	}
	o.dialects, dialect = parseDialects(names)
	return errors.Join(region, dialect, o.listenOptions.check())
}

// parseDialects reads --dialect of serve.
func parseDialects(names []string) (ds []rnic.Dialect, err error) {
	for _, name := range names {
		d, err := parseDialect(name)
		if err != nil {
			return nil, err
		}
		ds = append(ds, d)
	}
	return ds, nil
}

// framedDialects are the names that --dialect takes: those of dialects with start-up frames.
func framedDialects() (names []string) {
	for d := rnic.Culley02; d.Valid(); d++ {
		if d.PrivateDataMax() > 0 {
			names = append(names, d.String())
		}
	}
	return names
}

// orList is a, b or c.
func orList(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// parseDialect reads a --dialect. A transfer begins with private data, so a dialect without frames
// is of no use to it.
func parseDialect(name string) (rnic.Dialect, error) {
	d, err := rnic.ParseDialect(name)
	if err != nil || d.PrivateDataMax() == 0 {
		return 0, fmt.Errorf("--dialect %q: want %s", name, orList(framedDialects()))
	}
	return d, nil
}
