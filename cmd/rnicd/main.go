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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // who asks twice does not want to wait for an orderly end
	if err := newRoot().ExecuteContext(ctx); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, "rnicd: interrupted")
			os.Exit(130)
		}
		fmt.Fprintln(os.Stderr, "rnicd:", oneLine(err))
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "rnicd",
		Short:         "A software RNIC: iWARP over a userspace, MPA-aware TCP",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newServe(), newPut(), newDemo(), newStream())
	return root
}

// oneLine keeps joined errors together.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
