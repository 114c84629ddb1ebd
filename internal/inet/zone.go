package inet

import (
	"net"
	"strconv"
)

// ZoneIndex is the number of the network interface of this host that an IPv6 zone names, or is (RFC
// 4007 section 11); 0: there is none, or it is unknown. It may ask the kernel.
func ZoneIndex(zone string) uint32 {
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n)
	}
	if zone == "" {
		return 0
	}
	ifi, err := net.InterfaceByName(zone)
	if err != nil {
		return 0
	}
	return uint32(ifi.Index)
}
