package engine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A program that has put another file in the place of standard error finds no line of ours in it;
// while it is standard error, and when it is again, lines go there.
func TestLinesOnlyInStandardError(t *testing.T) {
	open := func(name string) *os.File {
		f := must(os.Create(filepath.Join(t.TempDir(), name)))(t)
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	saved := must(unix.Dup(unix.Stderr))(t)
	restore := func() { require.NoError(t, unix.Dup2(saved, unix.Stderr)) }
	defer func() { restore(); _ = unix.Close(saved) }()
	ours, theirs := open("standard error"), open("a file of the program")
	put := func(f *os.File) { require.NoError(t, unix.Dup2(int(f.Fd()), unix.Stderr)) }
	put(ours)
	e := &Engine{standard: NewStandardError()}
	e.tellError("one")
	put(theirs)
	e.tellError("two")
	put(ours)
	e.tellError("three")
	restore()
	require.Equal(t, "rnicd: one\nrnicd: three\n", string(must(os.ReadFile(ours.Name()))(t)))
	require.Empty(t, must(os.ReadFile(theirs.Name()))(t))
}
