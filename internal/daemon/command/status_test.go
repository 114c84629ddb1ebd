package command

import (
	"bytes"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/status"
)

// The exit status tells a script of a daemon that serves, of one whose Poller stands still, of
// nobody, and of anything else; the same of a switch.
func TestStatusExit(t *testing.T) {
	for _, c := range []struct {
		answer any
		code   int
		err    string
	}{
		{&status.Daemon{Kind: status.KindDaemon, Healthy: true}, 0, ""},
		{&status.Daemon{Kind: status.KindDaemon}, 2, "a Poller stands still"},
		{&status.Switch{Kind: status.KindSwitch, Healthy: true}, 0, ""},
		{&status.Switch{Kind: status.KindSwitch, Error: "core 0 does not turn"}, 2,
			"a thread stands still"},
		{nil, 3, "no daemon answers"},
		{"what?", 1, "the answer: "},
	} {
		path := filepath.Join(t.TempDir(), "control.sock")
		if c.answer != nil {
			s, err := control.Listen(path, 0o600)
			require.NoError(t, err)
			defer s.Close()
			s.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
				control.Reply(w, c.answer)
			})
			s.Serve()
		}
		for _, form := range [][]string{nil, {"--json"}} {
			var out bytes.Buffer
			root := Root(port.Builtin())
			root.SetArgs(append([]string{"status", "--socket", path}, form...))
			root.SetOut(&out)
			err := root.Execute()
			require.Equal(t, c.code, ExitCode(err), "%+v: %v", c.answer, err)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
			}
			require.Equal(t, c.code == 0 || c.code == 2, out.Len() > 0)
		}
	}
	root := Root(port.Builtin())
	root.SetArgs([]string{"status", "--no-such-flag"})
	require.Equal(t, 1, ExitCode(root.Execute()))
}
