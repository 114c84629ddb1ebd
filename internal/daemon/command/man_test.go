package command

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/port"
)

// There is a page for every command that help names, and in those of the configurations an entry
// for every key.
func TestPages(t *testing.T) {
	dir := t.TempDir()
	root := Root(port.Builtin())
	root.SetArgs([]string{"man", dir})
	require.NoError(t, root.Execute())
	pages := 0
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		if c.IsAvailableCommand() || c == root {
			pages++
			name := strings.ReplaceAll(c.CommandPath(), " ", "-")
			text, err := os.ReadFile(filepath.Join(dir, name+".1"))
			require.NoError(t, err)
			require.Contains(t, string(text), c.Short)
		}
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look(root)
	require.Greater(t, pages, 4)
	require.NoFileExists(t, filepath.Join(dir, "rnicd-man.1"), "only packagers have use for it")

	for _, of := range []struct {
		page   string
		write  func(io.Writer)
		keys   int
		tables []string
	}{
		{"rnicd.toml.5", config.WriteReference, 50, []string{"[log]", "[[port]]", "[[service]]"}},
		{"rnicd-switch.toml.5", config.WriteSwitchReference, 30,
			[]string{"[log]", "[metrics]", "[switch]", "[[uplink]]", "[[program]]"}},
	} {
		page, err := os.ReadFile(filepath.Join(dir, of.page))
		require.NoError(t, err)
		var reference bytes.Buffer
		of.write(&reference)
		keys := regexp.MustCompile("(?m)^\\| `(\\w+)`(?: \\(([\\w, ]+)\\))? \\|").FindAllStringSubmatch(
			reference.String(), -1)
		require.Greater(t, len(keys), of.keys)
		for _, key := range keys {
			require.Contains(t, string(page), `\fB`+key[1]+`\fP`)
			if key[2] != "" {
				require.Contains(t, string(page), "(for "+key[2]+")")
			}
		}
		for _, table := range of.tables {
			require.Contains(t, string(page), ".SH "+table)
		}
		require.NotContains(t, string(page), "|")
	}
}
