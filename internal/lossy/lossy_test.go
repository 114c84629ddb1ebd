package lossy

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const patience = time.Minute

// gate is a reader that takes a line whenever it is opened for one, with the error that it is
// given.
type gate struct {
	open chan error
	took bytes.Buffer
}

func (g *gate) Write(b []byte) (int, error) {
	if err := <-g.open; err != nil {
		return 0, err
	}
	return g.took.Write(b)
}

// A reader that stands still costs the writer no time; what it has no room for is counted, the rest
// comes in order when it reads again, and then it is told how many lines are missing.
func TestFullReader(t *testing.T) {
	g := &gate{open: make(chan error)}
	told := make(chan uint64, 1)
	w := New(g, func(n uint64) { told <- n })
	line := bytes.Repeat([]byte{'x'}, QueueMax/8-1)
	line = append(line, '\n')
	for range 11 {
		n, err := w.Write(line)
		require.NoError(t, err)
		require.Equal(t, len(line), n)
	}
	require.EqualValues(t, 3, w.Lost())
	g.open <- nil
	require.EqualValues(t, 3, <-told)
	for range 7 {
		g.open <- nil
	}
	_, _ = fmt.Fprint(w, "one\ntwo\n")
	g.open <- nil
	w.Close(patience)
	require.Equal(t, strings.Repeat(string(line), 8)+"one\ntwo\n", g.took.String())
	require.EqualValues(t, 3, w.Lost())
	_, _ = fmt.Fprint(w, "late\n")
	require.EqualValues(t, 4, w.Lost())
}

// A reader that is slower than the lines come is told at most once a second how many are missing;
// these lines are not lost, and in the end they account for all that are.
func TestLastingOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan error)}
		var w *Writer
		sum, calls := uint64(0), 0
		w = New(g, func(n uint64) {
			sum += n
			calls++
			_, _ = fmt.Fprintf(w, "%d lines were lost\n", n)
		})
		line := append(bytes.Repeat([]byte{'x'}, QueueMax/8-1), '\n')
		const seconds = 10
		for range seconds * 100 {
			for range 20 {
				_, _ = w.Write(line)
			}
			g.open <- nil
			<-time.After(10 * time.Millisecond)
		}
		require.GreaterOrEqual(t, calls, seconds)
		require.LessOrEqual(t, calls, seconds+1)
		done := make(chan bool)
		go func() {
			for {
				select {
				case g.open <- nil:
				case <-done:
					return
				}
			}
		}()
		<-time.After(2 * tellEvery)
		w.Close(patience)
		close(done)
		require.Equal(t, w.Lost(), sum, "told without another line, too")
		require.Equal(t, calls, strings.Count(g.took.String(), " lines were lost\n"))
	})
}

// Lines that cannot be written are lost, and later ones are not.
func TestFailingReader(t *testing.T) {
	g := &gate{open: make(chan error)}
	w := New(g, nil)
	_, _ = fmt.Fprint(w, "one\ntwo\n")
	g.open <- errors.New("no space left")
	_, _ = fmt.Fprint(w, "three\n")
	g.open <- nil
	w.Close(patience)
	require.Equal(t, "three\n", g.took.String())
	require.EqualValues(t, 2, w.Lost())
}

// Close waits no longer than it is told for a reader that stands still.
func TestCloseIsBounded(t *testing.T) {
	g := &gate{open: make(chan error)}
	w := New(g, nil)
	for range 3 {
		_, _ = fmt.Fprint(w, "line\n")
	}
	w.Close(time.Nanosecond)
	require.GreaterOrEqual(t, w.Lost(), uint64(2), "one may be under way")
	close(g.open)
}

// A pipe of the file's own kind: full and non-blocking, it is waited for.
func TestNonBlockingFile(t *testing.T) {
	var fds [2]int
	require.NoError(t, unix.Pipe2(fds[:], unix.O_CLOEXEC))
	read, write := os.NewFile(uintptr(fds[0]), "read"), os.NewFile(uintptr(fds[1]), "write")
	defer read.Close()
	defer write.Close()
	require.NoError(t, unix.SetNonblock(fds[1], true)) // as another process that has the pipe may do
	w := New(write, nil)
	want := strings.Repeat(strings.Repeat("y", 1023)+"\n", 256) // more than a pipe holds
	_, _ = fmt.Fprint(w, want)
	got := make([]byte, 0, len(want))
	b := make([]byte, 4096)
	for len(got) < len(want) {
		n, err := read.Read(b)
		require.NoError(t, err)
		got = append(got, b[:n]...)
	}
	require.Equal(t, want, string(got))
	w.Close(patience)
	require.Zero(t, w.Lost())
}

// A process whose standard error has no reader goes on: this test runs itself as that process.
func TestBrokenStandardError(t *testing.T) {
	if os.Getenv("LOSSY_CHILD") != "" {
		w := New(os.Stderr, nil)
		_, _ = fmt.Fprint(w, "nobody\n")
		w.Close(patience)
		Line(os.Stderr, "reads this")
		fmt.Println("lost", w.Lost())
		os.Exit(7)
	}
	read, write, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, read.Close())
	child := exec.Command(os.Args[0], "-test.run=^TestBrokenStandardError$")
	child.Env = append(os.Environ(), "LOSSY_CHILD=1")
	child.Stderr = write
	out, err := child.Output()
	require.NoError(t, write.Close())
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 7, exit.ExitCode(), "%v", exit)
	require.Equal(t, "lost 1\n", string(out))
}
