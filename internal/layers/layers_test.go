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

// allowed says which of our packages a package may import. A package that is not here fails the
// test: decide first.
var allowed = map[string][]string{
	"hugepages":   {},
	"inet":        {},
	"crc32c":      {},
	"tcp/cc":      {},
	"sim/ccmodel": {},

	"mem": {"hugepages"},
	"tcp": {"inet", "tcp/cc"},

	"pmd":         {"mem"},
	"pmd/wire":    {"pmd", "mem"},
	"pmd/tap":     {"pmd", "mem"},
	"pmd/dpdk":    {"pmd", "mem", "hugepages"},
	"pmd/memif":   {"pmd", "mem", "hugepages"},
	"pmd/fault":   {"pmd", "mem", "inet"},
	"pmd/capture": {"pmd", "mem"},
	"mpa":         {"mem", "crc32c"},
	"ddp":         {"mem"},

	"sim/linksim": {"tcp"},

	"stack":  {"pmd", "mem", "inet", "tcp", "tcp/cc"},
	"stream": {"stack", "tcp", "tcp/cc", "mem"},
	"rdmap":  {"ddp"},

	"rnic/internal/transport": {"stream", "stack", "mem", "hugepages"},
	"rnic/internal/qp":        {"mpa", "ddp", "rdmap", "mem"},
	"rnic/internal/connect":   {"rnic/internal/qp", "rnic/internal/transport", "mpa", "stream", "stack", "mem"},
	"rnic":                    {"rnic/internal/connect", "rnic/internal/qp", "rnic/internal/transport", "stream", "stack", "mpa", "ddp", "rdmap", "mem", "hugepages"},

	"rsocket":             {"rnic", "mem"},
	"verbs":               {},
	"verbs/ring":          {},
	"verbs/engine":        {"rnic", "stack", "mem", "verbs/ring"},
	"verbs/cshared":       {"verbs/engine", "verbs/ring"},
	"sim":                 {"rnic", "rdmap", "ddp", "mpa", "stack", "tcp", "inet", "mem", "hugepages", "pmd", "pmd/wire", "pmd/fault"},
	"daemon/driver":       {"pmd", "hugepages"},
	"cmd/rnicd":           {"daemon/driver", "tools/xfer", "tools/perf", "tools/perf/pair", "tools/perftest", "tools/rping", "tools/rstream", "tools/peer", "tools/iperf3", "rsocket", "rnic", "stream", "stack", "mpa", "tcp", "tcp/cc", "inet", "mem", "hugepages", "pmd", "pmd/wire", "pmd/tap", "pmd/dpdk", "pmd/memif", "pmd/fault", "pmd/capture"},
	"tools/peer":          {"rnic"},
	"tools/xfer":          {"tools/peer", "rnic"},
	"tools/iperf3":        {},
	"tools/rping":         {"tools/peer", "rnic"},
	"tools/rstream":       {"rsocket", "rnic", "hugepages"},
	"tools/perf":          {"tools/peer", "rnic", "hugepages"},
	"tools/perftest":      {"tools/perf", "tools/peer", "rnic", "stack"},
	"tools/perf/pair":     {"tools/perf", "tools/peer", "rnic"},
	"bench":               {"bench/yard", "bench/floor", "rnic", "stream", "stack", "tcp", "inet", "mem", "hugepages", "pmd", "pmd/wire", "pmd/tap", "pmd/dpdk"},
	"bench/plot":          {},
	"bench/yard":          {"bench/plot"},
	"bench/floor":         {"bench/yard", "crc32c", "mem"},
	"bench/analysis":      {"bench/plot", "rnic", "stack", "tcp", "tcp/cc", "inet", "ddp", "mpa", "mem", "hugepages", "pmd/wire"},
	"bench/peers/measure": {},
	"bench/peers/ours":    {"bench/peers/measure", "stream", "stack", "tcp", "inet", "mem", "hugepages", "pmd", "pmd/tap"},
	"bench/peers/kernel":  {"bench/peers/measure"},
	"bench/peers/compare": {"bench/peers/measure"},
	"internal/layers":     {},
	"internal/netlab":     {"internal/skip"},                                  // imported by tests only
	"internal/sample":     {},                                                 // imported by tests only
	"internal/skip":       {},                                                 // imported by tests only
	"internal/testnic":    {"rnic", "internal/testhost", "stack", "pmd/wire"}, // imported by tests only
	"internal/testhost":   {"stack", "inet", "pmd", "mem", "hugepages"},       // imported by tests only

	"test/interop":       {},
	"test/interop/guest": {"test/interop/image"},
	"test/interop/image": {},

	"internal/docs":           {},
	"internal/register":       {},
	"internal/register/trace": {"internal/register"},
}

type pkg struct {
	ImportPath string
	Imports    []string
	Error      *struct{ Err string }
}

func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Imports,Error"}, args...)...)
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
	return pkgs
}

// Imports point down only, with and without the DPDK driver. So mpa knows nothing of ddp.
//
// req: D01-11.1.1-2
func TestImportTable(t *testing.T) {
	for _, tags := range []string{"-tags=", "-tags=dpdk"} {
		for _, p := range list(t, tags, "./...") {
			name := strings.TrimPrefix(p.ImportPath, module)
			may, ok := allowed[name]
			require.Truef(t, ok, "package %s has no row in the import table", name)
			for _, imp := range p.Imports {
				if ours, found := strings.CutPrefix(imp, module); found {
					require.Truef(t, slices.Contains(may, ours), "%s must not import %s", name, ours)
				}
			}
		}
	}
}

// Nothing below stack reads a clock: time is an argument there.
func TestNoClockBelowStack(t *testing.T) {
	for _, p := range list(t, "./hugepages", "./inet", "./crc32c", "./mem", "./tcp", "./pmd", "./pmd/wire", "./pmd/tap", "./mpa", "./ddp", "./rdmap") {
		name := strings.TrimPrefix(p.ImportPath, module)
		require.Falsef(t, slices.Contains(p.Imports, "time"), "%s imports time", name)
	}
}
