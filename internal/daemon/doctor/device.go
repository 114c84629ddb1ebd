package doctor

import (
	"os"
	"path/filepath"
	"strings"
)

// iommu: with it vfio confines a NIC to our memory.
func (m *Machine) iommu() []Finding {
	if n := len(m.glob("sys/kernel/iommu_groups/*")); n > 0 {
		return ok("%d groups", n)
	}
	return warn("add intel_iommu=on iommu=pt (AMD: iommu=pt) to the kernel's command line, "+
		"update-grub, and boot; or echo 1 >/sys/module/vfio/parameters/enable_unsafe_noiommu_mode",
		"no IOMMU: vfio hands out no NIC, or unconfined")
}

// vfio: the driver through which DPDK reaches most NICs.
func (m *Machine) vfio() []Finding {
	needed := len(m.nics()) > 0
	if !m.exists("sys/bus/pci/drivers/vfio-pci") {
		return lack(needed, "modprobe vfio-pci",
			"vfio-pci is not loaded: DPDK reaches only NICs whose kernel driver shares them (mlx5)")
	}
	for _, nic := range m.nics() {
		group := filepath.Base(m.link("sys/bus/pci/devices/" + nic + "/iommu_group"))
		if group != "." && m.driverOf(nic) == "vfio-pci" && !m.exists("dev/vfio/"+group) {
			return lack(true, "udevadm trigger --subsystem-match=vfio", "no /dev/vfio/%s for %s", group, nic)
		}
	}
	return ok("vfio-pci is loaded")
}

func (m *Machine) link(path string) string {
	to, err := os.Readlink(filepath.Join(m.Root, path))
	if err != nil {
		return ""
	}
	return to
}

// driverOf is the kernel's driver of a PCI device; empty: none.
func (m *Machine) driverOf(nic string) string {
	to := m.link("sys/bus/pci/devices/" + nic + "/driver")
	if to == "" {
		return ""
	}
	return filepath.Base(to)
}

// ours are the drivers with which DPDK reaches a NIC.
var ours = map[string]bool{"vfio-pci": true, "uio_pci_generic": true, "igb_uio": true,
	"mlx5_core": true, "mlx4_core": true, "mana": true}

// driver: NICs that are the kernel's cannot be ours.
func (m *Machine) driver() (all []Finding) {
	wanted := m.nics()
	for _, nic := range wanted {
		switch d := m.driverOf(nic); {
		case !m.exists("sys/bus/pci/devices/" + nic):
			all = append(all, lack(true, "lspci -D -d ::0200", "%s is not there", nic)...)
		case !ours[d]:
			if d == "" {
				d = "no driver"
			}
			all = append(
				all, lack(true, "dpdk-devbind.py -b vfio-pci "+nic, "%s has %s: DPDK cannot reach it", nic,
					d)...)
		default:
			all = append(all, ok("%s has %s", nic, d)...)
		}
	}
	if len(wanted) > 0 {
		return all
	}
	var found []string
	for _, path := range m.glob("sys/bus/pci/devices/*") {
		if strings.HasPrefix(m.read(path+"/class"), "0x0200") {
			nic := filepath.Base(path)
			found = append(found, nic+" ("+m.driverOf(nic)+")")
		}
	}
	if len(found) == 0 {
		return warn("", "no Ethernet device on PCI: only a TAP, memif, virtual devices of DPDK and the "+
			"kernel's sockets")
	}
	return ok("Ethernet on PCI: %s", strings.Join(found, ", "))
}
