package main

import (
	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/internal/daemon/command"
	"github.com/rnicd/rnicd/internal/daemon/switchd"
	"github.com/rnicd/rnicd/internal/port"
)

func newSwitch() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "switch --config FILE",
		Short: "Join programs to one NIC, and to each other, over shared memory",
		Long: `switch owns devices, or none, and serves memif to the programs that its configuration names, each with addresses of its own, or
sharing one by ranges of TCP ports. A program is any client of memif: rnicd with --pmd memif, a program with package rnic, VPP,
DPDK's net_memif. What a program sends under another's MAC, address or port is dropped. rnicd check judges the file.

SIGHUP reads the programs again, SIGUSR1 prints the counters, SIGTERM ends.`,
		Args: command.ArgsWanted(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return switchd.Run(file, port.All(), version, c.ErrOrStderr())
		},
	}
	command.ConfigFlag(c, &file, "what is switched")
	return c
}
