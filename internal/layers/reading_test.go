package layers

import (
	"cmp"
	"encoding/json"
	"errors"
	"go/ast"
	"go/build"
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

// upward are the references that a package makes, from one of its files, to a function, a method, a
// constant or a variable of a file that its doc.go lists before. A reader who follows that order
// has to go back for each; the code, or the table, says why. Types and fields do not count: they
// are what a package is about. Neither do constants and variables of stack and iphost: errors,
// reasons of drops, states and bounds. Fewer are welcome: take them out here.
var upward = map[string][]string{
	"internal/iphost": {},
	"rnic/internal/connect": {
		"connection.go: arriveEarly of earlydata.go",
		"connection.go: giveEarly of earlydata.go",
		"ending.go: dropEarly of earlydata.go",
		"startup.go: Edge of connection.go",
	},
	// segment.go is where a message's way out needs it; a Terminate and the RTR message are written
	// there too
	"rnic/internal/qp": {
		"rtr.go: putCarried of segment.go",
		"rtr.go: putFPDU of segment.go",
		"terminate.go: putCarried of segment.go",
		"terminate.go: putULPDU of segment.go",
	},
	"rnic/internal/transport": {},
	"stack":                   {},
}

// Files of a package read top to bottom.
func TestReadingOrder(t *testing.T) {
	for name, want := range upward {
		t.Run(filepath.Base(name), func(t *testing.T) {
			var refs []string
			for _, r := range upwardReferences(t, name) {
				refs = append(refs, r.from+": "+r.to)
				if !slices.Contains(want, refs[len(refs)-1]) {
					t.Errorf("%s:%d refers upward to %s", r.from, r.line, r.to)
				}
			}
			for _, ref := range want {
				require.Contains(t, refs, ref, "take it out")
			}
			require.Len(t, refs, len(want), "%s: each once", strings.Join(refs, ", "))
		})
	}
}

// reference is a use, in a file, of what a file before has.
type reference struct {
	from string // file
	line int
	to   string // name and file
}

// readingOrder are the files that a doc.go lists, in its order. A line may name several.
func readingOrder(t *testing.T, doc string) (names []string) {
	t.Helper()
	text := must(os.ReadFile(doc))(t)
	file := regexp.MustCompile(`\b[a-z0-9_]+\.go\b`)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "//\t") {
			names = append(names, file.FindAllString(line, -1)...)
		}
	}
	return names
}

func upwardReferences(t *testing.T, name string) (refs []reference) {
	t.Helper()
	dir := filepath.Join("../..", name)
	order := readingOrder(t, filepath.Join(dir, "doc.go"))
	place := func(file string) int { return slices.Index(order, file) }
	fset := token.NewFileSet()
	var files []*ast.File
	listed := 0
	paths := must(filepath.Glob(filepath.Join(dir, "*.go")))(t)
	for _, path := range paths {
		base := filepath.Base(path)
		if strings.HasSuffix(base, "_test.go") || base == "doc.go" {
			continue
		}
		require.GreaterOrEqual(t, place(base), 0, "doc.go does not list %s", base)
		listed++
		if ok, err := build.Default.MatchFile(dir, base); err != nil || !ok {
			continue // of another machine
		}
		f := must(parser.ParseFile(fset, path, nil, parser.SkipObjectResolution))(t)
		files = append(files, f)
	}
	require.Equal(t, len(order), listed, "doc.go lists %v", order)
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	cfg := types.Config{Importer: importer.ForCompiler(fset, "gc", exports(t, "./"+name))}
	pkg := must(cfg.Check(module+name, fset, files, &info))(t)
	for id, obj := range info.Uses {
		if obj.Pkg() != pkg || !isCode(pkg, obj) {
			continue
		}
		from, to := fset.Position(id.Pos()), fset.Position(obj.Pos())
		if place(filepath.Base(from.Filename)) > place(filepath.Base(to.Filename)) {
			refs = append(refs, reference{filepath.Base(from.Filename), from.Line,
				obj.Name() + " of " + filepath.Base(to.Filename)})
		}
	}
	slices.SortFunc(refs, func(a, b reference) int {
		return cmp.Or(cmp.Compare(a.from, b.from), a.line-b.line)
	})
	return refs
}

// isCode says whether obj is a function, a method of a type that is no interface, or a constant
// or variable of the package.
func isCode(pkg *types.Package, obj types.Object) bool {
	switch obj := obj.(type) {
	case *types.Func:
		recv := obj.Signature().Recv()
		return recv == nil || !types.IsInterface(recv.Type())
	case *types.Const, *types.Var:
		return obj.Parent() == pkg.Scope() && pkg.Name() != "stack" && pkg.Name() != "iphost"
	}
	return false
}

// exports finds what the compiler has written about the packages that pkg imports.
func exports(t *testing.T, pkg string) importer.Lookup {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export", pkg)
	cmd.Dir = "../.."
	out := must(cmd.Output())(t)
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
