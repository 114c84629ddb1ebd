package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// --json of put and get is one line, and nothing else on standard output.
func TestTransferJSON(t *testing.T) {
	ns := newNamespace(t)
	f := randomFile(t, 3<<20)
	server := ns.listening(t, "serve --pmd kernel --addr 127.0.0.1 --region 4MiB --file "+f.path)
	got := filepath.Join(t.TempDir(), "got")
	for _, c := range []struct{ words, operation, dialect, file string }{
		{"put --json --quiet " + f.path + " 127.0.0.1", "put", "rfc5044", f.path},
		{"get --json --quiet 127.0.0.1 " + got, "get", "rfc6581", got},
	} {
		var rec xferRecord
		out := filepath.Join(t.TempDir(), "out")
		args := append([]string{"-c", `"$@" > "$0"`, out, programPath(t)}, strings.Fields(c.words)...)
		p := ns.Start(t, exec.Command("sh", args...))
		require.Zero(t, p.Wait(t), "%s", p)
		text := readFile(t, out)
		require.NoError(t, json.Unmarshal([]byte(text), &rec), "%s", text)
		require.Equal(t, c.operation, rec.Operation)
		require.Equal(t, c.dialect, rec.Dialect)
		require.Equal(t, c.file, rec.File)
		require.Equal(t, "127.0.0.1:7174", rec.Server)
		require.EqualValues(t, 3<<20, rec.Length)
		require.Equal(t, f.sum, rec.SHA256)
		require.True(t, rec.CRC)
		require.Positive(t, rec.Goodput)
		require.Positive(t, rec.ClientHash)
		require.Equal(t, c.operation == "put", rec.ServerHash > 0)
		require.Positive(t, rec.Segments)
		require.GreaterOrEqual(t, rec.Placed.Direct+rec.Placed.Reassembled, rec.Length)
	}
	requireSame(t, f.path, got)
	ns.ends(t, server)
}
