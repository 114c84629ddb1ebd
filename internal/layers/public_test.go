package layers

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// engine are the packages that are no public way to what this module does. The public ways are
// rnic, rsocket and stream; what an embedder makes a Poller of: stack (its Config, Counters and
// errors), pmd with its drivers, hugepages; and what tools share.
var engine = []string{"internal/crc32c", "ddp", "internal/inet", "mem", "mpa",
	"rdmap", "tcp", "internal/cc"}

// needed are the imports of engine packages that tools and examples have all the same: importer,
// imported, and why no public way does.
var needed = map[[2]string]string{
	{"internal/port", "mem"}: "stack.Config.Pool, the packet buffers of a Poller, is " +
		"a mem.Pool",
	{"internal/port", "internal/inet"}: "stack.Config has an inet.MAC and inet.Routes, and " +
		"AddrStatus a MAC",
	{"internal/port", "tcp"}:          "stack.Config.TCP is a tcp.Config",
	{"internal/port/portfile", "tcp"}: "a file names tcp.Config.Congestion",

	{"internal/daemon", "internal/inet"}: "port.Reporter is told of an inet.MAC",

	{"cmd/rnicd", "internal/inet"}: "stack.AddrStatus has an inet.MAC",
	{"cmd/rnicd", "tcp"}:           "a flag names tcp.Config.Congestion",
	{"cmd/rnicd", "mem"}: "the two ends of a demo's cable that copies nothing share " +
		"packet buffers",
}

// outside says whether a package uses this module as an embedder would: a tool, the daemon, a whole
// program of the documents.
func outside(name string) bool {
	switch folder(name) {
	case "rsocket", "cmd", "docs", "internal/daemon", "internal/port", "internal/tools":
		return true
	}
	return false
}

// engineImports are the sentences that there are to say about imports: an engine package that is
// imported without need, and a need that nothing has any more. imports has for each tool (a
// package) and each example (a file) what of ours it imports.
func engineImports(imports map[string][]string, needed map[[2]string]string) (wrong []string) {
	used := map[[2]string]bool{}
	for who, all := range imports {
		for _, imp := range all {
			if !slices.Contains(engine, imp) {
				continue
			}
			pair := [2]string{who, imp}
			used[pair] = true
			if needed[pair] == "" {
				wrong = append(wrong, fmt.Sprintf("%s imports %s, which is no public way: use rnic's names "+
					"or stack's, or say in needed why not", who, imp))
			}
		}
	}
	for pair := range needed {
		if !used[pair] {
			wrong = append(wrong, fmt.Sprintf("%s imports %s no more: take it out of needed",
				pair[0], pair[1]))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// Tools and examples are written as an embedder's programs would be: over the public ways.
func TestToolsUsePublicWays(t *testing.T) {
	imports := map[string][]string{}
	add := func(who, path string) {
		if ours, found := strings.CutPrefix(path, module); found && !slices.Contains(imports[who], ours) {
			imports[who] = append(imports[who], ours)
		}
	}
	for _, tags := range []string{"-tags=", "-tags=dpdk"} {
		for _, p := range list(t, tags, "./...") {
			if name := strings.TrimPrefix(p.ImportPath, module); outside(name) {
				for _, imp := range p.Imports {
					add(name, imp)
				}
			}
		}
	}
	tools := len(imports)
	require.Greater(t, tools, 5)
	const root = "../.."
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (d.Name() == "build" || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !isExample(d.Name()):
			return nil
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range f.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			add(name, imp)
			if folder(name) != "cmd" && strings.HasPrefix(imp, module) &&
				strings.Contains(imp, "/internal/") {
				t.Errorf("%s imports %s, which a user's program cannot", name, imp)
			}
		}
		return nil
	}))
	require.Greater(t, len(imports), tools+5, "examples")
	require.Empty(t, engineImports(imports, needed))
}

// isExample says whether a file of this name has examples, as example_srq_test.go or
// each_example_test.go.
func isExample(name string) bool {
	stem, test := strings.CutSuffix(name, "_test.go")
	return test && (strings.HasPrefix(stem, "example") || strings.HasSuffix(stem, "example"))
}

func TestEngineImports(t *testing.T) {
	why := map[[2]string]string{{"cmd/a", "mem"}: "there is no other"}
	for name, row := range map[string]struct {
		imports map[string][]string
		want    []string
	}{
		"public ways": {map[string][]string{"cmd/a": {"mem", "rnic", "stack"},
			"internal/tools/b": {"rnic", "internal/tools/peer"}}, nil},
		"engine": {map[string][]string{"cmd/a": {"mem"}, "internal/tools/b": {"internal/cc"}},
			[]string{"internal/tools/b imports internal/cc, "}},
		"another's need": {map[string][]string{"cmd/a": {"mem"}, "internal/tools/b": {"mem"}},
			[]string{"internal/tools/b imports mem, "}},
		"no need": {map[string][]string{"cmd/a": {"rnic"}},
			[]string{"cmd/a imports mem no more: "}},
	} {
		got := engineImports(row.imports, why)
		require.Len(t, got, len(row.want), name)
		for i, want := range row.want {
			require.Contains(t, got[i], want, name)
		}
	}
	require.True(t, outside("internal/tools/perf/pair") && outside("rsocket") && outside("cmd/rnicd"))
	require.False(t, outside("rnic") || outside("bench") || outside("internal/sim"))
	require.True(t, isExample("example_test.go") && isExample("example_srq_test.go") &&
		isExample("each_example_test.go"))
	require.False(t, isExample("examples.go") || isExample("qp_test.go"))
}
