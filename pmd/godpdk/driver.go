package godpdk

import (
	"fmt"
	"strings"

	"github.com/rnicd/rnicd/pmd"
)

// Driver is for pmd.Register: --pmd godpdk --dev net_tap0,iface=rnic0. The device becomes the
// EAL's --vdev if its arguments name none, a NIC by its address -a.
var Driver = pmd.Driver{Name: "godpdk", Open: func(c pmd.DriverConfig) (pmd.Port, error) {
	if c.MAC != ([6]byte{}) {
		return nil, fmt.Errorf("godpdk: --mac: go-dpdk cannot set it; give a vdev its own, as " +
			"net_tap0,mac=...")
	}
	name, _, _ := strings.Cut(c.Device, ",")
	args := c.Args
	if !strings.Contains(strings.Join(args, " "), name) {
		option := "--vdev=" + c.Device
		if !strings.HasPrefix(name, "net_") {
			option = "-a" + c.Device
		}
		args = append(args, option)
	}
	p, err := Open(Config{EAL: args, Device: name, MTU: c.MTU, Queues: c.Queues})
	if err != nil {
		return nil, err
	}
	return p, nil
}}
