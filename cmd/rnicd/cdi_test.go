package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"
)

// fakeLibraries is a folder that findLibrary takes for that of the libraries.
func fakeLibraries(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, standIn), 0o755))
	for _, name := range []string{verbsLibrary, engineLibrary, standIn + "/libibverbs.so.1"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	return dir
}

// cdiSays runs rnicd cdi, which must have this exit status, and returns what it says.
func cdiSays(t *testing.T, status int, args ...string) (out, err string) {
	t.Helper()
	c := exec.Command(programPath(t), append([]string{"cdi"}, args...)...)
	var stdout, stderr strings.Builder
	c.Stdout, c.Stderr = &stdout, &stderr
	_ = c.Run() // the status is looked at
	require.Equal(t, status, c.ProcessState.ExitCode(), "%s%s", &stdout, &stderr)
	return stdout.String(), stderr.String()
}

// write, list and remove are about the same files; what a switch's configuration has is apart from
// what is there without one.
func TestCDI(t *testing.T) {
	lib, dir := fakeLibraries(t), t.TempDir()
	file := filepath.Join(t.TempDir(), "switch.toml")
	text, socket := switchOfGuide(t)
	require.NoError(t, os.Mkdir(filepath.Dir(socket), 0o755)) // the switch has run
	text = strings.Replace(text, "id = 2", "id = 2\nsecret = \"wonderful\"", 1)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))

	out, _ := cdiSays(t, 0, "write", "--lib", lib, "--dir", dir)
	require.Equal(t, dir+"/rnicd.json\n", out)
	out, _ = cdiSays(t, 0, "write", "--lib", lib, "--dir", dir, "--config", file)
	require.Equal(t, dir+"/rnicd-switch.json\n"+dir+"/rnicd-switch-secret.json\n", out)

	out, _ = cdiSays(t, 0, "list", "--dir", dir)
	var names []string
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		require.Len(t, f, 2)
		names = append(names, f[0]+" "+filepath.Base(f[1]))
	}
	require.ElementsMatch(t, []string{
		"rnicd.io/rnic=sockets rnicd.json", "rnicd.io/rnic=roce rnicd.json",
		"rnicd.io/rnic=tools rnicd.json", "rnicd.io/rnic=store rnicd-switch.json",
		"rnicd.io/rnic=writer rnicd-switch-secret.json", "rnicd.io/rnic=left rnicd-switch.json",
		"rnicd.io/rnic=right rnicd-switch.json"}, names)

	out, _ = cdiSays(t, 0, "write", "--lib", lib, "--dir", "/nowhere", "--print", "--config", file)
	var spec specs.Spec
	require.NoError(t, json.Unmarshal([]byte(out), &spec))
	require.Len(t, spec.Devices, 4)
	require.NoDirExists(t, "/nowhere")

	require.NoError(t, os.RemoveAll(lib))
	_, said := cdiSays(t, 1, "list", "--dir", dir)
	require.Contains(t, said, "rnicd: "+dir+"/rnicd-switch-secret.json: stat "+lib)
	out, _ = cdiSays(t, 0, "remove", "--dir", dir, "--config", file)
	require.Equal(t, dir+"/rnicd-switch-secret.json\n"+dir+"/rnicd-switch.json\n", out)
	out, _ = cdiSays(t, 0, "remove", "--dir", dir)
	require.Equal(t, dir+"/rnicd.json\n", out)
	out, _ = cdiSays(t, 0, "list", "--dir", dir)
	require.Empty(t, out)
}

// Mistakes say what was wrong. A program that is left out leaves the others.
func TestCDIErrors(t *testing.T) {
	lib, dir := fakeLibraries(t), t.TempDir()
	text, socket := switchOfGuide(t)
	require.NoError(t, os.Mkdir(filepath.Dir(socket), 0o755)) // the switch has run
	file := filepath.Join(t.TempDir(), "switch.toml")
	require.NoError(t, os.WriteFile(file,
		[]byte(strings.Replace(text, `"store"`, `"tools"`, 1)), 0o600))
	for args, want := range map[string]string{
		"write --lib /no/lib":                         verbsLibrary + " not found in /no/lib; ",
		"write --prefix 24":                           "--prefix and --group are for the programs of a switch: give its --config",
		"write --prefix 33 --config x":                "--prefix 33: want 1 to 32",
		"write --group nobodys":                       "--prefix and --group are for the programs",
		"write --group nobodys --prefix 8 --config x": "--group nobodys: there is no such group",
		"write --config /no/file":                     "/no/file: no such file or directory",
		"write x":                                     "1 argument given; want: rnicd cdi write",
		"rite":                                        `unknown command "rite" for "rnicd cdi"; did you mean write?`,
		"write --config " + file:                      "program tools is left out: its name is that of a device",
	} {
		args := strings.Fields(args)
		if args[0] == "write" && args[1] != "--lib" {
			args = append(args, "--lib", lib, "--dir", dir)
		}
		_, said := cdiSays(t, 1, args...)
		require.Contains(t, said, want)
		require.Equal(t, 1, strings.Count(said, "\n"), "%s", said)
	}
	out, _ := cdiSays(t, 0, "list", "--dir", dir)
	require.Equal(t, 3, strings.Count(out, "\n"), "%s", out)
}

// The guide's switch has the devices that the guide starts containers with.
func TestCDIOfTheGuide(t *testing.T) {
	_, text, found := strings.Cut(readFile(t, "../../docs/guides/containers.md"),
		"<!-- containers -->\n```toml\n")
	require.True(t, found)
	text, rest, found := strings.Cut(text, "```\n")
	require.True(t, found)
	out, _ := cdiSays(t, 0, "write", "--lib", fakeLibraries(t), "--print", "--config",
		configured(t, text))
	var spec specs.Spec
	require.NoError(t, json.Unmarshal([]byte(out), &spec))
	require.Len(t, spec.Devices, 2)
	for _, d := range spec.Devices {
		require.Contains(t, rest, "--device rnicd.io/rnic="+d.Name+" ")
		require.Equal(t, "/run/rnicd-switch/programs", d.ContainerEdits.Mounts[1].HostPath)
	}
}
