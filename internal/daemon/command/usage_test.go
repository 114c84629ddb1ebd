package command

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/conf"
	"github.com/rnicd/rnicd/internal/port"
)

// Errors that were joined have a line each; words around them, or a line break in one, do not.
func TestMistakes(t *testing.T) {
	a, b := errors.New("a"), errors.New("b\nrnicd: c")
	inFile := conf.Errors{{File: "f", Line: 1, Column: 2, Text: "x"},
		{File: "f", Line: 3, Column: 4, Text: "y"}}
	for _, c := range []struct {
		err  error
		want []string
	}{
		{a, []string{"a"}},
		{errors.Join(a, b), []string{"a", "b; rnicd: c"}},
		{errors.Join(inFile, a), []string{"f:1:2: x", "f:3:4: y", "a"}},
		{fmt.Errorf("open: %w", errors.Join(a, a)), []string{"open: a; a"}},
		{fmt.Errorf("%w and %w", a, a), []string{"a and a"}},
	} {
		require.Equal(t, c.want, mistakes(c.err))
	}
}

// A program with drivers of its own says of a wrong command line what rnicd says.
func TestWrongUse(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"serve"}, "no --config given; want: rnicd serve --config FILE"},
		{[]string{"serve", "--config", "/no"}, "--config /no: no such file or directory"},
		{[]string{"serve", "x", "--config", "/no"}, "1 argument given; want: rnicd serve --config FILE"},
		{[]string{"doctor", "--config", "/no"}, "--config /no: no such file or directory"},
		{[]string{"check"}, "0 arguments given; want: rnicd check FILE"},
		{[]string{"chekc"}, `unknown command "chekc" for "rnicd"; did you mean check?`},
		{[]string{"serve", "--cofnig", "x"}, "unknown flag: --cofnig; did you mean --config?"},
	} {
		root := Root(port.Builtin())
		root.SetArgs(c.args)
		root.SetErr(io.Discard)
		require.EqualError(t, root.Execute(), c.want)
	}
}
