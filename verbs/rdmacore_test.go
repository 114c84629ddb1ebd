package verbs

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/skip"
)

var updateResults = flag.Bool("update-results", false, "write "+rdmaCoreResults)

// rdmaCoreResults say, of each of rdma-core's tests, what becomes of it: pass, skip, or either, as
// the host has it, and why.
const rdmaCoreResults = "../docs/results/rdma-core.tsv"

// rdmaCoreTests is where Debian's package rdma-core has its tests, some of them compressed.
const rdmaCoreTests = "/usr/share/doc/rdma-core/tests"

// unpackRDMACore copies them below dir.
func unpackRDMACore(t *testing.T, dir string) {
	files, err := os.ReadDir(rdmaCoreTests)
	if _, noPython := os.Stat("/usr/bin/python3"); err != nil || noPython != nil {
		skip.Missing(t, "needs %s, of Debian's packages rdma-core and python3-pyverbs", rdmaCoreTests)
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "tests"), 0o755))
	for _, f := range files {
		b := must(os.ReadFile(filepath.Join(rdmaCoreTests, f.Name())))(t)
		name, zipped := strings.CutSuffix(f.Name(), ".gz")
		if zipped {
			z, err := gzip.NewReader(bytes.NewReader(b))
			require.NoError(t, err)
			b = must(io.ReadAll(z))(t)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tests", name), b, 0o644))
	}
}

// outcome of a test of rdma-core's.
type outcome struct{ result, reason string }

var (
	testLine   = regexp.MustCompile(`(?m)^test_\w+ \(tests\.([\w.]+)\)`)
	resultLine = regexp.MustCompile(`(?m)(ok|FAIL|ERROR|skipped ['"].*['"])$`)
)

// outcomes reads what unittest says with -v.
func outcomes(text string) map[string]outcome {
	text, _, _ = strings.Cut(text, "\n\n---")
	text, _, _ = strings.Cut(text, "\n\n===")
	all := map[string]outcome{}
	for at := testLine.FindStringSubmatchIndex(text); at != nil; {
		name := text[at[2]:at[3]]
		text = text[at[1]:]
		at = testLine.FindStringSubmatchIndex(text)
		chunk := text
		if at != nil {
			chunk = text[:at[0]]
		}
		found := resultLine.FindAllString(chunk, -1)
		o := outcome{result: "none"}
		if len(found) > 0 {
			o.result = found[len(found)-1]
		}
		switch last := o.result; {
		case last == "ok":
			o.result = "pass"
		case strings.HasPrefix(last, "skipped"):
			o = outcome{"skip", strings.Trim(last[len("skipped "):], `'"`)}
		}
		all[name] = o
	}
	return all
}

// Each of rdma-core's own tests ends as the table says.
func TestRDMACore(t *testing.T) {
	if leftToMakeVerbs() {
		return
	}
	l := newLab(t)
	dir := t.TempDir()
	unpackRDMACore(t, dir)
	// what tests print goes to stdout, what becomes of them to stderr
	p := l.Start(t, exec.Command(filepath.Join(l.dir, "rnicd"), "run", "--device", "roce", "--", "sh",
		"-c", "cd "+dir+" && exec /usr/bin/python3 tests/run_tests.py -v >out"))
	_ = p.Wait(t)
	got := outcomes(p.String())
	table := must(os.ReadFile(rdmaCoreResults))(t)
	rows := strings.Split(strings.TrimSpace(string(table)), "\n")[1:]
	if *updateResults {
		writeResults(t, rows, got)
		return
	}
	require.Len(t, got, len(rows), "%s", p)
	for _, row := range rows {
		f := strings.Split(row, "\t")
		o, ok := got[f[0]]
		require.True(t, ok, "%s: not run", f[0])
		if f[1] == "either" {
			require.Contains(t, []string{"pass", "skip"}, o.result, "%s\n%s", f[0], p)
			continue
		}
		require.Equal(t, f[1], o.result, "%s (%s)\n%s", f[0], o.reason, p)
	}
}

// writeResults keeps what the table knows of tests that may end either way.
func writeResults(t *testing.T, rows []string, got map[string]outcome) {
	var b strings.Builder
	b.WriteString("test\tresult\treason\n")
	for _, row := range rows {
		f := strings.Split(row, "\t")
		if o := got[f[0]]; f[1] != "either" {
			row = fmt.Sprintf("%s\t%s\t%s", f[0], o.result, o.reason)
		}
		b.WriteString(row + "\n")
	}
	require.NoError(t, os.WriteFile(rdmaCoreResults, []byte(b.String()), 0o644))
}

// What unittest says is understood: with and without a line that tells of the test, and where the
// test prints something before its result.
func TestOutcomes(t *testing.T) {
	require.Equal(t, map[string]outcome{
		"test_a.A.test_x": {"pass", ""}, "test_a.A.test_y": {"skip", "it's not"},
		"test_b.B.test_z": {"ERROR", ""}, "test_b.B.test_w": {"FAIL", ""},
	}, outcomes("test_x (tests.test_a.A.test_x) ... ok\ntest_y (tests.test_a.A.test_y)\nTells of it. "+
		"... skipped \"it's not\"\ntest_z (tests.test_b.B.test_z) ... noise\nERROR\n"+
		"test_w (tests.test_b.B.test_w) ... FAIL\n\n=====\nERROR: test_z (tests.test_b.B.test_z)\nok\n"))
}
