package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The least quota of all groups counts, of either version; without one all CPUs are there.
func TestCPUQuota(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  Quota
	}{
		"none": {nil, Quota{}},
		"unlimited": {map[string]string{"proc/self/cgroup": "0::/a",
			"sys/fs/cgroup/a/cpu.max": "max 100000"}, Quota{}},
		"version 2": {map[string]string{
			"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "50000 100000",
			"sys/fs/cgroup/a/b/cpu.max": "300000 100000",
			"sys/fs/cgroup/a/cpu.stat":  "nr_periods 100\nnr_throttled 99\nthrottled_usec 2500000",
		}, Quota{0.5, "/sys/fs/cgroup/a/cpu.max", 99, 2_500_000_000}},
		"version 1": {map[string]string{
			"proc/self/cgroup": "3:cpu,cpuacct:/x", "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "150000",
			"sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000",
			"sys/fs/cgroup/cpu/x/cpu.stat":          "nr_throttled 3\nthrottled_time 77",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":    "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
		}, Quota{1.5, "/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", 3, 77}},
	} {
		root := t.TempDir()
		for path, text := range tc.files {
			path = filepath.Join(root, path)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
		}
		require.Equal(t, tc.want, CPUQuota(root), name)
	}
}
