package command

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/rnicd/rnicd/internal/daemon/config"
)

// Man is the command man, for those who make packages: a page for the root command and each below
// it, and one for the configuration. The time that the pages bear is SOURCE_DATE_EPOCH's where the
// environment has one, so that the same source makes the same pages.
func Man() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write the manual pages of all commands and of the configuration",
		Hidden: true,
		Args:   ArgsWanted(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			root := c.Root()
			root.InitDefaultCompletionCmd() // or its page is there only when another one has asked for it
			plain(root)
			header := &doc.GenManHeader{Section: "1", Source: root.Name(), Manual: "User Commands"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return err
			}
			for name, page := range map[string][]byte{
				"rnicd.toml.5": configPage("rnicd.toml", "rnicd serve", config.WriteReference,
					"rnicd-serve", "rnicd-check", "rnicd-doctor"),
				"rnicd-switch.toml.5": configPage("rnicd-switch.toml", "rnicd switch",
					config.WriteSwitchReference, "rnicd-switch", "rnicd-check", "rnicd-status"),
			} {
				if err := os.WriteFile(filepath.Join(args[0], name), page, 0o644); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// plain leaves out of the pages when they were made.
func plain(c *cobra.Command) {
	c.DisableAutoGenTag = true
	for _, sub := range c.Commands() {
		plain(sub)
	}
}

// configPage is the reference of a configuration, as a manual page: rnicd.toml(5),
// rnicd-switch.toml(5).
func configPage(name, command string, write func(io.Writer), also ...string) []byte {
	var reference, page bytes.Buffer
	write(&reference)
	fmt.Fprintf(&page, `%% "%s" "5" "" "rnicd" "File Formats"
# NAME
%s - configuration of %s

# DESCRIPTION
**%s --config** FILE reads it, **rnicd check** FILE says what is wrong with it.

TOML, strict: a key that is not here is an error. Durations are texts as "500ms" or "1m30s"; sizes are numbers of octets, or texts
as "64KiB", "1.5GiB"; texts are an array of them.

`, strings.ToUpper(name), name, command, command)
	_, text, _ := strings.Cut(reference.String(), "\n## ") // the tables
	text = "## " + text
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		switch {
		case strings.HasPrefix(line, "|---"), strings.HasPrefix(line, "| key "),
			strings.HasPrefix(line, "| type "):
		case strings.HasPrefix(line, "| "):
			writeEntry(&page, cells)
		default:
			page.WriteString(strings.TrimPrefix(line, "#"))
		}
	}
	fmt.Fprintf(&page, "# SEE ALSO\n**%s**(1)\n", strings.Join(also, "**(1), **"))
	return md2man.Render(page.Bytes())
}

// writeEntry writes a row of a table as a term and what is said of it: tables are too wide for a
// terminal. A row of keys has the key, with what it is for in parentheses, its value, the default
// and the text; one of types the type, its TCP port and the text.
func writeEntry(w *bytes.Buffer, cells []string) {
	last := len(cells) - 1
	key, of, _ := strings.Cut(strings.TrimSuffix(cells[0], ")"), " (")
	fmt.Fprintf(w, "**%s**", strings.Trim(key, "`"))
	if last == 3 {
		fmt.Fprintf(w, " = %s", cells[1])
		if cells[2] != "" {
			fmt.Fprintf(w, ", default %s", cells[2])
		}
		if of != "" {
			fmt.Fprintf(w, " (for %s)", of)
		}
	} else {
		fmt.Fprintf(w, ", TCP port %s", cells[1])
	}
	fmt.Fprintf(w, "\n: %s\n\n", cells[last])
}
