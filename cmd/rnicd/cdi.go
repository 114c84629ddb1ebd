package main

import (
	"errors"
	"fmt"
	"io"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/rnicd/rnicd/internal/daemon/cdi"
	"github.com/rnicd/rnicd/internal/daemon/command"
	"github.com/rnicd/rnicd/internal/daemon/config"
)

func newCDI() *cobra.Command {
	c := &cobra.Command{
		Use:   "cdi",
		Short: "Describe RDMA devices to podman, docker, containerd and CRI-O",
		Long: `cdi writes, lists and removes files of the Container Device Interface (CDI), by which container engines give a container a device:

  rnicd cdi write
  podman run --device rnicd.io/rnic=sockets IMAGE rping -s

The container gets the two libraries of rnicd run, read-only, and the environment in which its programs load them. It needs no
capability. Its C library has to be glibc 2.34 or later.

  rnicd.io/rnic=sockets   over the sockets that the container has
  rnicd.io/rnic=roce      the same, or another device, looking like a RoCE adapter
  rnicd.io/rnic=tools     the libraries alone, for ` + cdi.LibrariesInside + `/rnicd run -- PROGRAM, which keeps the image's LD_PRELOAD
                          and LD_LIBRARY_PATH
  rnicd.io/rnic=NAME      the program NAME of a switch, for a container without any network

docs/guides/containers.md has more.`,
		Args: cobra.ArbitraryArgs,
		RunE: command.OnlyCommands,
	}
	c.AddCommand(newCDIWrite(), newCDIList(), newCDIRemove())
	return c
}

// cdiWrite are the flags of cdi write.
type cdiWrite struct {
	file, dir, lib, group string
	prefix                int
	print                 bool
}

func newCDIWrite() *cobra.Command {
	var o cdiWrite
	c := &cobra.Command{
		Use:   "write [--config FILE]",
		Short: "Write the devices that need no switch, or one for each program of a switch",
		Long: `write describes the devices sockets, roce and tools in ` + filepath.Join(cdi.StaticDir, cdi.FileName) + `; with --config, which
is a switch's, a device for each of its programs in ` + cdi.DynamicDir + `/rnicd-*.json, as rnicd-switch.service does when it starts
and reloads. Programs that have a secret are in a file that only root may read. A program that no container can be is left out; the
exit status is 1 then, and all others are written.`,
		Args: command.ArgsWanted(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.OutOrStdout()) },
	}
	f := c.Flags()
	f.StringVar(&o.file, "config", "", "a switch's configuration")
	f.StringVar(&o.dir, "dir", "", "where to write (default "+cdi.StaticDir+", with --config "+
		cdi.DynamicDir+")")
	f.StringVar(&o.lib, "lib", "", "the directory of the two libraries")
	f.StringVar(&o.group, "group", "", "name or number of a group that the container's processes are to be "+
		"in, as that of the switch's sockets; for engines with CDI 0.7.0 or later")
	f.IntVar(&o.prefix, "prefix", 0, "prefix length of the programs' IPv4 addresses (default: the "+
		"uplink's host_address', or what the programs have in common)")
	f.BoolVar(&o.print, "print", false, "print the devices, secrets too, and write nothing")
	return c
}

func (o *cdiWrite) run(w io.Writer) error {
	library, err := findLibrary(o.lib)
	if err != nil {
		return err
	}
	host := cdi.Host{Libraries: filepath.Dir(library), PrefixLen: o.prefix}
	switch {
	case o.prefix < 0 || o.prefix > 32:
		return fmt.Errorf("--prefix %d: want 1 to 32", o.prefix)
	case o.file == "" && o.prefix != 0, o.file == "" && o.group != "":
		return errors.New("--prefix and --group are for the programs of a switch: give its --config")
	}
	if host.GIDs, err = groupIDs(o.group); err != nil {
		return err
	}
	if o.file == "" {
		return o.put(w, host.Spec())
	}
	s, err := config.LoadSwitch(o.file, cdi.Drivers())
	if err != nil {
		return command.OfConfigFlag(err)
	}
	open, secret, left := host.Programs(s)
	if o.print {
		return errors.Join(printSpecs(w, open, secret), left)
	}
	paths, err := cdi.WritePrograms(o.in(cdi.DynamicDir), o.file, open, secret)
	for _, p := range paths {
		fmt.Fprintln(w, p)
	}
	return errors.Join(err, left)
}

// in is --dir, or the folder that is used without.
func (o *cdiWrite) in(dir string) string {
	if o.dir != "" {
		return o.dir
	}
	return dir
}

// put writes the devices that need no switch.
func (o *cdiWrite) put(w io.Writer, spec *specs.Spec) error {
	if o.print {
		return printSpecs(w, spec)
	}
	path := filepath.Join(o.in(cdi.StaticDir), cdi.FileName)
	if err := cdi.Write(path, spec, 0o644); err != nil {
		return err
	}
	fmt.Fprintln(w, path)
	return nil
}

// printSpecs prints the devices of all Specs as one.
func printSpecs(w io.Writer, all ...*specs.Spec) error {
	var one *specs.Spec
	for _, spec := range all {
		switch {
		case spec == nil:
		case one == nil:
			one = spec
		default:
			one.Devices = append(one.Devices, spec.Devices...)
			one.Version, _ = specs.MinimumRequiredVersion(one)
		}
	}
	if one == nil {
		return nil
	}
	text, err := cdi.Encode(one)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// groupIDs is the number of a group, if one is given.
func groupIDs(group string) ([]uint32, error) {
	if group == "" {
		return nil, nil
	}
	text := group
	if g, err := user.LookupGroup(group); err == nil {
		text = g.Gid
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("--group %s: there is no such group", group)
	}
	return []uint32{uint32(n)}, nil
}

func newCDIList() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "list",
		Short: "List the devices that containers may have",
		Long: `list prints the devices of our files in ` + strings.Join(cdi.Dirs, " and ") + `, each with its file, and on standard error what
is wrong with a file, such as libraries that are not there; the exit status is 1 then.`,
		Args: command.ArgsWanted(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			var wrong []error
			for _, d := range cdiDirs(dir) {
				files, err := cdi.Find(d)
				if err != nil {
					return err
				}
				for _, f := range files {
					for _, device := range f.Devices {
						fmt.Fprintf(c.OutOrStdout(), "%-32s  %s\n", cdi.Kind+"="+device.Name, f.Path)
					}
					if f.Err != nil {
						wrong = append(wrong, fmt.Errorf("%s: %w", f.Path, f.Err))
					}
				}
			}
			return errors.Join(wrong...)
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "look there (default "+strings.Join(cdi.Dirs, ", ")+")")
	return c
}

func newCDIRemove() *cobra.Command {
	var dir, file string
	c := &cobra.Command{
		Use:   "remove [--config FILE]",
		Short: "Remove the files that cdi write has written",
		Long: `remove removes our files from ` + strings.Join(cdi.Dirs, " and ") + `, or only those of a switch's configuration, and prints their
names. Containers that run keep what they have.`,
		Args: command.ArgsWanted(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			for _, d := range cdiDirs(dir) {
				removed, err := cdi.Remove(d, file)
				for _, path := range removed {
					fmt.Fprintln(c.OutOrStdout(), path)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "remove there (default "+strings.Join(cdi.Dirs, ", ")+")")
	c.Flags().StringVar(&file, "config", "", "only what was written for this configuration")
	return c
}

func cdiDirs(dir string) []string {
	if dir != "" {
		return []string{dir}
	}
	return slices.Clone(cdi.Dirs)
}
