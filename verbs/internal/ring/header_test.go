package ring

import (
	"flag"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write rnicd_ring.h")

// rnicd_ring.h says in C what this package, wq and waiting say in Go.
func TestHeader(t *testing.T) {
	const name = "rnicd_ring.h"
	want := header(t)
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(want), 0o644))
	}
	have, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, want, string(have), "generate it: go test ./verbs/... -run TestHeader -update")
}

func header(t *testing.T) string {
	h := &generator{t: t, sizes: types.SizesFor("gc", "amd64")}
	h.line("/* Generated from Go, packages wq, ring and waiting, by their TestHeader. Do not edit. */")
	h.line("#ifndef RNICD_RING_H\n#define RNICD_RING_H\n\n#include <stdint.h>\n")
	h.add("../../../internal/wq", "op.go", "status.go", "sge.go", "wqe.go", "cqe.go")
	h.add(".", "ring.go")
	h.add("../../../internal/waiting", "program.go")
	h.line("#endif")
	return h.b.String()
}

// generator writes the constants and structs of Go packages in C, with their comments.
type generator struct {
	t     *testing.T
	b     strings.Builder
	sizes types.Sizes
	info  types.Info
}

func (h *generator) line(format string, args ...any) { fmt.Fprintf(&h.b, format+"\n", args...) }

// add writes what the files of a package declare. Imports are not looked at: what shared memory
// holds is made of the language's own types.
func (h *generator) add(dir string, names ...string) {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.ParseComments)
		require.NoError(h.t, err)
		files = append(files, f)
	}
	h.info = types.Info{Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Sizes: h.sizes, IgnoreFuncBodies: true, Importer: noImports{}}
	conf.Error = func(error) {} // imports that are not used
	_, _ = conf.Check(dir, fset, files, &h.info)
	for _, f := range files {
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
				h.constants(g)
			} else if ok && g.Tok == token.TYPE {
				h.structs(g)
			}
		}
	}
}

// constants writes a group as an enum, and what is no int of C by itself.
func (h *generator) constants(g *ast.GenDecl) {
	h.comment("", g.Doc)
	var large []string
	h.line("enum {")
	for _, s := range g.Specs {
		s := s.(*ast.ValueSpec)
		for _, id := range s.Names {
			v, exact := constant.Uint64Val(constant.ToInt(h.info.Defs[id].(*types.Const).Val()))
			require.True(h.t, exact, id.Name)
			name := "RV_" + strings.ToUpper(snake(id.Name))
			if v > math.MaxInt32 {
				large = append(large, fmt.Sprintf("#define %s %dull", name, v))
				continue
			}
			h.comment("\t", s.Doc)
			h.line("\t%s = %d,%s", name, v, trailing(s.Comment))
		}
	}
	h.line("};")
	for _, l := range large {
		h.line("%s", l)
	}
	h.line("")
}

func (h *generator) structs(g *ast.GenDecl) {
	for _, s := range g.Specs {
		s := s.(*ast.TypeSpec)
		st, ok := s.Type.(*ast.StructType)
		if !ok {
			continue
		}
		typ := h.info.Defs[s.Name].Type()
		requireNoPadding(h.t, h.sizes, s.Name.Name, typ.Underlying().(*types.Struct))
		h.comment("", g.Doc)
		h.line("struct rv_%s {", snake(s.Name.Name))
		pads, at := 0, 0
		for _, f := range st.Fields.List {
			h.comment("\t", f.Doc)
			for _, id := range f.Names {
				field := typ.Underlying().(*types.Struct).Field(at)
				at++
				name := snake(id.Name)
				if name == "_" {
					name = fmt.Sprintf("pad%d", pads)
					pads++
				}
				h.line("\t%s;%s", h.declare(field.Type(), name), trailing(f.Comment))
			}
		}
		h.line("};")
		size := h.sizes.Sizeof(typ)
		h.line("_Static_assert(sizeof(struct rv_%s) == %d, \"\");\n", snake(s.Name.Name), size)
	}
}

// declare declares name in C.
func (h *generator) declare(typ types.Type, name string) string {
	switch u := typ.Underlying().(type) {
	case *types.Array:
		return h.declare(u.Elem(), fmt.Sprintf("%s[%d]", name, u.Len()))
	case *types.Struct:
		return "struct rv_" + snake(typ.(*types.Named).Obj().Name()) + " " + name
	case *types.Basic:
		c, ok := map[types.BasicKind]string{
			types.Bool: "uint8_t", types.Uint8: "uint8_t", types.Uint16: "uint16_t",
			types.Int32: "int32_t", types.Uint32: "uint32_t", types.Uint64: "uint64_t",
		}[u.Kind()]
		require.True(h.t, ok, "%s is %v", name, typ)
		return c + " " + name
	}
	h.t.Fatalf("%s is %v", name, typ)
	return ""
}

// requireNoPadding fails where a struct has padding that it does not name: C may lay it out in
// another way.
func requireNoPadding(t *testing.T, sizes types.Sizes, name string, st *types.Struct) {
	fields := slices.Collect(st.Fields())
	sum := int64(0)
	for i, at := range sizes.Offsetsof(fields) {
		require.Equal(t, sum, at, "%s.%s", name, fields[i].Name())
		sum += sizes.Sizeof(fields[i].Type())
	}
	require.Equal(t, sum, sizes.Sizeof(st), name)
}

func (h *generator) comment(indent string, c *ast.CommentGroup) {
	if c == nil {
		return
	}
	lines := strings.Split(strings.TrimSpace(c.Text()), "\n")
	if len(lines) == 1 {
		h.line("%s/* %s */", indent, lines[0])
		return
	}
	h.line("%s/*", indent)
	for _, l := range lines {
		h.line("%s", strings.TrimRight(indent+" * "+l, " "))
	}
	h.line("%s */", indent)
}

func trailing(c *ast.CommentGroup) string {
	if c == nil {
		return ""
	}
	return " /* " + strings.TrimSpace(c.Text()) + " */"
}

// snake is a Go name in the style of C. An acronym keeps the s of its plural.
func snake(name string) string {
	name = strings.ReplaceAll(name, "STag", "Stag")
	upper := func(i int) bool { return i < len(name) && name[i] >= 'A' && name[i] <= 'Z' }
	lower := func(i int) bool { return i < len(name) && name[i] >= 'a' && name[i] <= 'z' }
	plural := func(i int) bool { return name[i] == 's' && !lower(i+1) }
	var b strings.Builder
	for i := range name {
		if i > 0 && upper(i) && (lower(i-1) || lower(i+1) && !plural(i+1)) {
			b.WriteByte('_')
		}
		b.WriteByte(name[i])
	}
	return strings.ToLower(b.String())
}

func TestSnake(t *testing.T) {
	for name, want := range map[string]string{
		"QPsMax":        "qps_max",
		"MRSizeMax":     "mr_size_max",
		"WakeFD":        "wake_fd",
		"RemoteSTag":    "remote_stag",
		"CQE":           "cqe",
		"CMEvent":       "cm_event",
		"OpFetchAdd":    "op_fetch_add",
		"SRQRangesMax":  "srq_ranges_max",
		"WithImmediate": "with_immediate",
		"ID":            "id",
		"SRQsMax":       "srqs_max",
		"QP":            "qp",
		"seq":           "seq",
		"_":             "_",
		"EntryLen":      "entry_len",
		"Calls":         "calls",
		"MWsMax":        "mws_max",
		"RemoteAccess":  "remote_access",
		"Success":       "success",
		"BadResponse":   "bad_response",
		"BindMW":        "bind_mw",
	} {
		require.Equal(t, want, snake(name), name)
	}
}

type noImports struct{}

func (noImports) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, filepath.Base(path))
	p.MarkComplete()
	return p, nil
}
