package register

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every requirement that a test cites, or docs/requirements.md answers, exists; none is both, or answered twice; what the register
// says of itself is right.
func TestTree(t *testing.T) {
	r, err := Load("../..")
	require.NoError(t, err)
	t.Logf("%d of %d requirements cited, %d answered", len(r.Cited), len(r.Rows), len(r.Answered))
	require.Greater(t, len(r.Cited), 700)
	for _, row := range r.Rows {
		require.Regexp(t, idShape, row.ID)
		require.Contains(t, levels, row.Level, row.ID)
	}
}

// All rows of tcp.tsv with priority P0 or P1 are proven or answered.
func TestTCPIsComplete(t *testing.T) {
	r, err := Load("../..")
	require.NoError(t, err)
	n := 0
	for _, row := range r.Rows {
		if strings.HasPrefix(row.Note, "P0") || strings.HasPrefix(row.Note, "P1") {
			n++
			require.True(t, len(r.Cited[row.ID]) > 0 || r.Answered[row.ID], "%s: %s", row.ID, row.Text)
		}
	}
	require.Greater(t, n, 100)
}

const head = "id\tlevel\tsource\tsection\tlayer\trequirement\tproof\tnote\n"

func tree(t *testing.T, iwarp, test, answers string) string {
	root := t.TempDir()
	for name, text := range map[string]string{
		Files[0]: head + iwarp, Files[1]: head, answersFile: answers, "a/a_test.go": test, "build/x_test.go": "// req: NO-1\n",
	} {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return root
}

const two = "A1-1-1\tMUST\ts\t1\tmpa\tone\tp\tn\nA1-1-2\tMUST\ts\t1\tmpa\ttwo\tp\tn\nA1-2-1\tMAY\ts\t2\tmpa\tthree\tp\tn\n"

// A row is cited, answered or open.
func TestCounts(t *testing.T) {
	r, err := Load(tree(t, two, "\t// req: A1-1-1, A1-1-1\n", "| row | why |\n|---|---|\n| A1-2-1 | no |\n"))
	require.NoError(t, err)
	require.Equal(t, []Count{
		{Document: "A1", Level: "MUST", Rows: 2, Cited: 1, Open: []string{"A1-1-2"}},
		{Document: "A1", Level: "MAY", Rows: 1, Answered: 1},
	}, r.Counts())
	require.Equal(t, "a/a_test.go:1", r.Cited["A1-1-1"][0].String())
}

// What cannot be read is said with its place.
func TestMistakes(t *testing.T) {
	for _, c := range []struct{ rows, test, answers, want string }{
		{rows: "A1-1-1\tMUST\n", want: "docs/requirements/iwarp.tsv:2: 2 columns, want 8"},
		{rows: two + two, want: "docs/requirements/iwarp.tsv:5: A1-1-1 stands in the register already"},
		{rows: two, test: "package a\n// req: A1-9-9\n", want: "a/a_test.go:2 cites A1-9-9, which is in no register"},
		{rows: two, test: "// req: A1-1-1 and more\n", want: `a/a_test.go:1: "and" is no id; a citation is a list of ids, separated by commas`},
		{rows: two, answers: "| A1-7-7 | no |\n", want: "docs/requirements.md:1 answers A1-7-7, which is in no register"},
		{rows: two, answers: "| A1-1-1, A1-1-2 | no |\n\n| A1-1-2 | never |\n", want: "docs/requirements.md:3 answers A1-1-2 again"},
		{rows: two, test: "// req: A1-1-1\n", answers: "| A1-1-1 | no |\n", want: "docs/requirements.md:1 answers A1-1-1, which a/a_test.go:1 proves"},
	} {
		_, err := Load(tree(t, c.rows, c.test, c.answers))
		require.EqualError(t, err, c.want)
	}
}
