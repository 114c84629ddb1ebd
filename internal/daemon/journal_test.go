package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Lines to the journal have their levels where it looks for them, and no time; lines to a file,
// or to another stream than the one that systemd has made, are as they were.
func TestJournal(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		f := must(os.Create(filepath.Join(t.TempDir(), "log")))(t)
		defer f.Close()
		var st unix.Stat_t
		require.NoError(t, unix.Fstat(int(f.Fd()), &st))
		write := func() {
			out, log := newLoggerAt(filepath.Join(t.TempDir(), "none"), f, format, slog.LevelDebug)
			defer out.Close(patience)
			log = log.With("service", "x").WithGroup("g")
			log.Debug("a")
			log.Info("b")
			log.Warn("c")
			log.Error("d", "two", "lines\nof it")
		}
		t.Setenv("JOURNAL_STREAM", fmt.Sprintf("%d:%d", st.Dev, st.Ino))
		write()
		text := must(os.ReadFile(f.Name()))(t)
		want := map[string]string{
			"text": "<7>level=DEBUG msg=a service=x\n<6>level=INFO msg=b service=x\n<4>level=WARN msg=c " +
				"service=x\n<3>level=ERROR msg=d service=x g.two=\"lines\\nof it\"\n",
			"json": "<7>{\"level\":\"DEBUG\",\"msg\":\"a\",\"service\":\"x\"}\n<6>{\"level\":\"INFO\",\"msg\":\"b\",\"service\":\"x\"}\n" +
				"<4>{\"level\":\"WARN\",\"msg\":\"c\",\"service\":\"x\"}\n<3>{\"level\":\"ERROR\",\"msg\":\"d\",\"service\":\"x\",\"g\":{\"two\":\"lines\\nof it\"}}\n",
		}
		require.Equal(t, want[format], string(text))
		for _, stream := range []string{"", fmt.Sprintf("%d:%d", st.Dev, st.Ino+1)} {
			require.NoError(t, f.Truncate(0))
			t.Setenv("JOURNAL_STREAM", stream)
			write()
			text := must(os.ReadFile(f.Name()))(t)
			require.NotContains(t, string(text), "<")
			require.Contains(t, string(text), "time")
		}
	}
}

// journalStream is a file that the process believes to be the journal's stream.
func journalStream(t *testing.T) *os.File {
	f := must(os.Create(filepath.Join(t.TempDir(), "log")))(t)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(int(f.Fd()), &st))
	t.Setenv("JOURNAL_STREAM", fmt.Sprintf("%d:%d", st.Dev, st.Ino))
	return f
}

// Where the journal takes entries each attribute is a field, and the line is the message. A record
// that its socket does not take is a line of the stream, as are lines of others.
func TestJournalEntries(t *testing.T) {
	f := journalStream(t)
	path := filepath.Join(t.TempDir(), "socket")
	journal := must(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
	out, log := newLoggerAt(path, f, "text", slog.LevelInfo)
	hear := func() string {
		t.Helper()
		b := make([]byte, 1<<16)
		n, _, err := journal.ReadFromUnix(b)
		require.NoError(t, err)
		return string(b[:n])
	}
	log.With("service", "x").WithGroup("g").Warn("it is so", "took", 1500*time.Microsecond, "why",
		"two\nlines", slog.Group("in", "a-b", 7))
	require.Equal(t, "PRIORITY=4\nMESSAGE=level=WARN msg=\"it is so\" service=x g.took=1.5ms "+
		"g.why=\"two\\nlines\" g.in.a-b=7\nSYSLOG_IDENTIFIER=rnicd\nRNICD_SERVICE=x\n"+
		"RNICD_G_TOOK_MS=1.5\nRNICD_G_WHY\n\x09\x00\x00\x00\x00\x00\x00\x00two\nlines\nRNICD_G_IN_A_B=7\n",
		hear())
	must(out.Write([]byte("of another kind\n")))(t)
	log.Info("long", "text", strings.Repeat("x", 1<<18)) // no datagram
	log.Info("short")
	require.Contains(t, hear(), "MESSAGE=level=INFO msg=short\n")
	require.NoError(t, journal.Close())
	require.NoError(t, os.Remove(path))
	log.Error("gone", "a", 1)
	out.Close(patience)
	require.Zero(t, out.Lost())
	text := must(os.ReadFile(f.Name()))(t)
	lines := strings.Split(string(text), "\n")
	require.Len(t, lines, 4)
	require.Equal(t, "of another kind", lines[0])
	require.Contains(t, lines[1], "<6>level=INFO msg=long text=xxx")
	require.Equal(t, "<3>level=ERROR msg=gone a=1", lines[2])
}

// An entry that is lost is one line that is lost, whatever its fields.
func TestJournalEntriesLost(t *testing.T) {
	w := &entryWriter{}
	require.EqualValues(t, 1, w.Lines([]byte("PRIORITY=4\nMESSAGE=x\n")))
	require.EqualValues(t, 2, w.Lines([]byte("a\nb\n")))
}

// Durations have their unit in JSON, where nothing else says it.
func TestJSONDurations(t *testing.T) {
	var b bytes.Buffer
	newLogger(&b, false, false, "json", slog.LevelInfo).Info("drained", "took", 1500*time.Microsecond)
	var line map[string]any
	require.NoError(t, json.Unmarshal(b.Bytes(), &line))
	require.Equal(t, 1.5, line["took_ms"])
	require.NotContains(t, line, "took")
	b.Reset()
	newLogger(&b, false, false, "text", slog.LevelInfo).Info("drained", "took", 1500*time.Microsecond)
	require.Contains(t, b.String(), "took=1.5ms")
}
