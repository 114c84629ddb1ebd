// Command rnicd is the software RNIC's daemon and its command line.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/internal/daemon"
	"github.com/rnicd/rnicd/internal/daemon/command"
	"github.com/rnicd/rnicd/internal/lossy"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/printable"
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
		// A reader that has gone must not make an end by SIGPIPE of it, which systemd takes for a
		// good one.
		lossy.Line(os.Stderr, daemon.JournalError()+"rnicd: "+oneLine(err))
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
		RunE:          onlyCommands,
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return flagError(err, c)
	})
	root.AddCommand(newServe(), newPut(), newGet(), newDemo(), newStream(), newPerf(),
		newSwitch(), newRun(), newCDI(), newVersion(), newCheck(), newDoctor(), newStatus(), newMan(),
		command.Top(), command.Ss(), command.Capture(), command.Events(), newRemoved("rping", "rping"),
		newRemoved("perftest", "perftest"), newRemoved("rstream", "rstream"),
		newRemoved("iperf3", "iperf3"))
	return root
}

func newCheck() *cobra.Command {
	c := command.Check(port.All())
	c.Args = argsWanted(1, 1)
	return c
}

func newDoctor() *cobra.Command {
	c := command.Doctor(port.All())
	c.Args = argsWanted(0, 0)
	return c
}

func newStatus() *cobra.Command {
	c := command.Status()
	c.Args = argsWanted(0, 0)
	return c
}

func newMan() *cobra.Command {
	c := command.Man()
	c.Args = argsWanted(1, 1)
	return c
}

// onlyCommands is what a command that only has others does: without a word it shows its help. A
// wrong one is an error; cobra would show the help and call it success.
func onlyCommands(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	c.SuggestionsMinimumDistance = 2 // cobra's own default, which it sets too late for us
	hint := "see " + c.CommandPath() + " --help"
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return fmt.Errorf("unknown command %q for %q; %s", args[0], c.CommandPath(), hint)
}

// argsWanted refuses counts of arguments other than least to most, and says what the command takes.
func argsWanted(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if n := len(args); n < least || n > most {
			given := fmt.Sprintf("%d arguments", n)
			if n == 1 {
				given = "1 argument"
			}
			return fmt.Errorf("%s given; want: %s", given, strings.TrimSuffix(c.UseLine(), " [flags]"))
		}
		return nil
	}
}

// oneLine keeps joined errors together, and peers' text from the terminal.
func oneLine(err error) string {
	return printable.Text(strings.ReplaceAll(err.Error(), "\n", "; "))
}
