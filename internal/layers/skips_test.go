package layers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// No test skips itself by testing's own means: internal/skip knows where a skip is a failure. What
// rapid's Skip leaves out is a draw, not a test.
func TestSkipsGoThroughTheirPackage(t *testing.T) {
	const root = "../.."
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name == "build" || name == "internal/skip" || name != "." &&
				strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		files++
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, p := range directSkips(f) {
			t.Errorf("%s:%d: call internal/skip instead", name, fset.Position(p).Line)
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, files, 500)
}

// directSkips are the places in f that call, or take, a method Skip, Skipf or SkipNow of anything
// but a *rapid.T.
func directSkips(f *ast.File) (at []token.Pos) {
	called := map[ast.Node]bool{}
	var look func(n ast.Node, drawing map[string]bool)
	look = func(n ast.Node, drawing map[string]bool) {
		ast.Inspect(n, func(x ast.Node) bool {
			switch x := x.(type) {
			case *ast.FuncLit:
				look(x.Body, rapidParams(x.Type, drawing))
				return false
			case *ast.CallExpr:
				called[x.Fun] = true
			case *ast.SelectorExpr:
				switch x.Sel.Name {
				case "Skip", "Skipf", "SkipNow":
				default:
					return true
				}
				id, plain := x.X.(*ast.Ident)
				if called[x] && !(plain && drawing[id.Name]) {
					at = append(at, x.Pos())
				}
			}
			return true
		})
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			look(fn.Body, rapidParams(fn.Type, nil))
		}
	}
	return at
}

// rapidParams are the names, among outer's and a function's parameters, that are a *rapid.T.
func rapidParams(ft *ast.FuncType, outer map[string]bool) map[string]bool {
	names := maps.Clone(outer)
	if names == nil {
		names = map[string]bool{}
	}
	for _, p := range ft.Params.List {
		is := false
		if star, ok := p.Type.(*ast.StarExpr); ok {
			sel, ok := star.X.(*ast.SelectorExpr)
			is = ok && fmt.Sprint(sel.X) == "rapid" && sel.Sel.Name == "T"
		}
		for _, n := range p.Names {
			names[n.Name] = is
		}
	}
	return names
}

func TestDirectSkips(t *testing.T) {
	for body, want := range map[string]int{
		`func A(t *testing.T) { t.Skip("x") }`:                                                 1,
		`func A(t *testing.T) { t.Run("", func(u *testing.T) { u.Skipf("x"); t.SkipNow() }) }`: 2,
		`func A(r *rig) { r.t.Skip() }`:                                                        1,
		`func A(t *rapid.T) { t.Skip() }`:                                                      0,
		`func A(t *testing.T) { rapid.Check(t, func(t *rapid.T) { t.Skip() }) }`:               0,
		`func A(t *rapid.T) { f(func(t *testing.T) { t.Skip() }) }`:                            1,
		`func A(t *testing.T) { if s.Skip != 0 { skip.Missing(t, "x") } }`:                     0,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "a.go", "package a\n"+body,
			parser.SkipObjectResolution)
		require.NoError(t, err)
		require.Len(t, directSkips(f), want, body)
	}
}
