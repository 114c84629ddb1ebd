package rnic

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// No exported name of this package is made of a type that belongs to the layers below: a program
// that imports rnic needs neither mpa, ddp nor rdmap, and of mem the Pools that Pollers take.
// STag is mem's under this package's name: it stands in ring entries, and is a number.
func TestNothingOfTheLayersBelowIsExported(t *testing.T) {
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var found []string
	exported := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			for name, parts := range interfaceOf(d) {
				exported++
				for _, p := range parts {
					if inner := ofLayersBelow(p); inner != "" && name != "STag" && name != "MPAError" {
						found = append(found, name+" has "+inner)
					}
				}
			}
		}
	}
	require.Greater(t, exported, 150, "declarations that were looked at")
	require.Empty(t, found)
}

// interfaceOf is what a declaration shows to other packages, by exported name.
func interfaceOf(d ast.Decl) map[string][]ast.Node {
	shown := map[string][]ast.Node{}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))) {
			shown[d.Name.Name] = []ast.Node{d.Type}
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					shown[s.Name.Name] = visible(s.Type)
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if n.IsExported() && s.Type != nil {
						shown[n.Name] = []ast.Node{s.Type}
					} else if n.IsExported() && d.Tok == token.CONST { // its value's type
						for _, v := range s.Values {
							shown[n.Name] = append(shown[n.Name], v)
						}
					}
				}
			}
		}
	}
	return shown
}

func receiver(d *ast.FuncDecl) string {
	t := d.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	id, _ := t.(*ast.Ident)
	return id.Name
}

// visible are the parts of a type: of a struct the exported and the embedded fields.
func visible(t ast.Expr) (parts []ast.Node) {
	s, ok := t.(*ast.StructType)
	if !ok {
		return []ast.Node{t}
	}
	for _, f := range s.Fields.List {
		show := len(f.Names) == 0
		for _, n := range f.Names {
			show = show || n.IsExported()
		}
		if show {
			parts = append(parts, f.Type)
		}
	}
	return parts
}

func ofLayersBelow(n ast.Node) (found string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok && len(c.Args) == 1 { // a conversion to a type of this package
			if id, ok := c.Fun.(*ast.Ident); ok && id.IsExported() {
				return false
			}
		}
		if s, ok := n.(*ast.SelectorExpr); ok {
			switch id, _ := s.X.(*ast.Ident); {
			case id == nil:
			case id.Name == "mpa" || id.Name == "ddp" || id.Name == "rdmap" || id.Name == "mem":
				found = id.Name + "." + s.Sel.Name
			}
		}
		return true
	})
	return found
}

// Each function that makes or uses an object of the Adapter says which goroutines may call it.
func TestCallersAreNamed(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() || fn.Recv == nil || strings.HasSuffix(receiver(fn), "Error") {
				continue
			}
			if _, pointer := fn.Recv.List[0].Type.(*ast.StarExpr); pointer {
				require.Regexp(t, "goroutine", fn.Doc.Text(), "%s of %s", fn.Name.Name, receiver(fn))
			}
		}
	}
}

// Each of the Receiver's counts comes out, under one name, and no other does.
func TestReceiveStats(t *testing.T) {
	var in mpa.ReceiverStats
	want := map[uint64]string{}
	for v, i := reflect.ValueOf(&in).Elem(), 0; i < v.NumField(); i++ {
		v.Field(i).SetUint(uint64(100 + i))
		want[uint64(100+i)] = v.Type().Field(i).Name
	}
	got := map[uint64]string{}
	out := receiveStats(in)
	for v, i := reflect.ValueOf(out), 0; i < v.NumField(); i++ {
		got[v.Field(i).Uint()] = v.Type().Field(i).Name
	}
	for n, name := range want {
		if name == "RefusedRuns" {
			want[n] = "RefusedOutOfOrderRuns"
		}
	}
	require.Equal(t, want, got)
}

// What the peer's Terminate said comes out as numbers, too.
func TestPeerErrorNumbers(t *testing.T) {
	said := &qp.PeerError{Terminate: rdmap.Terminate{Cause: rdmap.NewCause(1, 2, 3)}}
	err := publicError(&qp.TerminateError{Remote: true, Cause: said})
	var e *PeerError
	require.ErrorAs(t, err, &e)
	require.Equal(t, []uint8{1, 2, 3}, []uint8{e.Layer, e.Type, e.Code})
	require.Equal(t, said.Terminate.String(), e.Error())
}

// Names of the values that are numbers here and elsewhere.
func TestNumbersAreMPAs(t *testing.T) {
	for d := Culley02; d <= RFC6581; d++ {
		require.True(t, d.Valid())
		parsed, err := ParseDialect(d.String())
		require.NoError(t, err)
		require.Equal(t, d, parsed)
		require.Equal(t, mpa.Dialect(d).PrivateDataMax(), d.PrivateDataMax())
	}
	require.Equal(t, []Dialect{RDDP01, RFC6581}, listOf(setOf(RFC6581, RDDP01)))
	require.Equal(t, mpa.AllRTR, mpa.RTRKinds(RTRSend|RTRWrite|RTRRead))
	require.Equal(t, mpa.AllRTR.String(), (RTRSend | RTRWrite | RTRRead).String())
	require.Equal(t, mpa.DepthMax, ReadDepthMax)
	require.Equal(t, mpa.DepthULP, ReadDepthULP)
}
