package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/daemon/top"
	"github.com/rnicd/rnicd/internal/printable"
	"github.com/rnicd/rnicd/internal/status"
)

const socketHelp = "the daemon's control socket; without it where a daemon has it by default"

// Exit statuses of the command status. Any other failure, such as a flag that is not known, is 1.
const (
	exitStandsStill = 2
	exitNobody      = 3 // as of a service's status by the Linux Standard Base: it is not running
)

// ExitError has an exit status of its own.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }
func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode is the exit status of a command that ended with err.
func ExitCode(err error) int {
	var e *ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.Code
	}
	return 1
}

// Status is the command status.
func Status() *cobra.Command {
	var socket string
	var asJSON, ofSwitch bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Say what a running daemon serves, or a switch joins, and what it has counted",
		Long: `status asks a running daemon on its control socket for its ports, Pollers and services; with --switch, or the socket of one, a running
switch for its threads, uplinks and programs. With --json it prints all counters that there are, a daemon's under the names of
docs/reference/limits.md.

Exit status: 0, it runs and all Pollers, or threads, turn; 2, one stands still; 3, nobody answers on the socket; 1, anything else,
as a socket that this user may not ask.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if socket == "" && ofSwitch {
				socket = control.DefaultSwitchPath()
			}
			client := control.NewClient(socket)
			defer client.Close()
			said, err := ask(c.Context(), client)
			var nobody *control.NobodyError
			if errors.As(err, &nobody) {
				if there := control.DefaultSwitchPath(); socket == "" && exists(there) {
					err = fmt.Errorf("%w; for the switch at %s: rnicd status --switch", err, there)
				}
				return &ExitError{exitNobody, err}
			}
			if err != nil {
				return err
			}
			if asJSON {
				out := json.NewEncoder(printable.New(c.OutOrStdout()))
				out.SetIndent("", "  ")
				err = out.Encode(said.any())
			} else {
				said.write(printable.New(c.OutOrStdout()))
			}
			if err == nil {
				err = said.unhealthy()
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&socket, "socket", "",
		"the control socket; without it where a daemon, or a switch, has it by default")
	f.BoolVar(&ofSwitch, "switch", false, "ask the switch at its default socket")
	f.BoolVar(&asJSON, "json", false, "print everything as one JSON object")
	return c
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// said is an answer: one of the two.
type said struct {
	daemon *status.Daemon
	sw     *status.Switch
}

// ask asks for the status of whatever runs there.
func ask(ctx context.Context, c *control.Client) (said, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var raw json.RawMessage
	if err := c.Get(ctx, "/v1/status", nil, &raw); err != nil {
		return said{}, err
	}
	var kind struct{ Kind string }
	err := json.Unmarshal(raw, &kind)
	var s said
	switch {
	case err != nil:
	case kind.Kind == status.KindSwitch:
		s.sw = &status.Switch{}
		err = json.Unmarshal(raw, s.sw)
	default:
		s.daemon = &status.Daemon{}
		err = json.Unmarshal(raw, s.daemon)
	}
	if err != nil {
		return said{}, fmt.Errorf("the answer: %w", err)
	}
	return s, nil
}

func (s said) any() any {
	if s.sw != nil {
		return s.sw
	}
	return s.daemon
}

func (s said) write(w io.Writer) {
	if s.sw != nil {
		top.WriteSwitch(w, s.sw)
		return
	}
	top.WriteStatus(w, s.daemon)
}

func (s said) unhealthy() error {
	switch {
	case s.sw != nil && !s.sw.Healthy:
		return &ExitError{exitStandsStill, errors.New("a thread stands still")}
	case s.daemon != nil && !s.daemon.Healthy:
		return &ExitError{exitStandsStill, errors.New("a Poller stands still")}
	}
	return nil
}

// askTimeout bounds one question.
const askTimeout = 10 * time.Second

// Ss is the command ss.
func Ss() *cobra.Command {
	var socket string
	var asJSON bool
	c := &cobra.Command{
		Use:   "ss [FILTER...]",
		Short: "Show connections of a running daemon in full, as ss -ti does",
		Long: `ss shows connections of a running daemon with all that their transport, and RDMA or the stream above it, know. Of several words of
a filter each has to be met: an address or a network, of either end; or key=value with port, queue, kind (rdma, stream, kernel,
other), service, state (TCP's), local or remote, as in

    rnicd ss service=scratch remote=10.9.0.0/24`,
		RunE: func(c *cobra.Command, words []string) error {
			if _, err := status.ParseFilter(words); err != nil {
				return err
			}
			client := control.NewClient(socket)
			defer client.Close()
			out := bufio.NewWriter(c.OutOrStdout())
			defer out.Flush()
			lines := json.NewEncoder(printable.New(out))
			return top.EachConnection(c.Context(), client, words, 0, func(one *status.Connection) error {
				if asJSON {
					return lines.Encode(one)
				}
				_, err := io.WriteString(printable.New(out),
					strings.Join(top.Details(one, time.Now()), "\n")+"\n")
				return err
			})
		},
	}
	c.Flags().StringVar(&socket, "socket", "", socketHelp)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return c
}

// Top is the command top.
func Top() *cobra.Command {
	var socket, view string
	var once, ofSwitch bool
	var period time.Duration
	c := &cobra.Command{
		Use:   "top [FILTER...]",
		Short: "Show a running daemon live: ports, cores, connections; or a switch: ports, threads",
		Long: `top shows a running daemon each second: p by port, c by core and queue, n by connection; s, or left and right, choose the column to
sort by, r turns the order round, up and down move, enter shows all of the first connection, q ends. Columns: rx/s and tx/s are
frames, rxB/s and txB/s octets a second; retr, TCP segments sent again; ahead, FPDUs placed ahead of a gap; reass, FPDUs that came
in several segments; crc, FPDUs with a bad CRC; drops, all reasons; busy%, passes of the Poller that found work. A filter, as ss
takes it, is for connections.

With --switch, or the socket of one, it shows a running switch: p by port, programs and queues of uplinks, c by thread; enter shows all
of the first port. rx is what comes from a program or an uplink, tx what goes there; wait, frames for which there is no room there yet;
throt/s, passes in which a program had sent all that its rate allows; drops are by reason.`,
		RunE: func(c *cobra.Command, words []string) error {
			s := top.State{}
			switch view {
			case "ports":
			case "cores":
				s.View = top.Queues
			case "connections":
				s.View = top.Connections
			default:
				return fmt.Errorf("--view %q: want ports, cores or connections", view)
			}
			if _, err := status.ParseFilter(words); err != nil {
				return err
			}
			if period < minPeriod {
				return fmt.Errorf("--period %v: want %v or more", period, minPeriod)
			}
			if socket == "" && ofSwitch {
				socket = control.DefaultSwitchPath()
			}
			client := control.NewClient(socket)
			defer client.Close()
			if !once {
				return top.Run(c.Context(), client, s, words, period, os.Stdin, os.Stdout)
			}
			was, err := top.Ask(c.Context(), client, s.View, words)
			if err != nil {
				return err
			}
			select {
			case <-time.After(period):
			case <-c.Context().Done():
				return c.Context().Err()
			}
			is, err := top.Ask(c.Context(), client, s.View, words)
			if err != nil {
				return err
			}
			_, err = io.WriteString(c.OutOrStdout(), strings.Join(top.Frame(was, is, &s, 0, 0), "\n")+"\n")
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&socket, "socket", "", socketHelp)
	f.BoolVar(&ofSwitch, "switch", false, "show the switch at its default socket")
	f.StringVar(&view, "view", "ports", "ports, cores (of a switch: its threads) or connections")
	f.BoolVar(&once, "once", false, "print one screen, of two looks a period apart, and end")
	f.DurationVar(&period, "period", time.Second, "between two looks")
	return c
}

// minPeriod keeps a mistyped period from asking Pollers without end.
const minPeriod = 100 * time.Millisecond
