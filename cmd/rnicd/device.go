package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/pmd/dpdk"
)

// checkDevice refuses a device that cannot be, before anything is made, and says all that is wrong
// with it.
func (o *nicOptions) checkDevice() error {
	if o.pmd != "kernel" {
		return o.checkFlags()
	}
	_, err := o.kernelAddr()
	return errors.Join(o.checkFlags(), err)
}

// checkFlags is checkDevice without the address of the kernel.
func (o *nicOptions) checkFlags() error {
	var errs []error
	wrong := func(err error) { errs = append(errs, err) }
	known := o.checkDriver()
	wrong(known)
	var useless []string
	if known == nil {
		useless = o.useless()
	}
	if len(useless) > 0 {
		wrong(fmt.Errorf("--pmd %s has no use for %s: leave it out", o.pmd, strings.Join(useless, ", ")))
	}
	switch o.pmd {
	case "kernel":
		if o.capture != "" {
			wrong(fmt.Errorf("--capture: %s", port.KernelCapture(o.capture)))
		}
		return errors.Join(errs...)
	case "memif":
		wrong(o.memif.check())
	}
	if o.queues < 1 || o.queues > queuesMax {
		wrong(fmt.Errorf("--queues %d: want 1 to %d", o.queues, queuesMax))
	}
	wrong(o.checkCores())
	switch {
	case o.hostAddr == "", known != nil, slices.Contains(useless, "--host-addr"):
	case o.pmd != "tap":
		wrong(fmt.Errorf("--host-addr %s: only --pmd tap sets the kernel's side up; give it its "+
			"address with ip addr", o.hostAddr))
	default:
		wrong(o.checkHostAddr())
	}
	wrong(o.check())
	return errors.Join(errs...)
}

// checkDriver refuses a driver that cannot be.
func (o *nicOptions) checkDriver() error {
	switch o.pmd {
	case "tap", "kernel", "memif":
	case "dpdk":
		if !dpdk.Built {
			return dpdk.Init(nil) // says what to do
		}
	default:
		if _, err := port.All().ByName(o.pmd); err != nil {
			return fmt.Errorf("--pmd %q: %w", o.pmd, err)
		}
	}
	return nil
}

// useless are the flags given that would change nothing: the user that gave one believes that it
// does. Over the kernel's TCP octets come in order and are acknowledged before we see them, so that
// there is no use for markers, and no segment to drop.
func (o *nicOptions) useless() []string {
	switch {
	case o.pmd == "kernel" && o.congestionOurs:
		return o.given(append([]string{"congestion"}, deviceFlags...)...)
	case o.pmd == "kernel":
		return o.given(deviceFlags...)
	case o.pmd == "tap":
		return o.given("pci", "eal", "socket", "id", "role", "secret", "flow-control", "promiscuous")
	case o.pmd == "dpdk":
		return o.given("socket", "id", "role", "secret")
	case o.pmd != "memif": // one that was registered
		return o.given("pci", "socket", "id", "role", "secret", "host-addr", "flow-control",
			"promiscuous")
	default:
		return o.given("dev", "pci", "eal", "host-addr", "no-offload", "flow-control", "promiscuous")
	}
}

// describe says where we are: the device under the name that the kernel knows it by, and name, the
// driver's, where that differs.
func (o *nicOptions) describe(name string) string {
	if o.pmd == "dpdk" && o.pci == "" && !strings.HasPrefix(o.dev, "net_") {
		name = fmt.Sprintf("%s (%s)", o.dev, name)
	}
	vlan := ""
	if o.vlan != 0 {
		vlan = fmt.Sprintf("VLAN %d, ", o.vlan)
	}
	return fmt.Sprintf("%s, MTU %d, %sour address %s", name, o.mtu, vlan, strings.Join(o.addrs, ", "))
}
