//go:build dpdk

package dpdk

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/internal/skip"
)

// childVar names what a test process does instead of running as a whole: the EAL starts once per
// process.
const childVar = "RNICD_DPDK_TEST_CHILD"

// child runs one test of this program in a process of its own.
func child(t *testing.T, test string, env ...string) string {
	t.Helper()
	self := must(os.Executable())(t)
	c := exec.Command(self, "-test.run=^("+test+")$", "-test.v", "-test.timeout=60s")
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: ", "no test ran")
	return string(out)
}

// The ring tests again, each way a machine may give memory to the EAL and addresses to devices.
func TestEnvironments(t *testing.T) {
	const tests = "TestRing.*|TestNull.*|TestMemif.*"
	for _, c := range sample.Of(t, 1, []struct{ args, normal, want string }{
		{"--iova-mode=pa", "", "physical addresses: true"},
		{"--iova-mode=pa", "1", "physical addresses: true"},
		{"--iova-mode=va", "1", "physical addresses: false"},
		{"--no-huge --no-shconf -m256", "1", "physical addresses: false"},
	}) {
		t.Run(strings.ReplaceAll(c.args, " ", "")+"/normal="+c.normal, func(t *testing.T) {
			if strings.Contains(c.args, "pa") && os.Geteuid() != 0 {
				skip.Missing(t, "physical addresses are for root")
			}
			const pages = 16
			if free := freeHugepages(t); !strings.Contains(c.args, "no-huge") && free < pages {
				skip.Hugepages(t, pages, fmt.Errorf("%d free", free))
			}
			out := child(t, tests, ealArgsVar+"="+c.args, pageVar+"="+c.normal)
			require.Contains(t, out, c.want)
			for line := range strings.Lines(out) {
				if strings.Contains(line, "physical addresses") {
					t.Log(strings.TrimSpace(line))
				}
			}
		})
	}
}

func freeHugepages(t *testing.T) int64 {
	t.Helper()
	s := must(hugepages.SystemStatus())(t)
	p, _ := s.Pool(hugepages.Page2MiB, hugepages.AnyNode)
	return p.Available()
}

// What a failed start says, and that it stays failed.
func TestFailedStart(t *testing.T) {
	if os.Getenv(childVar) != "failed" {
		child(t, "TestFailedStart", childVar+"=failed")
		return
	}
	args := []string{"--in-memory", "--no-huge"}
	first := Init(args)
	require.ErrorContains(t, first, "rte_eal_init")
	require.ErrorContains(t, first, "Invalid argument")
	require.ErrorContains(t, first, "--no-huge")
	t.Log(first)
	second := Init(nil)
	require.ErrorContains(t, second, "restart the program")
	require.ErrorIs(t, second, Errno(unix.EINVAL))
	t.Log(second)
	_, err := Open(Config{Vdev: "net_null0", Arena: hugepages.Heap(1 << 20)})
	require.ErrorContains(t, err, "restart the program")
}

func TestHelpIsRefused(t *testing.T) {
	if os.Getenv(childVar) != "help" {
		child(t, "TestHelpIsRefused", childVar+"=help")
		return
	}
	require.ErrorContains(t, Init([]string{"--help"}), "would end the process")
	require.NoError(t, Init(nil), "nothing was tried yet")
}

// One directory per process id would pile up.
func TestNoRuntimeDirectoryIsLeft(t *testing.T) {
	start(t)
	left := must(filepath.Glob(fmt.Sprintf("/var/run/dpdk/rnicd-%d", os.Getpid())))(t)
	require.Empty(t, left)
}

func TestSecondInit(t *testing.T) {
	start(t)
	require.NoError(t, Init(testArgs()))
	require.NoError(t, Init(nil))
	err := Init([]string{"--legacy-mem"})
	require.ErrorContains(t, err, "already runs with arguments")
	_, err = Open(Config{PCI: "0000:ff:1f.7", Arena: newArena(t, 1<<21)})
	require.ErrorContains(t, err, "without PCI")
}

// rte_eal_init pins its caller; ours must not notice.
func TestThreadsKeepTheirAffinity(t *testing.T) {
	if os.Getenv(childVar) != "affinity" {
		child(t, "TestThreadsKeepTheirAffinity", childVar+"=affinity")
		return
	}
	before := affinities(t)
	start(t)
	after := affinities(t)
	for tid, set := range before {
		require.Equal(t, set, after[tid], "thread %s", tid)
	}
	require.Greater(t, len(after), len(before), "the EAL has threads of its own")
	// A single lcore for all CPUs: no worker threads, and helpers that may run anywhere.
	var all unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &all))
	for tid, set := range after {
		require.Equal(t, all, set, "thread %s", tid)
	}
}

func affinities(t *testing.T) map[string]unix.CPUSet {
	t.Helper()
	tasks := must(filepath.Glob("/proc/self/task/*"))(t)
	sets := map[string]unix.CPUSet{}
	for _, task := range tasks {
		var tid int
		must(fmt.Sscan(filepath.Base(task), &tid))(t)
		var set unix.CPUSet
		if unix.SchedGetaffinity(tid, &set) == nil {
			sets[filepath.Base(task)] = set
		}
	}
	return sets
}

// A device that is not there, and what is wrong with a configuration, in an operator's words.
func TestOpenErrors(t *testing.T) {
	start(t)
	a := newArena(t, 1<<22)
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Arena: a}, "no device"},
		{Config{Vdev: "net_null0"}, "no Arena"},
		{Config{Vdev: "net_null0", PCI: "0000:00:00.0", Arena: a}, "give one of them"},
		{Config{Vdev: "net_nonesuch0", Arena: a}, "no such virtual device"},
		{Config{Vdev: "net_af_packet0,iface=nonesuch", Arena: a},
			probeAdvice("vdev", Errno(syscall.EPERM))},
		{Config{Vdev: "net_null0", Arena: a, MTU: 67}, "MTU is 67"},
		{Config{Vdev: "net_null0", Arena: a, MTU: 65536}, "MTU is 65536"},
		{Config{Vdev: "net_null0", Arena: a, Queues: 65}, "Queues is 65"},
		{Config{Vdev: "net_ring7", Arena: a, Queues: 17}, "has 16 queue pairs, 17 wanted"},
		{Config{Vdev: "net_null0", Arena: a, RxDesc: 40000}, "RxDesc is 40000"},
	} {
		require.ErrorContains(t, errOf(Open(c.cfg)), c.want)
	}
	p, err := Open(Config{Vdev: "net_null0", Arena: a})
	require.NoError(t, err, "failures left nothing behind")
	_, err = Open(Config{Vdev: "net_null0", Arena: a})
	require.ErrorContains(t, err, "already open")
	_, err = p.Open(0, newPool(t, hugepages.Heap(1<<18), 64, 2048))
	require.ErrorContains(t, err, "does not lie in Config.Arena")
	_, err = p.Open(0, newPool(t, a, 64, 1600))
	require.ErrorContains(t, err, "stride of at least")
	require.NoError(t, p.Close())
	_, err = p.Open(0, nil)
	require.ErrorContains(t, err, "is closed")
	p = must(Open(Config{Vdev: "net_null0", Arena: a, RxBufs: 64, RxDesc: 64}))(t)
	_, err = p.Open(0, newPool(t, a, 128, 2048))
	require.ErrorContains(t, err, "do not even fill 64 descriptors")
	require.NoError(t, p.Close())
}

// An arena on the Go heap serves too: it is pinned.
func TestHeapArena(t *testing.T) {
	if testArgsSay("pa") {
		skip.Missing(t, "the Go heap's pages have no lasting physical address")
	}
	s := openSide(t, Config{Vdev: "net_ring8", Arena: hugepages.Heap(512*2048 + 1<<16)}, 512, 2048)
	want := frame(newRand(t), 300)
	s.send(t, want)
	require.Equal(t, [][]byte{want}, s.receive(t, 1, nil))
	s.settled(t)
}

// Two ports over one Arena; the registration ends with the second.
func TestTwoPortsShareAnArena(t *testing.T) {
	start(t)
	a := newArena(t, 2*512*2048+1<<16)
	x := openSide(t, Config{Vdev: "net_ring5", Arena: a}, 512, 2048)
	y := openSide(t, Config{Vdev: "net_ring6", Arena: a}, 512, 2048)
	require.Equal(t, 2, x.port.memory.ports)
	require.NoError(t, x.port.Close())
	want := frame(newRand(t), 300)
	y.send(t, want)
	require.Equal(t, [][]byte{want}, y.receive(t, 1, nil))
	y.settled(t)
	require.NoError(t, y.port.Close())
	require.Empty(t, arenas)
	p, err := Open(Config{Vdev: "net_ring5", Arena: a})
	require.NoError(t, err, "the arena can be registered again")
	require.NoError(t, p.Close())
}

func testArgsSay(s string) bool { return strings.Contains(os.Getenv(ealArgsVar), s) }
