package command

import (
	"bufio"
	"cmp"
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
	"github.com/rnicd/rnicd/internal/programs"
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
	var who asked
	var asJSON, ofSwitch bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Say what a running daemon serves, a switch joins or a program has open, with counters",
		Long: `status asks a running daemon on its control socket for its ports, Pollers and services, and lists the programs of rnicd run; with
--switch, or the socket of a switch, for its threads, uplinks and programs. With --program it says all of a program: its device, transport,
Pollers, listeners and registered memory. With --json it prints all counters that there are, a daemon's or a program's under the names
of docs/reference/limits.md: one object, of each program one.

Exit status: 0, it runs and all Pollers, or threads, turn; 2, one stands still; 3, nobody answers on the socket, even if programs of
rnicd run do on theirs; 1, anything else, as a socket that this user may not ask.`,
		Args: ArgsWanted(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if ofSwitch && who.program != "" {
				return errors.New("--switch and --program: give only one")
			}
			if who.socket == "" && ofSwitch {
				who.socket = control.DefaultSwitchPath()
			}
			all, err := who.programs()
			if err != nil {
				return err
			}
			out := printable.New(c.OutOrStdout())
			if !who.daemon() {
				return programsStatus(c, &who, all, asJSON)
			}
			err = daemonStatus(c.Context(), out, who.socket, asJSON)
			if asJSON || ofSwitch {
				return err
			}
			listed, wrong := listPrograms(c.Context(), out, c.ErrOrStderr(), all, err == nil)
			if listed > 0 && noDaemon(err) {
				err = &ExitError{exitNobody, errors.New("no daemon answers, only programs of rnicd run: " +
					"rnicd status --program PID")}
			}
			return cmp.Or(err, wrong)
		},
	}
	f := c.Flags()
	who.flags(f)
	f.Lookup("socket").Usage = "the control socket; without it where a daemon, or a switch, has it by default"
	f.BoolVar(&ofSwitch, "switch", false, "ask the switch at its default socket")
	f.BoolVar(&asJSON, "json", false, "print everything as one JSON object")
	return c
}

// daemonStatus prints what a daemon, or a switch, says.
func daemonStatus(ctx context.Context, out io.Writer, socket string, asJSON bool) error {
	client := control.NewClient(socket)
	defer client.Close()
	said, err := ask(ctx, client)
	if noDaemon(err) {
		if there := control.DefaultSwitchPath(); socket == "" && exists(there) {
			err = fmt.Errorf("%w; for the switch at %s: rnicd status --switch", err, there)
		}
		return &ExitError{exitNobody, err}
	}
	if err != nil {
		return err
	}
	if err := said.print(out, asJSON); err != nil {
		return err
	}
	return said.unhealthy()
}

// programsStatus prints all that programs say.
func programsStatus(c *cobra.Command, who *asked, all []programs.Program, asJSON bool) error {
	out := printable.New(c.OutOrStdout())
	var unhealthy error
	n, silent, err := eachProgram(c.Context(), all, c.ErrOrStderr(), ask,
		func(_ programs.Program, s said) error {
			unhealthy = cmp.Or(unhealthy, s.unhealthy())
			return s.print(out, asJSON)
		})
	if err == nil && n == 0 {
		return &ExitError{exitNobody, who.nobody(silent)}
	}
	return cmp.Or(err, unhealthy)
}

// listPrograms prints a line for each program, after an empty one where something stands above.
func listPrograms(ctx context.Context, out, warn io.Writer, all []programs.Program,
	after bool) (int, error) {
	first := true
	n, _, err := eachProgram(ctx, all, warn, ask, func(p programs.Program, s said) error {
		if s.daemon == nil || s.daemon.Program == nil {
			return fmt.Errorf("%s: this is no program of rnicd run", p.Path)
		}
		if first {
			if after {
				fmt.Fprintln(out)
			}
			top.WriteProgramTitle(out)
			first = false
		}
		top.WriteProgram(out, s.daemon)
		return nil
	})
	return n, err
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

func (s said) print(w io.Writer, asJSON bool) error {
	switch {
	case asJSON:
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		return out.Encode(s.any())
	case s.sw != nil:
		top.WriteSwitch(w, s.sw)
	default:
		top.WriteStatus(w, s.daemon)
	}
	return nil
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
	var who asked
	var asJSON bool
	c := &cobra.Command{
		Use:   "ss [FILTER...]",
		Short: "Show connections of a running daemon, and of programs, in full, as ss -ti does",
		Long: `ss shows connections of a running daemon and of the programs of rnicd run with all that their transport, and RDMA or the stream above
it, know; of programs their listeners and queue pairs for datagrams, too. Of several words of a filter each has to be met: an address or
a network, of either end; or key=value with port, queue, kind (rdma, stream, kernel, listener, datagrams, other), service, state
(TCP's), pid and qp (a program's process and queue pair), local or remote, as in

    rnicd ss service=scratch remote=10.9.0.0/24
    rnicd ss --program 4711 kind=rdma`,
		RunE: func(c *cobra.Command, words []string) error {
			if _, err := status.ParseFilter(words); err != nil {
				return err
			}
			all, err := who.programs()
			if err != nil {
				return err
			}
			out := bufio.NewWriter(c.OutOrStdout())
			defer out.Flush()
			lines := json.NewEncoder(printable.New(out))
			show := func(one *status.Connection) error {
				if asJSON {
					return lines.Encode(one)
				}
				_, err := io.WriteString(printable.New(out),
					strings.Join(top.Details(one, time.Now()), "\n")+"\n")
				return err
			}
			if who.daemon() {
				client := control.NewClient(who.socket)
				defer client.Close()
				err = top.EachConnection(c.Context(), client, words, 0, show)
				if err != nil && (len(all) == 0 || !noDaemon(err)) {
					return err
				}
			}
			n, silent, wrong := eachProgram(c.Context(), all, c.ErrOrStderr(),
				func(ctx context.Context, client *control.Client) (these []*status.Connection, err error) {
					err = top.EachConnection(ctx, client, words, 0, func(one *status.Connection) error {
						these = append(these, one)
						return nil
					})
					return these, err
				}, func(_ programs.Program, these []*status.Connection) error {
					for _, one := range these {
						if err := show(one); err != nil {
							return err
						}
					}
					return nil
				})
			switch {
			case wrong != nil || n > 0:
				return wrong
			case !who.daemon():
				return who.nobody(silent)
			}
			return err
		},
	}
	who.flags(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return c
}

// Top is the command top.
func Top() *cobra.Command {
	var who asked
	var view string
	var once, ofSwitch bool
	var period time.Duration
	c := &cobra.Command{
		Use:   "top [FILTER...]",
		Short: "Show a running daemon live: ports, cores, connections; or a switch: ports, threads",
		Long: `top shows a running daemon each second: p by port, c by core and queue, n by connection; s, or left and right, choose the column to
sort by, r turns the order round, up and down move, enter shows all of the first connection, q ends. Columns: rx/s and tx/s are
frames, rxB/s and txB/s octets a second; retr, TCP segments sent again; ahead, FPDUs placed ahead of a gap; reass, FPDUs that came
in several segments; crc, FPDUs with a bad CRC; drops, all reasons; busy%, passes of the Poller that found work. A filter, as ss
takes it, is for connections. With --program, and where no daemon but a single program of rnicd run answers, it shows that.

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
			if who.socket == "" && ofSwitch {
				who.socket = control.DefaultSwitchPath()
			}
			client, err := who.one()
			if err != nil {
				return err
			}
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
	who.flags(f)
	f.BoolVar(&ofSwitch, "switch", false, "show the switch at its default socket")
	f.StringVar(&view, "view", "ports", "ports, cores (of a switch: its threads) or connections")
	f.BoolVar(&once, "once", false, "print one screen, of two looks a period apart, and end")
	f.DurationVar(&period, "period", time.Second, "between two looks")
	return c
}

// minPeriod keeps a mistyped period from asking Pollers without end.
const minPeriod = 100 * time.Millisecond
