package layers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// public says whether a user's program could, and may, import a package: programs, benchmarks and
// what exists for tests are none of the library.
func public(name string) bool {
	switch folder(name) {
	case "bench", "docs", "test":
		return false
	}
	return !slices.Contains(strings.Split(name, "/"), "internal")
}

// exported are the names that a package's files, of all systems and tags, show to a user: those of
// the package, and the methods of types that are exported themselves. It is empty for a program.
func exported(dir fs.FS) (names []string, err error) {
	files, err := fs.Glob(dir, "*.go")
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	add := func(parts ...*ast.Ident) {
		name := ""
		for _, id := range parts {
			if !id.IsExported() {
				return
			}
			name += "." + id.Name
		}
		all[name[1:]] = true
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if f.Name.Name == "main" {
			return nil, nil
		}
		for _, decl := range f.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name)
				} else {
					add(receiver(d.Recv.List[0].Type), d.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						add(s.Name)
					case *ast.ValueSpec:
						for _, id := range s.Names {
							add(id)
						}
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// receiver is the type of a method, T in T, *T and *T[K].
func receiver(t ast.Expr) *ast.Ident {
	switch x := t.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	}
	return t.(*ast.Ident)
}

// A package that a user may import stands in README.md's table, with how many names it exports: a
// new one, package or name, is there on purpose. All other packages are below an internal.
func TestPublicPackages(t *testing.T) {
	code, _ := imported(t)
	text := must(os.ReadFile("../../README.md"))(t)
	said := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| \[[a-z/]+\]\(([a-z/]+)\) \| ([0-9]+) \|`).
		FindAllStringSubmatch(string(text), -1) {
		said[row[1]] = row[2]
	}
	found, total, above := map[string]string{}, 0, 0
	for name := range code {
		if !public(name) {
			continue
		}
		names := must(exported(os.DirFS(filepath.Join("../..", name))))(t)
		if len(names) > 0 {
			found[name] = strconv.Itoa(len(names))
			total += len(names)
			if !slices.Contains([]string{"tcp", "mpa", "ddp", "rdmap"}, name) {
				above += len(names)
			}
		}
	}
	require.Equal(t, found, said, "packages with the number of names that they export: write them in "+
		"README.md, or unexport what no user needs")
	require.Contains(t, string(text), fmt.Sprintf(
		"%d names in all, %d of them without the protocol's layers", total, above))
	require.Less(t, above, 900)
}

// What a user sees has methods where it counts: no exported field is an atomic.
func TestNoExportedAtomics(t *testing.T) {
	code, _ := imported(t)
	var found []string
	for name := range code {
		if !public(name) {
			continue
		}
		files := must(filepath.Glob(filepath.Join("../..", name, "*.go")))(t)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f := must(parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution))(t)
			if f.Name.Name != "main" && ast.FileExports(f) {
				found = append(found, atomicFields(f)...)
			}
		}
	}
	require.Empty(t, found)
}

// atomicFields are the fields of f's structs that are atomics.
func atomicFields(f *ast.File) (found []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		st, is := n.(*ast.StructType)
		if !is {
			return true
		}
		for _, field := range st.Fields.List {
			sel, is := field.Type.(*ast.SelectorExpr)
			if !is {
				continue
			}
			if pkg, is := sel.X.(*ast.Ident); is && pkg.Name == "atomic" {
				for _, id := range field.Names {
					found = append(found, f.Name.Name+": "+id.Name)
				}
			}
		}
		return true
	})
	return found
}

func TestAtomicFields(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "", "package a\ntype T struct { A atomic.Uint64\n"+
		"B int\nC sync.Mutex\nd atomic.Bool }\nfunc f() { var x atomic.Bool; _ = x }\n", 0)
	require.NoError(t, err)
	ast.FileExports(f)
	require.Equal(t, []string{"a: A"}, atomicFields(f))
}

// The front page of go doc lists the packages of README.md's table, for the same.
func TestFrontPage(t *testing.T) {
	readme := must(os.ReadFile("../../README.md"))(t)
	doc := must(os.ReadFile("../../doc.go"))(t)
	said, listed := map[string]string{}, map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| \[[a-z/]+\]\(([a-z/]+)\) \| [0-9]+ \| (.*) \|$`).
		FindAllStringSubmatch(string(readme), -1) {
		said[row[1]] = strings.ReplaceAll(row[2], "`", "")
	}
	for _, line := range regexp.MustCompile(`(?m)^//\t([a-z/]+) +(.*)$`).
		FindAllStringSubmatch(string(doc), -1) {
		listed[line[1]] = line[2]
	}
	require.Equal(t, said, listed)
}

func TestExported(t *testing.T) {
	const text = "package a\n" +
		"const A, b = 1, 2\nvar C = 3\ntype D[T any] struct{ F int }\ntype e int\ntype G = e\n" +
		"func (d *D[T]) M() {}\nfunc (D[T]) n() {}\nfunc (e) M() {}\nfunc H() {}\nfunc i() {}\n"
	names, err := exported(fstest.MapFS{"a.go": {Data: []byte(text)},
		"a_linux.go": {Data: []byte("package a\nfunc H() {}\n")},
		"a_test.go":  {Data: []byte("package a\nfunc J() {}\n")}})
	require.NoError(t, err)
	require.Equal(t, []string{"A", "C", "D", "D.M", "G", "H"}, names)
	names, err = exported(fstest.MapFS{"a.go": {Data: []byte("package main\nvar A int\n")}})
	require.NoError(t, err)
	require.Empty(t, names)
}
