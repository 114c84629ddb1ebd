package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// releaseCheck runs scripts/release-check.sh with a make that notes what it is to do, and fails as
// fail says.
func releaseCheck(t *testing.T, fail string,
	args ...string) (status int, out string, steps []string) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"scripts", "bin"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	script := readFile(t, "../../scripts/release-check.sh")
	path := filepath.Join(dir, "scripts/release-check.sh")
	require.NoError(t, os.WriteFile(path, []byte(script), 0o755))
	stub := "#!/bin/sh\necho \"$RNICD_NO_SKIP $*\" >>\"" + dir + "/made\"\necho said by $1\ncase \" " +
		fail + " \" in *\" $1 \"*) exit 1 ;; esac\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bin/make"), []byte(stub), 0o755))
	for _, script := range []string{"scripts/deps.sh", "scripts/distributions.sh",
		"scripts/systemd.sh"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, script), []byte("#!/bin/sh\n"), 0o755))
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	text, err := cmd.CombinedOutput()
	if err != nil {
		require.IsType(t, &exec.ExitError{}, err, "%s", text)
	}
	made := readFile(t, filepath.Join(dir, "made"))
	for _, step := range []string{"links", "sim"} {
		said := readFile(t, filepath.Join(dir, "build/release-check", step+".log"))
		require.Equal(t, "said by "+step+"\n", said)
	}
	return cmd.ProcessState.ExitCode(), string(text),
		strings.Split(strings.TrimSpace(made), "\n")
}

// Every step runs, with skips forbidden, except under the race detector; one that fails does not
// end the others, and is named at the end.
func TestReleaseCheck(t *testing.T) {
	status, out, steps := releaseCheck(t, "", "10", "77", "3s")
	require.Zero(t, status, out)
	require.Equal(t, []string{
		"1 lint", "1 test-all", "1 kubernetes", "1 test-arm64", "0 race", "1 links",
		"1 sim SEEDS=10 FIRST=77", "1 fuzz FUZZTIME=3s", "1 deb", "1 soak", "1 interop",
		"1 interop-tcp",
	}, steps)
	require.Contains(t, out, ", 10 seeds from 77\n")
	require.True(t, strings.HasSuffix(out, "\nrelease-check: all ok\n"), out)

	status, out, again := releaseCheck(t, "links fuzz", "10", "77", "3s")
	require.Equal(t, 1, status)
	require.Equal(t, steps, again)
	require.Regexp(t, `(?m)^links +FAILED  \d+ s, build/release-check/links.log$`, out)
	require.Regexp(t, `(?m)^sim +ok `, out)
	require.True(t, strings.HasSuffix(out, "\nrelease-check: failed: links fuzz\n"), out)
}

// Without arguments the seeds are many, and fresh.
func TestReleaseCheckDrawsSeeds(t *testing.T) {
	_, out, steps := releaseCheck(t, "", "", "", "")
	require.Regexp(t, `, 100000 seeds from \d{10,}\n`, out)
	require.Regexp(t, `^1 sim SEEDS=100000 FIRST=\d{10,}$`, steps[6])
	require.Equal(t, "1 fuzz FUZZTIME=2m", steps[7])
}
