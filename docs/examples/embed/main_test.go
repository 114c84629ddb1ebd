package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func Example() {
	main()
	// Output:
	// 1 completion: RDMA Write 7 of 30 octets: success
	// "written without a receive call"
}

// What the README shows is in the example, line by line and in order.
func TestReadmeShowsTheExample(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	require.NoError(t, err)
	_, shown, found := strings.Cut(string(readme), "<!-- embed -->\n```go\n")
	require.True(t, found)
	shown, _, found = strings.Cut(shown, "```\n")
	require.True(t, found)
	example, err := os.ReadFile("main.go")
	require.NoError(t, err)
	require.Contains(t, string(example), "\t"+strings.ReplaceAll(strings.TrimSpace(shown), "\n",
		"\n\t")+"\n")
}

// So is what the package comment shows, whose lines leave the checks of errors out: the
// Initiator's, then the Responder's.
func TestPackageCommentShowsTheExample(t *testing.T) {
	doc, err := os.ReadFile("../../../rnic/doc.go")
	require.NoError(t, err)
	example, err := os.ReadFile("main.go")
	require.NoError(t, err)
	initiator, responder, found := strings.Cut(string(example), "\nfunc grantor(")
	require.True(t, found)
	shown, left := 0, initiator
	for line := range strings.Lines(string(doc)) {
		code, isCode := strings.CutPrefix(line, "//\t")
		if !isCode {
			continue
		}
		if strings.Contains(code, ".Listen(") {
			left = responder
		}
		_, after, found := strings.Cut(left, "\t"+code)
		require.True(t, found, "not in the example, or not in this order: %s", code)
		left = after
		shown++
	}
	require.Equal(t, 19, shown)
}

// The README's commands run the example in a module of its own, from an empty directory next to a
// checkout.
func TestReadmeCommands(t *testing.T) {
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	_, section, found := strings.Cut(string(readme), "\n## Embed it\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n```")
	var script []string
	for line := range strings.Lines(section) {
		if command, is := strings.CutPrefix(line, "    "); is {
			script = append(script, command)
		}
	}
	require.Contains(t, script, "go mod tidy\n")

	beside := t.TempDir()
	require.NoError(t, os.Symlink(root, filepath.Join(beside, "rnicd")))
	empty := filepath.Join(beside, "app")
	require.NoError(t, os.Mkdir(empty, 0o700))
	// The module is then found by its own path: what this test's program is made of is not compiled
	// again for another.
	commands := strings.ReplaceAll(strings.Join(script, ""), "=../rnicd", "="+root)
	require.Contains(t, commands, "="+root)
	cmd := exec.Command("sh", "-euc", commands)
	cmd.Dir = empty
	cmd.Env = append(os.Environ(), "PWD="+empty)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "1 completion: RDMA Write 7 of 30 octets: success\n")
}
