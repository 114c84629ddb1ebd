package doctor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/port"
)

// good is a machine that lacks nothing: files by path; a value that begins with -> is a symbolic
// link.
func good() map[string]string {
	const nic = "sys/bus/pci/devices/0000:01:00.0/"
	return map[string]string{
		"proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu " +
			"sse4_2 pclmulqdq avx512f vpclmulqdq\n",
		"proc/self/status": "Name:\tx\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-7\n",
		"proc/self/limits": "Limit  Soft Limit  Hard Limit  " +
			"Units\nMax locked memory         8388608              8388608              bytes\n",
		"sys/devices/system/cpu/online":                           "0-7\n",
		"sys/devices/system/cpu/isolated":                         "2-3\n",
		"sys/devices/system/node/online":                          "0-1\n",
		"sys/devices/system/node/node1/cpulist":                   "2-3,6-7\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":   "1024\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "1000\n",
		"proc/meminfo":                        "MemTotal: 8000000 kB\nMemAvailable: 4000000 kB\n",
		"sys/kernel/iommu_groups/7/type":      "DMA\n",
		"sys/bus/pci/drivers/vfio-pci/new_id": "",
		"dev/vfio/7":                          "",
		"dev/net/tun":                         "",
		"run/rnicd/x":                         "",
		nic + "class":                         "0x020000\n",
		nic + "numa_node":                     "1\n",
		nic +
			"driver": "->../../../../bus/pci/drivers/vfio-pci",
		nic + "iommu_group": "->../../../kernel/iommu_groups/7",
	}
}

func plant(t *testing.T, files map[string]string) string {
	root := t.TempDir()
	for path, text := range files {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if to, link := strings.CutPrefix(text, "->"); link {
			require.NoError(t, os.Symlink(to, path))
			continue
		}
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return root
}

// wanted is a configuration with a NIC, a TAP and memory.
func wanted(t *testing.T) *config.Config {
	drivers := port.Builtin()
	dpdk := must(drivers.ByName("dpdk"))(t)
	dpdk.Check = nil // whether it is built in is not this machine's matter
	c, err := config.Parse("rnicd.toml", []byte(`
[[port]]
name = "nic"
driver = "dpdk"
pci = "0000:01:00.0"
addresses = ["10.8.0.1/24"]
cores = "2-3"
[[port]]
name = "rnic0"
addresses = ["10.9.0.1/24"]
[[service]]
name = "scratch"
type = "region"
size = "1GiB"
`), drivers.With(dpdk))
	require.NoError(t, err)
	return c
}

// Each thing that a machine lacks is found, with the command that fixes it; and nothing else.
func TestFindings(t *testing.T) {
	const nic = "sys/bus/pci/devices/0000:01:00.0/"
	caps := func(mask string) string { return "CapEff:\t" + mask + "\nCpus_allowed_list:\t0-7\n" }
	for _, tc := range []struct {
		name   string
		change map[string]string // empty: the file is not there
		want   string            // verdict, check and some words; empty: all is well
		fix    string
	}{
		{"nothing", nil, "", ""},
		{"no SSE4.2", map[string]string{"proc/cpuinfo": "flags : fpu\n"},
			"warn cpu no SSE4.2 and PCLMULQDQ", ""},
		{"an ARM", map[string]string{"proc/cpuinfo": "Features : fp crc32 aes\n"}, "", ""},
		{"a CPU that is not there", map[string]string{"sys/devices/system/cpu/online": "0-2\n"},
			"lack cores CPUs 3 of cores are not there", ""},
		{"a CPU that is not ours",
			map[string]string{"proc/self/status": "CapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-2\n"},
			"lack cores CPUs 3 of cores are not ours to use", "taskset -p -c 0-7 $$"},
		{"no isolation", map[string]string{"sys/devices/system/cpu/isolated": "\n"},
			"warn isolation CPUs 2,3 of cores are not isolated", "add isolcpus=2,3 nohz_full=2,3"},
		{"a core far away", map[string]string{"sys/devices/system/node/node1/cpulist": "2,6-7\n"},
			"warn numa port nic: CPUs 3 are not on node 1 of 0000:01:00.0", ""},
		{"no hugepages", map[string]string{
			"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":   "24\n",
			"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "0\n",
		}, "warn hugepages 552 pages of 2 MiB wanted, 0 of 24 are free", "hugepages/setup.sh 576"},
		{"promised hugepages",
			map[string]string{"sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages": "600\n"},
			"warn hugepages 552 pages of 2 MiB wanted, 400 of 1024 are free", "hugepages/setup.sh 1176"},
		{"a pod", map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/hugetlb.2MB.max": "0\n",
			"sys/fs/cgroup/hugetlb.2MB.current": "0\n",
		}, "warn hugepages 552 pages of 2 MiB wanted, the control group allows 0",
			"raise /sys/fs/cgroup/hugetlb.2MB.max"},
		{"no 2 MiB", map[string]string{"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": ""},
			"warn hugepages the kernel has no pages of 2 MiB", ""},
		{"memlock", map[string]string{"proc/self/status": caps("0000000000001000")},
			"lack memlock 8388608 octets may be locked", "ulimit -l unlimited"},
		{"no tun", map[string]string{"dev/net/tun": ""}, "lack tap no /dev/net/tun", "modprobe tun"},
		{"no CAP_NET_ADMIN", map[string]string{"proc/self/status": caps("0000000000004000")},
			"lack permissions no CAP_NET_ADMIN", "setcap cap_net_admin,cap_ipc_lock+ep $(command -v rnicd)"},
		{"no IOMMU", map[string]string{"sys/kernel/iommu_groups/7/type": ""}, "warn iommu no IOMMU",
			"add intel_iommu=on iommu=pt"},
		{"no vfio", map[string]string{"sys/bus/pci/drivers/vfio-pci/new_id": ""},
			"lack vfio vfio-pci is not loaded", "modprobe vfio-pci"},
		{"no group", map[string]string{"dev/vfio/7": ""}, "lack vfio no /dev/vfio/7", "udevadm trigger"},
		{"the kernel's NIC", map[string]string{nic + "driver": "->../../ixgbe"},
			"lack driver 0000:01:00.0 has ixgbe", "dpdk-devbind.py -b vfio-pci 0000:01:00.0"},
		{"a NIC without a driver", map[string]string{nic + "driver": ""},
			"lack driver 0000:01:00.0 has no driver", "dpdk-devbind.py"},
		{"mlx5", map[string]string{nic + "driver": "->../../mlx5_core"}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files := good()
			for path, text := range tc.change {
				if delete(files, path); text != "" {
					files[path] = text
				}
			}
			m := Machine{Root: plant(t, files), Config: wanted(t)}
			var bad []Finding
			for _, f := range m.Examine() {
				if f.Verdict != OK {
					bad = append(bad, f)
				}
			}
			if tc.want == "" {
				require.Empty(t, bad)
				return
			}
			require.Len(t, bad, 1)
			require.True(
				t, strings.HasPrefix(fmt.Sprintf("%s %s %s", bad[0].Verdict, bad[0].Check, bad[0].Text),
					tc.want), "%+v", bad[0])
			require.True(t, strings.HasPrefix(bad[0].Fix, tc.fix), "%+v", bad[0])
		})
	}
}

// The pages wanted are those of docs/guides/bare-metal.md: 11 for a queue, 13 with DPDK and 8 for
// its EAL, 7 or 8.5 for each further queue, and the size of regions and files.
func TestPagesWanted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, make([]byte, 3<<20), 0o600))
	drivers := port.Builtin()
	dpdk := must(drivers.ByName("dpdk"))(t)
	dpdk.Check = nil
	const tap = "[[port]]\nname = \"one\"\naddresses = [\"10.9.0.1/24\"]\n"
	const nic = tap + "driver = \"dpdk\"\npci = \"0000:01:00.0\"\n"
	for text, want := range map[string]int64{
		tap:                         11,
		tap + "queues = 2\n":        18,
		tap + "page = \"normal\"\n": 0,
		tap + "page = \"1G\"\n":     0,
		nic:                         13 + 8,
		nic + "queues = 2\n":        21 + 8,
		"[[port]]\nname = \"k\"\ndriver = \"kernel\"\n": 0,
		tap +
			"[[service]]\nname = \"r\"\ntype = \"region\"\nsize = \"5MiB\"\n": 11 + 3,
		tap + "[[service]]\nname = \"r\"\ntype = \"region\"\nsize = \"5MiB\"\npage = \"normal\"\n": 11,
		tap + fmt.Sprintf("[[service]]\nname = \"f\"\ntype = \"file\"\nlisten = 1\npath = %q\n",
			file): 11 + 2,
	} {
		c, err := config.Parse("rnicd.toml", []byte(text), drivers.With(dpdk))
		require.NoError(t, err, text)
		require.Equal(t, want, wantedPages(demands(c), hugepages.Page2MiB), text)
	}
}

// What fits neither into hugepages nor into the memory that the machine, or the control group,
// has is a lack; pages of 1 GiB are looked for where they are asked for.
func TestMemory(t *testing.T) {
	const tap = "[[port]]\nname = \"one\"\naddresses = [\"10.9.0.1/24\"]\n"
	region := func(size, page string) string {
		return tap + fmt.Sprintf("[[service]]\nname = \"r\"\ntype = \"region\"\nsize = %q\npage = %q\n",
			size, page)
	}
	group := map[string]string{
		"proc/self/cgroup": "4:memory:/box\n0::/\n",
		"sys/fs/cgroup/memory/box/memory.limit_in_bytes": "1073741824\n",
		"sys/fs/cgroup/memory/box/memory.usage_in_bytes": "1073741000\n",
	}
	for name, tc := range map[string]struct {
		text   string
		change map[string]string
		want   []string
	}{
		"fits": {region("1GiB", "auto"), nil, nil},
		"more than the machine": {region("900GiB", "auto"), nil,
			[]string{"warn hugepages", "lack memory 921600 MiB wanted on normal pages, 3784 MiB available"}},
		"hugepages that are held": {region("3GiB", "auto"), nil, []string{"warn hugepages"}},
		"a small control group": {region("1GiB", "normal"), group,
			[]string{"lack memory 1024 MiB wanted on normal pages, 0 MiB available"}},
		"1 GiB": {region("1GiB", "1G"), nil,
			[]string{"warn hugepages the kernel has no pages of 1 GiB"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := good()
			for path, text := range tc.change {
				files[path] = text
			}
			c := must(config.Parse("rnicd.toml", []byte(tc.text), port.Builtin()))(t)
			m := Machine{Root: plant(t, files), Config: c}
			var bad []string
			for _, f := range append(m.hugepages(), m.memory()...) {
				if f.Verdict != OK {
					check := "memory"
					if strings.Contains(f.Text, "pages of") {
						check = "hugepages"
					}
					bad = append(bad, fmt.Sprintf("%s %s %s", f.Verdict, check, f.Text))
				}
			}
			require.Len(t, bad, len(tc.want), "%v", bad)
			for i, want := range tc.want {
				require.True(t, strings.HasPrefix(bad[i], want), bad[i])
			}
		})
	}
}

// Without a configuration nothing is a lack: there is always something that runs. A NIC that is not
// there is one.
func TestNeeds(t *testing.T) {
	empty := Machine{Root: t.TempDir()}
	for _, f := range empty.Examine() {
		require.NotEqual(t, Lack, f.Verdict, "%+v", f)
	}
	files := good()
	for path := range files {
		if strings.HasPrefix(path, "sys/bus/pci/devices/") {
			delete(files, path)
		}
	}
	gone := Machine{Root: plant(t, files), Config: wanted(t)}
	all := gone.Examine()
	require.Equal(t, Finding{"driver", Lack, "0000:01:00.0 is not there", "lspci -D -d ::0200"},
		all[len(all)-1])
	var line bytes.Buffer
	require.NoError(t, WriteJSON(&line, all[len(all)-1:]))
	require.JSONEq(
		t,
		`{"check": "driver", "verdict": "lack", "text": "0000:01:00.0 is not there", "fix": "lspci -D -d ::0200"}`, line.String())
}

// This machine can be examined; every check says something, in both forms.
func TestThisMachine(t *testing.T) {
	m := Machine{Root: "/"}
	all := m.Examine()
	seen := map[string]bool{}
	for _, f := range all {
		require.NotEmpty(t, f.Text)
		seen[f.Check] = true
	}
	require.Len(t, seen, len(checks))
	var text, lines bytes.Buffer
	Write(&text, all)
	require.NoError(t, WriteJSON(&lines, all))
	dec := json.NewDecoder(&lines)
	for _, want := range all {
		var f Finding
		require.NoError(t, dec.Decode(&f))
		require.Equal(t, want, f)
		require.Contains(t, text.String(), f.Text)
	}
}

// With a configuration only what concerns it is examined.
func TestConcerns(t *testing.T) {
	always := []string{"cpu", "cores", "quota", "hugepages", "memory", "memlock", "places"}
	dpdk := must(port.Builtin().ByName("dpdk"))(t)
	dpdk.Check = nil // whether it is built in is not this machine's matter
	drivers := port.Builtin().With(dpdk)
	const tail = "\naddresses = [\"10.9.0.1/24\"]\n"
	for text, more := range map[string][]string{
		"driver = \"kernel\"\n":                                         nil,
		"driver = \"memif\"\nsocket = \"@none\"" + tail:                 nil,
		"driver = \"tap\"" + tail:                                       {"permissions", "tap"},
		"driver = \"dpdk\"" + tail:                                      {"permissions", "tap"},
		"driver = \"dpdk\"\ndevice = \"net_tap3,iface=x\"" + tail:       {"permissions", "tap"},
		"driver = \"dpdk\"\ndevice = \"net_null0\"" + tail:              nil,
		"driver = \"dpdk\"\ndevice = \"net_af_packet0,iface=x\"" + tail: {"checksums"},
		"driver = \"dpdk\"\npci = \"0000:01:00.0\"" + tail: {"driver", "iommu",
			"numa", "vfio"},
		"driver = \"tap\"\ncores = \"2\"" + tail: {"isolation", "permissions", "tap"},
	} {
		c, err := config.Parse("rnicd.toml", []byte("[control]\nsocket = \"off\"\n[[port]]\n"+
			"name = \"p\"\n"+text), drivers)
		require.NoError(t, err, text)
		m := Machine{Root: plant(t, good()), Config: c}
		made := map[string]bool{}
		for _, f := range m.Examine() {
			made[f.Check] = true
		}
		require.ElementsMatch(t, append(more, always...), slices.Collect(maps.Keys(made)), text)
	}
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}
