package doctor

import (
	"slices"
	"strings"

	"github.com/rnicd/rnicd/internal/cgroup"
)

// cpu: CRC32C is computed by instructions, or by tables at a fraction of the speed.
func (m *Machine) cpu() []Finding {
	var flags []string
	for line := range strings.Lines(m.read("proc/cpuinfo")) {
		if k, v, found := strings.Cut(line, ":"); found &&
			(strings.TrimSpace(k) == "flags" || strings.TrimSpace(k) == "Features") {
			flags = strings.Fields(v)
			break
		}
	}
	switch {
	case flags == nil:
		return warn("", "/proc/cpuinfo names no features")
	case slices.Contains(flags, "crc32"): // arm64
		return ok("CRC32 instructions")
	case !slices.Contains(flags, "sse4_2") || !slices.Contains(flags, "pclmulqdq"):
		return warn("", "no SSE4.2 and PCLMULQDQ: CRC32C is computed by tables, which costs a core "+
			"most of its goodput")
	case !slices.Contains(flags, "avx512f") || !slices.Contains(flags, "vpclmulqdq"):
		return ok("SSE4.2, PCLMULQDQ; no AVX-512 VPCLMULQDQ, which would compute CRC32C faster")
	}
	return ok("SSE4.2, PCLMULQDQ, AVX-512 with VPCLMULQDQ")
}

// cores: those of the configuration are there, and ours to use.
func (m *Machine) cores() (all []Finding) {
	online, allowed := list(m.read("sys/devices/system/cpu/online")),
		list(m.status("Cpus_allowed_list"))
	wanted := m.wantedCores()
	if off := missing(wanted, online); len(off) > 0 {
		return lack(true, "", "CPUs %s of cores are not there, or not online: there are %s",
			strings.Join(off, ", "), m.read("sys/devices/system/cpu/online"))
	}
	if not := missing(wanted, allowed); len(not) > 0 {
		return lack(true, "taskset -p -c "+m.read("sys/devices/system/cpu/online")+" $$",
			"CPUs %s of cores are not ours to use: this process may use %s",
			strings.Join(not, ", "), m.status("Cpus_allowed_list"))
	}
	if len(online) < 2 {
		return warn("", "one CPU: a Poller has nothing left for others")
	}
	return ok("%d CPUs, %d of them ours to use", len(online), len(allowed))
}

// quota: a Poller that spins uses all of its core. When the control group has used its quota, all
// threads stop for the rest of the period.
func (m *Machine) quota() []Finding {
	q := cgroup.CPUQuota(m.Root)
	if q.CPUs == 0 {
		return ok("no quota of CPUs")
	}
	spinning := 0
	if m.Config != nil {
		for i := range m.Config.Ports {
			if o := &m.Config.Ports[i].Open; !o.Driver.Sockets &&
				(m.Config.Ports[i].Idle == "spin" || m.Config.Ports[i].Idle == "pause") {
				spinning += o.QueueCount()
			}
		}
	}
	if float64(spinning) >= q.CPUs {
		return warn("raise "+q.Limit+", or idle = \"adaptive\"",
			"%d Pollers spin, and the control group allows %.2f CPUs: all stop for the rest of each period",
			spinning, q.CPUs)
	}
	return ok("%.2f CPUs by the control group, %d Pollers spin", q.CPUs, spinning)
}

// isolation: where the scheduler puts others on a Poller's core, every frame waits for them.
func (m *Machine) isolation() []Finding {
	isolated := list(m.read("sys/devices/system/cpu/isolated"))
	if wanted := m.wantedCores(); len(wanted) > 0 {
		if not := missing(wanted, isolated); len(not) > 0 {
			cpus := strings.Join(not, ",")
			return warn("add isolcpus="+cpus+" nohz_full="+cpus+
				" to the kernel's command line (GRUB_CMDLINE_LINUX in /etc/default/grub), "+
				"update-grub, and boot",
				"CPUs %s of cores are not isolated: the scheduler puts others there", cpus)
		}
		return ok("all CPUs of cores are isolated")
	}
	if len(isolated) == 0 {
		return warn("add isolcpus=N nohz_full=N to the kernel's command line (GRUB_CMDLINE_LINUX in "+
			"/etc/default/grub), update-grub, and boot",
			"no CPU is isolated: the scheduler puts others on a Poller's")
	}
	return ok("CPUs %s are isolated", m.read("sys/devices/system/cpu/isolated"))
}

// numa: memory and CPUs on the device's node.
func (m *Machine) numa() (all []Finding) {
	nodes := list(m.read("sys/devices/system/node/online"))
	if len(nodes) < 2 {
		return ok("one node")
	}
	for _, nic := range m.nics() {
		node, known := m.number("sys/bus/pci/devices/" + nic + "/numa_node")
		if !known || node < 0 {
			continue
		}
		near := m.read("sys/devices/system/node/node" + itoa(node) + "/cpulist")
		for _, p := range m.Config.Ports {
			if p.PCI != nic {
				continue
			}
			if far := missing(p.Open.Cores, list(near)); len(far) > 0 {
				all = append(all, warn("", "port %s: CPUs %s are not on node %d of %s; those are %s", p.Name,
					strings.Join(far, ", "), node, nic, near)...)
			}
			if p.Node >= 0 && int64(p.Node) != node {
				all = append(all, warn("", "port %s: numa_node is %d, %s is on node %d", p.Name, p.Node,
					nic, node)...)
			}
		}
	}
	if len(all) == 0 {
		return ok("%d nodes", len(nodes))
	}
	return all
}
