package layers

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// upward is how many references each package makes, from one of its files, to a function, a method, a constant or a variable of a
// file that its doc.go lists before. A reader who follows that order has to go back for each. Types and fields do not count: they
// are what a package is about. Fewer are welcome: write the new number here.
var upward = map[string]int{
	"rnic/internal/connect":   4,
	"rnic/internal/qp":        0,
	"rnic/internal/transport": 0,
}

// Files of a package read top to bottom.
func TestReadingOrder(t *testing.T) {
	for name, max := range upward {
		t.Run(filepath.Base(name), func(t *testing.T) {
			refs := upwardReferences(t, name)
			if len(refs) != max {
				t.Errorf("%d upward references, the table says %d:\n%s", len(refs), max, strings.Join(refs, "\n"))
			}
		})
	}
}

// readingOrder are the files that a doc.go lists, in its order. A line may name several.
func readingOrder(t *testing.T, doc string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(doc)
	require.NoError(t, err)
	file := regexp.MustCompile(`\b[a-z0-9_]+\.go\b`)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "//\t") {
			names = append(names, file.FindAllString(line, -1)...)
		}
	}
	return names
}

func upwardReferences(t *testing.T, name string) (refs []string) {
	t.Helper()
	dir := filepath.Join("../..", name)
	order := readingOrder(t, filepath.Join(dir, "doc.go"))
	place := func(file string) int { return slices.Index(order, file) }
	fset := token.NewFileSet()
	var files []*ast.File
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, path := range paths {
		base := filepath.Base(path)
		if strings.HasSuffix(base, "_test.go") || base == "doc.go" {
			continue
		}
		require.GreaterOrEqual(t, place(base), 0, "doc.go does not list %s", base)
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, f)
	}
	require.Len(t, files, len(order), "doc.go lists %v", order)
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	cfg := types.Config{Importer: importer.ForCompiler(fset, "gc", exports(t, "./"+name))}
	pkg, err := cfg.Check(module+name, fset, files, &info)
	require.NoError(t, err)
	for id, obj := range info.Uses {
		if obj.Pkg() != pkg || !isCode(pkg, obj) {
			continue
		}
		from, to := fset.Position(id.Pos()), fset.Position(obj.Pos())
		if filepath.Base(from.Filename) == "fortest.go" {
			continue // it is about all files, and no step of the way
		}
		if place(filepath.Base(from.Filename)) > place(filepath.Base(to.Filename)) {
			refs = append(refs, fmt.Sprintf("%s:%d: %s of %s", filepath.Base(from.Filename), from.Line, obj.Name(), filepath.Base(to.Filename)))
		}
	}
	slices.Sort(refs)
	return refs
}

// isCode says whether obj is a function, a method of a type that is no interface, or a constant or variable of the package.
func isCode(pkg *types.Package, obj types.Object) bool {
	switch obj := obj.(type) {
	case *types.Func:
		recv := obj.Signature().Recv()
		return recv == nil || !types.IsInterface(recv.Type())
	case *types.Const, *types.Var:
		return obj.Parent() == pkg.Scope()
	}
	return false
}

// exports finds what the compiler has written about the packages that pkg imports.
func exports(t *testing.T, pkg string) importer.Lookup {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export", pkg)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	require.NoError(t, err)
	files := map[string]string{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Export string }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		files[p.ImportPath] = p.Export
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
}
