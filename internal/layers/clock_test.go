package layers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// clocked are the files below stack/ that read a clock or wait for one, and why.
var clocked = map[string]string{
	"internal/awake/awake.go":   "time limits of what waits elsewhere",
	"internal/rouse/wakeups.go": "the timer that ends a sleep",
	"pmd/memif/control.go":      "how long a peer may be silent on the control socket",
	"pmd/memif/client.go":       "when to try a server again",
	"pmd/memif/listener.go":     "when to listen again",
	"pmd/memif/barred.go":       "when a client whose memory went away may attach again",
	"pmd/memif/budget.go":       "how long memory of a peer that cannot be guarded holds up a queue",
	"pmd/dpdk/afxdp.go":         "how long the kernel takes to free a queue of AF_XDP that was closed",
	"pmd/dpdk/link.go":          "how often the link's state is asked for",
	"pmd/dpdk/port.go":          "how long the device's own threads have to end",
	"internal/capture/capture.go": "stamps of frames, unless Config.Clock is given; how often " +
		"frames are written",
}

// timeless says whether a package must not read a clock: time is an argument below stack and in
// virtual time, and an engine's connection is the one that waits.
func timeless(table layerTable, name string) bool {
	n, ok := table.of(name)
	return ok && n <= table["stack"] && name != "stack" || folder(name) == "internal/sim" ||
		name == "rnic/internal/qp"
}

// clocks are the functions that read a clock or wait for one, by the import path of their package.
var clocks = map[string][]string{
	"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick",
		"NewTimer", "NewTicker"},
	"syscall": {"Gettimeofday", "Time", "Nanosleep", "SYS_CLOCK_GETTIME",
		"SYS_GETTIMEOFDAY", "SYS_TIME"},
	"golang.org/x/sys/unix": {"ClockGettime", "Gettimeofday", "Time", "Nanosleep", "ClockNanosleep",
		"TimerfdCreate", "SYS_CLOCK_GETTIME", "SYS_GETTIMEOFDAY", "SYS_TIME"},
}

// clockReads are the places of f that read a clock. A dot import of such a package is one, and so
// is a link to a function of the runtime.
func clockReads(fset *token.FileSet, f *ast.File) (reads []string) {
	at := func(p token.Pos, what string) {
		reads = append(reads, fmt.Sprintf("%d: %s", fset.Position(p).Line, what))
	}
	names := map[string]string{}
	for _, spec := range f.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil || clocks[imp] == nil {
			continue
		}
		switch name := filepath.Base(imp); {
		case spec.Name == nil:
			names[name] = imp
		case spec.Name.Name == ".":
			at(spec.Pos(), "all of "+imp)
		default:
			names[spec.Name.Name] = imp
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok && slices.Contains(clocks[names[id.Name]], sel.Sel.Name) {
				at(sel.Pos(), id.Name+"."+sel.Sel.Name)
			}
		}
		return true
	})
	for _, group := range f.Comments {
		for _, c := range group.List {
			if words := strings.Fields(c.Text); len(words) == 3 && words[0] == "//go:linkname" &&
				strings.HasPrefix(words[2], "runtime.nano") {
				at(c.Pos(), words[2])
			}
		}
	}
	return reads
}

// Nothing below stack reads a clock, except what clocked names. Files of all systems and tags
// count.
func TestNoClockBelowStack(t *testing.T) {
	code, _ := imported(t)
	table := architecture(t, code)
	packages, need := 0, map[string]bool{}
	for name := range code {
		if !timeless(table, name) {
			continue
		}
		packages++
		paths := must(filepath.Glob(filepath.Join("../..", name, "*.go")))(t)
		for _, file := range paths {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			fset := token.NewFileSet()
			f := must(parser.ParseFile(fset, file, nil, parser.ParseComments|parser.SkipObjectResolution))(t)
			where := name + "/" + filepath.Base(file)
			reads := clockReads(fset, f)
			need[where] = len(reads) > 0
			if len(reads) > 0 && clocked[where] == "" {
				t.Errorf("%s reads a clock: %s", where, strings.Join(reads, ", "))
			}
		}
	}
	require.Greater(t, packages, 15)
	for where := range clocked {
		require.Truef(t, need[where], "%s reads no clock: take it out of clocked", where)
	}
}

func TestClockReads(t *testing.T) {
	for text, want := range map[string]int{
		`import "time"; var a = time.Now()`:                                  1,
		`import "time"; var a = 3 * time.Second; func f(d time.Duration) {}`: 0,
		`import x "time"; var a, b = x.Since(x.Time{}), x.After`:             2,
		`import . "time"`: 1,
		`import "golang.org/x/sys/unix"; var err = unix.ClockGettime(unix.CLOCK_REALTIME, nil)`: 1,
		`import "syscall"; var err = syscall.Gettimeofday(nil)`:                                 1,
		"import _ \"unsafe\"\n//go:linkname now runtime.nanotime\nfunc now() int64":             1,
		`var time struct{ Now int }; var a = time.Now`:                                          0,
	} {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "a.go", "package a\n"+text,
			parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		require.Len(t, clockReads(fset, f), want, text)
	}
	table := layerTable{"internal/cc": 0, "pmd": 2, "stack": 3, "rdmap": 3, "stream": 4,
		"internal/sim": 8}
	for name, want := range map[string]bool{"internal/cc": true, "pmd/wire": true,
		"rdmap": true, "internal/sim/linksim": true, "stack": false,
		"stream": false, "internal/skip": false} {
		require.Equal(t, want, timeless(table, name), name)
	}
}
