package hugepages

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/skip"
)

// setup runs setup.sh over the tree below root and returns its exit status and output.
func setup(t *testing.T, root string, args ...string) (int, string) {
	t.Helper()
	if _, err := exec.LookPath("sh"); err != nil {
		skip.Missing(t, "%v", err)
	}
	cmd := exec.Command("sh", append([]string{"./setup.sh"}, args...)...)
	cmd.Env = append(os.Environ(), "SYSROOT="+root)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

func setupTree(t *testing.T) string {
	files := twoNodes()
	files["proc/meminfo"] = "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n"
	files["proc/mounts"] = "proc /proc proc rw 0 0\nhugetlbfs /dev/hugepages hugetlbfs " +
		"rw,pagesize=2M 0 0\n"
	return tree(t, files)
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		skip.Missing(t, "setup.sh reserves as root only")
	}
}

func TestSetupShow(t *testing.T) {
	status, out := setup(t, setupTree(t), "--show")
	require.Zero(t, status)
	require.Equal(t, "1 GiB pages, system: 2 total, 2 free\n"+
		"2 MiB pages, system: 96 total, 70 free, 6 of them promised\n"+
		"2 MiB pages, node 0: 64 total, 60 free\n"+
		"2 MiB pages, node 2: 32 total, 10 free\n"+
		"hugetlbfs on /dev/hugepages (rw,pagesize=2M)\n"+
		"memory: 8192 MiB available\n", out)
}

func TestSetupReserves(t *testing.T) {
	needRoot(t)
	root := setupTree(t)
	status, out := setup(t, root, "128", "--mount")
	require.Zero(t, status, out)
	require.Equal(t, "128 pages of 2 MiB, 70 free (96 before)\nhugetlbfs is mounted on "+
		"/dev/hugepages already\n", out)
	status, out = setup(t, root, "--node", "2", "--size", "2M", "40")
	require.Zero(t, status, out)
	n, err := readInt(
		filepath.Join(root, "sys/devices/system/node/node2/hugepages/hugepages-2048kB/nr_hugepages"))
	require.NoError(t, err)
	require.EqualValues(t, 40, n)
	status, out = setup(t, root, "3", "--size", "1G")
	require.Zero(t, status, out)
	require.Equal(t, "3 pages of 1 GiB, 2 free (2 before)\n", out)
}

func TestSetupRefuses(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{"8000", 1, "7904 more pages of 2 MiB are 15808 MiB, 8192 MiB are available; ask for fewer"},
		{"1 --node 1", 1, "node 1 does not exist; online: 0,2"},
		{"1 --size 1G --node 0", 1, "the kernel has no pages of 1 GiB on node 0"},
		{"1 --size 4K", 2, "--size 4K: must be 2M or 1G"},
		{"1 --node x", 2, "--node x: must be a number"},
		{"1 2", 2, "two numbers of pages: 1 and 2"},
		{"-5", 2, "-5 is neither an option nor a number of pages"},
		{"99999999999999999999", 2, "is neither an option nor a number"},
		{"--size", 2, "--size needs a value"},
		{"", 2, "setup.sh N [--size 2M|1G]"},
	} {
		root := setupTree(t)
		status, out := setup(t, root, strings.Fields(c.args)...)
		require.Equal(t, c.status, status, c.args)
		require.Contains(t, out, c.want)
		s := must(readStatus(root))(t)
		pool, _ := s.Pool(Page2MiB, AnyNode)
		require.EqualValues(t, 96, pool.Total, "a refusal must change nothing")
	}
}

// /dev/null takes any number and gives none back: a kernel that found no pages.
func TestSetupSaysHowManyTheKernelGave(t *testing.T) {
	needRoot(t)
	root := setupTree(t)
	pool := filepath.Join(root, "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
	require.NoError(t, os.Remove(pool))
	require.NoError(t, os.Symlink("/dev/null", pool))
	status, out := setup(t, root, "128")
	require.Equal(t, 3, status)
	require.Contains(t, out, "128 pages of 2 MiB wanted, the kernel gave 0 (0 before)")
}

func TestSetupNeedsRoot(t *testing.T) {
	needRoot(t)
	nobody, err := exec.LookPath("setpriv")
	if err != nil {
		skip.Missing(t, "%v", err)
	}
	script := must(os.ReadFile("setup.sh"))(t)
	for _, args := range []string{"70", "--mount --size 1G"} {
		cmd := exec.Command(nobody, "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-s", "--")
		cmd.Args = append(cmd.Args, strings.Fields(args)...)
		cmd.Stdin = bytes.NewReader(script)
		cmd.Dir = "/"
		out, err := cmd.CombinedOutput()
		if strings.Contains(string(out), "mounted on /dev/hugepages-1G already") {
			continue
		}
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, 1, exit.ExitCode())
		require.Contains(t, string(out), "needs root, this is uid 65534; run sudo hugepages/setup.sh "+
			args)
	}
}

// A real mount, in a mount namespace that ends with the command.
func TestSetupMounts(t *testing.T) {
	needRoot(t)
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		skip.Missing(t, "%v", err)
	}
	if exec.Command(unshare, "-m", "true").Run() != nil {
		skip.Missing(t, "no mount namespaces here")
	}
	_, err = os.Stat("/dev/hugepages")
	if os.IsNotExist(err) {
		defer os.Remove("/dev/hugepages")
	}
	script := "umount /dev/hugepages 2>/dev/null; ./setup.sh --mount && ./setup.sh --mount && " +
		"./setup.sh --show"
	out, err := exec.Command(unshare, "-m", "sh", "-c", script).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "hugetlbfs with pages of 2M mounted on /dev/hugepages\n"+
		"hugetlbfs is mounted on /dev/hugepages already\n")
	require.Regexp(t, `hugetlbfs on /dev/hugepages \(.*pagesize=2M`, string(out))
}
