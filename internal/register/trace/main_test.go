package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/register"
)

const head = "id\tlevel\tsource\tsection\tlayer\trequirement\tproof\tnote\n"

func tree(t *testing.T) string {
	root := t.TempDir()
	for name, text := range map[string]string{
		register.Files[0]: head +
			"D01-1-1\tMUST\ta-draft\t1\tmpa\tone\tp\tn\nD01-1-2\tMUST\ta-draft\t1\tmpa\ttwo\tp\tn\n",
		register.Files[1]: head + "7323-1-1\tMUST\tRFC 7323\t1\ttcp\tthree\tp\tn\n791-1-1\tMAY\tRFC " +
			"791\t1\ttcp\tfour\tp\tn\n",
		"a/a_test.go":                     "// req: 7323-1-1\nfunc TestA(t *testing.T) {\n",
		"docs/requirements/deviations.md": "| row | why |\n|---|---|\n| 791-1-1 | no |\n",
	} {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return root
}

// The overview explains its words, names the documents that are no RFCs, sorts RFCs by number, and
// counts in columns of counts. Rows that are open are a failure.
func TestTable(t *testing.T) {
	var w strings.Builder
	require.EqualError(t, run(&w, tree(t), nil),
		"rows that are open: 2; cite them in a test, or answer them in docs/requirements/deviations.md")
	legend, table, ok := strings.Cut(w.String(), "\n\n")
	require.True(t, ok)
	require.Contains(t, legend, "cited when a test names it")
	require.Contains(t, legend, "\n    D01  a-draft")
	require.NotContains(t, legend, "791")
	require.Equal(t, `| document | level | rows | cited | answered | open | the open ones |
|---|---|---|---|---|---|---|
| 791 | MAY | 1 | 0 | 1 | 0 |  |
| 7323 | MUST | 1 | 1 | 0 | 0 |  |
| D01 | MUST | 2 | 0 | 0 | 2 | D01-1-1 D01-1-2 |
| all | | 4 | 1 | 1 | 2 | |
`, table)
}

// With ids their rows are printed, and where they are proven or answered.
func TestExplain(t *testing.T) {
	var w strings.Builder
	require.NoError(t, run(&w, tree(t), []string{"7323-1-1", "791-1-1"}))
	require.Equal(t, `7323-1-1 MUST, RFC 7323 section 1: three
    a/a_test.go:1
791-1-1 MAY, RFC 791 section 1: four
    docs/requirements/deviations.md
`, w.String())
	require.EqualError(t, run(&w, tree(t), []string{"NO-1"}), "NO-1 is in no register")
}
