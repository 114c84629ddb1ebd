package layers

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// layerTable has the number of each package or folder that ARCHITECTURE.md's table names.
type layerTable map[string]int

// of is the number of a package: its own, or that of the nearest folder above it. ok is false for
// packages that exist for tests alone.
func (l layerTable) of(name string) (n int, ok bool) {
	for ; name != "."; name = path.Dir(name) {
		if n, ok = l[name]; ok {
			return n, true
		}
	}
	return 0, false
}

// architecture is the table as ARCHITECTURE.md has it. code has all of our packages.
func architecture(t *testing.T, code map[string][]string) layerTable {
	t.Helper()
	text := must(os.ReadFile("../../ARCHITECTURE.md"))(t)
	table, wrong := parseLayers(string(text), func(name string) bool {
		for p := range code {
			if p == name || strings.HasPrefix(p, name+"/") {
				return true
			}
		}
		// a module apart has no place in the table
		_, err := os.Stat(filepath.Join("../..", filepath.FromSlash(name), "go.mod"))
		return err == nil
	})
	require.Empty(t, wrong)
	require.Greater(t, len(table), 30)
	for name := range code {
		if _, ok := table.of(name); !ok && !forTests(name) {
			t.Errorf("ARCHITECTURE.md gives %s no layer", name)
		}
	}
	return table
}

// forTests says whether a package exists for tests alone.
func forTests(name string) bool {
	switch folder(name) {
	case "test", "internal/docs", "internal/layers", "internal/mutants", "internal/netlab",
		"internal/register", "internal/sample", "internal/skip", "internal/testhost",
		"internal/testnic":
		return true
	}
	return false
}

// folder is the folder of the root that a package is in, or that of internal.
func folder(name string) string {
	first, rest, _ := strings.Cut(name, "/")
	if first == "internal" {
		second, _, _ := strings.Cut(rest, "/")
		return first + "/" + second
	}
	return first
}

var (
	layerRow   = regexp.MustCompile(`(?m)^\| ([0-9][0-9, ]*) \| (.*) \|$`)
	inSpan     = regexp.MustCompile("`([^`]*)`")
	documented = regexp.MustCompile(`\[[^\]]*\]\([^)]*\)`)
)

// parseLayers reads the rows "| number | `package`: ..., `folder`: `package`, ... |". A name is of
// the repository's root, or of the last folder or package of the row that was. A row of several
// numbers names as many packages.
func parseLayers(text string, exists func(string) bool) (table layerTable, wrong []string) {
	table = layerTable{}
	for _, row := range layerRow.FindAllStringSubmatch(text, -1) {
		var names []string
		above := ""
		for _, span := range inSpan.FindAllStringSubmatch(documented.ReplaceAllString(row[2], ""), -1) {
			name := span[1]
			switch {
			case exists(name):
				above = name
			case above != "" && exists(above+"/"+name):
				name = above + "/" + name
			default:
				wrong = append(wrong, fmt.Sprintf("layer %s: %s is no package", row[1], name))
				continue
			}
			names = append(names, name)
		}
		numbers := strings.Split(row[1], ", ")
		if len(numbers) > 1 && len(numbers) != len(names) {
			wrong = append(wrong, fmt.Sprintf("layers %s are of %d packages", row[1], len(names)))
			continue
		}
		for i, name := range names {
			n, err := strconv.Atoi(numbers[min(i, len(numbers)-1)])
			if err != nil {
				wrong = append(wrong, err.Error())
			}
			if had, twice := table[name]; twice {
				wrong = append(wrong, fmt.Sprintf("%s is in layers %d and %d", name, had, n))
			}
			table[name] = n
		}
	}
	return table, wrong
}

// upwardImports are imports that do not point down. A package imports packages of smaller
// numbers, or of its own number and the same folder of the root or of internal: a driver imports
// pmd, a tool what is common to tools. Its tests import nothing of a larger number. What exists
// for tests alone counts there as the highest package that it imports, and nothing else imports
// it.
func upwardImports(table layerTable, code, tests map[string][]string) (wrong []string) {
	var height func(name string) int
	height = func(name string) int {
		if n, ok := table.of(name); ok {
			return n
		}
		n := 0
		for _, imp := range code[name] {
			n = max(n, height(imp))
		}
		return n
	}
	for name, imports := range code {
		n, ok := table.of(name)
		if !ok {
			continue
		}
		for _, imp := range imports {
			switch m, ok := table.of(imp); {
			case !ok:
				wrong = append(wrong, fmt.Sprintf("%s imports %s, which exists for tests", name, imp))
			case m > n || m == n && folder(name) != folder(imp):
				wrong = append(wrong, fmt.Sprintf("%s of layer %d imports %s of layer %d", name, n, imp, m))
			}
		}
		for _, imp := range tests[name] {
			if m := height(imp); m > n {
				wrong = append(wrong, fmt.Sprintf("a test of %s of layer %d imports %s of layer %d",
					name, n, imp, m))
			}
		}
	}
	slices.SortFunc(wrong, cmp.Compare[string])
	return wrong
}

func TestUpwardImports(t *testing.T) {
	table := layerTable{"mem": 1, "tcp": 1, "pmd": 2, "mpa": 2, "internal/mpa": 2, "rnic": 7}
	rig := map[string][]string{"internal/rig": {"rnic"}, "internal/skip": nil}
	for name, row := range map[string]struct {
		imports, tests []string // of pmd/wire
		want           []string
	}{
		"down": {[]string{"mem", "pmd"}, []string{"tcp", "mpa", "internal/skip"}, nil},
		"beside": {[]string{"mpa"}, nil,
			[]string{"pmd/wire of layer 2 imports mpa of layer 2"}},
		"of another folder": {[]string{"internal/mpa"}, nil,
			[]string{"pmd/wire of layer 2 imports internal/mpa of layer 2"}},
		"up": {[]string{"rnic"}, nil,
			[]string{"pmd/wire of layer 2 imports rnic of layer 7"}},
		"for tests": {[]string{"internal/skip"}, nil,
			[]string{"pmd/wire imports internal/skip, which exists for tests"}},
		"up in a test": {nil, []string{"rnic"},
			[]string{"a test of pmd/wire of layer 2 imports rnic of layer 7"}},
		"up through a helper": {nil, []string{"internal/rig"},
			[]string{"a test of pmd/wire of layer 2 imports internal/rig of layer 7"}},
		"tests of what exists": {nil, []string{"pmd/wire"}, nil},
	} {
		code := map[string][]string{"pmd/wire": row.imports, "internal/rig": rig["internal/rig"],
			"internal/skip": nil}
		require.Equal(t, row.want,
			upwardImports(table, code, map[string][]string{"pmd/wire": row.tests, "internal/rig": {"rnic"}}),
			name)
	}
}

func TestParseLayers(t *testing.T) {
	exists := func(name string) bool {
		return slices.Contains([]string{"mem", "pmd", "pmd/wire", "internal/tools", "internal/tools/perf",
			"rnic", "rnic/internal/qp"}, name)
	}
	for name, row := range map[string]struct {
		text  string
		table layerTable
		wrong []string
	}{
		"rows": {
			"| layer | packages |\n|---|---|\n| 0 | `mem`: [ADR `x`](y) |\n| 2 | `pmd`: a; `wire`. " +
				"`internal/tools`: `perf` |\n",
			layerTable{"mem": 0, "pmd": 2, "pmd/wire": 2, "internal/tools": 2, "internal/tools/perf": 2},
			nil,
		},
		"several": {"| 5, 7 | `rnic/internal/qp`; `rnic`: verbs |\n",
			layerTable{"rnic/internal/qp": 5, "rnic": 7}, nil},
		"too few":    {"| 5, 7 | `rnic` |\n", layerTable{}, []string{"layers 5, 7 are of 1 packages"}},
		"no package": {"| 1 | `memory` |\n", layerTable{}, []string{"layer 1: memory is no package"}},
		"twice": {"| 1 | `mem` |\n| 2 | `mem` |\n", layerTable{"mem": 2},
			[]string{"mem is in layers 1 and 2"}},
	} {
		table, wrong := parseLayers(row.text, exists)
		require.Equal(t, row.table, table, name)
		require.Equal(t, row.wrong, wrong, name)
	}
	n, ok := layerTable{"internal/tools": 9}.of("internal/tools/perf/pair")
	require.True(t, ok)
	require.Equal(t, 9, n)
	_, ok = layerTable{"internal/tools": 9}.of("internal/skip")
	require.False(t, ok)
}
