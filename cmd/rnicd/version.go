package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/internal/daemon/command"
	"github.com/rnicd/rnicd/pmd/dpdk"
)

// version is what the Makefile's linker flag says: git describe of the source. A build without it
// is nobody's release.
var version = "unknown"

// versionText is the answer to --version: what a report of a bug should begin with.
func versionText() string {
	drivers := "tap, memif"
	if dpdk.Built {
		drivers += ", dpdk"
	}
	return fmt.Sprintf("%s (%s, %s/%s, drivers: %s)", version, runtime.Version(), runtime.GOOS,
		runtime.GOARCH, drivers)
}

// newVersion is the command, for users that type it without dashes.
func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "The version, as --version prints it",
		Args:  command.ArgsWanted(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "rnicd version %s\n", versionText())
			return err
		},
	}
}
