package command

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/printable"
	"github.com/rnicd/rnicd/internal/status"
)

// Events is the command events.
func Events() *cobra.Command {
	var socket string
	var asJSON bool
	c := &cobra.Command{
		Use:   "events [ADDRESS[:PORT]]",
		Short: "Show the last events of a running daemon's connections",
		Long: `events asks the daemon on its control socket for flight records: with the address of a peer, those of its connections and of
those that have ended with an error lately; without, of all that have ended with an error lately.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client := control.NewClient(socket)
			defer client.Close()
			query := url.Values{}
			if len(args) == 1 {
				query.Set("remote", args[0])
			}
			var all status.Flights
			if err := client.Get(c.Context(), "/v1/events", query, &all); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(printable.New(c.OutOrStdout())).Encode(all)
			}
			writeFlights(printable.New(c.OutOrStdout()), all.Records)
			return nil
		},
	}
	c.Flags().StringVar(&socket, "socket", "", "the daemon's control socket")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func writeFlights(w io.Writer, all []status.Flight) {
	for _, f := range all {
		how := "open"
		if f.Error != "" {
			how = fmt.Sprintf("ended %s: %s", f.Ended.Format(time.RFC3339), f.Error)
		}
		fmt.Fprintf(w, "%s %v %v %s\n", f.Port, f.Local, f.Remote, how)
		if f.Before > 0 {
			fmt.Fprintf(w, "    %d events before these\n", f.Before)
		}
		for _, e := range f.Events {
			fmt.Fprintf(w, "  %12.6f s  %s\n", -e.Ago, e.Text)
		}
	}
}
