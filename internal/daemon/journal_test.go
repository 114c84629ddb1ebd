package daemon

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Lines to the journal have their levels where it looks for them, and no time; lines to a file,
// or to another stream than the one that systemd has made, are as they were.
func TestJournal(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		f, err := os.Create(filepath.Join(t.TempDir(), "log"))
		require.NoError(t, err)
		defer f.Close()
		var st unix.Stat_t
		require.NoError(t, unix.Fstat(int(f.Fd()), &st))
		write := func() {
			out, log := NewLogger(f, format, slog.LevelDebug)
			defer out.Close(patience)
			log = log.With("service", "x").WithGroup("g")
			log.Debug("a")
			log.Info("b")
			log.Warn("c")
			log.Error("d", "two", "lines\nof it")
		}
		t.Setenv("JOURNAL_STREAM", fmt.Sprintf("%d:%d", st.Dev, st.Ino))
		write()
		text, err := os.ReadFile(f.Name())
		require.NoError(t, err)
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
			text, err := os.ReadFile(f.Name())
			require.NoError(t, err)
			require.NotContains(t, string(text), "<")
			require.Contains(t, string(text), "time")
		}
	}
}
