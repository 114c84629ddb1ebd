package rnic

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// sources are this package's files, parsed, as another package sees them: exported names alone.
func sources(t *testing.T) (files []*ast.File) {
	t.Helper()
	names := must(filepath.Glob("*.go"))
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			f := must(parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments))
			ast.FileExports(f)
			files = append(files, f)
		}
	}
	return files
}

// No exported name of this package is made of a type that belongs to the layers below: a program
// that imports rnic needs neither mpa, ddp nor rdmap, and of mem the Pools that Pollers take.
// STag is mem's under this package's name: it stands in ring entries, and is a number.
func TestNothingOfTheLayersBelowIsExported(t *testing.T) {
	var found []string
	selectors := 0
	inspect := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt: // of a function
			return false
		case *ast.GenDecl:
			for _, s := range n.Specs {
				if v, ok := s.(*ast.ValueSpec); ok && n.Tok == token.VAR {
					v.Values = nil
				}
			}
		case *ast.TypeSpec:
			return n.Name.Name != "STag" && n.Name.Name != "MPAError"
		case *ast.CallExpr: // a conversion to a type of this package
			id, ok := n.Fun.(*ast.Ident)
			return !ok || !id.IsExported()
		case *ast.SelectorExpr:
			selectors++
			id, _ := n.X.(*ast.Ident)
			if id != nil && slices.Contains([]string{"mpa", "ddp", "rdmap", "mem"}, id.Name) {
				found = append(found, id.Name+"."+n.Sel.Name)
			}
		}
		return true
	}
	for _, f := range sources(t) {
		ast.Inspect(f, inspect)
	}
	require.Greater(t, selectors, 50, "types that were looked at")
	require.Empty(t, found)
}

// Each function that makes or uses an object of the Adapter says which goroutines may call it.
func TestCallersAreNamed(t *testing.T) {
	for _, f := range sources(t) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				star, ok := fn.Recv.List[0].Type.(*ast.StarExpr)
				if ok && !strings.HasSuffix(fmt.Sprint(star.X), "Error") {
					require.Regexp(t, "goroutine", fn.Doc.Text(), "%s of %s", fn.Name.Name, star.X)
				}
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
		parsed := must(ParseDialect(d.String()))
		require.Equal(t, d, parsed)
		require.Equal(t, mpa.Dialect(d).PrivateDataMax(), d.PrivateDataMax())
	}
	require.Equal(t, []Dialect{RDDP01, RFC6581}, listOf(setOf(RFC6581, RDDP01)))
	require.Equal(t, mpa.AllRTR, mpa.RTRKinds(RTRSend|RTRWrite|RTRRead))
	require.Equal(t, mpa.AllRTR.String(), (RTRSend | RTRWrite | RTRRead).String())
	require.Equal(t, mpa.DepthMax, ReadDepthMax)
	require.Equal(t, mpa.DepthULP, ReadDepthULP)
}
