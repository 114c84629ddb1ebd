package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/printable"
	"github.com/rnicd/rnicd/internal/programs"
)

// allPrograms is the value of --program for all of them.
const allPrograms = "all"

// asked is whom a command asks: a daemon or a switch, programs of rnicd run, or both.
type asked struct{ socket, program string }

func (a *asked) flags(f *pflag.FlagSet) {
	f.StringVar(&a.socket, "socket", "", socketHelp)
	f.StringVar(&a.program, "program", "",
		"ask this program of rnicd run alone, by its process; all: all that this user may ask")
}

// daemon says whether a daemon is asked.
func (a *asked) daemon() bool { return a.program == "" }

// programs are those that are asked. Some may have ended.
func (a *asked) programs() ([]programs.Program, error) {
	switch {
	case a.socket != "" && a.program != "":
		return nil, errors.New("--socket and --program: give only one")
	case a.socket != "":
		return nil, nil
	}
	all := programs.All()
	if a.daemon() {
		return all, nil
	}
	if a.program == allPrograms {
		return all, nil
	}
	pid, err := strconv.Atoi(a.program)
	if err != nil || pid < 1 {
		return nil, fmt.Errorf("--program %q: want the number of a process, or %s", a.program, allPrograms)
	}
	var those []programs.Program
	for _, p := range all {
		if p.PID == pid {
			those = append(those, p)
		}
	}
	return those, nil
}

// nobody is the error of a question that no program has answered; told: of how many lines have said
// why.
func (a *asked) nobody(told int) error {
	if told > 0 {
		return fmt.Errorf("--program %s: no answer to show", a.program)
	}
	if a.program == allPrograms {
		return errors.New("no program of rnicd run has a device open, or this user may not ask it")
	}
	return fmt.Errorf("--program %s: no such program of rnicd run has a device open, or this user may "+
		"not ask it", a.program)
}

// one is the client of the only one that is asked: where no daemon has a socket, the only program.
func (a *asked) one() (*control.Client, error) {
	all, err := a.programs()
	if err != nil {
		return nil, err
	}
	if a.daemon() && (a.socket != "" || len(all) == 0 || exists(control.DefaultPath())) {
		return control.NewClient(a.socket), nil
	}
	switch len(all) {
	case 0:
		return nil, a.nobody(0)
	case 1:
		return clientOf(all[0]), nil
	}
	numbers := make([]string, 0, len(all))
	for _, p := range all {
		numbers = append(numbers, strconv.Itoa(p.PID))
	}
	return nil, fmt.Errorf("--program: want one of %s", strings.Join(numbers, ", "))
}

// clientOf asks a program.
func clientOf(p programs.Program) *control.Client { return control.NewClientOf(p.Path, p.Dial) }

const (
	programTimeout = 5 * time.Second // for one program's answer: it may be stopped
	programsAtOnce = 16
)

// eachProgram asks programs at the same time and tells of their answers in their order. Those that
// have ended are left out; of others that do not answer, a line tells. answered and silent are how
// many do and do not.
func eachProgram[T any](ctx context.Context, all []programs.Program, warn io.Writer,
	ask func(context.Context, *control.Client) (T, error),
	tell func(programs.Program, T) error) (answered, silent int, err error) {
	type result struct {
		answer T
		err    error
	}
	results := make([]chan result, len(all))
	places := make(chan struct{}, programsAtOnce)
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, p := range all {
		results[i] = make(chan result, 1)
		asking.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			one, cancel := context.WithTimeout(ctx, programTimeout)
			defer cancel()
			c := clientOf(p)
			defer c.Close()
			answer, err := ask(one, c)
			results[i] <- result{answer, err}
		})
	}
	for i, p := range all {
		r := <-results[i]
		var gone *programs.GoneError
		switch {
		case errors.As(r.err, &gone):
			continue
		case errors.Is(r.err, context.DeadlineExceeded):
			r.err = errors.New("it does not answer; is it stopped?")
		}
		if r.err != nil {
			silent++
			fmt.Fprintf(warn, "rnicd: program %d: %s\n", p.PID, printable.Text(r.err.Error()))
			continue
		}
		answered++
		if err := tell(p, r.answer); err != nil {
			return answered, silent, err
		}
	}
	return answered, silent, nil
}

// noDaemon says whether an error is that nobody answers where a daemon would.
func noDaemon(err error) bool {
	var nobody *control.NobodyError
	return errors.As(err, &nobody)
}
