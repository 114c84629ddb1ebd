package register

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every requirement that a test cites, or docs/requirements/deviations.md answers, exists; none
// is both, or answered twice; what the register says of itself is right.
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

// No row of either file, whatever its level, is without a test and without an answer.
func TestNothingIsOpen(t *testing.T) {
	r, err := Load("../..")
	require.NoError(t, err)
	for _, row := range r.Open() {
		t.Errorf("%s %s: no test cites it, and docs/requirements/deviations.md does not answer it: %s",
			row.ID, row.Level, row.Text)
	}
}

const head = "id\tlevel\tsource\tsection\tlayer\trequirement\tproof\tnote\n"

func tree(t *testing.T, iwarp, test, answers string) string {
	root := t.TempDir()
	for name, text := range map[string]string{
		Files[0]: head + iwarp, Files[1]: head, answersFile: answers, "a/a_test.go": test,
		"build/x_test.go": "// req: NO-1\n",
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
	r, err := Load(tree(t, two, "// req: A1-1-1, A1-1-1\n//\nfunc TestA(t *testing.T) {\n",
		"| row | why |\n|---|---|\n| A1-2-1 | no |\n"))
	require.NoError(t, err)
	require.Equal(t, []Count{
		{Document: "A1", Level: "MUST", Rows: 2, Cited: 1, Open: []string{"A1-1-2"}},
		{Document: "A1", Level: "MAY", Rows: 1, Answered: 1},
	}, r.Counts())
	require.Equal(t, "a/a_test.go:1", r.Cited["A1-1-1"][0].String())
}

// A script cites as a test in Go does.
func TestScript(t *testing.T) {
	root := tree(t, two, "", "")
	name := filepath.Join(root, "a/b.tcp")
	require.NoError(t, os.WriteFile(name, []byte("== B\n# req: A1-1-1\n"), 0o644))
	r, err := Load(root)
	require.NoError(t, err)
	require.Equal(t, "a/b.tcp:2", r.Cited["A1-1-1"][0].String())
}

// A row that loses its test, because the citation, the test or the file went, is open.
func TestOpen(t *testing.T) {
	for _, c := range []struct {
		test, answers string
		want          []string
	}{
		{"// req: A1-1-1, A1-1-2, A1-2-1\nfunc TestA(t *testing.T) {\n", "", nil},
		{"// req: A1-1-1\nfunc TestA(t *testing.T) {\n\t// req: A1-1-2\n", "| A1-2-1 | no |\n", nil},
		{"// req: A1-1-1\nfunc TestA(t *testing.T) {\n", "| A1-2-1 | no |\n", []string{"A1-1-2"}},
		{"func TestA(t *testing.T) {\n", "", []string{"A1-1-1", "A1-1-2", "A1-2-1"}},
	} {
		r, err := Load(tree(t, two, c.test, c.answers))
		require.NoError(t, err)
		var open []string
		for _, row := range r.Open() {
			open = append(open, row.ID)
		}
		require.Equal(t, c.want, open)
	}
}

// What cannot be read is said with its place.
func TestMistakes(t *testing.T) {
	for _, c := range []struct{ rows, test, answers, want string }{
		{rows: "A1-1-1\tMUST\n", want: "docs/requirements/iwarp.tsv:2: 2 columns, want 8"},
		{rows: two + two, want: "docs/requirements/iwarp.tsv:5: A1-1-1 stands in the register already"},
		{rows: two, test: "package a\n// req: A1-9-9\n",
			want: "a/a_test.go:2 cites A1-9-9, which is in no register"},
		{rows: two, test: "package a\n\n// req: A1-1-1\n\nfunc helper() {\n",
			want: "a/a_test.go:3: no test follows this citation"},
		{rows: two, test: "// req: A1-1-1\nfunc helper() {\n",
			want: "a/a_test.go:1: no test follows this citation"},
		{rows: two, test: "// req: A1-1-1\n", want: "a/a_test.go:1: no test follows this citation"},
		{rows: two, test: "// req: A1-1-1 and more\n",
			want: `a/a_test.go:1: "and" is no id; a citation is a list of ids, separated by commas`},
		{rows: two, answers: "| A1-7-7 | no |\n",
			want: "docs/requirements/deviations.md:1 answers A1-7-7, which is in no register"},
		{rows: two, answers: "| A1-1-1, A1-1-2 | no |\n\n| A1-1-2 | never |\n",
			want: "docs/requirements/deviations.md:3 answers A1-1-2 again"},
		{rows: two, test: "// req: A1-1-1\nfunc TestA(t *testing.T) {\n", answers: "| A1-1-1 | no |\n",
			want: "docs/requirements/deviations.md:1 answers A1-1-1, which a/a_test.go:1 proves"},
	} {
		_, err := Load(tree(t, c.rows, c.test, c.answers))
		require.EqualError(t, err, c.want)
	}
}
