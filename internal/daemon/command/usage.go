package command

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rnicd/rnicd/internal/conf"
	"github.com/rnicd/rnicd/internal/daemon"
	"github.com/rnicd/rnicd/internal/lossy"
	"github.com/rnicd/rnicd/internal/printable"
)

// PrintError writes what a command ended with, each of several mistakes on a line of its own.
func PrintError(w io.Writer, err error) {
	begin := "rnicd: "
	if daemon.ToJournal(w) {
		begin = daemon.JournalError() + begin
	}
	// A reader that has gone must not make an end by SIGPIPE of it, which systemd takes for a good
	// one.
	lossy.Line(w, begin+strings.Join(mistakes(err), "\n"+begin))
}

// mistakes are the texts of errors that were joined, or found in one file, each once.
func mistakes(err error) []string {
	joined, several := err.(interface{ Unwrap() []error })
	if !several {
		return []string{OneLine(err)}
	}
	var texts, lines []string
	for _, e := range joined.Unwrap() {
		texts = append(texts, e.Error())
		for _, line := range mistakes(e) {
			if !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	if strings.Join(texts, "\n") != err.Error() { // there are words around them
		return []string{OneLine(err)}
	}
	return lines
}

// OneLine keeps joined errors together, and peers' text from the terminal.
func OneLine(err error) string {
	return printable.Text(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// OnlyCommands is what a command that only has others does: without a word it shows its help. A
// wrong one is an error; cobra would show the help and call it success.
func OnlyCommands(c *cobra.Command, args []string) error {
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

// StrictHelp has the command help of root refuse what is no command, as OnlyCommands does: cobra
// would show the help of root, or of the command before the wrong word, and call it success.
func StrictHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil { // it is there, if root has commands
		panic(err)
	}
	show := help.Run
	help.Run = nil
	help.RunE = func(c *cobra.Command, args []string) error {
		if found, rest, err := root.Find(args); err == nil && len(rest) > 0 {
			return OnlyCommands(found, rest)
		}
		show(c, args)
		return nil
	}
}

// ArgsWanted refuses counts of arguments other than least to most, and says what the command takes.
func ArgsWanted(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if n := len(args); n < least || n > most {
			return fmt.Errorf("%s given; want: %s", conf.Count(n, "argument"), useOf(c))
		}
		return nil
	}
}

func useOf(c *cobra.Command) string { return strings.TrimSuffix(c.UseLine(), " [flags]") }

// ConfigFlag adds --config, without which the command does not run.
func ConfigFlag(c *cobra.Command, file *string, usage string) {
	c.Flags().StringVar(file, configFlag, "", usage)
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if *file == "" {
			return fmt.Errorf("no --%s given; want: %s", configFlag, useOf(c))
		}
		return OfConfigFlag(run(c, args))
	}
}

const configFlag = "config"

// OfConfigFlag says that a file that could not be read is the one that --config names.
func OfConfigFlag(err error) error {
	var unread *conf.ReadError
	if errors.As(err, &unread) {
		return fmt.Errorf("--%s %w", configFlag, err)
	}
	return err
}

// FlagError says of a wrong flag what is wanted, in words.
func FlagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var wrong *pflag.InvalidValueError
	var num *strconv.NumError
	switch {
	case errors.As(err, &unknown):
		if near := nearFlag(c.Flags(), unknown.GetSpecifiedName()); near != "" {
			return fmt.Errorf("%w; did you mean --%s?", err, near)
		}
		return fmt.Errorf("%w; see %s --help", err, c.CommandPath())
	case errors.As(err, &wrong) && wrong.GetFlag().Value.Type() == "duration":
		return fmt.Errorf("--%s %q: want a duration, as 2s", wrong.GetFlag().Name, wrong.GetValue())
	case errors.As(err, &wrong) && errors.As(err, &num):
		want := "a whole number"
		switch {
		case num.Func == "ParseBool":
			want = "true or false"
		case errors.Is(num, strconv.ErrRange):
			want = "a smaller number"
		}
		return fmt.Errorf("--%s %q: want %s", wrong.GetFlag().Name, wrong.GetValue(), want)
	case errors.As(err, &wrong) &&
		strings.HasPrefix(wrong.Unwrap().Error(), strconv.Quote(wrong.GetValue())):
		return fmt.Errorf("--%s: %w", wrong.GetFlag().Name, wrong.Unwrap())
	case errors.As(err, &wrong):
		return fmt.Errorf("--%s %q: %w", wrong.GetFlag().Name, wrong.GetValue(), wrong.Unwrap())
	}
	return err
}

// nearFlag is the flag that was meant by a name that no flag has; empty: none is near.
func nearFlag(f *pflag.FlagSet, name string) string {
	var names []string
	f.VisitAll(func(g *pflag.Flag) {
		if !g.Hidden {
			names = append(names, g.Name)
		}
	})
	return conf.Nearest(name, names)
}
