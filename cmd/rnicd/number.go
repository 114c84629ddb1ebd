package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rnicd/rnicd/internal/conf"
	"github.com/rnicd/rnicd/internal/daemon/config"
)

// number is a flag value from least to most.
type number struct {
	to          *uint16
	least, most uint16
}

func (n *number) Type() string { return "number" }

func (n *number) String() string {
	if n.to == nil { // pflag asks a zero one
		return "0"
	}
	return strconv.Itoa(int(*n.to))
}

func (n *number) Set(text string) error {
	v, err := strconv.ParseUint(text, 10, 16)
	if err != nil || v < uint64(n.least) || v > uint64(n.most) {
		return fmt.Errorf("want %d to %d", n.least, n.most)
	}
	*n.to = uint16(v)
	return nil
}

// flagError says of a wrong flag what is wanted, in words.
func flagError(err error, c *cobra.Command) error {
	var unknown *pflag.NotExistError
	var wrong *pflag.InvalidValueError
	var num *strconv.NumError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedName() == "compat":
		return config.Removed("--compat", "flag", "perftest")
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
