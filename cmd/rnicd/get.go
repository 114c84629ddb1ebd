package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/cmd/rnicd/xfer"
	"github.com/rnicd/rnicd/rnic"
)

type getOptions struct {
	dialOptions
	noMarkers bool
	quiet     bool
}

func newGet() *cobra.Command {
	o := &getOptions{}
	c := &cobra.Command{
		Use:   "get HOST[:PORT] FILE",
		Short: "Read the file that a server offers, by RDMA Reads",
		Long: `get learns STag, offset, length and SHA-256 of what rnicd serve --file offers, reads it by RDMA Reads, as many at a time as
start-up settled, and writes it to FILE, which appears, or is replaced, only when all of it is there and has that hash.

Without --pmd it is an ordinary client: MPA over the kernel's TCP sockets. With it our own TCP does it, on a device of its own.`,
		Args: argsWanted(2, 2),
		RunE: func(c *cobra.Command, args []string) error {
			return getFile(c.Context(), o, args[0], args[1], newReporter(c, o.json))
		},
	}
	f := c.Flags()
	o.flags(f)
	o.dialectFlag(f, "rfc6581, or rfc5044 where the server knows only that")
	f.BoolVar(&o.noMarkers, "no-markers", false, "do not ask the server for MPA markers (no placement ahead of a gap)")
	f.BoolVar(&o.quiet, "quiet", false, "no progress")
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
	sink, err := newSink(path)
	if err != nil {
		return err
	}
	defer sink.discard()
	return o.client(ctx, r.remarks, func(ctx context.Context, dev *rnic.Adapter) error {
		cfg := xfer.GetConfig{Adapter: dev, Addr: addr, Begin: sink.begin, QP: o.options(dialect, o.noMarkers)}
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

// serverFirst adds to the error of a name that cannot be a server's, or that nobody knows, what may have led to it.
func serverFirst(err error, host, path string) error {
	var unknown *net.DNSError
	if (strings.Contains(host, "/") || errors.As(err, &unknown)) && swapped(host, path) {
		return fmt.Errorf("%w; the server comes first: rnicd get HOST[:PORT] FILE", err)
	}
	return err
}

// sink is a file that appears under its name when it is whole. Until then it has another one, beside it.
type sink struct {
	path string
	file *os.File // nil: not begun, or over
}

// newSink refuses a name that can be no file, before anybody is asked for anything.
func newSink(path string) (*sink, error) {
	st, err := os.Stat(path)
	switch {
	case path == "-":
		return nil, errors.New("-: a file gets its name when all of it is there, and standard output has none; a file of that name is ./-")
	case err == nil && st.IsDir():
		return nil, fmt.Errorf("%s is a directory; want the name of a file", path)
	case err == nil && !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file, and would be replaced by one", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return nil, err
	}
	return &sink{path: path}, nil
}

// begin makes the file, with room for length octets, so that a full disk is found before the network is asked.
func (s *sink) begin(length uint64) (io.Writer, error) {
	if length > math.MaxInt64 {
		return nil, fmt.Errorf("the server offers %d octets, more than a file can have", length)
	}
	s.discard() // of a try before this
	var err error
	if s.file, err = os.CreateTemp(filepath.Dir(s.path), "."+filepath.Base(s.path)+".*"); err != nil {
		return nil, err
	}
	if length == 0 {
		return s.file, nil
	}
	err = unix.Fallocate(int(s.file.Fd()), 0, 0, int64(length))
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		return nil, fmt.Errorf("%s: no room for %d octets: %w", s.path, length, err)
	}
	return s.file, nil
}

// commit gives the file its name. A file of that name keeps its mode, a new one has the usual.
func (s *sink) commit() error {
	mode := fs.FileMode(0o666) &^ umask()
	if st, err := os.Stat(s.path); err == nil {
		mode = st.Mode().Perm()
	}
	err := errors.Join(s.file.Chmod(mode), s.file.Sync(), s.file.Close())
	if err == nil {
		err = os.Rename(s.file.Name(), s.path)
	}
	if err != nil {
		os.Remove(s.file.Name())
	}
	s.file = nil
	return err
}

// discard takes an unfinished file away.
func (s *sink) discard() {
	if s.file != nil {
		s.file.Close()
		os.Remove(s.file.Name())
		s.file = nil
	}
}

// umask is the process's, which can only be read by setting it.
func umask() fs.FileMode {
	m := unix.Umask(0)
	unix.Umask(m)
	return fs.FileMode(m)
}
