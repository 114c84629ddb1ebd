package main

import (
	"encoding/csv"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mutant is a row of the list.
type mutant struct {
	n                        int
	file, function, mutation string // where it was when the list was drawn; what kind it is
	occurrence               int    // how many lines of the function before it are the same
	line, becomes            string // without indentation
}

// place is a line of the tree.
type place struct {
	file  string // below the root
	line  int    // from 1
	lines int    // more than one if the line has been wrapped since
}

// readMutants reads a list: lines that begin with # are comments, then comes a header.
func readMutants(name string) ([]mutant, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comma, r.Comment, r.LazyQuotes = '\t', '#', true
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	const header = "n\tfile\tfunction\tmutation\toccurrence\tline\tbecomes"
	if len(rows) == 0 || strings.Join(rows[0], "\t") != header {
		return nil, fmt.Errorf("%s: no header %q", name, header)
	}
	var list []mutant
	for _, row := range rows[1:] {
		n, err := strconv.Atoi(row[0])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		m := mutant{n: n, file: row[1], function: row[2], mutation: row[3], line: row[5],
			becomes: row[6]}
		if m.occurrence, err = strconv.Atoi(row[4]); err != nil {
			return nil, fmt.Errorf("%s: mutant %d: %w", name, n, err)
		}
		list = append(list, m)
	}
	return list, nil
}

// function is a function or method of the tree: its lines are lines[from:to] of its file.
type function struct {
	file     string
	from, to int
}

// tree is the source text of all packages, without their tests.
type tree struct {
	files     map[string][]string // lines without indentation and comments, by path below the root
	functions map[string][]function
}

// readTree reads the Go files below root, of all systems and tags.
func readTree(root string) (*tree, error) {
	t := &tree{files: map[string][]string{}, functions: map[string][]function{}}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			if name != "." && (base[0] == '.' || base[0] == '_' || base == "testdata" ||
				name == "build" || name == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") || strings.HasSuffix(base, "_test.go") {
			return nil
		}
		return t.read(root, name)
	})
	return t, err
}

func (t *tree) read(root, name string) error {
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return err
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	for _, group := range f.Comments {
		at := fset.Position(group.Pos())
		lines[at.Line-1] = lines[at.Line-1][:at.Column-1]
	}
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	t.files[name] = lines
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok {
			key := functionName(d)
			t.functions[key] = append(t.functions[key], function{file: name,
				from: fset.Position(d.Pos()).Line - 1, to: fset.Position(d.End()).Line})
		}
	}
	return nil
}

// functionName is Type.Name for a method, without pointer and type parameters.
func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	for typ := d.Recv.List[0].Type; ; {
		switch e := typ.(type) {
		case *ast.StarExpr:
			typ = e.X
		case *ast.IndexExpr:
			typ = e.X
		case *ast.IndexListExpr:
			typ = e.X
		case *ast.Ident:
			return e.Name + "." + d.Name.Name
		default:
			return d.Name.Name
		}
	}
}

// find returns where m's line is now: in its function in the same file, the same package or, if
// there is only one such place, anywhere; otherwise where the line itself is, if it is in a
// function of its package only once, so that it moved to another function.
func (t *tree) find(m mutant) (place, bool) {
	var same, elsewhere []place
	for _, f := range t.functions[m.function] {
		p, ok := t.occurrence(m, f)
		switch {
		case !ok:
		case p.file == m.file:
			return p, true
		case path.Dir(p.file) == path.Dir(m.file):
			same = append(same, p)
		default:
			elsewhere = append(elsewhere, p)
		}
	}
	if len(same) == 0 {
		same = elsewhere
	}
	if len(same) == 0 {
		same = t.inPackage(m)
	}
	if len(same) == 1 {
		return same[0], true
	}
	return place{}, false
}

func (t *tree) occurrence(m mutant, f function) (place, bool) {
	before := 0
	for i := f.from; i < f.to; i++ {
		n := beginsWith(t.files[f.file][i:f.to], m.line)
		if n == 0 {
			continue
		}
		if before == m.occurrence {
			return place{f.file, i + 1, n}, true
		}
		before++
	}
	return place{}, false
}

func (t *tree) inPackage(m mutant) (places []place) {
	for _, functions := range t.functions {
		for _, f := range functions {
			if path.Dir(f.file) != path.Dir(m.file) {
				continue
			}
			for i := f.from; i < f.to; i++ {
				if n := beginsWith(t.files[f.file][i:f.to], m.line); n > 0 {
					places = append(places, place{f.file, i + 1, n})
				}
			}
		}
	}
	return places
}

// beginsWith returns how many of lines are line, wrapped; 0 if they begin with another.
func beginsWith(lines []string, line string) int {
	for n, l := range lines {
		rest, ok := strings.CutPrefix(line, l)
		switch {
		case !ok || l == "":
			return 0
		case rest == "":
			return n + 1
		}
		line = strings.TrimPrefix(rest, " ")
	}
	return 0
}

// apply returns text with the lines at p replaced by what m makes of them. Lines keep their
// numbers.
func (m *mutant) apply(text string, p place) (string, error) {
	lines := strings.Split(text, "\n")
	if p.line-1+p.lines > len(lines) {
		return "", fmt.Errorf("%s has no line %d any more", p.file, p.line)
	}
	changed := slices.Clone(lines)
	clear(changed[p.line-1 : p.line-1+p.lines])
	changed[p.line-1] = m.becomes
	return strings.Join(changed, "\n"), nil
}
