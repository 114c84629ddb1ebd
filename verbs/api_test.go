package verbs

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/internal/skip"
)

// helpers are the files that the programs of test/verbs have in common.
var helpers = []string{"pair", "ids", "queues", "failures", "unread", "party"}

// compile builds a program of test/verbs against Debian's libraries, which it then runs without.
// The flags are for the program's own file alone.
func (l *lab) compile(name string, flags ...string) string {
	l.t.Helper()
	return l.compileWith(nil, name, flags...)
}

// compileWith is compile with flags for all of its files.
func (l *lab) compileWith(all []string, name string, flags ...string) string {
	l.t.Helper()
	all = slices.Concat([]string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"}, all)
	args := slices.Concat(all, flags, []string{"../test/verbs/" + name + ".c"})
	for _, h := range helpers {
		object := slices.Concat(all, []string{"-c", "../test/verbs/" + h + ".c"})
		args = append(args, l.gcc(h+".o", object...))
	}
	return l.gcc(name, append(args, "-libverbs", "-lrdmacm", "-lpthread")...)
}

// compiled is what gcc has made, by its arguments.
var compiled struct {
	sync.Mutex
	files map[string]func() (string, error)
}

// gcc makes a file, once for all tests with the same arguments, none of which may change it.
func (l *lab) gcc(name string, args ...string) string {
	l.t.Helper()
	compiled.Lock()
	key := strings.Join(args, " ")
	file := compiled.files[key]
	if file == nil {
		file = sync.OnceValues(func() (string, error) {
			dir, err := os.MkdirTemp(l.dir, "gcc-")
			if err != nil {
				return "", err
			}
			out := filepath.Join(dir, name)
			text, err := exec.Command("gcc", append(slices.Clone(args), "-o", out)...).CombinedOutput()
			if err != nil {
				return "", fmt.Errorf("gcc %s: %w\n%s", key, err, text)
			}
			return out, nil
		})
		if compiled.files == nil {
			compiled.files = map[string]func() (string, error){}
		}
		compiled.files[key] = file
	}
	compiled.Unlock()
	out := must(file())(l.t)
	return out
}

// allWell waits for the end of a program of test/verbs, which says that it has found nothing.
func allWell(t *testing.T, p *netlab.Process) {
	t.Helper()
	require.Zero(t, p.Wait(t), "%s", p)
	p.Expect(t, 1, "^all well$")
}

// Each of these programs of test/verbs ends well.
func TestWalks(t *testing.T) {
	for _, x := range []struct{ name, flags string }{
		// Every call with its results and errors; a signal handler of the program's, at 1 kHz from
		// before the engine is loaded, runs on no thread of the engine; a child of fork is told that it
		// has none.
		{"api", ""},
		// What the manual pages promise of attributes, limits, statuses and events, over the kernel's
		// sockets.
		{"contracts", ""},
		// Without memory for what a call makes it says so, and nothing else is the worse for it.
		{"nomemory", "-fno-builtin"},
		// Nor without descriptors for a request's id: its client is told, and the listener goes on.
		{"nodescriptors", ""},
		// A program that closes all descriptors loses its own.
		{"sweep", ""},
		// Several threads read events of every kind while others destroy what those name.
		{"race", ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			l := newLab(t)
			allWell(t, l.run("gcc", l.compile(x.name, strings.Fields(x.flags)...)))
		})
	}
}

// Each of these, which have parts of the C library in them, ends well by itself.
func TestParts(t *testing.T) {
	for _, x := range []struct{ name, flags string }{
		// A poll that waits for completions is woken by each, and has a bound.
		{"wait", ""}, {"wait", "-DFOR_EVER"},
		// Posts that follow each other leave together, and a single one at once.
		{"posts", ""},
		// An object whose event a thread has in hand stays, at whichever moment another destroys it.
		{"claim", ""},
		// A poll in vain yields while that costs little, and waits where another thread computes or
		// runs each time.
		{"giveway", ""},
	} {
		t.Run(x.name+x.flags, func(t *testing.T) {
			l := newLab(t)
			allWell(t, l.Start(t, exec.Command(l.compile(x.name, strings.Fields(x.flags)...))))
		})
	}
}

// No signal of the program's, of all 64, is taken by a thread of the engine, whether a handler,
// sigwait or a descriptor waits for it, set up before or after the engine is loaded, by the preload
// or by the library path alone.
func TestSignals(t *testing.T) {
	l := newLab(t)
	program := l.compile("signals")
	dir := t.TempDir()
	for _, name := range []string{"libibverbs.so.1", "librdmacm.so.1"} {
		require.NoError(t, os.Symlink(filepath.Join(l.dir, "librnicd_verbs.so"),
			filepath.Join(dir, name)))
	}
	for _, when := range []string{"before", "after"} {
		for _, variable := range []string{
			"LD_PRELOAD=" + filepath.Join(l.dir, "librnicd_verbs.so"), "LD_LIBRARY_PATH=" + dir,
		} {
			t.Run(when+" "+variable[:len("LD_PRELOAD")], func(t *testing.T) {
				cmd := exec.Command(program, when)
				cmd.Env = append(os.Environ(), variable)
				allWell(t, l.Start(t, cmd))
			})
		}
	}
}

// No call but those that wait for events is a point of cancellation: recv and pause wait there,
// getaddrinfo is the system's, and while the engine is loaded, which may print, cancellation is
// deferred.
func TestCancel(t *testing.T) {
	l := newLab(t)
	out := must(exec.Command("nm", "-D", "--undefined-only",
		filepath.Join(l.dir, "librnicd_verbs.so")).Output())(t)
	waits := map[string]bool{}
	for _, m := range cancellationPoint.FindAllStringSubmatch(string(out), -1) {
		waits[m[1]] = true
	}
	require.Equal(t, map[string]bool{"recv": true, "pause": true, "getaddrinfo": true,
		"fprintf": true}, waits)
	allWell(t, l.run("gcc", l.compile("cancel")))
}

// A thread of the program's that polls keeps its signals and its stacks, small ones too.
func TestTurns(t *testing.T) {
	l := newLab(t)
	engine := must(os.ReadFile(filepath.Join(l.dir, "librnicd_engine.so")))(t)
	require.True(t, strings.Contains(string(engine), "asyncpreemptoff=1"), "cshared/build.sh sets it")
	allWell(t, l.run("gcc", l.compile("turns")))
}

// The walk, and threads that read events while others destroy what those name, find no fault of
// the C library's, nor a leak, under the sanitizers of gcc: it and the programs are built with
// them.
func TestUnderSanitizers(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	for _, x := range []struct {
		sanitizers, preload string
	}{{"address,undefined", "libasan.so"}, {"thread", "libtsan.so"}} {
		t.Run(x.sanitizers, func(t *testing.T) {
			l := newLab(t)
			shim := filepath.Join(t.TempDir(), "librnicd_verbs.so")
			flags := "-O1 -g -fno-sanitize-recover=undefined -fsanitize=" + x.sanitizers
			build := exec.Command("shim/build.sh", shim)
			// which knows no fences: it finds more than there is
			build.Env = append(os.Environ(), "CFLAGS="+flags+" -Wno-tsan")
			out, err := build.CombinedOutput()
			require.NoError(t, err, "%s", out)
			library := must(exec.Command("gcc", "-print-file-name="+x.preload).Output())(t)
			for _, name := range []string{"api", "contracts", "race", "cancel"} {
				program := l.compileWith(strings.Fields(flags), name)
				// the thread sanitizer knows few layouts of memory
				cmd := exec.Command("setarch", "-R", program)
				cmd.Env = append(os.Environ(), "LD_PRELOAD="+strings.TrimSpace(string(library))+":"+shim,
					"RNICD_ENGINE="+filepath.Join(l.dir, "librnicd_engine.so"))
				p := l.Start(t, cmd)
				require.Zero(t, p.Wait(t), "%s: %s", name, p)
				p.Expect(t, 1, "^all well$")
			}
			paths := exec.Command("setarch", "-R", l.compileAlone("paths",
				append(strings.Fields(flags), "-libverbs", "-lpthread", "-DSANITIZED")...), "lo")
			paths.Env = append(os.Environ(), "LD_PRELOAD="+strings.TrimSpace(string(library))+":"+shim,
				"RNICD_DEVICE=roce")
			p := l.Start(t, paths)
			require.Zero(t, p.Wait(t), "%s", p)
		})
	}
}

// Nor does valgrind, in what is C. It does not know Go's stacks, on which it finds much. It runs
// one thread at a time: in turns, so that none that polls keeps the engine's from running.
func TestAPIUnderValgrind(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	if _, err := exec.LookPath("valgrind"); err != nil {
		skip.Missing(t, "needs valgrind")
	}
	l := newLab(t)
	dir := t.TempDir()
	cmd := exec.Command("valgrind", "-q", "--fair-sched=yes", "--error-limit=no",
		"--log-file="+filepath.Join(dir, "%p"), l.compile("api"))
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+filepath.Join(l.dir, "librnicd_verbs.so"))
	p := l.Start(t, cmd)
	require.Zero(t, p.WaitFor(t, 5*netlab.Patience), "%s", p) // valgrind computes for 40 s
	p.Expect(t, 1, "^all well$")
	logs := must(filepath.Glob(filepath.Join(dir, "*")))(t)
	require.NotEmpty(t, logs)
	for _, name := range logs {
		text := must(os.ReadFile(name))(t)
		for _, finding := range findings(string(text)) {
			t.Errorf("%s", finding)
		}
	}
}

var (
	// of a finding
	valgrindEnd = regexp.MustCompile(`(?m)^==\d+== *\n`)
	// a line of a stack
	valgrindFrame = regexp.MustCompile(`(?m)^==\d+== +(at|by) 0x`)
	// one of Go code
	engineFrame = regexp.MustCompile(
		`(?m)^==\d+== +(at|by) .*(\.go:|\.s:|<autogenerated>:|_engine\.so)`)
)

// findings are those of valgrind's that have no Go code on their stack.
func findings(log string) (all []string) {
	for _, text := range valgrindEnd.Split(log, -1) {
		if valgrindFrame.MatchString(text) && !engineFrame.MatchString(text) {
			all = append(all, text)
		}
	}
	return all
}

func TestFindings(t *testing.T) {
	const log = "==7== Syscall param write(buf) points to unaddressable byte(s)\n==7==    at " +
		"0x5066E0E: Syscall6 (asm_linux_amd64.s:36)\n==7== \n" +
		"==7== Invalid read of size 4\n==7==    at 0x4A: post (post.c:7)\n==7==    by 0x4B: main " +
		"(api.c:8)\n==7==  Address 0x0\n==7== \n"
	require.Len(t, findings(log), 1)
	require.Contains(t, findings(log)[0], "post.c:7")
}

// Functions that pthreads(7) has for points of cancellation, or that may be.
var cancellationPoint = regexp.MustCompile(`(?m) U (accept4?|close|connect|creat|fdatasync|fsync|` +
	`nanosleep|clock_nanosleep|usleep|sleep|open(?:at)?(?:64)?|pause|p?poll|p?select|epoll_p?wait|` +
	`p?readv?(?:64)?|p?writev?(?:64)?|recv(?:from|mm?sg)?|send(?:to|mm?sg)?|sem_(?:timed)?wait|` +
	`sigpause|sigsuspend|sigtimedwait|sigwait(?:info)?|system|tcdrain|wait(?:pid|id|[34])?|` +
	`pthread_(?:join|cond_(?:timed)?wait|testcancel)|f?printf|f(?:open|close|read|write|gets|puts)|` +
	`syslog|perror|popen|getaddrinfo|getnameinfo)@`)

// Programs that use no verbs are as before.
func TestOtherPrograms(t *testing.T) {
	l := newLab(t)
	p := l.run("coreutils", "sh", "-c", "echo $(cat /proc/self/maps | grep -c librnicd_engine)")
	require.Zero(t, p.Wait(t))
	require.Equal(t, "0", strings.TrimSpace(p.String()), "the engine is loaded only when it is needed")
}

// A program that uses no verbs starts at most a millisecond later: the engine is not loaded, and
// what the loader does is little. The least of many starts, in turns, is what the machine's other
// work leaves alone.
func TestPreloadIsCheap(t *testing.T) {
	l := newLab(t)
	least := map[string]time.Duration{}
	for range 25 {
		for _, preload := range []string{"", filepath.Join(l.dir, "librnicd_verbs.so")} {
			cmd := exec.Command("/bin/true")
			cmd.Env = append(os.Environ(), "LD_PRELOAD="+preload)
			began := time.Now()
			require.NoError(t, cmd.Run())
			took := time.Since(began)
			if least[preload] == 0 || took < least[preload] {
				least[preload] = took
			}
		}
	}
	with, without := least[filepath.Join(l.dir, "librnicd_verbs.so")], least[""]
	t.Logf("/bin/true: %v, preloaded %v", without, with)
	require.Less(t, with-without, time.Millisecond)
}

// A program that is killed, at whichever moment, takes its sockets with it, and the peer hears of
// that each time, and ends by itself.
func TestKilledAtAnyMoment(t *testing.T) {
	l := newLab(t)
	for i := range sample.Count(2, 100) {
		server := l.run("rdmacm-utils", "rping", "-s", "-v", "-a", here.String())
		l.untilListening(rpingPort)
		client := l.run("rdmacm-utils", "rping", "-c", "-v", "-a", here.String())
		dead, other := server, client
		if i%2 == 1 {
			dead, other = client, server
		}
		dead.Expect(t, 1+rand.IntN(30), "ping data") // so many lines; anything may be under way then
		dead.Signal(t, syscall.SIGKILL)
		require.Equal(t, 128+int(syscall.SIGKILL), dead.Wait(t))
		other.Wait(t)
		require.Contains(t, other.String(), "DISCONNECT EVENT", "time %d", i)
		require.False(t, l.listens(rpingPort))
	}
}

// A child of fork is refused its parent's objects, by every call about them, and has an engine of
// its own when it opens the device.
func TestFork(t *testing.T) {
	program := must(os.ReadFile("../test/verbs/forks.c"))(t)
	symbols := must(os.ReadFile("shim/shim.map"))(t)
	for _, name := range regexp.MustCompile(`\b_?(?:ibv|rdma)_\w+`).FindAllString(
		string(symbols), -1) {
		if !allowedInChild.MatchString(name) {
			require.True(t, bytes.Contains(program, []byte(name+"(")), "%s is not called", name)
		}
	}
	l := newLab(t)
	allWell(t, l.run("gcc", l.compile("forks")))
}

// Calls that do in a child what they do in its parent: about no object, or one of the child's own,
// or what its memory tells; acknowledgements; the end of its copies of descriptors; and what is
// refused everywhere.
var allowedInChild = regexp.MustCompile(`^_?(ibv_(.*_str|.*rate.*|.*sysfs.*|.*fork.*|` +
	`.*_device_(list|name|guid|index)|open_device|close_device|` +
	`query_(device|port(_speed)?|gid.*|pkey|ece|qp_data_in_order)|get_pkey_index|` +
	`set_ece|.*_ah(_.*)?|.*mcast|.*_from_gid|reg_dmabuf_mr|(un)?import_.*|ack_.*|` +
	`destroy_comp_channel|.*_dmah|.*comp_cntr.*|.*_buf(_.*)?|dm_export_.*|` +
	`reg_mr_ex)|rdma_(write_cm_event|event_str|.*addrinfo|.*devices|(set|get)_.*_ece|` +
	`.*multicast.*|init_qp_attr|get_(src|dst)_port|create_ep|` +
	`(create|destroy)_event_channel|ack_.*))$`)

// Registered memory that the program unmaps, protects or cuts short costs the connection that
// reaches for it, at worst; also of a program with a library that has hooks in the C library's
// functions, which hears of all calls.
func TestUnmap(t *testing.T) {
	l := newLab(t)
	program := l.compile("unmap")
	for _, args := range [][]string{{program}, {program, "hooked"}} {
		if len(args) > 1 && runtime.GOARCH != "amd64" { // whose code it writes
			continue
		}
		allWell(t, l.run("gcc", args...))
	}
}
