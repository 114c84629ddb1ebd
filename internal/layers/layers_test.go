// Package layers holds the import table of ARCHITECTURE.md: imports point down only.
package layers

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/rnicd/rnicd/"

// allowed says which of our packages a package imports, with and without DPDK's driver. A package
// that is not here, an import that is not, and one that is here and not made fail the test: decide
// first. Each goes to a lower layer of ARCHITECTURE.md's table (numbers_test.go).
var allowed = map[string][]string{
	"hugepages":            {"internal/cgroup"},
	"internal/cgroup":      {},
	"internal/inet":        {},
	"internal/awake":       {},
	"internal/crc32c":      {},
	"internal/cc":          {},
	"internal/flight":      {},
	"internal/sim/ccmodel": {},
	"internal/unixsock":    {},
	"internal/owned":       {},
	"internal/lossy":       {},
	"internal/printable":   {},
	"internal/wq":          {},
	"internal/waiting":     {},
	"internal/rouse":       {"internal/owned"},
	"internal/programs":    {"internal/awake", "internal/owned", "internal/unixsock"},
	"internal/conf":        {},

	"mem":             {"hugepages", "internal/wq"},
	"tcp":             {"internal/inet", "internal/cc", "internal/flight"},
	"internal/iphost": {"internal/inet"},

	"pmd":                     {"mem", "hugepages"},
	"pmd/wire":                {"pmd", "mem"},
	"pmd/tap":                 {"pmd", "mem"},
	"pmd/dpdk":                {"pmd", "mem", "hugepages"},
	"pmd/memif":               {"internal/awake", "pmd", "mem", "hugepages", "internal/unixsock"},
	"internal/fault":          {"pmd", "mem", "internal/inet"},
	"internal/capture":        {"pmd", "mem", "internal/capture/filter"},
	"internal/capture/filter": {},
	"mpa":                     {"mem", "internal/crc32c"},
	"ddp":                     {"mem", "internal/wq"},

	"internal/sim/linksim": {"tcp"},

	"internal/vswitch": {"pmd", "pmd/memif", "pmd/wire", "mem", "internal/inet", "hugepages"},
	"stack": {"hugepages", "pmd", "mem", "internal/inet", "internal/iphost", "internal/rouse",
		"internal/waiting", "tcp", "internal/flight"},
	"stream": {"internal/awake", "stack", "tcp", "mem"},
	"rdmap":  {"ddp"},

	"rnic/internal/transport": {"internal/awake", "internal/owned", "internal/rouse",
		"internal/waiting", "stream", "stack", "mem", "internal/inet", "hugepages", "internal/flight"},
	"rnic/internal/qp": {"internal/wq", "mpa", "ddp", "rdmap", "mem"},
	"rnic/internal/connect": {"internal/awake", "internal/wq", "rnic/internal/qp",
		"rnic/internal/transport", "mpa", "stream", "stack", "mem", "internal/flight"},
	"rnic": {"internal/wq", "rnic/internal/connect", "rnic/internal/qp",
		"rnic/internal/transport", "stack", "mpa", "ddp", "mem", "hugepages",
		"internal/flight"},

	"rsocket":             {"internal/awake", "rnic"},
	"verbs":               {},
	"verbs/internal/ring": {},
	"verbs/internal/engine": {"internal/wq", "internal/awake", "rnic", "stack", "mem",
		"internal/inet", "internal/lossy", "internal/owned", "internal/waiting",
		"verbs/internal/ring",
		"internal/printable"},
	"internal/sim": {"rnic", "rdmap", "ddp", "mpa", "stack", "tcp",
		"internal/inet", "mem", "hugepages", "pmd", "pmd/wire", "internal/fault"},
	"internal/port": {"internal/awake", "rnic", "stack", "tcp", "internal/inet",
		"mem", "hugepages", "pmd", "pmd/tap", "pmd/dpdk", "pmd/memif", "internal/fault",
		"internal/capture"},
	"internal/port/portfile":  {"internal/conf", "internal/port", "internal/fault", "stack", "tcp"},
	"internal/daemon/control": {"internal/awake", "internal/unixsock"},
	"internal/status":         {"pmd", "rnic", "stack", "stream"},
	"internal/report": {"internal/cgroup", "internal/inet", "internal/port", "internal/status",
		"pmd/dpdk", "rnic", "stack", "stream"},
	"internal/daemon/metrics": {"internal/daemon/control", "internal/status", "pmd",
		"internal/vswitch"},
	"internal/daemon/top": {"internal/daemon/control", "internal/status",
		"internal/printable", "rnic"},
	"internal/daemon/config": {"internal/conf", "internal/daemon/control", "internal/port",
		"internal/port/portfile", "rnic", "internal/tools/bytestream",
		"internal/tools/perf/pair", "internal/vswitch"},
	"internal/daemon": {"internal/awake", "internal/conf", "internal/daemon/config",
		"internal/port/portfile",
		"internal/daemon/control", "internal/daemon/metrics", "internal/port", "internal/report",
		"internal/status",
		"hugepages", "internal/inet", "internal/lossy", "pmd",
		"internal/capture", "internal/capture/filter", "pmd/dpdk", "rnic", "stack", "stream",
		"internal/tools/bytestream", "internal/tools/peer",
		"internal/tools/perf/pair", "internal/tools/xfer"},
	"internal/daemon/doctor": {"internal/port/portfile", "internal/daemon/config",
		"internal/daemon/control", "internal/port",
		"internal/status", "hugepages", "internal/cgroup", "pmd", "internal/capture", "pmd/memif"},
	"internal/daemon/cdi": {"internal/daemon/config", "internal/port", "internal/vswitch"},
	"internal/daemon/command": {"internal/conf", "internal/daemon", "internal/daemon/config",
		"internal/daemon/control", "internal/daemon/doctor", "internal/port", "internal/status",
		"internal/daemon/top", "internal/capture", "internal/lossy",
		"internal/printable", "internal/programs"},
	"internal/daemon/switchd": {"internal/awake", "internal/conf", "internal/daemon",
		"internal/daemon/config",
		"internal/daemon/control", "internal/daemon/metrics", "internal/port", "internal/report",
		"internal/status",
		"hugepages", "internal/lossy", "internal/waiting", "pmd", "pmd/memif", "internal/vswitch"},
	"verbs/cshared": {"rnic", "stack", "internal/awake", "internal/port/portfile", "internal/port",
		"internal/lossy", "internal/printable", "internal/programs", "internal/report",
		"internal/status", "verbs/internal/engine"},
	"cmd": {"internal/daemon/command"},
	"cmd/rnicd": {"internal/awake", "internal/daemon", "internal/daemon/cdi",
		"internal/daemon/command",
		"internal/daemon/config", "internal/port/portfile", "internal/port",
		"internal/daemon/switchd", "hugepages", "internal/inet", "internal/lossy", "mem", "pmd",
		"pmd/dpdk", "internal/fault", "pmd/memif",
		"pmd/tap", "pmd/wire", "rnic", "stack", "stream", "tcp",
		"internal/tools/bytestream", "internal/tools/peer",
		"internal/tools/perf", "internal/tools/perf/pair",
		"internal/tools/xfer", "internal/printable"},
	"internal/tools/peer":       {"internal/awake", "rnic", "internal/printable"},
	"internal/tools/xfer":       {"internal/awake", "internal/tools/peer", "rnic"},
	"internal/tools/bytestream": {"stream"},
	"internal/tools/perf":       {"internal/tools/peer", "rnic", "hugepages"},
	"internal/tools/perf/pair": {"internal/awake", "internal/tools/perf",
		"internal/tools/peer", "rnic"},
	"bench":       {},
	"bench/plot":  {},
	"bench/yard":  {"bench/plot"},
	"bench/floor": {"bench/yard", "internal/crc32c", "mem"},
	"internal/analysis": {"bench/plot", "rnic", "stack", "tcp", "internal/cc",
		"internal/inet", "ddp", "mpa", "mem", "hugepages", "pmd/wire"},
	"bench/peers/measure": {},
	"bench/peers/ours": {"bench/peers/measure", "stream", "stack", "tcp", "internal/inet",
		"mem", "hugepages", "pmd/tap"},
	"bench/peers/kernel":  {"bench/peers/measure"},
	"bench/peers/compare": {"bench/peers/measure"},
	"internal/layers":     {},
	// imported by tests only
	"internal/netlab": {"internal/skip"},
	// imported by tests only
	"internal/sample": {},
	// imported by tests only
	"internal/skip": {},
	// imported by tests only
	"internal/testnic": {"rnic", "internal/testhost", "stack", "pmd/wire"},
	// imported by tests only
	"internal/testhost": {"stack", "internal/inet", "pmd", "mem", "hugepages"},

	"docs/examples/embed": {"rnic"},
	"docs/examples/tap":   {"pmd/tap", "rnic", "stack", "stream"},

	"test/interop":       {},
	"test/interop/guest": {"test/interop/image"},
	"test/interop/image": {},

	"internal/docs":           {},
	"internal/mutants":        {},
	"internal/register":       {},
	"internal/register/trace": {"internal/register"},
}

type pkg struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
	Error                              *struct{ Err string }
}

// listed are the results of list so far, by its arguments.
var listed = map[string][]pkg{}

// list is go list, once for the same arguments.
func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	key := strings.Join(args, " ")
	if pkgs, ok := listed[key]; ok {
		return pkgs
	}
	cmd := exec.Command(
		"go", append([]string{"list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports,Error"},
			args...)...)
	cmd.Dir = "../.."
	out := must(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	var pkgs []pkg
	dec := json.NewDecoder(out)
	for {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		pkgs = append(pkgs, p)
	}
	require.NoError(t, cmd.Wait())
	require.NotEmpty(t, pkgs)
	listed[key] = pkgs
	return pkgs
}

// imported are, for each of our packages, those that it imports and those that its tests import
// beyond, with the DPDK driver and without.
func imported(t *testing.T) (code, tests map[string][]string) {
	t.Helper()
	code, tests = map[string][]string{}, map[string][]string{}
	add := func(to map[string][]string, name string, paths []string) {
		for _, path := range paths {
			if ours, found := strings.CutPrefix(path, module); found && ours != name &&
				!slices.Contains(to[name], ours) {
				to[name] = append(to[name], ours)
			}
		}
	}
	for _, tags := range []string{"-tags=", "-tags=dpdk"} {
		for _, p := range list(t, tags, "./...") {
			if p.ImportPath+"/" == module { // which is a doc.go
				require.Empty(t, append(append(p.Imports, p.TestImports...), p.XTestImports...))
				continue
			}
			name := strings.TrimPrefix(p.ImportPath, module)
			code[name] = append(code[name], []string{}...)
			add(code, name, p.Imports)
			add(tests, name, p.TestImports)
			add(tests, name, p.XTestImports)
		}
	}
	return code, tests
}

// A package imports what its row says, all of it and nothing else.
func TestImportTable(t *testing.T) {
	code, _ := imported(t)
	require.Empty(t, differences(code, allowed))
}

// differences says where imports and the table that allows them are not the same.
func differences(code, allowed map[string][]string) (wrong []string) {
	for name, imports := range code {
		may, ok := allowed[name]
		if !ok {
			wrong = append(wrong, name+" has no row in the import table")
			continue
		}
		for _, imp := range imports {
			if !slices.Contains(may, imp) {
				wrong = append(wrong, name+" must not import "+imp)
			}
		}
		for _, imp := range may {
			if !slices.Contains(imports, imp) {
				wrong = append(wrong, name+" does not import "+imp+": take it out of its row")
			}
		}
	}
	for name := range allowed {
		if _, ok := code[name]; !ok {
			wrong = append(wrong, name+" is no package: take its row out")
		}
	}
	slices.Sort(wrong)
	return wrong
}

func TestDifferences(t *testing.T) {
	table := map[string][]string{"mem": {}, "mpa": {"mem"}}
	for name, row := range map[string]struct {
		code map[string][]string
		want []string
	}{
		"as it says": {map[string][]string{"mem": nil, "mpa": {"mem"}}, nil},
		"one more": {map[string][]string{"mem": {"mpa"}, "mpa": {"mem"}},
			[]string{"mem must not import mpa"}},
		"one fewer": {map[string][]string{"mem": nil, "mpa": nil},
			[]string{"mpa does not import mem: take it out of its row"}},
		"no row": {map[string][]string{"mem": nil, "mpa": {"mem"}, "ddp": nil},
			[]string{"ddp has no row in the import table"}},
		"no package": {map[string][]string{"mem": nil}, []string{"mpa is no package: take its row out"}},
	} {
		require.Equal(t, row.want, differences(row.code, table), name)
	}
}

// Imports point down: to a smaller number in ARCHITECTURE.md. So mpa knows nothing of ddp.
//
// req: D01-11.1.1-2
func TestImportsPointDown(t *testing.T) {
	code, tests := imported(t)
	table := architecture(t, code)
	require.Empty(t, upwardImports(table, code, tests))
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}
