package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/internal/daemon/config"
)

// newRemoved is a command that there was; it says which program to run instead.
func newRemoved(name, program string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return config.Removed(strconv.Quote(name), "command", program)
		},
	}
}
