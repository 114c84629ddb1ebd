// Package command is the daemon's command line: serve, check, doctor, status, top, ss, capture,
// events; and man, which writes manual pages. Package cmd of the root shows Main to programs with
// drivers of their own.
package command

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/internal/conf"
	"github.com/rnicd/rnicd/internal/daemon"
	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/daemon/doctor"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/printable"
)

// Main is the main function of a daemon with more drivers than those of this module. It does not
// return.
func Main() {
	if err := Root(port.All()).Execute(); err != nil {
		PrintError(os.Stderr, err)
		os.Exit(ExitCode(err))
	}
	os.Exit(0)
}

// Root has all commands.
func Root(drivers port.Drivers) *cobra.Command {
	root := &cobra.Command{Use: "rnicd",
		Short: "A software RNIC: iWARP over a userspace, MPA-aware TCP", SilenceUsage: true,
		SilenceErrors: true, Args: cobra.ArbitraryArgs, RunE: OnlyCommands}
	root.SetFlagErrorFunc(FlagError)
	var file string
	serve := &cobra.Command{
		Use: "serve --config FILE", Short: "Serve what a configuration says", Args: ArgsWanted(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return daemon.Run(file, drivers, daemon.Options{Log: c.ErrOrStderr()})
		},
	}
	ConfigFlag(serve, &file, "configuration")
	root.AddCommand(serve, Check(drivers), Doctor(drivers), Status(), Top(), Ss(), Capture(),
		Events(), Man())
	return root
}

// Check is the command check.
func Check(drivers port.Drivers) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Say what is wrong with a configuration, without opening anything",
		Long: `check reads a configuration of rnicd serve --config, or of rnicd switch, and says everything that is wrong with it, each with line and
column. The exit status is 0 when a daemon can start with it, as far as that shows without opening a device.`,
		Args: ArgsWanted(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			text, err := conf.Read(args[0])
			if err != nil {
				return err
			}
			if config.IsSwitch(text) {
				cfg, err := config.ParseSwitch(args[0], text, drivers)
				if err != nil {
					return err
				}
				fmt.Fprintf(c.OutOrStdout(), "%s: a switch, %s, %s\n", cfg.File,
					conf.Count(len(cfg.Uplinks), "uplink"), conf.Count(len(cfg.Programs), "program"))
				return nil
			}
			cfg, err := config.Parse(args[0], text, drivers)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: %s, %s\n", cfg.File, conf.Count(len(cfg.Ports), "port"),
				conf.Count(len(cfg.Services), "service"))
			return nil
		},
	}
}

// needs is what the configuration of a daemon, or of a switch, wants of a machine.
func needs(file string, drivers port.Drivers) (*config.Config, error) {
	text, err := conf.Read(file)
	if err != nil {
		return nil, err
	}
	if !config.IsSwitch(text) {
		return config.Parse(file, text, drivers)
	}
	s, err := config.ParseSwitch(file, text, drivers)
	if err != nil {
		return nil, err
	}
	return s.Needs(), nil
}

// Doctor is the command doctor.
func Doctor(drivers port.Drivers) *cobra.Command {
	var file string
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine lacks, and the command that fixes it",
		Long: `doctor looks at hugepages and memory, NUMA nodes, IOMMU and vfio, NICs and their drivers, isolated cores, CPU features, permissions,
/dev/net/tun, memlock, and whether devices, TCP ports, sockets and folders are there and free, for a daemon or a switch; of one
that runs, whether its devices take frames. Each line is ok; warn, where the daemon runs without but not as fast; or lack, where it does not run. With
--config only what that configuration needs is a lack. The exit status is 1 when something is lacking.`,
		Args: ArgsWanted(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			m := doctor.Machine{Root: "/"}
			if file != "" {
				var err error
				if m.Config, err = needs(file, drivers); err != nil {
					return OfConfigFlag(err)
				}
			}
			found := m.Examine()
			if asJSON {
				if err := doctor.WriteJSON(printable.New(c.OutOrStdout()), found); err != nil {
					return err
				}
			} else {
				doctor.Write(printable.New(c.OutOrStdout()), found)
			}
			if n := len(slices.DeleteFunc(found, func(f doctor.Finding) bool {
				return f.Verdict != doctor.Lack
			})); n == 1 {
				return errors.New("1 thing is lacking")
			} else if n > 1 {
				return fmt.Errorf("%d things are lacking", n)
			}
			return nil
		},
	}
	c.Flags().StringVar(&file, "config", "", "judge by what this configuration needs")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return c
}
