package dpdk

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompleteArgs(t *testing.T) {
	huge := host{hugeOctets: 64 << 20, cpus: []int{0, 1, 2, 5}, pid: 42}
	none := host{cpus: []int{3}, pid: 42}
	few := host{hugeOctets: hugeMin - 1, cpus: []int{3}, pid: 42}
	alone := []string{"--lcores=0@(3)", "--file-prefix=rnicd-42", "--no-telemetry", "--log-level=4"}
	small := append(alone[:4:4], "--no-huge", "--no-shconf", "-m256", "--no-pci", "--iova-mode=va")
	common := []string{"--lcores=0@(0-2,5)", "--file-prefix=rnicd-42", "--no-telemetry",
		"--log-level=4"}
	for _, c := range []struct {
		what string
		user []string
		pci  string
		host host
		want []string
	}{
		{"nothing said", nil, "", huge,
			append(common[:4:4], "--in-memory", "--no-pci", "--iova-mode=va")},
		{"no hugepages", nil, "", none, small},
		{"too few hugepages", nil, "", few, small},
		{"no hugepages, own amount", []string{"-m", "64"}, "", none, append(append(
			[]string{"-m", "64"}, alone...), "--no-huge", "--no-shconf", "--no-pci", "--iova-mode=va")},
		{"a NIC", nil, "0000:01:00.0,x=1", huge,
			append(common[:4:4], "--in-memory", "-a", "0000:01:00.0,x=1")},
		{"a NIC named already", []string{"-a0000:01:00.0"}, "0000:01:00.0", huge,
			append(append([]string{"-a0000:01:00.0"}, common...), "--in-memory")},
		{"another NIC", []string{"-a", "0000:02:00.0"}, "", huge,
			append(append([]string{"-a", "0000:02:00.0"}, common...), "--in-memory")},
		{"everything said", []string{"-l", "1", "--file-prefix=x", "--telemetry", "--log-level", "8",
			"--no-huge", "--no-pci"}, "", huge, []string{"-l", "1", "--file-prefix=x", "--telemetry",
			"--log-level", "8", "--no-huge", "--no-pci"}},
		{"hugetlbfs", []string{"--huge-dir=/mnt/huge"}, "", huge,
			append(append([]string{"--huge-dir=/mnt/huge"}, common...), "--no-pci", "--iova-mode=va")},
		{"physical addresses", []string{"--iova-mode=pa"}, "", huge,
			append(append([]string{"--iova-mode=pa"}, common...), "--in-memory", "--no-pci")},
		{"core list without a space", []string{"-l1,2"}, "", huge,
			[]string{"-l1,2", "--file-prefix=rnicd-42", "--no-telemetry", "--log-level=4", "--in-memory",
				"--no-pci", "--iova-mode=va"}},
	} {
		require.Equal(t, c.want, completeArgs(c.user, c.pci, c.host), c.what)
	}
}

func TestCPUList(t *testing.T) {
	for want, cpus := range map[string][]int{
		"": nil, "0": {0}, "0-1": {0, 1}, "1,3": {1, 3}, "0-3,8,10-11": {0, 1, 2, 3, 8, 10, 11},
	} {
		require.Equal(t, want, cpuList(cpus))
	}
}

func TestConfigDevice(t *testing.T) {
	c := Config{Vdev: "net_tap0,iface=rnic0,mac=fixed"}
	require.Equal(t, "net_tap0", c.device())
	require.Equal(t, "iface=rnic0,mac=fixed", c.deviceArgs())
	c = Config{PCI: "0000:01:00.0"}
	require.Equal(t, "0000:01:00.0", c.device())
	require.Empty(t, c.deviceArgs())
}
