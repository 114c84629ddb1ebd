package doctor

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/daemon/config"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

const (
	ealOctets   = 16 << 20  // the most that DPDK's EAL takes of hugepages for itself
	noHuge      = 256 << 20 // and of normal pages, if it can have no hugepages
	defaultMost = 128 << 20 // octets that are asked for without a configuration
)

// demand is one mapping that a daemon makes: on pages of the first of sizes of which it can have
// enough, or else on normal pages.
type demand struct {
	octets int64
	sizes  []hugepages.PageSize
	normal int64 // octets that it takes of normal pages instead
}

func demandOf(octets int64, page string) demand {
	d := demand{octets: octets, normal: octets}
	switch page {
	case "normal":
	case "1G":
		d.sizes = []hugepages.PageSize{hugepages.Page1GiB, hugepages.Page2MiB}
	default:
		d.sizes = []hugepages.PageSize{hugepages.Page2MiB}
	}
	return d
}

// demands are all mappings of a daemon with this configuration.
func demands(c *config.Config) (all []demand) {
	eal := false
	for i := range c.Ports {
		p := &c.Ports[i]
		eal = eal || p.Driver == "dpdk"
		for _, octets := range p.Open.Arenas() {
			all = append(all, demandOf(octets, p.Page))
		}
	}
	for i := range c.Services {
		s := &c.Services[i]
		switch s.Type {
		case config.Region:
			all = append(all, demandOf(int64(s.Size), s.Page))
		case config.File:
			if st, err := os.Stat(s.Path); err == nil { // the configuration was refused without it
				all = append(all, demandOf(st.Size(), s.Page))
			}
		}
	}
	if eal {
		all = append(all, demand{ealOctets, []hugepages.PageSize{hugepages.Page2MiB}, noHuge})
	}
	return all
}

func (m *Machine) demands() []demand {
	if m.Config == nil {
		return []demand{demandOf(defaultMost, "auto")}
	}
	return demands(m.Config)
}

func pagesOf(octets int64, page hugepages.PageSize) int64 {
	pages := octets / int64(page)
	if octets%int64(page) != 0 {
		pages++
	}
	return pages
}

// wantedPages is how many pages of a size are asked for first.
func wantedPages(all []demand, page hugepages.PageSize) (pages int64) {
	for _, d := range all {
		if len(d.sizes) > 0 && d.sizes[0] == page {
			pages += pagesOf(d.octets, page)
		}
	}
	return pages
}

// hugepages: memory on normal pages works, with a TLB miss for every other access.
func (m *Machine) hugepages() (found []Finding) {
	all := m.demands()
	for _, page := range []hugepages.PageSize{hugepages.Page2MiB, hugepages.Page1GiB} {
		wanted := wantedPages(all, page)
		if wanted == 0 && page == hugepages.Page1GiB {
			continue
		}
		flag := ""
		if page == hugepages.Page1GiB {
			flag = " --size 1G"
		}
		r := hugepages.RoomAt(m.Root, page, hugepages.AnyNode)
		free, total := r.Pool.Available(), r.Pool.Total
		switch {
		case r.Pool.Page == 0:
			found = append(found, warn("", "the kernel has no pages of %v", page)...)
		case r.Group < wanted && r.Group <= free:
			found = append(found, warn("raise "+r.Limit, "%d pages of %v wanted, the control group allows "+
				"%d: memory lies on smaller pages", wanted, page, r.Group)...)
		case free < wanted:
			found = append(found, warn(fmt.Sprintf("hugepages/setup.sh %d%s", total-free+wanted, flag),
				"%d pages of %v wanted, %d of %d are free: memory lies on smaller pages", wanted, page,
				free, total)...)
		default:
			found = append(found, ok("%d of %d pages of %v are free, %d wanted", free, total,
				page, wanted)...)
		}
	}
	return found
}

// memory: what does not fit into hugepages has to fit into the rest, or the daemon does not start.
func (m *Machine) memory() []Finding {
	left := map[hugepages.PageSize]int64{}
	for _, page := range []hugepages.PageSize{hugepages.Page2MiB, hugepages.Page1GiB} {
		left[page] = hugepages.RoomAt(m.Root, page, hugepages.AnyNode).Pages()
	}
	wanted := int64(0)
	for _, d := range m.demands() {
		onNormal := true
		for _, page := range d.sizes {
			if n := pagesOf(d.octets, page); onNormal && n <= left[page] {
				left[page] -= n
				onNormal = false
			}
		}
		if onNormal {
			wanted = addBounded(wanted, d.normal)
		}
	}
	available, kept, err := hugepages.MemoryAt(m.Root)
	room := max(available-kept, 0)
	switch {
	case err != nil:
		return warn("", "how much memory there is cannot be found out: %v", err)
	case wanted > room:
		return lack(m.Config != nil,
			"less in the configuration, or more memory for this machine or control group",
			"%d MiB wanted on normal pages, %d MiB available", wanted>>20, room>>20)
	}
	return ok("%d MiB wanted on normal pages, %d MiB available", wanted>>20, room>>20)
}

func addBounded(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

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
		return lack(len(m.nics()) > 0, "ulimit -l unlimited (systemd: LimitMEMLOCK=infinity)",
			"%s octets may be locked: memory is not locked, nor are regions of memif clients, and vfio "+
				"cannot map it", f[0])
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
	return lack(m.hasTAP(), "setcap cap_net_admin,cap_ipc_lock+ep $(command -v rnicd)",
		"no CAP_NET_ADMIN: no TAP can be made; the driver kernel and memif need none")
}

// tap: the device that TAPs are made of.
func (m *Machine) tap() []Finding {
	if m.exists("dev/net/tun") {
		return ok("/dev/net/tun")
	}
	return lack(m.hasTAP(), "modprobe tun", "no /dev/net/tun: no TAP can be made")
}
