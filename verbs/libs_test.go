package verbs

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
	// the libraries are made of it: go test runs again when it has changed
	_ "github.com/rnicd/rnicd/verbs/internal/engine"
)

// programs: make verbs says so, and make test does not.
var programs = flag.Bool("programs", false, "with -short, run what else is left to make verbs, too")

// leftToMakeVerbs: make test runs other cases of the same, and not this one.
func leftToMakeVerbs() bool { return testing.Short() && !*programs }

// sources are what else the libraries and programs are made of; go test knows that a test has
// read them.
var sources = []string{"shim", "internal/ring", "cshared", "../cmd/rnicd", "../test/verbs"}

var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// libraries builds the two libraries and rnicd, once, and returns their directory.
func libraries(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("/usr/include/rdma/rdma_cma.h"); err != nil {
		skip.Missing(t, "needs the headers of libibverbs-dev and librdmacm-dev")
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		skip.Missing(t, "needs gcc")
	}
	for _, dir := range sources {
		_, err := os.ReadDir(dir)
		require.NoError(t, err)
	}
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "rnicd-verbs-"); built.err != nil {
			return
		}
		var building sync.WaitGroup // compilers and linkers leave cores idle, one after the other
		var errs [2]error
		building.Go(func() { errs[0] = netlab.BuildLibraries("..", built.dir) })
		building.Go(func() { errs[1] = netlab.BuildProgram("..", built.dir, tags()...) })
		building.Wait()
		built.err = errors.Join(errs[:]...)
	})
	require.NoError(t, built.err)
	return built.dir
}

// tags are those of the tests of cmd/rnicd: one compile serves both.
func tags() []string {
	if exec.Command("pkg-config", "--exists", "libdpdk").Run() != nil {
		return nil
	}
	return []string{"-tags", "dpdk"}
}

// lab is a namespace in which programs find each other by loopback.
type lab struct {
	*netlab.Namespace
	t   *testing.T
	dir string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	return &lab{t: t, dir: libraries(t), Namespace: netlab.New(t)}
}

// run starts a program by rnicd run; need names Debian's package that has it.
func (l *lab) run(need string, args ...string) *netlab.Process {
	l.t.Helper()
	if _, err := exec.LookPath(args[0]); err != nil {
		skip.Missing(l.t, "needs %s, of Debian's package %s", args[0], need)
	}
	return l.Start(
		l.t, exec.Command(filepath.Join(l.dir, "rnicd"), append([]string{"run", "--"}, args...)...))
}

// runQuiet is run with flags, without --verbose.
func (l *lab) runQuiet(flags string, args ...string) *netlab.Process {
	l.t.Helper()
	all := append(append([]string{"run"}, strings.Fields(flags)...), "--")
	return l.Start(l.t, exec.Command(filepath.Join(l.dir, "rnicd"), append(all, args...)...))
}

// untilListening waits until somebody listens at port.
func (l *lab) untilListening(port uint16) {
	l.t.Helper()
	require.Eventually(l.t, func() bool {
		return l.listens(port)
	}, netlab.Patience, 5*time.Millisecond, "a listener at port %d", port)
}

// listens looks into the namespace's table of TCP sockets.
func (l *lab) listens(port uint16) bool { return l.has("0A", port, "tcp", "tcp6") }

// memifCable are flags of both ends of a cable of shared memory.
func memifCable(t *testing.T) string {
	return "--pmd memif --no-dad --socket " + filepath.Join(t.TempDir(), "memif")
}

// bothEnd waits for the ends of a client and of its server, which are well.
func bothEnd(t *testing.T, client, server *netlab.Process) {
	t.Helper()
	require.Zero(t, client.Wait(t), "client:\n%s\nserver:\n%s", client, server)
	require.Zero(t, server.Wait(t), "server:\n%s\nclient:\n%s", server, client)
}

// untilBound waits for a socket of UDP.
func (l *lab) untilBound(port uint16) {
	l.t.Helper()
	require.Eventually(l.t, func() bool {
		return l.has("07", port, "udp", "udp6")
	}, netlab.Patience, 5*time.Millisecond, "a socket at port %d", port)
}

// has looks for a socket in a state in the namespace's tables.
func (l *lab) has(state string, port uint16, files ...string) (found bool) {
	l.Do(func() {
		for _, file := range files {
			text, err := os.ReadFile("/proc/thread-self/net/" + file)
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(text)) {
				f := strings.Fields(line)
				if len(f) > 3 && f[3] == state && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
					found = true
				}
			}
		}
	})
	return found
}

// here is the address of both ends.
var here = netip.MustParseAddr("127.0.0.1")

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}
