package hugepages

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const pool2M = "sys/kernel/mm/hugepages/hugepages-2048kB/"

// pool is a machine with total pages of 2 MiB, of which some are free and some of those promised.
func pool(total, free, promised int) map[string]string {
	return map[string]string{
		pool2M + "nr_hugepages": fmt.Sprint(total), pool2M + "free_hugepages": fmt.Sprint(free),
		pool2M + "resv_hugepages": fmt.Sprint(promised),
	}
}

// What a mapping can have is bounded by the pool, less what is promised, and by every control group
// around the process, of either version.
func TestRoom(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		pages int64
		limit string
	}{
		"no group": {nil, 412, ""},
		"unlimited": {map[string]string{"proc/self/cgroup": "0::/a",
			"sys/fs/cgroup/a/hugetlb.2MB.max": "max", "sys/fs/cgroup/a/hugetlb.2MB.current": "0"}, 412, ""},
		"a pod": {map[string]string{"proc/self/cgroup": "0::/", "sys/fs/cgroup/hugetlb.2MB.max": "0",
			"sys/fs/cgroup/hugetlb.2MB.current": "0"},
			0, "/sys/fs/cgroup/hugetlb.2MB.max"},
		"a group above": {map[string]string{"proc/self/cgroup": "0::/a/b",
			"sys/fs/cgroup/a/hugetlb.2MB.max": "20971520", "sys/fs/cgroup/a/hugetlb.2MB.current": "4194304"},
			8, "/sys/fs/cgroup/a/hugetlb.2MB.max"},
		"promises": {map[string]string{"proc/self/cgroup": "0::/a",
			"sys/fs/cgroup/a/hugetlb.2MB.rsvd.max":     "2097152",
			"sys/fs/cgroup/a/hugetlb.2MB.rsvd.current": "0"},
			1, "/sys/fs/cgroup/a/hugetlb.2MB.rsvd.max"},
		"version 1": {map[string]string{"proc/self/cgroup": "3:hugetlb:/x\n0::/",
			"sys/fs/cgroup/hugetlb/x/hugetlb.2MB.limit_in_bytes": "6291456",
			"sys/fs/cgroup/hugetlb/x/hugetlb.2MB.usage_in_bytes": "0"}, 3,
			"/sys/fs/cgroup/hugetlb/x/hugetlb.2MB.limit_in_bytes"},
		"more than the pool": {map[string]string{"proc/self/cgroup": "0::/a",
			"sys/fs/cgroup/a/hugetlb.2MB.max": "2097152000", "sys/fs/cgroup/a/hugetlb.2MB.current": "0"},
			412, "/sys/fs/cgroup/a/hugetlb.2MB.max"},
	} {
		t.Run(name, func(t *testing.T) {
			files := pool(512, 512, 100)
			for path, text := range tc.files {
				files[path] = text
			}
			r := RoomAt(tree(t, files), Page2MiB, AnyNode)
			require.Equal(t, tc.pages, r.Pages())
			require.Equal(t, tc.limit, r.Limit)
			require.Zero(t, RoomAt(tree(t, files), Page1GiB, AnyNode).Pages(), "there is no such pool")
		})
	}
}

// One answer of the kernel, ENOMEM, means several things; each has its own remedy, and none makes a
// pool smaller.
func TestCause(t *testing.T) {
	enomem := fmt.Errorf("%w: mmap: %w", errShort, unix.ENOMEM)
	of := func(total, free, promised int, group ...string) error {
		files := pool(total, free, promised)
		if len(group) > 0 {
			files["proc/self/cgroup"], files["sys/fs/cgroup/pod/hugetlb.2MB.max"],
				files["sys/fs/cgroup/pod/hugetlb.2MB.current"] = "0::/pod", group[0], "0"
		}
		return cause(RoomAt(tree(t, files), Page2MiB, AnyNode), AnyNode, Page2MiB, 8, enomem)
	}
	require.EqualError(t, of(512, 5, 0),
		"hugepages: 8 pages of 2 MiB wanted, 5 free; run hugepages/setup.sh 515")
	require.EqualError(t, of(512, 509, 504),
		"hugepages: 8 pages of 2 MiB wanted, 5 free; run hugepages/setup.sh 515")
	require.EqualError(t, of(512, 509, 0, "0"),
		"hugepages: 8 pages of 2 MiB wanted, 0 more allowed by /sys/fs/cgroup/pod/hugetlb.2MB.max;"+
			" raise that limit (Kubernetes: resources.limits hugepages-2Mi)")
	require.EqualError(t, of(512, 0, 0, "2097152"),
		"hugepages: 8 pages of 2 MiB wanted, 0 free; run hugepages/setup.sh 520")
	require.Regexp(t, `cannot allocate memory, although 509 are free(; RLIMIT_AS is .*)?$`,
		of(512, 509, 0).Error())
	for _, err := range []error{of(512, 5, 0), of(512, 509, 0, "0"), of(512, 509, 0)} {
		require.ErrorIs(t, err, unix.ENOMEM)
	}
}
