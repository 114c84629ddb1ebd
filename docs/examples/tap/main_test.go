package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
)

// The program answers the kernel's HTTP and receives over RDMA, on a TAP of its own namespace.
func TestExample(t *testing.T) {
	netlab.NeedRoot(t)
	program := filepath.Join(t.TempDir(), "tap")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	netlab.Enter(t) // and so is the program
	cmd := exec.Command(program)
	cmd.Stderr = os.Stderr
	out, err = cmd.Output()
	require.NoError(t, err)
	require.Equal(t, "hello from 10.77.0.1\n\"sent over RDMA\"\n", string(out))
}

// What the guide shows is in the program.
func TestGuideShowsTheExample(t *testing.T) {
	guide, err := os.ReadFile("../../guides/embedding.md")
	require.NoError(t, err)
	_, shown, found := strings.Cut(string(guide), "<!-- tap -->\n```go\n")
	require.True(t, found)
	shown, _, found = strings.Cut(shown, "```\n")
	require.True(t, found)
	example, err := os.ReadFile("main.go")
	require.NoError(t, err)
	require.Contains(t, string(example), "\t"+strings.ReplaceAll(strings.TrimSpace(shown), "\n",
		"\n\t")+"\n")
}
