package verbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
)

// How a program comes to the library: preloaded, from a folder of LD_LIBRARY_PATH, by dlopen; and
// which programs do not.

// standIn is the folder with the names of the libraries that ours stands for.
func (l *lab) standIn() string { return filepath.Join(l.dir, "standin") }

// byPath starts a program with LD_LIBRARY_PATH alone.
func (l *lab) byPath(need string, args ...string) *netlab.Process {
	l.t.Helper()
	if _, err := exec.LookPath(args[0]); err != nil {
		skip.Missing(l.t, "needs %s, of Debian's package %s", args[0], need)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+l.standIn())
	return l.Start(l.t, cmd)
}

// compileAlone builds one file of test/verbs.
func (l *lab) compileAlone(name string, flags ...string) string {
	l.t.Helper()
	args := []string{"-std=gnu11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror"}
	return l.gcc(name, slices.Concat(args, []string{"../test/verbs/" + name + ".c"}, flags)...)
}

// The library serves under the names of those that it stands for, without a preload.
func TestUnderBothNames(t *testing.T) {
	l := newLab(t)
	p := l.byPath("gcc", l.compile("api"))
	require.Zero(t, p.Wait(t), "%s", p)
}

// So it does for programs that need what only the distribution's libraries have: rsockets, and
// drivers of perftest's.
func TestByLibraryPath(t *testing.T) {
	for _, name := range []string{"rping", "ucmatose", "rstream", "riostream", "ib_write_bw"} {
		for _, x := range exchanges {
			if strings.TrimSpace(x.name) != name {
				continue
			}
			t.Run(x.name, func(t *testing.T) {
				l := newLab(t)
				server := l.byPath(x.need, strings.Fields(x.server)...)
				l.untilListening(x.port)
				client := l.byPath(x.need, strings.Fields(x.client)...)
				bothEnd(t, client, server)
			})
		}
	}
}

// A program that loads the libraries itself, and looks symbols up with their versions, finds ours.
func TestLoadedByName(t *testing.T) {
	l := newLab(t)
	starts := map[string]func(string, ...string) *netlab.Process{"rnicd run": l.run,
		"LD_LIBRARY_PATH": l.byPath}
	for name, start := range starts {
		t.Run(name, func(t *testing.T) {
			allWell(t, start("gcc", l.compileAlone("load", "-ldl")))
		})
	}
}

// rnicd run says so where the loader will not load the library, and runs the program all the same.
func TestNotLoaded(t *testing.T) {
	l := newLab(t)
	source := filepath.Join(t.TempDir(), "main.c")
	require.NoError(t, os.WriteFile(source, []byte("int main(void) { return 7; }\n"), 0o644))
	build := func(flags ...string) string {
		out := filepath.Join(t.TempDir(), "program")
		text, err := exec.Command("gcc", append(flags, "-o", out, source)...).CombinedOutput()
		require.NoError(t, err, "%s", text)
		return out
	}
	ordinary, setgid := build(), build()
	require.NoError(t, os.Chown(setgid, os.Getuid(), 65534))
	require.NoError(t, os.Chmod(setgid, 0o755|os.ModeSetgid))
	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nexit 7\n"), 0o755))
	scriptOf := func(first string) string {
		path := filepath.Join(t.TempDir(), "script")
		require.NoError(t, os.WriteFile(path, []byte("#!"+first+"\nexit 7\n"), 0o755))
		return path
	}
	static := build("-static")
	t.Setenv("PATH", os.Getenv("PATH")+":"+filepath.Dir(static))
	const isStatic = "is linked statically"
	type program struct{ path, want string }
	cases := map[string]program{
		"ordinary":             {ordinary, ""},
		"a script":             {script, ""},
		"a script of one":      {scriptOf(ordinary), ""},
		"a script of a script": {scriptOf(scriptOf(ordinary)), ""},
		"static":               {static, isStatic},
		"a static script":      {scriptOf(static), ": its interpreter " + static + " " + isStatic},
		"by another script": {scriptOf(scriptOf(static)),
			": its interpreter " + static + " " + isStatic},
		"by env": {scriptOf("/usr/bin/env " + filepath.Base(static)),
			": its interpreter " + static + " " + isStatic},
		"by env -S": {scriptOf("/usr/bin/env -S A=1 " + filepath.Base(static) + " x"),
			": its interpreter " + static + " " + isStatic},
		"static PIE": {build("-static-pie"), isStatic},
		"setgid":     {setgid, `runs with other rights than its caller's \(setuid, setgid .*\)`},
	}
	if !testing.Short() { // make test-all: it compiles Go's library in a mode of its own
		cases["Go without cgo"] = program{goProgram(t), isStatic}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := l.run("gcc", c.path)
			require.Equal(t, 7, p.Wait(t), "%s", p)
			if c.want == "" {
				require.Empty(t, p.String())
				return
			}
			if !strings.HasPrefix(c.want, ":") {
				c.want = " " + c.want
			}
			p.Expect(t, 1, "^rnicd: "+c.path+c.want+
				": it runs without librnicd_verbs.so and finds no device of rnicd$")
		})
	}
}

// goProgram is one that is not linked with the C library, and ends with 7.
func goProgram(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "program")
	source := path + ".go"
	require.NoError(t, os.WriteFile(source, []byte("package main\n\nimport \"os\"\n\n"+
		"func main() { os.Exit(7) }\n"), 0o644))
	cmd := exec.Command("go", "build", "-buildmode=exe", "-o", path, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
	return path
}

// The environment decides nothing in a program with other rights than its caller's: no variable of
// ours is read, and one of Go's runtime, which reads these itself, leaves the program without a
// device. What the program has in its environment stays, there and elsewhere.
func TestSecureProgram(t *testing.T) {
	l := newLab(t)
	path := l.compileAlone("secure", "-L"+l.dir, "-Wl,-rpath,"+l.dir, "-l:librnicd_verbs.so")
	start := func(variable string, args ...string) *netlab.Process {
		cmd := exec.Command(path, args...)
		cmd.Env = []string{"PATH=/usr/bin", "HOME=/root", "TZ=UTC", variable, "LAST=1"}
		p := l.Start(t, cmd)
		require.Zero(t, p.Wait(t), "%s", p)
		return p
	}
	variables := []string{"RNICD_ENGINE=/no/such.so", "RNICD_PMD=banana", "RNICD_MTU=1",
		"RNICD_CONFIG=/etc/shadow"}
	runtimes := []string{"GODEBUG=inittrace=1", "GOGC=1", "GOMAXPROCS=1", "GOMEMLIMIT=1MiB"}
	for _, v := range variables {
		start(v).Expect(t, 1, "^AT_SECURE 0, opened 0, environment kept 1$")
	}
	for _, v := range runtimes {
		start(v).Expect(t, 1, "^AT_SECURE 0, opened 1, environment kept 1$")
	}
	start("GODEBUG=inittrace=1").Expect(t, 1, "^init runtime @")

	text := must(os.ReadFile(path))(t)
	path = filepath.Join(t.TempDir(), "setgid")
	require.NoError(t, os.WriteFile(path, text, 0o755))
	require.NoError(t, os.Chown(path, os.Getuid(), 65534))
	require.NoError(t, os.Chmod(path, 0o755|os.ModeSetgid))
	const opened = "AT_SECURE 1, opened 1, environment kept 1\n"
	for _, v := range append(variables, "RNICD_VERBOSE=1", "RNICD_PEER=siw", "GOTRACEBACK=crash") {
		require.Equal(t, opened, start(v).String())
	}
	for _, v := range runtimes {
		name, _, _ := strings.Cut(v, "=")
		refused := "rnicd: no device: " + name + " is set, which the engine would obey in a program " +
			"with other rights than its caller's (setuid, setgid, capabilities): start it without\n" +
			"AT_SECURE 1, opened 0, environment kept 1\n"
		require.Equal(t, refused, start(v).String())
		require.Equal(t, refused, start(v, "clear").String(), "Go's runtime does not see that")
		require.Equal(t, opened, start(v, name).String())
	}
}

// All that is ours reads the environment in one place each, the engine's and the C library's, and
// changes it nowhere: cgo would change the program's own.
func TestEnvironmentIsReadOnce(t *testing.T) {
	const files = `{{with .Module}}{{if .Main}}{{$d := $.Dir}}` +
		`{{range $.GoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{range $.CgoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}` +
		`{{range $.CFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`
	list := must(exec.Command("go", "list", "-deps", "-f", files, "./cshared").Output())(t)
	paths := must(filepath.Glob("shim/*.c"))(t)
	found := map[string]int{}
	for _, path := range append(paths, strings.Fields(string(list))...) {
		text := must(os.ReadFile(path))(t)
		for _, m := range environmentCall.FindAllStringSubmatch(string(text), -1) {
			found[filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path)+" "+m[1]]++
		}
	}
	require.Equal(t, map[string]int{
		"shim/engine.c secure_getenv": 1,
		"cshared/main.go os.Environ":  1,
	}, found)
}

var environmentCall = regexp.MustCompile(`\b((?:secure_get|get|set|unset|put|clear)env|` +
	`(?:os|syscall|unix)\.(?:Getenv|LookupEnv|Environ|ExpandEnv|Setenv|Unsetenv|Clearenv|TempDir|` +
	`CreateTemp|MkdirTemp|User\w+Dir)|exec\.(?:Command\w*|LookPath))\([^0-9]`) // not secure_getenv(3)

// Every symbol of Debian's libraries is there, under its version: a program finds it, if only
// refused or forwarded. So is what newer ones have. What those libraries keep for programs that
// were linked before 2008, and drivers from before 2018, is left out.
func TestSymbols(t *testing.T) {
	l := newLab(t)
	symbols := func(file string) map[string]bool {
		out := must(exec.Command("nm", "-D", "--defined-only", file).Output())(t)
		all := map[string]bool{}
		for _, m := range exported.FindAllStringSubmatch(string(out), -1) {
			all[m[1]] = true
		}
		return all
	}
	ours := symbols(filepath.Join(l.dir, "librnicd_verbs.so"))
	for _, name := range []string{"libibverbs.so.1", "librdmacm.so.1"} {
		files := must(filepath.Glob("/usr/lib/*/" + name))(t)
		require.NotEmpty(t, files)
		theirs := symbols(files[0])
		require.NotEmpty(t, theirs)
		for symbol := range theirs {
			old := !strings.Contains(symbol, "@@")
			if !ours[symbol] && !old {
				t.Errorf("librnicd_verbs.so has no %s", symbol)
			}
		}
	}
	for version, names := range newerSymbols {
		for _, name := range names {
			require.True(t, ours[name+"@@"+version], "%s %s", name, version)
		}
	}
}

// newerSymbols are what came between Debian 12's rdma-core 44 and 65: a program that was built
// there is not loaded without. rsockets' are the distribution's.
var newerSymbols = map[string][]string{
	"IBVERBS_1.15": {"ibv_alloc_dmah", "ibv_dealloc_dmah", "ibv_reg_mr_ex"},
	"IBVERBS_1.16": {"ibv_dm_export_dmabuf_fd", "ibv_query_port_speed"},
	"IBVERBS_1.17": {"ibv_alloc_buf", "ibv_free_buf", "ibv_reg_buf_mr"},
	"IBVERBS_1.18": {"_ibv_query_comp_cntr_caps", "ibv_create_comp_cntr", "ibv_destroy_comp_cntr",
		"ibv_export_buf_dmabuf_fd", "ibv_inc_comp_cntr", "ibv_inc_err_comp_cntr",
		"ibv_qp_attach_comp_cntr", "ibv_read_comp_cntr", "ibv_read_err_comp_cntr",
		"ibv_set_comp_cntr", "ibv_set_err_comp_cntr"},
	"RDMACM_1.4": {"rdma_query_addrinfo", "rdma_resolve_addrinfo", "rdma_write_cm_event"},
}

var exported = regexp.MustCompile(`(?m) [TBD] (\w+@@?\w[\w.]*)$`)

// The loader of musl cannot take the library: it ends the program, and says what is missing. rnicd
// run does not start the program.
func TestMusl(t *testing.T) {
	cc, err := exec.LookPath("musl-gcc")
	if err != nil {
		skip.Missing(t, "no musl-gcc: apt-get install musl-tools")
	}
	l := newLab(t)
	source, program := filepath.Join(t.TempDir(), "nothing.c"), filepath.Join(t.TempDir(), "nothing")
	require.NoError(t, os.WriteFile(source, []byte("int main(void) { return 0; }\n"), 0o644))
	out, err := exec.Command(cc, "-o", program, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, exec.Command(program).Run())
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+filepath.Join(l.dir, "librnicd_verbs.so"))
	out, err = cmd.CombinedOutput()
	require.Error(t, err)
	require.Regexp(t, "librnicd_needs_glibc_2_34_or_later_this_is_musl: symbol not found\n", string(out))
	p := l.run("musl", program)
	require.Equal(t, 1, p.Wait(t), "%s", p)
	require.Equal(t, "rnicd: "+program+" is made for musl: the libraries of rnicd run need glibc "+
		"2.34 or later, in a container that of its image\n", p.String())
	cmd = exec.Command("true")
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+filepath.Join(l.dir, "librnicd_verbs.so"))
	out = must(cmd.CombinedOutput())(t)
	require.Empty(t, string(out))
}

// rnicd run does not start a program whose glibc is older than the libraries want. What its loader
// itself says, in Debian 11, is in docs/guides/containers.md.
func TestOlderGlibc(t *testing.T) {
	l, dir := newLab(t), t.TempDir()
	made := func(name, text string, flags ...string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path+".c", []byte(text), 0o644))
		out, err := exec.Command("gcc", append(flags, "-o", path, path+".c")...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return path
	}
	script := filepath.Join(dir, "versions")
	require.NoError(t, os.WriteFile(script,
		[]byte("GLIBC_2.2.5 { global: a; };\nGLIBC_2.4 { global: b; } GLIBC_2.2.5;\n"), 0o644))
	loader := made("ld-linux-x86-64.so.2", "void a(void) {}\nvoid b(void) {}\n", "-shared",
		"-nostdlib", "-Wl,--version-script="+script)
	program := made("old", "int main(void) { return 0; }\n", "-Wl,--dynamic-linker="+loader)
	p := l.run("old", program)
	require.Equal(t, 1, p.Wait(t), "%s", p)
	require.Equal(t, "rnicd: "+program+" is loaded by an older glibc ("+loader+"): the libraries of "+
		"rnicd run need glibc 2.34 or later, in a container that of its image\n", p.String())
}

// A program in Go, with a runtime of its own.
func TestGoProgram(t *testing.T) {
	if leftToMakeVerbs() {
		return
	}
	t.Parallel()
	l := newLab(t)
	program := filepath.Join(t.TempDir(), "program")
	build := exec.Command("go", "build", "-o", program, "../test/verbs/goprogram.go")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)
	p := l.runOn("--device roce", "golang", program)
	require.Zero(t, p.Wait(t), "%s", p)
	p.Expect(t, 1, "^all well$")
}
