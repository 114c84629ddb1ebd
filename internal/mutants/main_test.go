package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const header = "# a comment\nn\tfile\tfunction\tmutation\toccurrence\tline\tbecomes\n"

// module writes a module of these files, and a list of mutants with these rows, in a folder of its
// own.
func module(t *testing.T, rows string, files map[string]string) string {
	root := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write("go.mod", "module example.com/m\n\ngo 1.26\n")
	write("list.tsv", header+rows)
	for name, text := range files {
		write(name, text)
	}
	return root
}

// mutants runs the command and returns its rows without the seconds, and its summary.
func mutants(t *testing.T, root string, args ...string) (rows, summary string) {
	var w strings.Builder
	require.NoError(t, run(t.Context(), &w, root,
		append([]string{"-list", filepath.Join(root, "list.tsv")}, args...)))
	table, summary, ok := strings.Cut(w.String(), "\n\n")
	require.True(t, ok)
	for _, row := range strings.Split(table, "\n")[1:] {
		cell := strings.Split(row, "\t")
		rows += cell[0] + " " + cell[1] + " " + cell[3] + " " + strings.Join(cell[6:], " ") + "\n"
	}
	return rows, summary
}

// A mutant is killed by a test that fails, or survives; one that is no Go is neither. The tree
// stays as it was.
func TestVerdicts(t *testing.T) {
	const code = `package p

func Add(a, b int) int {
	return a + b
}

func Sub(a, b int) int {
	return a - b // not tested
}
`
	root := module(t, `1	p/p.go	Add	constant	0	return a + b	return a - b
2	p/p.go	Sub	constant	0	return a - b	return a + b
3	p/p.go	Sub	remove	0	return a - b	
4	p/p.go	Mul	remove	0	return a * b	
`, map[string]string{"p/p.go": code, "p/p_test.go": `package p

import "testing"

func TestAdd(t *testing.T) {
	if Add(1, 2) != 3 {
		t.Error("1 + 2")
	}
}
`})
	rows, summary := mutants(t, root)
	require.Equal(t, "1 killed p/p.go:4 TestAdd\n2 survived p/p.go:8 \n"+
		"3 does not compile p/p.go:8 \n4 not found p/p.go \n", rows)
	require.Equal(t, "package  killed  survived  does not compile  not found\n"+
		"p        1       1         1                 1\n"+
		"all      1       1         1                 1\n", summary)
	text, err := os.ReadFile(filepath.Join(root, "p/p.go"))
	require.NoError(t, err)
	require.Equal(t, code, string(text))
}

// With -tests other packages' tests judge a mutant.
func TestOtherTests(t *testing.T) {
	root := module(t, "1\tp/p.go\tF\tconstant\t0\treturn 1\treturn 2\n", map[string]string{
		"p/p.go": "package p\n\nfunc F() int {\n\treturn 1\n}\n",
		"q/q_test.go": `package q

import (
	"testing"

	"example.com/m/p"
)

func TestQ(t *testing.T) {
	if p.F() != 1 {
		t.Error()
	}
}
`})
	rows, _ := mutants(t, root, "-tests", "q")
	require.Equal(t, "1 killed p/p.go:4 TestQ\n", rows)
}

// Tests that do not end are ended.
func TestHung(t *testing.T) {
	root := module(t, "", map[string]string{"p/p_test.go": `package p

import (
	"testing"
	"time"
)

func TestP(t *testing.T) { time.Sleep(time.Hour) }
`})
	r, err := newRunner(root, "")
	require.NoError(t, err)
	defer r.close()
	got, err := r.test(t.Context(), []string{"./p"}, "", time.Second)
	require.NoError(t, err)
	require.Equal(t, outcome{timedOut, "TestP"}, got)
}

// Tests that fail anyway prove nothing.
func TestFailsWithoutMutant(t *testing.T) {
	root := module(t, "1\tp/p.go\tF\tremove\t0\treturn 1\treturn 2\n", map[string]string{
		"p/p.go":      "package p\n\nfunc F() int {\n\treturn 1\n}\n",
		"p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) { t.Fatal() }\n",
	})
	err := run(t.Context(), new(strings.Builder), root, []string{"-list", root + "/list.tsv"})
	require.EqualError(t, err,
		"mutant 1: the tests of ./p fail without a mutant: killed TestF")
}

// A line is found by its function, in another file, in another package, or wrapped; and by itself
// if it moved to another function. It is not guessed.
func TestFind(t *testing.T) {
	root := module(t, `1	p/old.go	T.twice	remove	1	f()	
2	p/old.go	gone	remove	0	only()	
3	p/old.go	gone	remove	0	f()	
4	old/o.go	moved	negate	0	if a && b {	if !(a && b) {
5	old/o.go	List.Len	constant	0	return 1	return 2
6	old/o.go	both	remove	0	f()	
`, map[string]string{
		"p/new.go": `package p

func (t *T) twice() {
	f() // once
	f()
	only()
}
`,
		"q/q.go": `package q

func moved() {
	if a &&
		b { // wrapped
	}
}

func (l *List[K, V]) Len() int { // generic
	return 1
}

func both() {
	f()
}
`,
		"r/r.go":            "package r\n\nfunc both() {\n\tf()\n}\n",
		"q/q_test.go":       "package q\n\nfunc moved() {\n\tif a && b {\n\t}\n}\n",
		"q/testdata/bad.go": "not Go",
	})
	rows, summary := mutants(t, root, "-locate")
	require.Equal(t, `1 located p/new.go:5 
2 located p/new.go:6 
3 not found p/old.go 
4 located q/q.go:4 
5 located q/q.go:10 
6 not found old/o.go 
`, rows)
	require.Equal(t, "package  not found  located\n"+
		"p        1          2\nq        0          2\nold      1          0\n"+
		"all      2          4\n", summary)

	rows, _ = mutants(t, root, "-locate", "-package", "q,none/...")
	require.Equal(t, "4 located q/q.go:4 \n5 located q/q.go:10 \n", rows)
	rows, _ = mutants(t, root, "-locate", "-n", "2,5-9")
	require.Equal(t, "2 located p/new.go:6 \n5 located q/q.go:10 \n6 not found old/o.go \n", rows)
}

// The lines of a mutant are replaced, and the others keep their numbers.
func TestApply(t *testing.T) {
	m := mutant{line: "if a && b {", becomes: "if a || b {"}
	got, err := m.apply("x\n\tif a &&\n\t\tb {\n\t}\n", place{line: 2, lines: 2})
	require.NoError(t, err)
	require.Equal(t, "x\nif a || b {\n\n\t}\n", got)
	_, err = m.apply("x\n", place{file: "p/p.go", line: 2, lines: 2})
	require.EqualError(t, err, "p/p.go has no line 2 any more")
}

// Patterns stand for what they do for the go command.
func TestMatches(t *testing.T) {
	for _, c := range []struct {
		patterns, pkg string
		want          bool
	}{
		{"rnic", "rnic", true}, {"./rnic/", "rnic", true}, {"rnic", "rnic/internal/qp", false},
		{"rnic/...", "rnic", true}, {"rnic/...", "rnic/internal/qp", true},
		{"rnic/...", "rnicd", false}, {"tcp,./...", "mem", true}, {"tcp,ddp", "mem", false},
	} {
		require.Equal(t, c.want, matches(c.patterns, c.pkg), c)
	}
}

// What cannot be read is said.
func TestMistakes(t *testing.T) {
	root := module(t, "x\tp/p.go\tF\tremove\t0\ta\t\n", nil)
	list := filepath.Join(root, "list.tsv")
	for args, want := range map[string]string{
		"":               list + `: strconv.Atoi: parsing "x": invalid syntax`,
		"-n=5-4":         `-n: "5-4" is neither a number nor a range such as 5-10`,
		"rnic":           `unknown argument "rnic"; -help lists the flags`,
		"-list=/nowhere": "open /nowhere: no such file or directory",
		"-list=go.mod":   "go.mod: no header " + strconv.Quote(strings.Split(header, "\n")[1]),
	} {
		t.Chdir(root)
		all := []string{"-list", list}
		if args != "" {
			all = append(all, args)
		}
		require.EqualError(t, run(t.Context(), new(strings.Builder), root, all), want)
	}
}
