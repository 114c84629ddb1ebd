package doctor

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/rnicd/rnicd/daemon/config"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

const (
	pageKiB     = 2048
	ealPages    = 8  // the most that DPDK's EAL takes for itself
	defaultMost = 64 // pages that are asked for without a configuration
)

// hugepages: memory on normal pages works, with a TLB miss for every other access.
func (m *Machine) hugepages() []Finding {
	const pool = "sys/kernel/mm/hugepages/hugepages-2048kB/"
	total, known := m.number(pool + "nr_hugepages")
	free, _ := m.number(pool + "free_hugepages")
	if !known {
		return warn("", "the kernel has no pages of 2 MiB")
	}
	wanted := int64(defaultMost)
	if m.Config != nil {
		wanted = wantedPages(m.Config)
	}
	if free < wanted {
		return warn(fmt.Sprintf("hugepages/setup.sh %d", total-free+wanted), "%d pages of 2 MiB wanted, %d of %d are free: memory lies on normal pages", wanted, free, total)
	}
	return ok("%d of %d pages of 2 MiB are free, %d wanted", free, total, wanted)
}

// wantedPages is the number of pages of 2 MiB that a daemon with this configuration maps.
func wantedPages(c *config.Config) (pages int64) {
	small := func(page string) bool { return page != "normal" && page != "1G" }
	eal := int64(0)
	for i := range c.Ports {
		p := &c.Ports[i]
		if p.Driver == "dpdk" {
			eal = ealPages
		}
		if small(p.Page) {
			for _, octets := range p.Open.Arenas() {
				pages += pagesOf(octets)
			}
		}
	}
	for i := range c.Services {
		s := &c.Services[i]
		switch {
		case !small(s.Page):
		case s.Type == config.Region:
			pages += pagesOf(int64(s.Size))
		case s.Type == config.File:
			if st, err := os.Stat(s.Path); err == nil { // the configuration was refused without it
				pages += pagesOf(st.Size())
			}
		}
	}
	return pages + eal
}

func pagesOf(octets int64) int64 { return (octets + pageKiB<<10 - 1) / (pageKiB << 10) }

// memlock bounds what may be locked, as vfio does with all memory that a NIC reaches.
func (m *Machine) memlock() []Finding {
	for line := range strings.Lines(m.read("proc/self/limits")) {
		rest, found := strings.CutPrefix(line, "Max locked memory")
		f := strings.Fields(rest)
		if !found || len(f) < 1 {
			continue
		}
		if f[0] == "unlimited" || m.capable(capIPCLock) {
			return ok("no limit")
		}
		return lack(len(m.nics()) > 0, "ulimit -l unlimited (systemd: LimitMEMLOCK=infinity)", "%s octets may be locked: memory is not locked, and vfio cannot map it", f[0])
	}
	return warn("", "/proc/self/limits does not say how much may be locked")
}

// Capabilities (capability(7)).
const (
	capNetAdmin = 12
	capIPCLock  = 14
)

func (m *Machine) capable(bit int) bool {
	mask, err := strconv.ParseUint(m.status("CapEff"), 16, 64)
	return err == nil && mask>>bit&1 == 1
}

// permissions that opening a TAP takes.
func (m *Machine) permissions() []Finding {
	if m.capable(capNetAdmin) {
		return ok("CAP_NET_ADMIN")
	}
	return lack(m.uses("tap"), "setcap cap_net_admin,cap_ipc_lock+ep $(command -v rnicd)", "no CAP_NET_ADMIN: no TAP can be made; the driver kernel and memif need none")
}

// tap: the device that TAPs are made of.
func (m *Machine) tap() []Finding {
	if m.exists("dev/net/tun") {
		return ok("/dev/net/tun")
	}
	return lack(m.uses("tap"), "modprobe tun", "no /dev/net/tun: no TAP can be made")
}
