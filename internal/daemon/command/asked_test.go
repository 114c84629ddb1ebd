package command

import (
	"bytes"
	"context"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/programs"
	"github.com/rnicd/rnicd/internal/status"
)

// Programs are asked at the same time and told of in their order; one that has ended is left out,
// of one that answers something else a line tells, and the others are told of all the same.
func TestEachProgram(t *testing.T) {
	var all []programs.Program
	add := func(pid int, answer string) {
		dir := filepath.Join(t.TempDir(), "sockets")
		s, err := programs.Listen(dir)
		require.NoError(t, err)
		t.Cleanup(s.Remove)
		all = append(all, programs.Program{PID: pid, UID: os.Geteuid(), Path: s.Path()})
		if answer == "" {
			s.Remove()
			return
		}
		go s.Serve(map[string]programs.Answer{
			"/v1/status": func(_ context.Context, _ url.Values, w io.Writer) error {
				_, err := io.WriteString(w, answer)
				return err
			}})
	}
	add(1, `{"kind": "program", "pid": 1, "healthy": true}`)
	add(2, "")
	add(3, "what?")
	add(4, `{"kind": "program", "pid": 4}`)
	var warned bytes.Buffer
	var told []int
	tell := func(p programs.Program, s said) error {
		require.Equal(t, p.PID, s.daemon.PID)
		require.Equal(t, status.KindProgram, s.daemon.Kind)
		require.Equal(t, p.PID == 4, s.unhealthy() != nil)
		told = append(told, p.PID)
		return nil
	}
	n, silent, err := eachProgram(t.Context(), all, &warned, ask, tell)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, 1, silent)
	require.Equal(t, []int{1, 4}, told)
	require.Regexp(t, "^rnicd: program 3: .*/sockets/.*: the answer: invalid character .*\n$",
		warned.String())
	n, _, err = eachProgram(t.Context(), all, io.Discard, ask, func(programs.Program, said) error {
		return io.ErrShortWrite
	})
	require.Equal(t, 1, n)
	require.ErrorIs(t, err, io.ErrShortWrite)
}

// Of a program that was found and does not say what is asked, no error says that it is not there.
func TestNobodyAnswers(t *testing.T) {
	require.EqualError(t, (&asked{program: "7"}).nobody(1), "--program 7: no answer to show")
	require.EqualError(t, (&asked{program: allPrograms}).nobody(2), "--program all: no answer to show")
	require.EqualError(t, (&asked{program: allPrograms}).nobody(0),
		"no program of rnicd run has a device open, or this user may not ask it")
}

// What is asked for and cannot be is an error that says what is wanted.
func TestAskedWrongly(t *testing.T) {
	run := func(args ...string) error {
		root := Root(port.Builtin())
		root.SetArgs(args)
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		return root.Execute()
	}
	for _, command := range []string{"status", "ss", "events", "top"} {
		require.EqualError(t, run(command, "--program", "1", "--socket", "x"),
			"--socket and --program: give only one")
		for _, pid := range []string{"x", "0", "-4"} {
			require.ErrorContains(t, run(command, "--program", pid), "want the number of a process, or all")
		}
		err := run(command, "--program", "2147483647")
		require.ErrorContains(t, err, "--program 2147483647: no such program of rnicd run has a device open")
		if command == "status" {
			require.Equal(t, exitNobody, ExitCode(err))
		}
		more := map[string][]string{"top": {"--once"}}[command]
		require.ErrorContains(t, run(append([]string{command, "--socket",
			filepath.Join(t.TempDir(), "none")}, more...)...), "no daemon answers")
	}
	require.EqualError(t, run("status", "--switch", "--program", "1"),
		"--switch and --program: give only one")
	require.Equal(t, "no control socket is known: name the daemon's, --socket PATH",
		(&control.NobodyError{}).Error())
}
