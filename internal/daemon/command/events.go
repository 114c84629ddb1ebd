package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/printable"
	"github.com/rnicd/rnicd/internal/programs"
	"github.com/rnicd/rnicd/internal/status"
)

// Events is the command events.
func Events() *cobra.Command {
	var who asked
	var asJSON bool
	c := &cobra.Command{
		Use:   "events [ADDRESS[:PORT]]",
		Short: "Show the last events of connections of a running daemon, and of programs",
		Long: `events asks the daemon and the programs of rnicd run on their control sockets for flight records: with the address of a peer, those of
its connections and of those that have ended with an error lately; without, of all that have ended with an error lately.`,
		Args: ArgsWanted(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			those, err := who.programs()
			if err != nil {
				return err
			}
			query := url.Values{}
			if len(args) == 1 {
				query.Set("remote", args[0])
			}
			var all status.Flights
			if who.daemon() {
				client := control.NewClient(who.socket)
				defer client.Close()
				err = client.Get(c.Context(), "/v1/events", query, &all)
				if err != nil && (len(those) == 0 || !noDaemon(err)) {
					return err
				}
			}
			n, silent, wrong := who.events(c, those, query, &all)
			switch {
			case wrong != nil:
				return wrong
			case n == 0 && !who.daemon():
				return who.nobody(silent)
			case n == 0 && err != nil:
				return err
			}
			if asJSON {
				return json.NewEncoder(printable.New(c.OutOrStdout())).Encode(all)
			}
			writeFlights(printable.New(c.OutOrStdout()), all.Records)
			return nil
		},
	}
	who.flags(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// events adds those of programs.
func (a *asked) events(c *cobra.Command, those []programs.Program, query url.Values,
	all *status.Flights) (answered, silent int, err error) {
	return eachProgram(c.Context(), those, c.ErrOrStderr(),
		func(ctx context.Context, client *control.Client) (one status.Flights, err error) {
			err = client.Get(ctx, "/v1/events", query, &one)
			return one, err
		}, func(p programs.Program, one status.Flights) error {
			for _, f := range one.Records {
				f.PID = p.PID
				all.Records = append(all.Records, f)
			}
			return nil
		})
}

func writeFlights(w io.Writer, all []status.Flight) {
	for _, f := range all {
		how := "open"
		if f.Error != "" {
			how = fmt.Sprintf("ended %s: %s", f.Ended.Format(time.RFC3339), f.Error)
		}
		of := f.Port
		if f.PID != 0 {
			of = fmt.Sprintf("program %d %s", f.PID, f.Port)
		}
		fmt.Fprintf(w, "%s %v %v %s\n", of, f.Local, f.Remote, how)
		if f.Before > 0 {
			fmt.Fprintf(w, "    %d events before these\n", f.Before)
		}
		for _, e := range f.Events {
			fmt.Fprintf(w, "  %12.6f s  %s\n", -e.Ago, e.Text)
		}
	}
}
