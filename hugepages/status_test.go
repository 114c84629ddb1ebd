package hugepages

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// tree writes files below a new directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return root
}

func twoNodes() map[string]string {
	return map[string]string{
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":                   "96\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages":                 "70\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages":                 "6\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages":              "1\n",
		"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages":                "2\n",
		"sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages":              "2\n",
		"sys/devices/system/node/online":                                          "0,2\n",
		"sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages":   "64\n",
		"sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages": "60\n",
		"sys/devices/system/node/node2/hugepages/hugepages-2048kB/nr_hugepages":   "32\n",
		"sys/devices/system/node/node2/hugepages/hugepages-2048kB/free_hugepages": "10\n",
	}
}

func TestStatusOfTwoNodes(t *testing.T) {
	s := must(readStatus(tree(t, twoNodes())))(t)
	require.Equal(t, []PoolStatus{
		{Page: Page2MiB, Node: AnyNode, Total: 96, Free: 70, Reserved: 6, Surplus: 1},
		{Page: Page2MiB, Node: 0, Total: 64, Free: 60},
		{Page: Page2MiB, Node: 2, Total: 32, Free: 10},
		{Page: Page1GiB, Node: AnyNode, Total: 2, Free: 2},
	}, s.Pools)
	p, ok := s.Pool(Page2MiB, AnyNode)
	require.True(t, ok)
	require.EqualValues(t, 64, p.Available())
	_, ok = s.Pool(Page1GiB, 2)
	require.False(t, ok)
	require.Equal(t, "hugepages: 2 MiB, system: 96 total, 70 free, 6 of them promised\n"+
		"hugepages: 2 MiB, node 0: 64 total, 60 free\n"+
		"hugepages: 2 MiB, node 2: 32 total, 10 free\n"+
		"hugepages: 1 GiB, system: 2 total, 2 free\n", s.String())
}

func TestStatusWithoutHugepages(t *testing.T) {
	s := must(readStatus(t.TempDir()))(t)
	require.Equal(t, "hugepages: the kernel has none\n", s.String())
}

func TestStatusOfBrokenTree(t *testing.T) {
	for name, content := range map[string]string{
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":   "many",
		"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "",
		"sys/kernel/mm/hugepages/hugepages-xkB/nr_hugepages":      "1",
		"sys/devices/system/node/online":                          "0-x",
	} {
		files := twoNodes()
		files[name] = content
		_, err := readStatus(tree(t, files))
		require.Error(t, err, name)
	}
	files := twoNodes()
	delete(files, "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
	_, err := readStatus(tree(t, files))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestParseList(t *testing.T) {
	for s, want := range map[string][]int{"": nil, "0": {0}, "0-3": {0, 1, 2, 3},
		"1,3-4,9": {1, 3, 4, 9}} {
		got := must(parseList(s))(t)
		require.Equal(t, want, got, s)
	}
	for _, s := range []string{"-", "a", "3-1", "0-", "-1", "0-99999999", ","} {
		_, err := parseList(s)
		require.Error(t, err, s)
	}
}

func TestMemoryOfNestedGroups(t *testing.T) {
	meminfo := "MemTotal:       1000000 kB\nMemFree: 5 kB\nMemAvailable:    600000 " +
		"kB\nHugePages_Total: 0\n"
	root := tree(t, map[string]string{"proc/meminfo": meminfo})
	m, err := readMemory(root)
	require.NoError(t, err)
	require.Equal(t, memory{total: 1000000 << 10, available: 600000 << 10}, m)

	root = tree(t, map[string]string{
		"proc/meminfo":                         meminfo,
		"proc/self/cgroup":                     "1:name=systemd:/x\n0::/pod/box\n",
		"sys/fs/cgroup/pod/memory.max":         "5000000\n",
		"sys/fs/cgroup/pod/memory.current":     "4000000\n",
		"sys/fs/cgroup/pod/memory.stat":        "anon 7\ninactive_file 500000\n",
		"sys/fs/cgroup/pod/box/memory.max":     "max\n",
		"sys/fs/cgroup/pod/box/memory.current": "1\n",
	})
	m, err = readMemory(root)
	require.NoError(t, err)
	require.EqualValues(t, 1_500_000, m.available)

	root = tree(t, map[string]string{
		"proc/meminfo":     meminfo,
		"proc/self/cgroup": "9:cpu,cpuacct:/no\n4:memory:/docker/box\n0::/\n",
		"sys/fs/cgroup/memory/docker/memory.limit_in_bytes":     "9223372036854771712\n",
		"sys/fs/cgroup/memory/docker/memory.usage_in_bytes":     "1\n",
		"sys/fs/cgroup/memory/docker/box/memory.limit_in_bytes": "7000000\n",
		"sys/fs/cgroup/memory/docker/box/memory.usage_in_bytes": "5000000\n",
		"sys/fs/cgroup/memory/docker/box/memory.stat":           "inactive_file 3\ntotal_inactive_file 250000\n",
	})
	m, err = readMemory(root)
	require.NoError(t, err)
	require.EqualValues(t, 2_250_000, m.available)

	_, err = readMemory(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = readMemory(tree(t, map[string]string{"proc/meminfo": "MemTotal: 1 kB\n"}))
	require.ErrorContains(t, err, "MemAvailable")
}
