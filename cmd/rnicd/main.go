// Command rnicd is the software RNIC's daemon and its command line.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/internal/daemon/command"
	"github.com/rnicd/rnicd/internal/lossy"
	"github.com/rnicd/rnicd/internal/port"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a user that asks twice does not want to wait for an orderly end
	if err := newRoot().ExecuteContext(ctx); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			lossy.Line(os.Stderr, "rnicd: interrupted")
			os.Exit(130)
		}
		command.PrintError(os.Stderr, err)
		os.Exit(command.ExitCode(err))
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "rnicd",
		Short:         "A software RNIC: iWARP over a userspace, MPA-aware TCP",
		Version:       versionText(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE:          command.OnlyCommands,
	}
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newServe(), newPut(), newGet(), newDemo(), newStream(), newPerf(),
		newSwitch(), newRun(), newCDI(), newVersion(), command.Check(port.All()),
		command.Doctor(port.All()), command.Status(), command.Man(),
		command.Top(), command.Ss(), command.Capture(), command.Events(), newRemoved("rping", "rping"),
		newRemoved("perftest", "perftest"), newRemoved("rstream", "rstream"),
		newRemoved("iperf3", "iperf3"))
	command.StrictHelp(root)
	return root
}
