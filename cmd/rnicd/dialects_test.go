package main

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic"
)

// The help of --dialect names every dialect that the flag takes, whichever the command.
func TestDialectHelp(t *testing.T) {
	flags := 0
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			look(sub)
		}
		f := c.Flags().Lookup("dialect")
		if f == nil {
			return
		}
		flags++
		for d := rnic.Culley02; d.Valid(); d++ {
			if _, err := parseDialect(d.String()); err == nil {
				require.Contains(t, f.Usage, d.String(), c.CommandPath())
			}
		}
	}
	look(newRoot())
	require.Greater(t, flags, 4)
	require.Equal(t, "rddp-01, rfc5044, rtr or rfc6581", orList(framedDialects()))
}
