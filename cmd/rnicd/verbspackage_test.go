package main

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/skip"
)

// glibcMost is the version of glibc that the libraries may need, GLIBC_2.34.
const glibcMost = 34

var glibcVersion = regexp.MustCompile(`^GLIBC_2\.(\d+)(\.\d+)?$`)

// needsOnlyGlibc looks at what a library wants of a host: glibc alone, not later than glibcMost.
func needsOnlyGlibc(t *testing.T, path string) {
	t.Helper()
	f := must(elf.Open(path))(t)
	defer f.Close()
	libs := must(f.ImportedLibraries())(t)
	require.Subset(t, []string{"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}, libs)
	symbols := must(f.ImportedSymbols())(t)
	versions := 0
	for _, s := range symbols {
		if s.Version == "" {
			continue // weak: the library does without
		}
		m := glibcVersion.FindStringSubmatch(s.Version)
		require.NotNil(t, m, "%s@%s", s.Name, s.Version)
		n := must(strconv.Atoi(m[1]))(t)
		require.LessOrEqual(t, n, glibcMost, "%s@%s", s.Name, s.Version)
		versions++
	}
	require.Greater(t, versions, 10)
}

// The small package needs glibc 2.34, and nothing else. It has the libraries, a program that is
// linked with nothing, and their description for containers. Package rnicd takes its place, and
// of neither anything stays.
func TestVerbsPackage(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	if librariesPath(t) == "" {
		skip.Missing(t, "needs gcc, libibverbs-dev and librdmacm-dev")
	}
	packages := debian(t)
	require.Len(t, packages, 2)
	run := func(name string, args ...string) string {
		return outputOf(t, exec.Command(name, args...))
	}
	verbs := packages[1]
	require.Equal(t, "rnicd-verbs_0.0.1_", filepath.Base(verbs)[:len("rnicd-verbs_0.0.1_")])
	require.Equal(t, "libc6 (>= 2.34)\n", run("dpkg-deb", "-f", verbs, "Depends"))
	tree := t.TempDir()
	run("dpkg-deb", "-x", verbs, tree)
	lib := filepath.Join(tree, "usr/lib/rnicd")
	for _, name := range []string{verbsLibrary, engineLibrary} {
		needsOnlyGlibc(t, filepath.Join(lib, name))
	}
	static := must(elf.Open(filepath.Join(lib, "rnicd")))(t)
	defer static.Close()
	require.False(t, slices.ContainsFunc(static.Progs, func(p *elf.Prog) bool {
		return p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC
	}))
	out := run(filepath.Join(tree, "usr/bin/rnicd"), "run", "--", "cat", "/proc/self/maps")
	require.Contains(t, out, lib+"/"+verbsLibrary)
	require.Subset(t, installed(t, tree), []string{"/usr/share/man/man1/rnicd-run.1.gz",
		"/usr/share/man/man1/rnicd-cdi-write.1.gz", "/usr/share/doc/rnicd-verbs/copyright"})
	if _, err := exec.LookPath("lintian"); err == nil {
		require.Empty(t, run("lintian", "--allow-root", "--fail-on", "error,warning", verbs))
	}

	root, dpkg := emptySystem(t)
	described := filepath.Join(root, "etc/cdi/rnicd.json")
	has := func(name string) bool {
		out, err := exec.Command("dpkg-query", "--admindir="+root+"/var/lib/dpkg", "-W",
			"-f=${db:Status-Abbrev}", name).Output()
		return err == nil && strings.HasPrefix(string(out), "ii")
	}
	dpkg("--install", verbs)
	require.Contains(t, readFile(t, described), `"hostPath": "/usr/lib/rnicd"`)
	dpkg("--install", packages[0])
	require.True(t, has("rnicd"))
	require.False(t, has("rnicd-verbs"))
	require.FileExists(t, described)
	dpkg("--remove", "rnicd") // as apt does for the other
	require.NoFileExists(t, described)
	dpkg("--install", verbs)
	dpkg("--purge", "rnicd")
	require.FileExists(t, described, "it is that of the package which is there")
	dpkg("--purge", "rnicd-verbs")
	require.NoDirExists(t, filepath.Join(root, "etc/cdi"))
	require.NoDirExists(t, filepath.Join(root, "usr/lib/rnicd"))
	require.NoDirExists(t, filepath.Join(root, "usr/share/rnicd"))
}
