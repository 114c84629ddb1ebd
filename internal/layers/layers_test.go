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
	"hugepages":        {"hugepages/cgroup"},
	"hugepages/cgroup": {},
	"inet":             {},
	"awake":            {},
	"crc32c":           {},
	"tcp/cc":           {},
	"flight":           {},
	"sim/ccmodel":      {},
	"unixsock":         {},
	"lossy":            {},
	"printable":        {},
	"internal/wq":      {},

	"mem": {"hugepages", "internal/wq"},
	"tcp": {"inet", "tcp/cc", "flight"},

	"pmd":                {"mem"},
	"pmd/wire":           {"pmd", "mem"},
	"pmd/tap":            {"pmd", "mem"},
	"pmd/dpdk":           {"pmd", "mem", "hugepages"},
	"pmd/memif":          {"awake", "pmd", "mem", "hugepages", "unixsock"},
	"pmd/fault":          {"pmd", "mem", "inet"},
	"pmd/capture":        {"pmd", "mem", "pmd/capture/filter"},
	"pmd/capture/filter": {},
	"mpa":                {"mem", "crc32c"},
	"ddp":                {"mem", "internal/wq"},

	"sim/linksim": {"tcp"},

	"vswitch": {"pmd", "pmd/memif", "pmd/wire", "mem", "inet", "hugepages"},
	"stack":   {"pmd", "mem", "inet", "tcp", "tcp/cc", "flight"},
	"stream":  {"awake", "stack", "tcp", "tcp/cc", "mem"},
	"rdmap":   {"ddp"},

	"rnic/internal/transport": {"awake", "stream", "stack", "mem", "inet", "hugepages", "flight"},
	"rnic/internal/qp":        {"internal/wq", "mpa", "ddp", "rdmap", "mem"},
	"rnic/internal/connect":   {"awake", "internal/wq", "rnic/internal/qp", "rnic/internal/transport", "mpa", "stream", "stack", "mem", "flight"},
	"rnic":                    {"internal/wq", "rnic/internal/connect", "rnic/internal/qp", "rnic/internal/transport", "stack", "mpa", "ddp", "mem", "hugepages", "flight"},

	"rsocket":             {"awake", "rnic"},
	"verbs":               {},
	"verbs/ring":          {},
	"verbs/engine":        {"awake", "rnic", "stack", "mem", "inet", "lossy", "verbs/ring", "printable"},
	"sim":                 {"rnic", "rdmap", "ddp", "mpa", "stack", "tcp", "inet", "mem", "hugepages", "pmd", "pmd/wire", "pmd/fault"},
	"daemon/driver":       {"pmd", "hugepages"},
	"daemon/port":         {"awake", "daemon/driver", "rnic", "stack", "tcp", "tcp/cc", "inet", "mem", "hugepages", "pmd", "pmd/tap", "pmd/dpdk", "pmd/memif", "pmd/fault", "pmd/capture"},
	"daemon/control":      {"awake", "unixsock"},
	"daemon/status":       {"pmd", "rnic", "stack", "stream"},
	"daemon/metrics":      {"daemon/control", "daemon/status", "pmd", "vswitch"},
	"daemon/top":          {"daemon/control", "daemon/status", "printable"},
	"daemon/config":       {"daemon/control", "daemon/port", "rnic", "rsocket", "stack", "tcp/cc", "pmd/fault", "tools/iperf3", "tools/perf", "tools/perf/pair", "tools/perftest", "tools/rping", "vswitch"},
	"daemon":              {"awake", "daemon/config", "daemon/control", "daemon/metrics", "daemon/port", "daemon/status", "hugepages", "hugepages/cgroup", "flight", "inet", "lossy", "pmd", "pmd/capture", "pmd/capture/filter", "pmd/dpdk", "rnic", "rsocket", "stack", "stream", "tools/bytestream", "tools/iperf3", "tools/peer", "tools/perf/pair", "tools/perftest", "tools/rping", "tools/rstream", "tools/xfer"},
	"daemon/doctor":       {"daemon/config", "daemon/control", "daemon/port", "daemon/status", "hugepages", "hugepages/cgroup", "pmd", "pmd/capture", "pmd/memif"},
	"daemon/command":      {"daemon", "daemon/config", "daemon/control", "daemon/doctor", "daemon/port", "daemon/status", "daemon/top", "pmd/capture", "printable"},
	"daemon/switchd":      {"awake", "daemon", "daemon/config", "daemon/control", "daemon/metrics", "daemon/port", "daemon/status", "hugepages", "lossy", "pmd", "pmd/memif", "vswitch"},
	"verbs/cshared":       {"daemon/config", "daemon/port", "lossy", "verbs/engine", "verbs/ring"},
	"cmd/rnicd":           {"awake", "daemon", "daemon/command", "daemon/config", "daemon/driver", "daemon/port", "daemon/switchd", "hugepages", "inet", "lossy", "mem", "mpa", "pmd", "pmd/dpdk", "pmd/fault", "pmd/memif", "pmd/tap", "pmd/wire", "rnic", "rsocket", "stack", "stream", "tcp/cc", "tools/bytestream", "tools/iperf3", "tools/peer", "tools/perf", "tools/perf/pair", "tools/perftest", "tools/rping", "tools/rstream", "tools/xfer", "printable"},
	"tools/peer":          {"awake", "rnic", "printable"},
	"tools/xfer":          {"awake", "tools/peer", "rnic"},
	"tools/iperf3":        {"awake"},
	"tools/bytestream":    {"tools/iperf3", "stream"},
	"tools/rping":         {"awake", "tools/peer", "rnic"},
	"tools/rstream":       {"awake", "rsocket", "rnic", "hugepages"},
	"tools/perf":          {"tools/peer", "rnic", "stack", "hugepages"},
	"tools/perftest":      {"awake", "tools/perf", "tools/peer", "rnic", "stack"},
	"tools/perf/pair":     {"awake", "tools/perf", "tools/peer", "rnic"},
	"bench":               {},
	"bench/plot":          {},
	"bench/yard":          {"bench/plot"},
	"bench/floor":         {"bench/yard", "crc32c", "mem"},
	"bench/analysis":      {"bench/plot", "rnic", "stack", "tcp", "tcp/cc", "inet", "ddp", "mpa", "mem", "hugepages", "pmd/wire"},
	"bench/peers/measure": {},
	"bench/peers/ours":    {"bench/peers/measure", "stream", "stack", "tcp", "inet", "mem", "hugepages", "pmd/tap"},
	"bench/peers/kernel":  {"bench/peers/measure"},
	"bench/peers/compare": {"bench/peers/measure"},
	"internal/layers":     {},
	"internal/netlab":     {"internal/skip"},                                  // imported by tests only
	"internal/sample":     {},                                                 // imported by tests only
	"internal/skip":       {},                                                 // imported by tests only
	"internal/testnic":    {"rnic", "internal/testhost", "stack", "pmd/wire"}, // imported by tests only
	"internal/testhost":   {"stack", "inet", "pmd", "mem", "hugepages"},       // imported by tests only

	"docs/examples/embed": {"rnic"},

	"test/interop":       {},
	"test/interop/guest": {"test/interop/image"},
	"test/interop/image": {},

	"internal/docs":           {},
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
	cmd := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports,Error"}, args...)...)
	cmd.Dir = "../.."
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
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
			if ours, found := strings.CutPrefix(path, module); found && ours != name && !slices.Contains(to[name], ours) {
				to[name] = append(to[name], ours)
			}
		}
	}
	for _, tags := range []string{"-tags=", "-tags=dpdk"} {
		for _, p := range list(t, tags, "./...") {
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
		"one more":   {map[string][]string{"mem": {"mpa"}, "mpa": {"mem"}}, []string{"mem must not import mpa"}},
		"one fewer":  {map[string][]string{"mem": nil, "mpa": nil}, []string{"mpa does not import mem: take it out of its row"}},
		"no row":     {map[string][]string{"mem": nil, "mpa": {"mem"}, "ddp": nil}, []string{"ddp has no row in the import table"}},
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
