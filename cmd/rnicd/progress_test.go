package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/skip"
)

// openTerminal makes a pseudo-terminal; what is written to slave is read from master.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		skip.Missing(t, "needs /dev/ptmx: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetUint32(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		skip.Missing(t, "needs /dev/pts: %v", err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// requireShown reads what the terminal shows, which comes in pieces.
func requireShown(t *testing.T, master *os.File, want string) {
	t.Helper()
	got := make([]byte, len(want))
	n := must(io.ReadFull(master, got))(t)
	require.Equal(t, want, string(got[:n]))
}

func TestProgressIsABarOnATerminal(t *testing.T) {
	master, slave := openTerminal(t)
	p := newProgress(slave, 64<<20)
	require.True(t, p.terminal)
	at := p.begin
	p.show(0, at.Add(redrawEvery))
	p.show(16<<20, at.Add(time.Second))
	p.show(17<<20, at.Add(time.Second+redrawEvery/2)) // too soon after the last
	p.show(64<<20, at.Add(time.Second+redrawEvery/2)) // but the end is always drawn
	p.end()
	line := func(bar, rest string) string { return "\r[" + bar + "] " + rest + "\x1b[K" }
	requireShown(t, master, line(strings.Repeat(".", 32), "  0 %  0 B  0 bit/s")+
		line(strings.Repeat("#", 8)+strings.Repeat(".", 24), " 25 %  16.0 MiB  134.2 Mbit/s")+
		line(strings.Repeat("#", 32), "100 %  64.0 MiB  523.8 Mbit/s")+"\r\n")
}

func TestProgressLeavesATerminalAloneWithoutATransfer(t *testing.T) {
	master, slave := openTerminal(t)
	newProgress(slave, 1).end()
	fmt.Fprint(slave, "next\n")
	requireShown(t, master, "next\r\n")
}

func TestProgressIsPlainLinesElsewhere(t *testing.T) {
	var b strings.Builder
	begin := time.Now()
	p := progress{w: &b, total: 100 << 20, begin: begin, drawn: begin}
	p.show(30<<20, begin.Add(900*time.Millisecond)) // within the first second: none
	p.show(39<<20, begin.Add(1000*time.Millisecond))
	p.show(39<<20, begin.Add(3000*time.Millisecond)) // not a tenth more
	p.show(50<<20, begin.Add(3000*time.Millisecond))
	p.show(60<<20, begin.Add(3100*time.Millisecond)) // less than a second later
	p.show(100<<20, begin.Add(4000*time.Millisecond))
	p.end()
	require.Equal(t, "sent  30 %  39.0 MiB  327.2 Mbit/s\nsent  50 %  50.0 MiB  139.8 Mbit/s\nsent "+
		"100 %  100.0 MiB  209.7 Mbit/s\n", b.String())
}

func TestProgressKnowsWhatIsNoTerminal(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	require.False(t, newProgress(w, 1).terminal)
	file := must(os.Create(t.TempDir() + "/log"))(t)
	defer file.Close()
	require.False(t, newProgress(file, 1).terminal)
}

func TestProgressOfNothing(t *testing.T) {
	var b strings.Builder
	now := time.Now()
	p := progress{w: &b, terminal: true, begin: now}
	p.show(0, now)
	require.Contains(t, b.String(), "  0 %")
}

// The whole program draws the bar on standard error alone.
func TestProgramDrawsABar(t *testing.T) {
	master, slave := openTerminal(t)
	cmd := exec.Command(programPath(t), "demo", "--region", "8MiB", "--size", "8MiB")
	cmd.Stderr = slave
	out, err := cmd.Output()
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), "\r")
	var shown []byte
	for got := make([]byte, 4096); !bytes.HasSuffix(shown, []byte("\r\n")); {
		n := must(master.Read(got))(t)
		shown = append(shown, got[:n]...)
	}
	require.Regexp(t, `^(\r\[#*\.*\] +\d+ %  \S+ \S+  \S+ [kMG]?bit/s\x1b\[K)+\r\n$`, string(shown))
	require.Contains(t, string(shown), "\r["+strings.Repeat("#", barWidth)+"] 100 %  8.0 MiB")
}
